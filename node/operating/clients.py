"""Connections, channels and consumers over all nodes: each is asked for its own (`node.operating.client_views`)."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from node.engine import Engine
from node.operating.client_selection import ClientSelection, Kind
from node.operating.client_views import AT_ONCE, ClientViews


class _Some(msgspec.Struct, tag="SomeClients"):
    """Asks for so many of them, and how many there are: `ClientViews.some`."""

    kind: Kind
    selection: ClientSelection
    start: int
    most: int


class _One(msgspec.Struct, tag="OneClient"):
    """Asks for the one of that name."""

    kind: Kind
    name: str


class _Close(msgspec.Struct, tag=True):
    """Asks to close a connection."""

    name: str
    reason: str


_Question = _Some | _One | _Close
_decoder: Final = msgspec.msgpack.Decoder(_Question)


class Clients:
    """What one node knows of its own clients, and asks the others about theirs.

    A node that cannot be reached, or does not answer in time, has none to show."""

    def __init__(self, engine: Engine, views: ClientViews, pump: Callable[[], None]) -> None:
        """`pump` has what was given to the engine go on its way."""
        self._engine = engine
        self._views = views
        self._pump = pump
        engine.questions.answer = self._answer

    async def some(
        self, kind: Kind, selection: ClientSelection, start: int, most: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """How many there are, and so many of them from a place on, by the ids of their nodes and then as
        `ClientViews.some` has them. Those that come and go meanwhile may shift the others."""
        total = 0
        rows: list[dict[str, Any]] = []
        for node_id in sorted(self._engine.host.members):
            place = max(0, start - total)
            count = 0
            while True:
                question = _Some(kind, selection, place, min(AT_ONCE, most - len(rows)))
                answer = await self._ask(node_id, question)
                if answer is None:
                    break
                count, found = answer
                rows += found
                place += len(found)
                if not found or len(rows) >= most:
                    break
            total += count
        return total, rows

    async def one(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """The connection or channel of that name."""
        for node_id in sorted(self._engine.host.members):
            row: dict[str, Any] | None = await self._ask(node_id, _One(kind, name))
            if row is not None:
                return row
        return None

    async def close(self, name: str, reason: str) -> bool:
        """Close the connection of that name (320); False if there is none."""
        for node_id in sorted(self._engine.host.members):
            if await self._ask(node_id, _Close(name, reason)):
                return True
        return False

    async def _ask(self, node_id: int, question: _Question) -> Any:
        """What the node says; None if it says nothing."""
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
        return None if not answer else msgspec.msgpack.decode(answer)

    def _answer(self, question: bytes) -> bytes:
        """See `PeerQuestions.answer`; nothing for what this version does not know."""
        try:
            asked = _decoder.decode(question)
        except msgspec.MsgspecError:
            return b""
        return msgspec.msgpack.encode(self._answered(asked))

    def _answered(self, question: _Question) -> Any:
        if isinstance(question, _Some):
            return self._views.some(question.kind, question.selection, question.start, question.most)
        if isinstance(question, _One):
            return self._views.one(question.kind, question.name)
        return self._views.close(question.name, question.reason)
