"""Dead letters that wait, for operators: what is parked without a route, which lanes do not move, and what an operator
does about it (RULES D8). Pure: reads the replicas here, and gives commands to their shards' leaders.

All of it comes in parts, since other work of the node waits meanwhile and answers to other nodes have their bounds.
`node.operating.dead_letters` puts them together.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from mayfly.cluster.group.sessions import KIND_INTERNAL, encode_batch
from mayfly.node.amqp.content import Content
from mayfly.node.duties.contents import content_of
from mayfly.node.engine.engine import Engine
from mayfly.node.limits import DEAD_LETTERS_PER_ENTRY
from mayfly.node.numbers import is_transient
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.views.lanes import lane_steps
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.shard import commands
from mayfly.node.shard.outbox import RECORDS, Death
from mayfly.node.shard.shard import Shard

LOOKED_AT: Final = 10_000
"""Parked dead letters that are looked at for one part of a listing."""

ROWS_AT_ONCE: Final = 200
"""Rows of one part."""

KEYS_READ: Final = 1000
"""Messages whose own routing key one listing reads from the log."""

BYTES_READ: Final = 16 * 1024 * 1024
"""Of log entries that one listing reads for that; the last one may go beyond."""


class Parked(NamedTuple):
    """What died alike and is parked. The key is None where messages have keys of their own, and are too many or too
    large to read them."""

    queue_id: int
    reason: str
    exchange: str | None
    routing_key: str | None
    vhost: str
    queue: str
    messages: int
    oldest_ms: int

    def with_(self, other: "Parked") -> "Parked":
        """Both together, of one shard's rows with the same `name`."""
        return self._replace(
            messages=self.messages + other.messages, oldest_ms=max(self.oldest_ms, other.oldest_ms)
        )

    @property
    def name(self) -> tuple[int, str, str | None, str | None]:
        """What is alike."""
        return self[:4]


class ParkedPart(NamedTuple):
    """Of what is parked in one shard, the next ones, oldest first; `after` is the sequence behind which there may be
    more, None at the end."""

    rows: list[Parked]
    after: int | None
    looked_at: int
    keys_read: int
    bytes_read: int


class LanesPart(NamedTuple):
    """Of the lanes of one shard, the next ones; `place` is where there may be more, None at the end."""

    rows: list[dict[str, Any]]
    place: int | None


