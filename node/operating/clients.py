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
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.views.client_views import (
    AT_ONCE,
    ClientViews,
    HoldingConnection,
    Number,
    Part,
    Row,
    connection_of,
)

_MERGED_AT_ONCE: Final = 1000
"""Connections that are put in order before other work gets its turn."""


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
    parts: list[Part]


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


_Stepwise = _Count | _Holders | _Find
_Question = _Stepwise | _Rows | _Show | _Close
_decoder: Final = msgspec.msgpack.Decoder(_Question)
_answers: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    _Count: msgspec.msgpack.Decoder(tuple[Number, Number | None]),
    _Holders: msgspec.msgpack.Decoder(tuple[list[HoldingConnection], Number | None]),
    _Find: msgspec.msgpack.Decoder(tuple[str | None, Number | None]),
    _Rows: msgspec.msgpack.Decoder(tuple[list[Row], list[Part]]),
    _Show: msgspec.msgpack.Decoder(Row | None),
    _Close: msgspec.msgpack.Decoder(bool),
}


class Clients:
    """What one node knows of its own clients, and asks the others about theirs.

    A node that cannot be reached, or does not answer in time, has none to show, or no more than it had told before."""

    def __init__(self, engine: Engine, views: ClientViews, pump: Callable[[], None]) -> None:
        """`pump` has what was given to the engine go on its way."""
        self._engine = engine
        self._views = views
        self._pump = pump
        engine.questions.answer = self._answer

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
        return total, rows

    async def one(self, kind: Kind, name: str) -> Row | None:
        """The connection or channel of that name."""
        found = await self._find(connection_of(kind, name))
        row: Row | None = None if found is None else await self._ask(found[0], _Show(kind, found[1], name))
        return row

    async def close(self, name: str, reason: str) -> bool:
        """Close the connection of that name (320); False if there is none."""
        found = await self._find(name)
        return found is not None and bool(await self._ask(found[0], _Close(found[1], name, reason)))

    async def _count(self, node_id: int, kind: Kind, selection: ClientSelection) -> int:
        return sum([count async for count in self._told(node_id, _Count(kind, selection))])

    async def _parts(self, node_id: int, kind: Kind, selection: ClientSelection, start: int, most: int) -> list[Part]:
        """Where so many of a node are, from a place on."""
        told = self._told(node_id, _Holders(kind, selection))
        runs: list[list[HoldingConnection]] = [sorted(some) async for some in told]
        parts: list[Part] = []
        for merged, (_, key, held) in enumerate(heapq.merge(*runs), 1):
            if merged % _MERGED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if start < held:
                parts.append(Part(key, start, min(held - start, most)))
                most -= parts[-1].most
                if most == 0:
                    break
            start = max(0, start - held)
        for run in runs:
            # All at once this takes its time, too.
            run.clear()
            await asyncio.sleep(0)
        return parts

    async def _rows(self, node_id: int, kind: Kind, selection: ClientSelection, parts: list[Part]) -> list[Row]:
        rows: list[Row] = []
        for first in range(0, len(parts), AT_ONCE):
            asked = parts[first : first + AT_ONCE]
            while asked:
                answer = await self._ask(node_id, _Rows(kind, selection, asked))
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
        while (answer := await self._ask(node_id, question)) is not None:
            told, further = answer
            yield told
            if further is None or further <= question.after:
                return
            question = msgspec.structs.replace(question, after=further)

    async def _ask(self, node_id: int, question: _Question) -> Any:
        """What the node says; None if it says nothing, or nothing that this version knows."""
        if node_id == self._engine.node_id:
            await asyncio.sleep(0)
            return self._answered(question)
        answers: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def answered(answer: bytes | None) -> None:
            if not answers.done():
                answers.set_result(answer)

        self._engine.questions.ask(node_id, msgspec.msgpack.encode(question), answered)
        self._pump()
        answer = await answers
        try:
            return None if not answer else _answers[type(question)].decode(answer)
        except msgspec.MsgspecError:
            return None

    def _answer(self, question: bytes) -> bytes:
        """See `PeerQuestions.answer`; nothing for what this version does not know."""
        try:
            asked = _decoder.decode(question)
        except msgspec.MsgspecError:
            return b""
        return msgspec.msgpack.encode(self._answered(asked))

    def _answered(self, question: _Question) -> Any:
        if isinstance(question, _Count):
            return self._views.count(question.kind, question.selection, question.after)
        if isinstance(question, _Holders):
            return self._views.holders(question.kind, question.selection, question.after)
        if isinstance(question, _Rows):
            return self._views.rows(question.kind, question.selection, question.parts)
        if isinstance(question, _Find):
            return self._views.find(question.name, question.after)
        if isinstance(question, _Show):
            return self._views.one(question.kind, question.key, question.name)
        return self._views.close(question.key, question.name, question.reason)
