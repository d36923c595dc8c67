"""Redrives, wherever their queues' shards are: previewed, started, changed, followed (RULES R1).

Looking reads a replica that was brought up to date; what changes something is a command of the shard's log.
"""

from collections.abc import Callable, Collection
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mayfly.cluster.versions import LEVEL_REDRIVES
from mayfly.node.catalog import QueueRecord, Refusal
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.permissions import check_access, check_topic, is_limited_to_keys
from mayfly.node.catalog.refusals import read_only
from mayfly.node.catalog.streams import STREAM
from mayfly.node.catalog.token_user import AnyUser, name_of
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.freshness import Freshness
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request, in_doubt, no_such, refused
from mayfly.node.operating.ports.redrives import RedriveWish
from mayfly.node.operating.shard_commands import give_command
from mayfly.node.operating.shard_sources import ShardSources, unknown_text
from mayfly.node.operating.turns import in_turns
from mayfly.node.operating.views.redrive_views import (
    PreviewPart,
    RedrivePlace,
    RedriveRow,
    encoded_terms,
    preview_steps,
    redrives_in,
    shown_terms,
)
from mayfly.node.shard.redrive_commands import (
    CANCEL,
    PAUSE,
    RESUME,
    SET_RATE,
    encode_change_redrive,
    encode_start_redrive,
)
from mayfly.node.shard.results import IN_USE, NO_REDRIVE, Moved, RedriveState, Refused

STEPS_AT_ONCE: Final = 1
"""Steps of a preview before other work gets its turn."""
LOOKS_OF_QUESTION: Final = 10_000
"""Messages that one answer of a node is about: it has two seconds."""

_LATE: Final = "the queue's shard did not answer in time; whether it is done shows later"
_FORMS: Final = {"paused": PAUSE, "running": RESUME}
_ACTIVE: Final = ("running", "paused")


class _Preview(msgspec.Struct, tag="RedrivePreview"):
    """`preview_steps`, of a queue by shard."""

    queues: dict[int, int]
    terms: bytes
    place: RedrivePlace | None
    shown: int


class _Redrives(msgspec.Struct, tag="Redrives"):
    """`redrives_in`: of these queues by shard, None for all."""

    queues: dict[int, list[int] | None]