class LocalDeadLetters:
    """For one node, about the shards that it has."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def parked(
        self, selection: Selection, afters: Mapping[int, int], keys: int, octets: int, now_ms: int
    ) -> dict[int, ParkedPart]:
        """What is parked in these shards, of each behind a sequence, as much as one part has. So many own keys of
        messages may be read for it, and octets of the log."""
        own_keys = _OwnKeys(self._engine, keys, octets)
        parts: dict[int, ParkedPart] = {}
        looked_at = rows = 0
        for shard_id, after in afters.items():
            shard = shard_here(self._engine, shard_id)
            if shard is None:
                continue
            part = self._parked(shard, selection, after, LOOKED_AT - looked_at, ROWS_AT_ONCE - rows, own_keys, now_ms)
            parts[shard_id] = part
            looked_at += part.looked_at
            rows += len(part.rows)
        return parts

    def _parked(
        self, shard: Shard, selection: Selection, after: int, most: int, most_rows: int, own_keys: "_OwnKeys",
        now_ms: int,
    ) -> ParkedPart:  # fmt: skip
        found: dict[tuple[int, str, str | None, str | None], Parked] = {}
        time_ms = shard_now(self._engine, shard, now_ms).time_ms
        keys_before, bytes_before = own_keys.keys_read, own_keys.bytes_read
        looked_at = 0
        further: int | None = None
        for death in shard.parked():
            if death.sequence <= after:
                continue
            if looked_at >= most or len(found) >= most_rows:
                further = after
                break
            looked_at += 1
            after = death.sequence
            if not selection.has(death):
                continue
            settings = death.settings
            exchange, key = settings.dead_letter_exchange, settings.dead_letter_routing_key
            if death.reason in RECORDS:
                # As if it were published to the journal.
                exchange, key = "", settings.journal
            elif key is None:
                key = own_keys.key(shard, death)
            one = Parked(
                death.queue_id, death.reason, exchange, key, settings.vhost, settings.name,
                1, max(0, time_ms - death.time_ms),
            )  # fmt: skip
            known = found.get(one.name)
            found[one.name] = one if known is None else known.with_(one)
        read = own_keys.keys_read - keys_before, own_keys.bytes_read - bytes_before
        return ParkedPart(list(found.values()), further, looked_at, *read)

    def lanes(self, places: Mapping[int, int], now_ms: int) -> dict[int, LanesPart]:
        """Dead letters of these shards on their way to other queues, of each from a place among its lanes on: by
        target, and what a lane that stands still waits for."""
        parts: dict[int, LanesPart] = {}
        left = ROWS_AT_ONCE
        for shard_id, place in places.items():
            shard = shard_here(self._engine, shard_id)
            if shard is None:
                continue
            rows = list(islice(lane_steps(self._engine, shard, now_ms), place, place + left))
            left -= len(rows)
            parts[shard_id] = LanesPart(rows, None if left > 0 else place + len(rows))
        return parts

    def left(self, selection: Selection, up_to: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """How many of those that are meant are parked in these shards: of each up to a sequence, or of -1 up to the
        newest one, which is told with it."""
        found = {}
        for shard_id, last in up_to.items():
            shard = shard_here(self._engine, shard_id)
            if shard is not None:
                last = shard.newest_parked() if last < 0 else last
                found[shard_id] = last, len(_meant(shard, selection, last))
        return found

    def give(self, release: bool, selection: Selection, up_to: Mapping[int, int]) -> None:
        """Have these routed again now, or dropped. May get lost; doing it twice does no harm: what is parked once more
        has another sequence."""
        encode = commands.encode_retry_parked if release else commands.encode_drop_parked
        for shard_id, last in up_to.items():
            shard = shard_here(self._engine, shard_id)
            sequences = [] if shard is None else _meant(shard, selection, last)
            for start in range(0, len(sequences), DEAD_LETTERS_PER_ENTRY):
                command = encode(sequences[start : start + DEAD_LETTERS_PER_ENTRY])
                if is_transient(shard_id):
                    self._engine.transient.local.internal(command)
                else:
                    self._engine.host.send_internal(shard_id, encode_batch(KIND_INTERNAL, 0, 0, 0, command))


def _meant(shard: Shard, selection: Selection, up_to: int) -> list[int]:
    return [death.sequence for death in shard.parked() if death.sequence <= up_to and selection.has(death)]


class _OwnKeys:
    """The routing keys that messages came with, for one part: read from the log, as long as it is not too much."""

    def __init__(self, engine: Engine, keys: int, octets: int) -> None:
        self._engine = engine
        self.keys_read = 0
        self.bytes_read = 0
        self._most_keys = keys
        self._most_bytes = octets
        self._last: tuple[int, int] | None = None  # messages of one batch die one after another
        self._data = b""

    def key(self, shard: Shard, death: Death) -> str | None:
        """The key, or None when enough was read."""
        place = (shard.shard_id, death.message.index)
        if self.keys_read >= self._most_keys or (place != self._last and self.bytes_read >= self._most_bytes):
            return None
        self.keys_read += 1
        if place != self._last:
            self._data, self._last = self._entry(*place), place
            self.bytes_read += len(self._data)
        content = content_of(self._data, death.message)
        return Content(content.exchange_and_key, content.header, content.body).routing_key

    def _entry(self, shard_id: int, index: int) -> bytes:
        if is_transient(shard_id):
            return self._engine.transient.local.data(index)
        return self._engine.host.groups[shard_id].log.data_once(index)
