"""Brakes, wherever their queues' shards are: listed, and released (RULES R5)."""

from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mayfly.node.catalog import Refusal
from mayfly.node.catalog.permissions import check_access
from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, in_doubt, refused
from mayfly.node.operating.shard_commands import give_command
from mayfly.node.operating.shard_sources import ShardSources
from mayfly.node.operating.views.brake_views import BrakeRow, brakes_in
from mayfly.node.shard.commands import encode_release_brake
from mayfly.node.shard.results import Applied, Gone, Moved, Refused

_LATE: Final = "the queue's shard did not answer in time; whether it is done shows later"


class _Brakes(msgspec.Struct, tag="Brakes"):
    """`brakes_in`, of these shards."""

    shards: dict[int, None]


class Brakes:
    """Implements `BrakePort`."""

    def __init__(
        self, engine: Engine, sources: ShardSources, questions: NodeQuestions, pump: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        """`pump` has what was given to the engine go on its way."""
        self._engine = engine
        self._catalog = engine.catalog
        self._sources = sources
        self._pump = pump
        self._now_ms = now_ms
        questions.add(_Brakes, dict[int, list[BrakeRow]], self._tell)

    async def braked(self, vhosts: Collection[str] | None) -> Answer:
        """See `BrakePort.braked`."""
        told = await self._sources.ask(dict.fromkeys(self._sources.all(), None), _Brakes)
        found: list[dict[str, Any]] = []
        for rows in told.found.values():
            for row in rows:
                record = self._catalog.queue_by_id(row.queue_id)
                if record is not None and (vhosts is None or record.vhost in vhosts):
                    found.append({
                        "vhost": record.vhost, "queue": record.name, "failed": row.failed, "limit": row.limit,
                        "window_ms": row.window_ms, "since_ms": row.since_ms, "on_for_ms": row.on_for_ms,
                        "ends_in_ms": row.ends_in_ms,
                    })  # fmt: skip
        found.sort(key=_longest_first)
        return HTTPStatus.OK, {"brakes": found, "unknown_shards": told.unknown}

    async def release(self, user: AnyUser, vhost: str, queue: str) -> Answer:
        """See `BrakePort.release`."""
        record = self._catalog.queue(vhost, queue)
        if record is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        refusal = check_access(self._catalog, user, "read", "queue", vhost, queue)
        if isinstance(refusal, Refusal):
            return refused(refusal.text)
        said = f"queue '{queue}' in vhost '{vhost}'"
        settings = self._catalog.effective_settings(record)
        if settings.brake_rate is None:
            # Below the level that brings brakes no queue has one, and no shard is asked about them.
            return _conflict(f"{said} has no brake (x-dead-letter-brake-rate, policy dead-letter-brake-rate)")
        result = await give_command(self._engine, self._pump, record.shard, encode_release_brake(record.id))
        if isinstance(result, Applied):
            return HTTPStatus.OK, {"vhost": vhost, "queue": queue}
        if isinstance(result, Refused):
            return _conflict(f"{said} is not on brake")
        if isinstance(result, Gone):
            return HTTPStatus.NOT_FOUND, NOT_FOUND
        if isinstance(result, Moved):
            return HTTPStatus.SERVICE_UNAVAILABLE, {
                "error": "unavailable", "reason": f"{said} is on its way between shards; ask again"
            }  # fmt: skip
        return in_doubt(_LATE)

    def _tell(self, asked: _Brakes) -> dict[int, list[BrakeRow]]:
        now_ms = self._now_ms()
        found = {shard: brakes_in(self._engine, shard, now_ms) for shard in asked.shards}
        return {shard: rows for shard, rows in found.items() if rows is not None}


def _conflict(reason: str) -> Answer:
    return HTTPStatus.CONFLICT, {"error": "conflict", "reason": reason}


def _longest_first(row: dict[str, Any]) -> tuple[int, str, str]:
    return -row["on_for_ms"], row["vhost"], row["queue"]
