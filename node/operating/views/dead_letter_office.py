"""Dead letters that wait, for operators: what is parked without a route, which lanes do not move, and what an operator
does about it (RULES D8). Pure: reads the local replicas, gives commands to the shards' leaders.

Another node's transient queues are that node's alone: ask it.
"""

from collections.abc import Iterator
from typing import Any, Final

from mayfly.cluster.group.sessions import KIND_INTERNAL, encode_batch
from mayfly.node.amqp.content import Content
from mayfly.node.duties.shard_duties import content_of
from mayfly.node.engine.engine import Engine
from mayfly.node.limits import DEAD_LETTERS_PER_ENTRY
from mayfly.node.numbers import is_transient
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.views.lanes import lane_rows
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.shard import commands
from mayfly.node.shard.outbox import Death
from mayfly.node.shard.shard import Shard

MOST_LOOKED_AT: Final = 100_000
"""Parked dead letters that one listing looks at: it is made between two turns of a node."""

KEYS_READ: Final = 1000
"""Messages whose own routing key one listing reads from the log."""

BYTES_READ: Final = 16 * 1024 * 1024
"""Of log entries that one listing reads for that; the last one may go beyond."""


class DeadLetterOffice:
    """For one node."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def parked(self, selection: Selection, now_ms: int) -> dict[str, Any]:
        """What is parked, by shard, queue it died in, reason, dead-letter exchange and key, oldest first.

        `more`: there are more than one listing looks at. A key is null where messages have keys of their own, and are
        too many or too large to read them.
        """
        groups: dict[tuple[object, ...], dict[str, Any]] = {}
        own_keys = _OwnKeys(self._engine)
        looked_at = 0
        for shard in self._shards(selection):
            time_ms = shard_now(self._engine, shard, now_ms).time_ms
            for death in shard.parked():
                if looked_at == MOST_LOOKED_AT:
                    return {"parked": list(groups.values()), "more": True}
                looked_at += 1
                if not selection.has(death):
                    continue
                settings = death.settings
                key = settings.dead_letter_routing_key
                if key is None:
                    key = own_keys.key(shard, death)
                name = (shard.shard_id, death.queue_id, death.reason, settings.dead_letter_exchange, key)
                row = groups.get(name)
                if row is None:
                    row = groups[name] = {
                        "shard": shard.shard_id,
                        "vhost": settings.vhost,
                        "queue": settings.name,
                        "reason": death.reason,
                        "exchange": settings.dead_letter_exchange,
                        "routing_key": key,
                        "messages": 0,
                        "oldest_ms": 0,
                    }
                row["messages"] += 1
                row["oldest_ms"] = max(row["oldest_ms"], time_ms - death.time_ms, 0)
        return {"parked": list(groups.values()), "more": False}

    def lanes(self, selection: Selection, now_ms: int) -> list[dict[str, Any]]:
        """Dead letters on their way to other queues, by shard and target; what a lane that stands still waits for."""
        return [row for shard in self._shards(selection) for row in lane_rows(self._engine, shard, now_ms)]

    def chosen(self, selection: Selection) -> dict[int, list[int]]:
        """The sequences of all that is meant, by shard."""
        found = {
            shard.shard_id: [death.sequence for death in shard.parked() if selection.has(death)]
            for shard in self._shards(selection)
        }
        return {shard: sequences for shard, sequences in found.items() if sequences}

    def give(self, release: bool, chosen: dict[int, list[int]]) -> None:
        """Have these routed again now, or dropped. May get lost; doing it twice does no harm."""
        encode = commands.encode_retry_parked if release else commands.encode_drop_parked
        for shard_id, sequences in chosen.items():
            for start in range(0, len(sequences), DEAD_LETTERS_PER_ENTRY):
                command = encode(sequences[start : start + DEAD_LETTERS_PER_ENTRY])
                if is_transient(shard_id):
                    self._engine.transient.local.internal(command)
                else:
                    self._engine.host.send_internal(shard_id, encode_batch(KIND_INTERNAL, 0, 0, 0, command))

    def still_parked(self, chosen: dict[int, list[int]]) -> dict[int, list[int]]:
        """Those of them for which nothing has happened yet, as far as this node knows."""
        left = {}
        for shard in self._shards(Selection()):
            if shard.shard_id in chosen:
                parked = {death.sequence for death in shard.parked()}
                left[shard.shard_id] = [sequence for sequence in chosen[shard.shard_id] if sequence in parked]
        return {shard: sequences for shard, sequences in left.items() if sequences}

    def _shards(self, selection: Selection) -> Iterator[Shard]:
        for shard in (*self._engine.shards.values(), self._engine.transient.local.shard):
            if selection.shard is None or selection.shard == shard.shard_id:
                yield shard


class _OwnKeys:
    """The routing keys that messages came with, for one listing: read from the log, as long as it is not too much."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._keys = 0
        self._bytes = 0
        self._last: tuple[int, int] | None = None  # messages of one batch die one after another
        self._data = b""

    def key(self, shard: Shard, death: Death) -> str | None:
        """The key, or None when enough was read."""
        place = (shard.shard_id, death.message.index)
        if self._keys >= KEYS_READ or (place != self._last and self._bytes >= BYTES_READ):
            return None
        self._keys += 1
        if place != self._last:
            self._data, self._last = self._entry(*place), place
            self._bytes += len(self._data)
        content = content_of(self._data, death.message)
        return Content(content.exchange_and_key, content.header, content.body).routing_key

    def _entry(self, shard_id: int, index: int) -> bytes:
        if is_transient(shard_id):
            return self._engine.transient.local.entry(index)
        return self._engine.group(shard_id).log.data_once(index)
