"""What waits for its time in queues and for delayed exchanges, wherever their shards are: listed, cancelled,
rescheduled (RULES S4).

Listing reads a replica, which may be a moment behind. What changes something is done as an AMQP client does it, by a
publish that the shard's log decides about (`node.operating.acting`).
"""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from pamqp import commands

from mayfly.node.amqp import errors
from mayfly.node.amqp.methods import unchecked
from mayfly.node.catalog import QueueRecord, Refusal
from mayfly.node.catalog.permissions import check_access
from mayfly.node.catalog.shard_settings import allows_schedules
from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.acting import Acting, AmqpRefusal
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request, in_doubt, no_such, refused
from mayfly.node.operating.ports.schedules import ScheduledWish, WaitingPlace
from mayfly.node.operating.shard_sources import ShardSources, unknown_text
from mayfly.node.operating.views.json_tables import content_header
from mayfly.node.operating.views.scheduled_messages import ScheduledPart, place_in, scheduled_in


class _Scheduled(msgspec.Struct, tag="ScheduledMessages"):
    """`scheduled_in`, of a queue by shard."""

    queues: dict[int, int]
    wish: ScheduledWish


class Schedules:
    """Implements `SchedulePort`."""

    def __init__(
        self, engine: Engine, sources: ShardSources, questions: NodeQuestions, acting: Acting, now_ms: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._catalog = engine.catalog
        self._sources = sources
        self._acting = acting

        def tell(asked: _Scheduled) -> dict[int, ScheduledPart]:
            found = {
                shard: scheduled_in(engine, shard, queue, asked.wish, now_ms()) for shard, queue in asked.queues.items()
            }
            return {shard: part for shard, part in found.items() if part is not None}

        questions.add(_Scheduled, dict[int, ScheduledPart], tell)

    async def scheduled(self, user: AnyUser, where: WaitingPlace, wish: ScheduledWish) -> Answer:
        """See `SchedulePort.scheduled`."""
        record = self._record(where)
        if not isinstance(record, QueueRecord):
            return record
        refusal = check_access(self._catalog, user, "read", where.kind, where.vhost, where.name)
        if isinstance(refusal, Refusal):
            return refused(refusal.text)
        if wish.after:
            place_in(wish.after)
        told = await self._sources.ask({record.shard: record.id}, partial(_asked, wish))
        part = told.found.get(record.shard)
        if part is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "unavailable", "reason": unknown_text(record.shard)}
        content: dict[str, Any] = {"messages": [row._asdict() for row in part.rows]}
        if part.next:
            content["next"] = part.next
        if part.is_moving:
            content["moving"] = True
        return HTTPStatus.OK, content

    async def change(self, user: AnyUser, where: WaitingPlace, message_id: str, due: tuple[str, int] | None) -> Answer:
        """See `SchedulePort.change`."""
        record = self._record(where)
        if not isinstance(record, QueueRecord):
            return record
        if not allows_schedules(self._catalog, record):
            return bad_request(f"{where} does not allow schedules (x-allow-schedule)")
        headers: dict[str, Any] = {"x-schedule-cancel": message_id}
        if due is not None:
            headers[due[0]] = due[1]
        try:
            return await self._given(user, where, message_id, content_header({"headers": headers}, 0))
        except AmqpRefusal as refusal:
            has_right = refusal.code not in (errors.ACCESS_REFUSED, errors.NOT_ALLOWED)
            return bad_request(refusal.text) if has_right else refused(refusal.text)
        except TimeoutError:
            return in_doubt("its shard did not answer in time; whether it is done shows later")

    def _record(self, where: WaitingPlace) -> QueueRecord | Answer:
        """The queue in which messages wait: that of its own which a delayed exchange has."""
        if where.kind == "queue":
            return self._catalog.queue(where.vhost, where.name) or (HTTPStatus.NOT_FOUND, NOT_FOUND)
        if self._catalog.exchange(where.vhost, where.name) is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        record = self._catalog.delay_queue(where.vhost, where.name)
        return record or bad_request(f"{where} is not of the type x-delayed-message: nothing waits for it")

    async def _given(self, user: AnyUser, where: WaitingPlace, message_id: str, header: bytes) -> Answer:
        exchange, key = ("", where.name) if where.kind == "queue" else (where.name, "")
        publish = unchecked(
            commands.Basic.Publish, ticket=0, exchange=exchange, routing_key=key, mandatory=True, immediate=False
        )
        async with self._acting.client(user, where.vhost) as client:
            await client.ask(unchecked(commands.Confirm.Select, nowait=False), commands.Confirm.SelectOk)
            client.publish(publish, header, b"")
            outcomes = (commands.Basic.Return, commands.Basic.Ack, commands.Basic.Nack)
            received = await client.answer(*outcomes)
        if isinstance(received.method, commands.Basic.Ack):
            return HTTPStatus.NO_CONTENT, {}
        if isinstance(received.method, commands.Basic.Return):
            return no_such(
                f"nothing waits under the id '{message_id}' in {where}: it has become due or was delivered, was "
                "cancelled, or was never there; of what waits no more nothing is kept that would tell which"
            )
        return HTTPStatus.SERVICE_UNAVAILABLE, {
            "error": "unavailable",
            "reason": "not decided: what waits is on its way between shards, its shard has no leader, or more messages "
            "have the id than are cancelled at a time; ask again",
        }


def _asked(wish: ScheduledWish, queues: dict[int, int]) -> _Scheduled:
    return _Scheduled(queues, wish)
