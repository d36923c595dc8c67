"""Connections, channels and consumers over all nodes: each is asked for its own (`node.operating.views.client_views`).

Every question costs a node a bounded part of a turn, whatever it has, and no node keeps anything for who asks: a count
and the names of who has what come some connections at a time, rows by the keys of connections. The order by name is
made here.
"""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec

from mayfly.node.engine.engine import Engine
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.ports.clients import Cancelled
from mayfly.node.operating.shard_sources import ShardSources
from mayfly.node.operating.views.client_views import (
    AT_ONCE,
    WHOSE,
    ClientPart,
    ClientViews,
    ConsumerKey,
    HoldingConnection,
    Number,
    Row,
    activity_of,
    connection_of,
    single_active,
)
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.rates import CLIENT_STATS, Rates, message_stats

_MERGED_AT_ONCE: Final = 1000
"""Connections that are put in order before other work gets its turn."""

_COUNTED: Final[dict[Kind, tuple[str, ...]]] = {
    "connections": ("recv_oct", "send_oct"), "channels": CLIENT_STATS, "consumers": ()
}  # fmt: skip
"""Counts in the rows that have rates beside them."""


class _Count(msgspec.Struct, tag="CountClients"):
    """`ClientViews.count`."""

    kind: Kind
    selection: ClientSelection
    after: Number = 0


class _Holders(msgspec.Struct, tag="ClientHolders"):
    """`ClientViews.holders`."""

    kind: Kind
    selection: ClientSelection
    after: Number = 0


class _Rows(msgspec.Struct, tag="ClientRows"):
    """`ClientViews.rows`."""

    kind: Kind
    selection: ClientSelection
    parts: list[ClientPart]


class _Find(msgspec.Struct, tag="FindConnection"):
    """`ClientViews.find`."""

    name: str
    after: Number = 0


class _Show(msgspec.Struct, tag="ShowClient"):
    """`ClientViews.one`."""

    kind: Kind
    key: str
    name: str


class _Close(msgspec.Struct, tag="CloseConnection"):
    """`ClientViews.close`."""

    key: str
    name: str
    reason: str


class _CloseChannel(msgspec.Struct, tag="CloseChannel"):
    """`ClientViews.close_channel`."""

    key: str
    name: str
    reason: str


class _Cancel(msgspec.Struct, tag="CancelConsumer"):
    """`ClientViews.cancel_consumer`."""

    key: str
    channel: str
    consumer: str


class _Active(msgspec.Struct, tag="ActiveConsumers"):
    """`single_active` of queues, by shard."""

    queues: dict[int, list[int]]


_Stepwise = _Count | _Holders | _Find


