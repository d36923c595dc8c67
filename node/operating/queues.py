"""Queues, wherever their shards are: counted by the nodes with replicas, and put in order here.

Of another node's transient queues only what the catalog says is shown: that node knows the rest.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from mayfly.node.catalog import QueueRecord
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.queue_selection import Figures, QueueSelection
from mayfly.node.operating.queue_order import QueueNames, QueueOrder
from mayfly.node.operating.shard_sources import ShardSources, unknown_text
from mayfly.node.operating.views.idle import active_at, idle_field
from mayfly.node.operating.views.queue_columns import RATED
from mayfly.node.operating.views.queue_counts import (
    Behind,
    QueueActivity,
    QueueViewCounts,
    activity_of,
    counts_of,
    left_behind,
    rated_counts,
    sampled_shards,
    shard_here,
)
from mayfly.node.operating.views.queue_views import LOOKED_AT, QueueViews
from mayfly.node.operating.views.rates import Rates, message_stats
from mayfly.node.operating.views.sampled_rates import STEP_MS, SampledRates
from mayfly.node.operating.views.status import managed_queue

QUEUES_AT_ONCE: Final = 50
"""Queues of one question, and of a page before other work gets its turn: a millisecond or two."""
COUNTS_AT_ONCE: Final = 500
"""The same where less is counted."""

STATS: Final = ("publish", "deliver_get", "ack")
"""What RabbitMQ calls what `QueueActivity` counts."""

Row = dict[str, Any]
Ids = dict[int, list[int]]
"""Ids of queues, by shard."""


class _Rows(msgspec.Struct, tag="QueueRows"):
    """`QueueViews.counted`."""

    most: int
    by_name: bool
    queues: Ids


class _Counts(msgspec.Struct, tag="QueueCounts"):
    """`counts_of`."""

    queues: Ids


class _Activity(msgspec.Struct, tag="QueueActivity"):
    """`activity_of`."""

    queues: Ids


class _Rates(msgspec.Struct, tag="QueueRates"):
    """What `RATED` counts grow by in a second; of nodes that are older the last one is missing."""

    queues: Ids


class _Active(msgspec.Struct, tag="QueuesActive"):
    """`active_at`."""

    queues: Ids


class _Behind(msgspec.Struct, tag="QueuesBehind"):
    """`left_behind`."""

    queues: Ids


class Queues:
    """What one node shows of queues, and tells others about those of its replicas."""

    def __init__(
        self, engine: Engine, sources: ShardSources, questions: NodeQuestions, rates: Rates, now_ms: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._sources = sources
        self._now_ms = now_ms
        self._views = QueueViews(engine)
        self._rates = rates
        self._sampled = SampledRates()
        self._order = QueueOrder(engine, sources, questions, self._rates_here, now_ms)
        questions.add(_Rows, dict[int, dict[int, Row]], self._tell_rows)
        questions.add(_Counts, dict[int, dict[int, QueueViewCounts]], self._tell_counts)
        questions.add(_Activity, dict[int, dict[int, QueueActivity]], self._tell_activity)
        questions.add(_Rates, dict[int, dict[int, tuple[float, ...]]], self._tell_rates)
        questions.add(_Active, dict[int, dict[int, int]], self._tell_active)
        questions.add(_Behind, dict[int, dict[int, Behind]], self._tell_behind)

    async def one(self, vhost: str, name: str) -> Row | None:
        """All about a queue, None where there is none; see `QueueViews.counted` for `exact`. Where no node has told
        its counts, `unknown` says so instead."""
        record = self._engine.catalog.queue(vhost, name)
        if record is None:
            return None
        (row,) = await self._rows([record], LOOKED_AT, True)
        return {**row, **self._views.all_of_catalog(record)}

    async def some(self, selection: QueueSelection) -> tuple[list[Row], int]:
        """These queues by vhost and name, and how many more there are; each as `one` has it, without what belongs to
        one queue alone."""
        records, left_out = self._views.selected(selection)
        rows: list[Row] = []
        most = LOOKED_AT
        for start in range(0, len(records), QUEUES_AT_ONCE):
            some = await self._rows(records[start : start + QUEUES_AT_ONCE], most, bool(selection.names))
            most -= sum([row.pop("looked_at", 0) for row in some])
            rows += some
            await asyncio.sleep(0)
        return rows, left_out

    async def managed(self, names: Sequence[tuple[str, str]], figures: Figures = "all") -> list[Row]:
        """Queues by vhost and name as RabbitMQ's management API shows them, in that order; those that are gone are left
        out. `figures` are how much of what they hold and did is shown."""
        named = [self._engine.catalog.queue(vhost, name) for vhost, name in names]
        records = [record for record in named if record is not None]
        counts: dict[int, QueueViewCounts] = {}
        unknown: list[int] = []
        if figures != "none":
            counts, unknown = await self.counts(records)
        rows = [
            managed_queue(self._engine, record, counts.get(record.id), figures == "all")
            | ({"unknown": unknown_text(record.shard)} if record.shard in unknown else {})
            for record in records
        ]
        if figures == "all":
            activity = await self.activity(records)
            sampled = await self._sampled_rates(records)
            active = await self._active(records)
            now_ms = self._now_ms()
            for record, row in zip(records, rows, strict=True):
                row |= idle_field(active.get(record.id, 0), now_ms)
                did = activity.get(record.id)
                if did is not None:
                    rates = self._rates.look(now_ms, ("queue", record.id), did)
                    row["message_stats"] = message_stats(STATS, did, rates or sampled.get(record.id))
        return rows

    async def activity(self, records: Sequence[QueueRecord]) -> dict[int, QueueActivity]:
        """What they did, by id, as far as that is known."""
        found: dict[int, QueueActivity] = {}
        for start in range(0, len(records), COUNTS_AT_ONCE):
            told = await self._sources.ask(self._ids(records[start : start + COUNTS_AT_ONCE]), _Activity)
            for some in told.found.values():
                found |= some
        return found

    async def sample(self) -> None:
        """Have rates of this node's queues before anybody asks; until it is cancelled."""
        while True:
            await asyncio.sleep(STEP_MS / 1000)
            self.sample_once()

    def sample_once(self) -> None:
        """A step of that."""
        self._sampled.step(self._now_ms(), sampled_shards(self._engine))

    async def _sampled_rates(self, records: Sequence[QueueRecord]) -> dict[int, tuple[float, ...]]:
        """By id, as far as that is known."""
        found: dict[int, tuple[float, ...]] = {}
        for start in range(0, len(records), COUNTS_AT_ONCE):
            told = await self._sources.ask(self._ids(records[start : start + COUNTS_AT_ONCE]), _Rates)
            for some in told.found.values():
                found |= some
        return found

    async def _active(self, records: Sequence[QueueRecord]) -> dict[int, int]:
        """When something was done with them last, by id, as far as that is known."""
        found: dict[int, int] = {}
        for start in range(0, len(records), COUNTS_AT_ONCE):
            told = await self._sources.ask(self._ids(records[start : start + COUNTS_AT_ONCE]), _Active)
            for some in told.found.values():
                found |= some
        return found

    async def timed(self, names: Sequence[tuple[str, str]]) -> list[Row]:
        """Queues by vhost and name in that order as `some` has them, each with its type, policies, whether it is
        durable, and `rates`, a second, as far as they are known; those that are gone are left out."""
        named = [self._engine.catalog.queue(vhost, name) for vhost, name in names]
        records = [record for record in named if record is not None]
        rows: list[Row] = []
        most = LOOKED_AT
        for start in range(0, len(records), QUEUES_AT_ONCE):
            some = records[start : start + QUEUES_AT_ONCE]
            rates = await self._sampled_rates(some)
            for record, row in zip(some, await self._rows(some, most, False), strict=True):
                most -= row.pop("looked_at", 0)
                rated = zip(RATED, rates.get(record.id, ()), strict=False)
                row["rates"] = {name: round(rate, 3) for name, rate in rated}
                rows.append({**row, **self._views.kind_of(record)})
            await asyncio.sleep(0)
        return rows

    async def names_by(self, column: str, vhosts: Collection[str]) -> QueueNames | None:
        """Vhost and name of the queues in these vhosts in the order of a column; see `QueueOrder.by`."""
        names = await self._order.by(column)
        if names is None or all(vhost.name in vhosts for vhost in self._engine.catalog.vhosts()):
            return names
        return names.of(vhosts)

    async def counts(self, records: Sequence[QueueRecord]) -> tuple[dict[int, QueueViewCounts], list[int]]:
        """How much is in them, by id, as far as that is known; and the shards of which no node has told anything."""
        found: dict[int, QueueViewCounts] = {}
        unknown: set[int] = set()
        for start in range(0, len(records), COUNTS_AT_ONCE):
            told = await self._sources.ask(self._ids(records[start : start + COUNTS_AT_ONCE]), _Counts)
            for some in told.found.values():
                found |= some
            unknown.update(told.unknown)
        return found, sorted(unknown)

    async def delayed(self, records: Sequence[QueueRecord]) -> dict[int, Row]:
        """Of queues of delayed exchanges, by id: how many messages wait (`scheduled`), and when the next is due, as far
        as that is known."""
        found: dict[int, Row] = {}
        for start in range(0, len(records), COUNTS_AT_ONCE):
            told = await self._sources.ask(self._ids(records[start : start + COUNTS_AT_ONCE]), partial(_Rows, 0, False))
            for some in told.found.values():
                found |= some
        return found

    async def _rows(self, records: Sequence[QueueRecord], most: int, by_name: bool) -> list[Row]:
        told = await self._sources.ask(self._ids(records), partial(_Rows, max(0, most), by_name))
        behind = await self._behind(records)
        rows = []
        for record in records:
            row = self._views.of_catalog(record) | self._views.move(record, behind.get(record.id, {}))
            if record.shard in told.unknown:
                row["unknown"] = unknown_text(record.shard)
            else:
                row |= told.found.get(record.shard, {}).get(record.id, {})
            rows.append(row)
        return rows

    async def _behind(self, records: Sequence[QueueRecord]) -> dict[int, dict[int, Behind]]:
        """What those that move or have moved have left behind, by queue and shard, as far as that is known."""
        ids: Ids = {}
        for record in records:
            if record.moves is not None:
                for shard in {record.shard: None} | dict.fromkeys(record.moves.sources):
                    ids.setdefault(shard, []).append(record.id)
        behind: dict[int, dict[int, Behind]] = {}
        if ids:
            told = await self._sources.ask(ids, _Behind)
            for shard, some in told.found.items():
                for id, left in some.items():
                    behind.setdefault(id, {})[shard] = left
        return behind

    def _ids(self, records: Sequence[QueueRecord]) -> Ids:
        """Of those whose counts can be asked for."""
        ids: Ids = {}
        for record in records:
            if record.replicated or record.owner_node == self._engine.node_id:
                ids.setdefault(record.shard, []).append(record.id)
        return ids

    async def _tell_rows(self, asked: _Rows) -> dict[int, dict[int, Row]]:
        told: dict[int, dict[int, Row]] = {}
        most, done = asked.most, 0
        for shard_id, ids in asked.queues.items():
            if shard_here(self._engine, shard_id) is None:
                continue
            rows = told[shard_id] = {}
            for id, row in self._views.counted(shard_id, ids, self._now_ms(), most, asked.by_name):
                rows[id] = row
                most -= row.get("looked_at", 0)
                done += 1
                if done % QUEUES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return told

    def _tell_behind(self, asked: _Behind) -> dict[int, dict[int, Behind]]:
        told = {}
        for shard_id, ids in asked.queues.items():
            shard = shard_here(self._engine, shard_id)
            if shard is not None:
                told[shard_id] = left_behind(shard, ids[:COUNTS_AT_ONCE])
        return told

    def _tell_activity(self, asked: _Activity) -> dict[int, dict[int, QueueActivity]]:
        told = {}
        for shard_id, ids in asked.queues.items():
            shard = shard_here(self._engine, shard_id)
            if shard is not None:
                told[shard_id] = activity_of(shard, ids[:COUNTS_AT_ONCE])
        return told

    def _tell_rates(self, asked: _Rates) -> dict[int, dict[int, tuple[float, ...]]]:
        return {
            shard_id: self._rates_here(shard_id, ids[:COUNTS_AT_ONCE])
            for shard_id, ids in asked.queues.items()
            if shard_here(self._engine, shard_id) is not None
        }

    def _rates_here(self, shard_id: int, ids: Sequence[int]) -> dict[int, tuple[float, ...]]:
        """By id, of a shard that is here, as far as that is known."""
        shard, now_ms = shard_here(self._engine, shard_id), self._now_ms()
        told: dict[int, tuple[float, ...]] = {}
        if shard is None:
            return told
        for id in ids:
            counts = rated_counts(shard, id)
            rate = None if counts is None else self._sampled.rate(now_ms, shard_id, id, counts)
            if rate is not None:
                told[id] = rate
        return told

    def _tell_active(self, asked: _Active) -> dict[int, dict[int, int]]:
        told = {}
        for shard_id, ids in asked.queues.items():
            shard = shard_here(self._engine, shard_id)
            if shard is not None:
                told[shard_id] = active_at(shard, ids[:COUNTS_AT_ONCE])
        return told

    def _tell_counts(self, asked: _Counts) -> dict[int, dict[int, QueueViewCounts]]:
        told = {}
        for shard_id, ids in asked.queues.items():
            shard = shard_here(self._engine, shard_id)
            if shard is not None:
                told[shard_id] = counts_of(shard, ids[:COUNTS_AT_ONCE])
        return told
