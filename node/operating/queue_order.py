"""Many queues in the order of something: names, counts, deadlines, leases.

To put 100 000 queues in order takes a fraction of a second of this node's time. So an order is made in steps, between
which other work has its turn, is kept for some seconds, and is used meanwhile by whoever asks; while one that is older
is used, a new one is made. The rows of a page are always those of now, only their order may be some seconds old.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, overload

import msgspec

from mayfly.node.catalog import QueueRecord
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.shard_sources import ShardSources
from mayfly.node.operating.views.queue_columns import COLUMNS, NAMES, RATES, UNKNOWN, column_of, is_column
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.shard_clocks import shard_now

AT_ONCE: Final = 500
"""Queues that are looked at, or put in order, before other work gets its turn: a millisecond or two."""
FRESH_MS: Final = 2000
"""An order that is older is made anew when it is used."""
REST: Final = 10
"""And not before that many times the time has passed which it took to make."""
KEPT_MS: Final = 30_000
"""An order that nobody has asked for that long is forgotten."""

Name = tuple[str, str]
Ids = dict[int, list[int]]


class _Keys(msgspec.Struct, tag="QueueKeys"):
    """`column_of` of these queues."""

    column: str
    queues: Ids


RatesOf = Callable[[int, Sequence[int]], Mapping[int, Sequence[float]]]
"""Of these queues of a shard here what `RATED` counts grow by in a second, by id, as far as that is known."""


class QueueNames(Sequence[Name]):
    """Vhost and name of queues in an order, each made when it is asked for: a hundred thousand pairs made at once are
    more than the garbage collector looks through in 20 ms."""

    __slots__ = ("_records",)

    def __init__(self, records: list[QueueRecord]) -> None:
        """`records`: not to be changed any more."""
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, place: int) -> Name: ...

    @overload
    def __getitem__(self, place: slice) -> "QueueNames": ...

    def __getitem__(self, place: int | slice) -> "Name | QueueNames":
        if isinstance(place, slice):
            return QueueNames(self._records[place])
        record = self._records[place]
        return record.vhost, record.name

    def of(self, vhosts: Collection[str]) -> "QueueNames":
        """Those in these vhosts."""
        return QueueNames([record for record in self._records if record.vhost in vhosts])


class _Order(NamedTuple):
    fresh_until_ms: int
    names: QueueNames


class QueueOrder:
    """For one node."""

    def __init__(
        self,
        engine: Engine,
        sources: ShardSources,
        questions: NodeQuestions,
        rates_of: RatesOf,
        now_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._sources = sources
        self._rates_of = rates_of
        self._now_ms = now_ms
        self._orders: dict[str, _Order] = {}
        self._used_ms: dict[str, int] = {}
        self._making: dict[str, asyncio.Task[QueueNames]] = {}
        questions.add(_Keys, dict[int, list[float]], self._tell_keys)

    async def by(self, column: str) -> QueueNames | None:
        """All queues in the order of that column, those first of which nothing is known; None if there is no such
        column."""
        if not is_column(column):
            return None
        now_ms = self._now_ms()
        self._forget(now_ms)
        self._used_ms[column] = now_ms
        known = self._orders.get(column)
        making = self._making.get(column)
        if making is None and (known is None or now_ms >= known.fresh_until_ms):
            making = self._making[column] = asyncio.get_running_loop().create_task(self._make(column))
        if known is not None:
            return known.names
        assert making is not None, "one is made where there is none"
        return await asyncio.shield(making)

    def _forget(self, now_ms: int) -> None:
        for column in [each for each, used_ms in self._used_ms.items() if now_ms - used_ms >= KEPT_MS]:
            del self._used_ms[column]
            self._orders.pop(column, None)

    async def _make(self, column: str) -> QueueNames:
        began_ms = self._now_ms()
        try:
            records = await self._records()
            keys: list[Any] = []
            for some in _some(records):
                keys += map(NAMES[column], some) if column in NAMES else await self._keys(column, some)
                await asyncio.sleep(0)
            places = await sorted_in_turns(keys)
            ordered: list[QueueRecord] = []
            for part in _some(places):
                ordered += [records[place] for place in part]
                await asyncio.sleep(0)
            names = QueueNames(ordered)
            now_ms = self._now_ms()
            self._orders[column] = _Order(now_ms + max(FRESH_MS, REST * (now_ms - began_ms)), names)
            return names
        finally:
            self._making.pop(column, None)

    async def _records(self) -> list[QueueRecord]:
        """What is declared meanwhile is in the next order."""
        records: list[QueueRecord] = []
        for vhost in list(self._engine.catalog.vhosts()):
            records += self._engine.catalog.queues(vhost.name)
            await asyncio.sleep(0)
        return records

    async def _keys(self, column: str, records: list[QueueRecord]) -> list[float]:
        ids: Ids = {}
        for each in records:
            if each.replicated or each.owner_node == self._engine.node_id:
                ids.setdefault(each.shard, []).append(each.id)
        told = await self._sources.ask(ids, lambda asked: _Keys(column, asked))
        keys: dict[int, float] = {}
        for shard_id, found in told.found.items():
            keys.update(zip(ids[shard_id], found, strict=False))
        return [keys.get(each.id, UNKNOWN) for each in records]

    def _tell_keys(self, asked: _Keys) -> dict[int, list[float]]:
        told: dict[int, list[float]] = {}
        key, place = COLUMNS.get(asked.column), RATES.get(asked.column)
        for shard_id, ids in asked.queues.items():
            shard, some = shard_here(self._engine, shard_id), ids[:AT_ONCE]
            if shard is None:
                continue
            if key is not None:
                told[shard_id] = column_of(shard, key, some, shard_now(self._engine, shard, self._now_ms()))
            elif place is not None:
                rates = self._rates_of(shard_id, some)
                told[shard_id] = [rates[id][place] if id in rates else UNKNOWN for id in some]
        return told


def _some(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


async def sorted_in_turns(keys: list[Any]) -> list[int]:
    """The places of the keys in the order of these, equal ones as they stand. Some of the keys part the others into
    small heaps, which are put in order one by one: nothing takes long, as the last merge of all would."""
    pivots = sorted(set(keys[::AT_ONCE]))
    heaps: list[list[int]] = [[] for _ in range(2 * len(pivots) + 1)]
    """By turns what is between two pivots, and what equals one: that is in order as it stands."""
    for start in range(0, len(keys), AT_ONCE):
        for place, key in enumerate(keys[start : start + AT_ONCE], start):
            at = bisect_left(pivots, key)
            heaps[2 * at + (at < len(pivots) and pivots[at] == key)].append(place)
        await asyncio.sleep(0)
    places: list[int] = []
    done = 0
    for number, heap in enumerate(heaps):
        if number % 2 == 0:
            heap.sort(key=keys.__getitem__)
        places += heap
        if len(places) - done >= AT_ONCE:
            done = len(places)
            await asyncio.sleep(0)
    return places
