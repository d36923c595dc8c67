"""The messages at hand of a line from which they leave anywhere, by their deadlines (RULES X2). HOT for such queues.

No part of any state: it is made when somebody asks, and lines forget it when they are put together anew.
"""

from bisect import bisect_right
from typing import Final

from mayfly.node.shard.message import Message, is_before
from mayfly.node.shard.near_deaths import NearDeaths

_MANY: Final = 8
"""So many times fewer than there are come to their places one by one; more are put in order with all others."""


def by_deadline(message: Message) -> int:
    """Messages with deadlines are sorted by these; of the same deadline they stay in their order."""
    return message.deadline_ms


_NO_MESSAGES: Final[list[Message]] = []
_NO_TIMES: Final[list[int]] = []
"""What all have of which nothing is known; never added to."""


class AtHand:
    """If it ``is_known``: ``messages`` that have deadlines, in the order of these, of the same one as in line. Some may
    have left the line at its head since. ``noted`` of all that ever came to the line are known here (`Line.noted`).

    ``in_order``: messages stand in line in the order in which they were enqueued, so each is found in a few steps.
    ``near``: what is due soon of what is not at hand, if it is known.
    """

    __slots__ = ("_last", "deadlines_ms", "in_order", "is_known", "messages", "near", "noted")

    def __init__(self) -> None:
        self.noted = 0
        self.in_order = False
        self.near: NearDeaths | None = None
        self.forget()

    def forget(self) -> None:
        """It is not known any more what is at hand."""
        self.is_known = False
        self.messages = _NO_MESSAGES
        self.deadlines_ms = _NO_TIMES
        self._last: Message | None = None

    def begin(self, messages: list[Message], noted: int) -> None:
        """These are at hand, in line."""
        self.is_known = True
        self.in_order = True
        self._add_last(messages)
        timed = [message for message in messages if message.deadline_ms >= 0]
        timed.sort(key=by_deadline)
        self.messages = timed
        self.deadlines_ms = [message.deadline_ms for message in timed]
        self.noted = noted

    def add(self, messages: list[Message], noted: int) -> bool:
        """These have come to the end of the line. False, and nothing is done, if they are so many that it is better to
        begin anew."""
        if len(messages) * _MANY > len(self.messages):
            return False
        self._add_last(messages)
        deadlines_ms = self.deadlines_ms
        for message in messages:
            deadline_ms = message.deadline_ms
            if deadline_ms >= 0:
                at = bisect_right(deadlines_ms, deadline_ms)
                deadlines_ms.insert(at, deadline_ms)
                self.messages.insert(at, message)
        self.noted = noted
        return True

    def _add_last(self, messages: list[Message]) -> None:
        before = self._last
        for message in messages:
            if before is not None and not is_before(before, message):
                self.in_order = False
            before = message
        self._last = before

    def due(self, until_ms: int) -> list[Message]:
        """Those whose deadline is not later."""
        return self.messages[: bisect_right(self.deadlines_ms, until_ms)]

    def leave_due(self, until_ms: int) -> None:
        """Those whose deadline is not later leave."""
        self.leave(bisect_right(self.deadlines_ms, until_ms))

    def leave(self, count: int) -> None:
        """The first so many leave."""
        del self.messages[:count]
        del self.deadlines_ms[:count]


def number_of(message: Message, messages: list[Message], start: int) -> int:
    """Where it is among messages that were enqueued one after the other, from ``start`` on; -1 if it is not there."""
    low = start
    high = len(messages)
    while low < high:
        middle = (low + high) // 2
        if is_before(messages[middle], message):
            low = middle + 1
        else:
            high = middle
    return low if low < len(messages) and messages[low] is message else -1
