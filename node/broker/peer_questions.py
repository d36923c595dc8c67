"""Questions of one node to another, and their answers.  Pure.

    question, answer    number u64, then octets whose meaning is the business of who asks and answers

Nothing is repeated: a question has no answer when one of the two gets lost, the node's stream breaks, or the time is
over. Each use has its own pair of kinds of notices (`node.notice_kinds`): operators' questions about connections
(`node.operating.clients`), and whether the channel of a direct reply is there (`node.broker.direct_replies`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

_NUMBER: Final = struct.Struct("<Q")

Answered = Callable[[bytes | None], None]
"""Called once, with the answer or, if there is none, None."""

Respond = Callable[[bytes], None]
"""Called once, with the answer, at once or later; who asked may have given up by then."""


class PeerQuestions:
    """What one node has asked the others, and how it answers them."""

    def __init__(
        self, send: Callable[[int, int, bytes], None], question_kind: int, answer_kind: int, within_ms: int
    ) -> None:
        """`send(node id, kind, notice)`; after `within_ms` there is no answer any more."""
        self.answer: Callable[[bytes, Respond], None] | None = None
        """How this node answers; without it, it says nothing. Must not raise."""
        self._send = send
        self._question_kind = question_kind
        self._answer_kind = answer_kind
        self._within_ms = within_ms
        self._reachable: set[int] = set()
        self._asked: dict[int, tuple[int, int, Answered]] = {}
        """By number: the node, since when, and who waits."""
        self._next_number: int = 1
        self._now_ms: int = 0

    def ask(self, node_id: int, question: bytes, answered: Answered) -> None:
        """Ask a node; `answered` may be called at once, if the node cannot be reached."""
        if node_id not in self._reachable:
            answered(None)
            return
        number = self._next_number
        self._next_number = number + 1
        self._asked[number] = (node_id, self._now_ms, answered)
        self._send(node_id, self._question_kind, _NUMBER.pack(number) + question)

    def can_reach(self, node_id: int) -> bool:
        """Whether the stream to a node is open."""
        return node_id in self._reachable

    def peer_up(self, node_id: int) -> None:
        """The stream to a node opened."""
        self._reachable.add(node_id)

    def peer_down(self, node_id: int) -> None:
        """The stream to a node broke."""
        self._reachable.discard(node_id)
        self._give_up([number for number, asked in self._asked.items() if asked[0] == node_id])

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._now_ms = now_ms
        if self._asked:
            late_ms = now_ms - self._within_ms
            self._give_up([number for number, asked in self._asked.items() if asked[1] <= late_ms])

    def notice(self, node_id: int, kind: int, data: bytes) -> None:
        """A notice of another node; one of another kind, or that is too short, is dropped."""
        if kind not in (self._question_kind, self._answer_kind) or len(data) < _NUMBER.size:
            return
        (number,) = _NUMBER.unpack_from(data)
        if kind == self._question_kind:
            if self.answer is not None:
                self.answer(
                    data[_NUMBER.size :],
                    lambda answer: self._send(node_id, self._answer_kind, _NUMBER.pack(number) + answer),
                )
            return
        asked = self._asked.get(number)
        if asked is not None and asked[0] == node_id:
            del self._asked[number]
            asked[2](data[_NUMBER.size :])

    def _give_up(self, numbers: list[int]) -> None:
        for number in numbers:
            self._asked.pop(number)[2](None)
