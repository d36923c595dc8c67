"""Questions that a node asks another one for an operator, and their answers.  Pure.

Both are datagrams of a number, u64, and octets whose meaning is the business of who asks and answers
(`node.operating.connections`). Nothing is repeated: a question whose answer gets lost, or that its node does not know,
has no answer after a while.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from node import datagram_kinds

ANSWER_WITHIN_MS: Final = 2_000
"""Later than that there is no answer."""

_NUMBER: Final = struct.Struct("<Q")

Answered = Callable[[bytes | None], None]
"""Called once, with the answer or, if there is none, None."""


class PeerQuestions:
    """What one node has asked the others, and how it answers them."""

    def __init__(self, send: Callable[[int, int, bytes], None]) -> None:
        """`send(node id, kind, datagram)`."""
        self.answer: Callable[[bytes], bytes] | None = None
        """How this node answers; set by its shell. Must not raise."""
        self._send = send
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
        self._send(node_id, datagram_kinds.QUESTION, _NUMBER.pack(number) + question)

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
            late_ms = now_ms - ANSWER_WITHIN_MS
            self._give_up([number for number, asked in self._asked.items() if asked[1] <= late_ms])

    def datagram(self, node_id: int, kind: int, data: bytes) -> None:
        """A datagram of another node; one that is too short is dropped."""
        if len(data) < _NUMBER.size:
            return
        (number,) = _NUMBER.unpack_from(data)
        if kind == datagram_kinds.QUESTION:
            if self.answer is not None:
                self._send(node_id, datagram_kinds.ANSWER, _NUMBER.pack(number) + self.answer(data[_NUMBER.size :]))
        elif kind == datagram_kinds.ANSWER:
            asked = self._asked.get(number)
            if asked is not None and asked[0] == node_id:
                del self._asked[number]
                asked[2](data[_NUMBER.size :])

    def _give_up(self, numbers: list[int]) -> None:
        for number in numbers:
            self._asked.pop(number)[2](None)