class Redrives:
    """Implements `RedrivePort`."""

    def __init__(
        self, engine: Engine, sources: ShardSources, questions: NodeQuestions, freshness: Freshness,
        pump: Callable[[], None], now_ms: Callable[[], int],
    ) -> None:
        """`pump` has what was given to the engine go on its way."""
        self._engine = engine
        self._catalog = engine.catalog
        self._sources = sources
        self._freshness = freshness
        self._pump = pump
        self._now_ms = now_ms
        questions.add(_Preview, dict[int, PreviewPart], self._tell_preview)
        questions.add(_Redrives, dict[int, list[RedriveRow]], self._tell_redrives)

    async def progress(self, user: AnyUser, vhost: str, queue: str) -> Answer:
        """See `RedrivePort.progress`."""
        record = self._found(user, vhost, queue)
        if not isinstance(record, QueueRecord):
            return record
        await self._freshness.of_queue(vhost, queue)
        wanted: dict[int, list[int] | None] = {record.shard: [record.id]}
        rows = (await self._sources.ask(wanted, _Redrives)).found.get(record.shard)
        if rows is None:
            return _unknown(record)
        return HTTPStatus.OK, _shown(record, rows[0]) if rows else {**_name(record), "state": "none"}

    async def listed(self, vhosts: Collection[str] | None) -> Answer:
        """See `RedrivePort.listed`."""
        told = await self._sources.ask(dict.fromkeys(self._sources.all(), None), _Redrives)
        found: list[dict[str, Any]] = []
        for rows in told.found.values():
            for row in rows:
                record = self._catalog.queue_by_id(row.queue_id)
                if record is not None and (vhosts is None or record.vhost in vhosts):
                    found.append(_shown(record, row))
        found.sort(key=_active_first)
        return HTTPStatus.OK, {"redrives": found, "unknown_shards": told.unknown}

    async def preview(
        self, user: AnyUser, vhost: str, queue: str, wish: RedriveWish, shown: int, within_ms: int
    ) -> Answer:
        """See `RedrivePort.preview`."""
        record = self._startable(user, vhost, queue, wish)
        if not isinstance(record, QueueRecord):
            return record
        await self._freshness.of_queue(vhost, queue)
        until_ms = self._now_ms() + within_ms
        whole = PreviewPart(0, 0, 0, {}, [], None)
        terms = encoded_terms(wish)
        place: RedrivePlace | None = None
        while True:
            asked = partial(_preview_asked, terms, place, max(0, shown - len(whole.rows)))
            part = (await self._sources.ask({record.shard: record.id}, asked)).found.get(record.shard)
            if part is None:
                return _unknown(record)
            whole = _added(whole, part)
            place = part.place
            if place is None or self._now_ms() >= until_ms:
                break
        return HTTPStatus.OK, {
            **_name(record), "moves": whole.moves, "stays": whole.stays, "no_route": whole.no_route,
            "targets": [
                {"queue": name, "messages": count} for name, count in sorted(whole.targets.items(), key=_most_first)
            ],
            "messages": whole.rows, "complete": place is None,
        }  # fmt: skip

    async def start(self, user: AnyUser, vhost: str, queue: str, wish: RedriveWish) -> Answer:
        """See `RedrivePort.start`."""
        record = self._startable(user, vhost, queue, wish)
        if not isinstance(record, QueueRecord):
            return record
        if self._catalog.level < LEVEL_REDRIVES:
            return bad_request(
                f"the cluster is at feature level {self._catalog.level}, redrives begin with {LEVEL_REDRIVES}: all "
                "members need this release"
            )
        result = await self._command(record, encode_start_redrive(record.id, encoded_terms(wish), wish.rate))
        if isinstance(result, Refused) and result.reason == IN_USE:
            return bad_request(f"a redrive of {_said(record)} is under way: cancel it first")
        return self._answer(record, result, HTTPStatus.CREATED)

    async def change(self, user: AnyUser, vhost: str, queue: str, state: str | None, rate: int | None) -> Answer:
        """See `RedrivePort.change`."""
        record = self._found(user, vhost, queue)
        if not isinstance(record, QueueRecord):
            return record
        answer: Answer = HTTPStatus.OK, {}
        if rate is not None:
            answer = self._answer(
                record, await self._command(record, encode_change_redrive(record.id, SET_RATE, per_second=rate))
            )
        if state is not None and answer[0] == HTTPStatus.OK:
            answer = self._answer(record, await self._command(record, encode_change_redrive(record.id, _FORMS[state])))
        return answer

    async def cancel(self, user: AnyUser, vhost: str, queue: str) -> Answer:
        """See `RedrivePort.cancel`."""
        record = self._found(user, vhost, queue)
        if not isinstance(record, QueueRecord):
            return record
        return self._answer(record, await self._command(record, encode_change_redrive(record.id, CANCEL)))

    def _answer(self, record: QueueRecord, result: object, status: int = HTTPStatus.OK) -> Answer:
        if isinstance(result, RedriveState):
            return status, {**_name(record), "id": result.redrive_id}
        if isinstance(result, Refused) and result.reason == NO_REDRIVE:
            return no_such(f"no redrive of {_said(record)} is under way")
        if isinstance(result, Refused | Moved):
            return HTTPStatus.SERVICE_UNAVAILABLE, {
                "error": "unavailable", "reason": f"{_said(record)} is on its way between shards; ask again"
            }  # fmt: skip
        return in_doubt(_LATE)

    def _found(self, user: AnyUser, vhost: str, queue: str) -> QueueRecord | Answer:
        """The record of a queue that can be redriven and from which the user may read, or why not."""
        record = self._catalog.queue(vhost, queue)
        if record is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        refusal = check_access(self._catalog, user, "read", "queue", vhost, queue)
        if isinstance(refusal, Refusal):
            return refused(refusal.text)
        if queue_type(record.arguments) == STREAM:
            return bad_request(f"{_said(record)} is a stream: its messages stay, and consumers read them again")
        if not record.replicated:
            return bad_request(f"{_said(record)} is in the memory of one node: durable queues alone are redriven")
        return record

    def _startable(self, user: AnyUser, vhost: str, queue: str, wish: RedriveWish) -> QueueRecord | Answer:
        """The same for a redrive with that target."""
        record = self._found(user, vhost, queue)
        if not isinstance(record, QueueRecord):
            return record
        target, exchange = wish.target_queue, wish.target_exchange or ""
        if target is not None:
            named = self._catalog.queue(vhost, target)
            if named is None:
                return no_such(f"target_queue: there is no queue '{target}' in vhost '{vhost}'")
            if named.settings.mirror is not None:
                return bad_request(f"target_queue: {read_only(vhost, target, named.settings.mirror).text}")
        if target == queue:
            return bad_request(f"target_queue: '{queue}' is the queue itself")
        if wish.target_exchange is not None:
            found = self._catalog.find_exchange_to_publish(vhost, exchange)
            if isinstance(found, Refusal):
                return no_such(f"target_exchange: {found.text}")
        refusal = check_access(self._catalog, user, "write", "exchange", vhost, exchange)
        if refusal is None and is_limited_to_keys(self._catalog, user, vhost, exchange):
            if wish.target_key is None:
                return refused(
                    f"user '{name_of(user)}' has topic permissions for exchange '{exchange}' in vhost '{vhost}': "
                    "target_routing_key has to say with which key"
                )
            refusal = check_topic(self._catalog, user, "write", vhost, exchange, wish.target_key)
        return record if refusal is None else refused(refusal.text)

    async def _command(self, record: QueueRecord, command: bytes) -> object:
        return await give_command(self._engine, self._pump, record.shard, command)

    async def _tell_preview(self, asked: _Preview) -> dict[int, PreviewPart]:
        told: dict[int, PreviewPart] = {}
        for shard, queue in asked.queues.items():
            steps = preview_steps(
                self._engine, shard, queue, asked.terms, asked.place, asked.shown, LOOKS_OF_QUESTION, self._now_ms()
            )
            for part in await in_turns(steps, STEPS_AT_ONCE):
                told[shard] = part
        return told

    def _tell_redrives(self, asked: _Redrives) -> dict[int, list[RedriveRow]]:
        now_ms = self._now_ms()
        found = {shard: redrives_in(self._engine, shard, ids, now_ms) for shard, ids in asked.queues.items()}
        return {shard: rows for shard, rows in found.items() if rows is not None}


