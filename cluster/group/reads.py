"""This node's reads of one group that must be current: who waits, what the leader was asked, what it answered.

    wait()      somebody wants to know when the replica here is as new as this moment
    request()   what the leader is to be asked now, under a name that no other request has
    answered()  the leader named an index: everything committed before it was asked is at or below it
    due()       the replica has applied so far: who need not wait any longer

One request is under way at a time. It says nothing about what was committed after it was sent, so those who come
meanwhile share the next one. A request may be repeated as often as one likes, under its own name: whichever answer
comes, it was given after everybody concerned had begun to wait.

A read also waits for the commands that this node gave before it, so that a node reads what it wrote.
"""

import struct
from typing import Final

from mayfly.cluster.group.sessions import Waiter

_CONTEXT: Final = struct.Struct("<IQQ")

NOT_ASKED: Final = -1


class _Read:
    """One who waits: until the index is known and applied, and `batches` of this node's session are."""

    __slots__ = ("batches", "index", "waiter")

    def __init__(self, waiter: Waiter, batches: int) -> None:
        self.waiter = waiter
        self.batches = batches
        self.index = 0


class Reads:
    """The reads of one node from one group. `incarnation` tells the requests of this process from those before it."""

    def __init__(self, node: int, incarnation: int) -> None:
        self._node = node
        self._incarnation = incarnation
        self._requests = 0
        self._asked_ms = NOT_ASKED
        self._next: list[_Read] = []
        self._under_way: list[_Read] = []
        self._answered: list[_Read] = []

    def wait(self, waiter: Waiter, batches: int) -> None:
        """Call `waiter` when the replica is as new as this moment, with so many batches of its session applied."""
        self._next.append(_Read(waiter, batches))

    @property
    def idle(self) -> bool:
        """Whether the leader need not be asked for anything."""
        return not (self._next or self._under_way)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._next) + len(self._under_way) + len(self._answered)

    def request(self, now_ms: int, repeat_after_ms: int) -> bytes | None:
        """What to ask the leader now: a new request, or the one under way if its answer is overdue; or None."""
        if not self._under_way:
            if not self._next:
                return None
            self._under_way, self._next = self._next, []
            self._requests += 1
        elif self._asked_ms != NOT_ASKED and now_ms - self._asked_ms < repeat_after_ms:
            return None
        self._asked_ms = now_ms
        return self._context()

    def _context(self) -> bytes:
        return _CONTEXT.pack(self._node, self._incarnation, self._requests)

    def forget_asked(self) -> None:
        """The leader or the way to it changed: the request under way is to be sent again."""
        self._asked_ms = NOT_ASKED

    def answered(self, context: bytes, index: int) -> None:
        """The leader's answer; one to another request than that under way is passed over."""
        if not self._under_way or context != self._context():
            return
        for read in self._under_way:
            read.index = index
        self._answered += self._under_way
        self._under_way = []

    def due(self, applied: int, batches: int) -> list[Waiter]:
        """Those who need not wait any longer, oldest first, now that so much is applied."""
        if not self._answered:
            return []
        due: list[Waiter] = []
        left: list[_Read] = []
        for read in self._answered:
            if read.index <= applied and read.batches <= batches:
                due.append(read.waiter)
            else:
                left.append(read)
        self._answered = left
        return due

    def give_up(self) -> list[Waiter]:
        """Everybody who waits, oldest first: the answer will never come."""
        reads = self._answered + self._under_way + self._next
        self._answered, self._under_way, self._next = [], [], []
        return [read.waiter for read in reads]