class Clients:
    """What one node knows of its own clients, and asks the others about theirs.

    A node that cannot be reached, or does not answer in time, has none to show, or no more than it had told before."""

    def __init__(
        self, engine: Engine, views: ClientViews, sources: ShardSources, questions: NodeQuestions,
        rates: Rates, now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._rates = rates
        self._now_ms = now_ms
        self._sources = sources
        self._questions = questions
        questions.add(_Count, tuple[Number, Number | None], lambda it: views.count(it.kind, it.selection, it.after))
        questions.add(
            _Holders, tuple[list[HoldingConnection], Number | None],
            lambda it: views.holders(it.kind, it.selection, it.after),
        )  # fmt: skip
        questions.add(_Find, tuple[str | None, Number | None], lambda it: views.find(it.name, it.after))
        questions.add(_Rows, tuple[list[Row], list[ClientPart]], lambda it: views.rows(it.kind, it.selection, it.parts))
        questions.add(_Show, Row | None, lambda it: views.one(it.kind, it.key, it.name))
        questions.add(_Close, bool, lambda it: views.close(it.key, it.name, it.reason))
        questions.add(_CloseChannel, bool, lambda it: views.close_channel(it.key, it.name, it.reason))
        questions.add(_Cancel, Cancelled, lambda it: views.cancel_consumer(it.key, it.channel, it.consumer))
        questions.add(_Active, dict[int, dict[int, ConsumerKey | None]], self._tell_active)

    async def count(self, kind: Kind, selection: ClientSelection) -> int:
        """How many there are."""
        return sum([await self._count(node_id, kind, selection) for node_id in sorted(self._engine.host.members)])

    async def some(self, kind: Kind, selection: ClientSelection, start: int, most: int) -> tuple[int, list[Row]]:
        """How many there are, and so many of them from a place on: by the ids of their nodes, the names of connections,
        and then as `ClientViews.rows` has them. Those that come and go meanwhile may shift the others, and consumers
        whose queues are gone are counted and not shown."""
        total = 0
        rows: list[Row] = []
        for node_id in sorted(self._engine.host.members):
            count = await self._count(node_id, kind, selection)
            place = max(0, start - total)
            if place < count and len(rows) < most:
                parts = await self._parts(node_id, kind, selection, place, most - len(rows))
                rows += await self._rows(node_id, kind, selection, parts)
            total += count
        if kind == "consumers":
            await self._find_active(rows)
        self._add_rates(kind, rows)
        return total, rows

    async def one(self, kind: Kind, name: str) -> Row | None:
        """The connection or channel of that name."""
        found = await self._find(connection_of(kind, name))
        row: Row | None = None if found is None else await self._questions.ask(found[0], _Show(kind, found[1], name))
        if row is not None:
            await self._find_active(row.get("consumer_details", []))
            self._add_rates(kind, [row])
        return row

    def _add_rates(self, kind: Kind, rows: list[Row]) -> None:
        """To what connections and channels count; other versions of nodes may not tell that."""
        now_ms = self._now_ms()
        for row in rows:
            counted = row.get("message_stats", {}) if kind == "channels" else row
            names = _COUNTED[kind]
            if names and all(isinstance(counted.get(name), int) for name in names):
                counts = tuple([counted[name] for name in names])
                rates = self._rates.look(now_ms, (kind, row["node"], row["name"]), counts)
                counted |= message_stats(names, counts, rates)

    async def close(self, name: str, reason: str) -> bool:
        """Close the connection of that name (320); False if there is none."""
        found = await self._find(name)
        return found is not None and bool(await self._questions.ask(found[0], _Close(found[1], name, reason)))

    async def close_channel(self, name: str, reason: str) -> bool:
        """Close the channel of that name (406); False if there is none."""
        found = await self._find(connection_of("channels", name))
        return found is not None and bool(await self._questions.ask(found[0], _CloseChannel(found[1], name, reason)))

    async def cancel_consumer(self, channel: str, tag: str) -> Cancelled:
        """Cancel a consumer of the channel of that name; what it holds stays held."""
        found = await self._find(connection_of("channels", channel))
        told = None if found is None else await self._questions.ask(found[0], _Cancel(found[1], channel, tag))
        return "unknown" if told is None else told

    async def _count(self, node_id: int, kind: Kind, selection: ClientSelection) -> int:
        return sum([count async for count in self._told(node_id, _Count(kind, selection))])

    async def _parts(
        self, node_id: int, kind: Kind, selection: ClientSelection, start: int, most: int
    ) -> list[ClientPart]:
        """Where so many of a node are, from a place on."""
        told = self._told(node_id, _Holders(kind, selection))
        runs: list[list[HoldingConnection]] = [sorted(some) async for some in told]
        parts: list[ClientPart] = []
        for merged, (_, key, held) in enumerate(heapq.merge(*runs), 1):
            if merged % _MERGED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if start < held:
                parts.append(ClientPart(key, start, min(held - start, most)))
                most -= parts[-1].most
                if most == 0:
                    break
            start = max(0, start - held)
        for run in runs:
            # All at once this takes its time, too.
            run.clear()
            await asyncio.sleep(0)
        return parts

    async def _rows(self, node_id: int, kind: Kind, selection: ClientSelection, parts: list[ClientPart]) -> list[Row]:
        rows: list[Row] = []
        for first in range(0, len(parts), AT_ONCE):
            asked = parts[first : first + AT_ONCE]
            while asked:
                answer = await self._questions.ask(node_id, _Rows(kind, selection, asked))
                if answer is None or answer[1] == asked:
                    return rows
                found, asked = answer
                rows += found
        return rows

    async def _find(self, name: str) -> tuple[int, str] | None:
        """The node of the connection of that name, and its key there."""
        for node_id in sorted(self._engine.host.members):
            async with aclosing(self._told(node_id, _Find(name))) as told:
                async for key in told:
                    if key is not None:
                        return node_id, key
        return None

    async def _told(self, node_id: int, question: _Stepwise) -> AsyncGenerator[Any, None]:
        """What a node answers about some of its connections after the other."""
        while (answer := await self._questions.ask(node_id, question)) is not None:
            told, further = answer
            yield told
            if further is None or further <= question.after:
                return
            question = msgspec.structs.replace(question, after=further)

    async def _find_active(self, consumers: list[Row]) -> None:
        """Have it shown which are active where their own nodes could not tell, for want of a replica."""
        for start in range(0, len(consumers), AT_ONCE):
            open_ones = [(row, row.pop(WHOSE)) for row in consumers[start : start + AT_ONCE] if WHOSE in row]
            queues: dict[int, list[int]] = {}
            for _, (shard, queue, *_) in open_ones:
                queues.setdefault(shard, []).append(queue)
            told = await self._sources.ask(queues, _Active)
            for row, (shard, queue, *holder) in open_ones:
                row |= activity_of(told.found.get(shard, {}).get(queue), (holder[0], holder[1]))

    def _tell_active(self, asked: _Active) -> dict[int, dict[int, ConsumerKey | None]]:
        here = {id: shard_here(self._engine, id) for id in asked.queues}
        return {
            id: {queue: single_active(shard, queue) for queue in asked.queues[id][:AT_ONCE]}
            for id, shard in here.items()
            if shard is not None
        }
