"""What operators ask other nodes, as values: each kind of question has its type, and one who answers it.

A question goes by its type's tag (`node.broker.peer_questions` carries the octets). A node whose version does not know
a tag says so at once, with an empty answer; a new kind of question needs no feature level.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from mayfly.node.broker.peer_questions import Respond
from mayfly.node.engine.engine import Engine

SILENT_FOR_MS: Final = 5_000
"""A node that has said nothing in time is passed over for so long, where another one can say the same: a page of many
parts would wait for it with each."""

_LOG: Final = logging.getLogger(__name__)
_NOTHING: Final = b""

Answer = Callable[[Any], Any | Awaitable[Any]]
"""Takes a question, and gives its answer or what waits for it."""


class NodeQuestions:
    """For one node: the questions that it asks, and those that it answers."""

    def __init__(self, engine: Engine, pump: Callable[[], None], now_ms: Callable[[], int]) -> None:
        """`pump` has what was given to the engine go on its way; `now_ms` is the process clock."""
        self._engine = engine
        self._pump = pump
        self._now_ms = now_ms
        self._answers: dict[type[msgspec.Struct], Answer] = {}
        self._answer_decoders: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[Any]] = {}
        self._decoder: msgspec.msgpack.Decoder[Any] | None = None
        self._silent_since_ms: dict[int, int] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        engine.questions.answer = self._answer_octets

    def add(self, question: type[msgspec.Struct], answer_type: Any, answer: Answer) -> None:
        """Have questions of this type, a tagged one, answered so, with values of `answer_type`."""
        self._answers[question] = answer
        self._answer_decoders[question] = msgspec.msgpack.Decoder(answer_type)
        self._decoder = msgspec.msgpack.Decoder(reduce(or_, self._answers))

    def may_answer(self, node_id: int) -> bool:
        """Whether an answer of that node can be hoped for: it is connected, and has not fallen silent lately."""
        since_ms = self._silent_since_ms.get(node_id)
        silent = since_ms is not None and self._now_ms() - since_ms < SILENT_FOR_MS
        return not silent and self._engine.questions.can_reach(node_id)

    async def ask(self, node_id: int, question: msgspec.Struct) -> Any:
        """What the node says, which may be this one; None if it says nothing, or nothing that this version knows."""
        if node_id == self._engine.node_id:
            await asyncio.sleep(0)
            answered = self._answers[type(question)](question)
            return await answered if isinstance(answered, Awaitable) else answered
        answers: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def came(answer: bytes | None) -> None:
            if not answers.done():
                answers.set_result(answer)

        self._engine.questions.ask(node_id, msgspec.msgpack.encode(question), came)
        self._pump()
        answer = await answers
        if answer is None:
            if self._engine.questions.can_reach(node_id):
                self._silent_since_ms[node_id] = self._now_ms()
            return None
        self._silent_since_ms.pop(node_id, None)
        try:
            return None if not answer else self._answer_decoders[type(question)].decode(answer)
        except msgspec.MsgspecError:
            return None

    async def ask_all(self, question: msgspec.Struct) -> dict[int, Any]:
        """What the members say, by their ids, without those that can't be reached or say nothing."""
        engine = self._engine
        members = [id for id in engine.host.members if id == engine.node_id or self.may_answer(id)]
        told = await asyncio.gather(*(self.ask(id, question) for id in members))
        return {id: found for id, found in zip(members, told, strict=True) if found is not None}

    def _answer_octets(self, octets: bytes, respond: Respond) -> None:
        """See `PeerQuestions.answer`; nothing for what this version does not know."""
        if self._decoder is None:
            respond(_NOTHING)
            return
        try:
            question = self._decoder.decode(octets)
        except msgspec.MsgspecError:
            respond(_NOTHING)
            return
        try:
            answered = self._answers[type(question)](question)
            if not isinstance(answered, Awaitable):
                answered = msgspec.msgpack.encode(answered)
        except Exception:
            # In the middle of a frame: what is wrong with what is asked about must not keep the rest of it out.
            _LOG.exception("a question of another node could not be answered")
            answered = _NOTHING
        if isinstance(answered, bytes):
            respond(answered)
            return
        task = asyncio.ensure_future(self._answer_later(answered, respond))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer_later(self, answered: Awaitable[Any], respond: Respond) -> None:
        try:
            octets = msgspec.msgpack.encode(await answered)
        except Exception:  # a replica may go in the middle of an answer
            _LOG.exception("a question of another node could not be answered")
            octets = _NOTHING
        respond(octets)
        self._pump()