def _preview_asked(terms: bytes, place: RedrivePlace | None, shown: int, queues: dict[int, int]) -> _Preview:
    return _Preview(queues, terms, place, shown)


def _added(one: PreviewPart, other: PreviewPart) -> PreviewPart:
    targets = dict(one.targets)
    for name, count in other.targets.items():
        targets[name] = targets.get(name, 0) + count
    return PreviewPart(
        one.moves + other.moves, one.stays + other.stays, one.no_route + other.no_route, targets,
        one.rows + other.rows, other.place,
    )  # fmt: skip


def _shown(record: QueueRecord, row: RedriveRow) -> dict[str, Any]:
    ends_ms = row.time_ms if row.name in _ACTIVE else row.changed_ms
    return {
        **_name(record), "state": row.name, "id": row.redrive_id, **shown_terms(row.terms), "rate": row.rate,
        "waiting_at_start": row.waiting, "moved": row.moved, "stayed": row.stayed,
        "started_ms": row.started_ms, "since_ms": max(0, row.time_ms - row.changed_ms),
        "took_ms": max(0, ends_ms - row.started_ms),
    }  # fmt: skip


def _name(record: QueueRecord) -> dict[str, Any]:
    return {"vhost": record.vhost, "queue": record.name}


def _said(record: QueueRecord) -> str:
    return f"queue '{record.name}' in vhost '{record.vhost}'"


def _active_first(row: dict[str, Any]) -> tuple[bool, str, str]:
    return row["state"] not in _ACTIVE, row["vhost"], row["queue"]


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _unknown(record: QueueRecord) -> Answer:
    return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "unavailable", "reason": unknown_text(record.shard)}
