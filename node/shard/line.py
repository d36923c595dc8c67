"""A line of messages: first in, first out, in a list with a head, so that runs leave it by slice. HOT."""

from typing import Final

from node.shard.message import Message

_TRIM_FROM: Final = 256
_NOTHING: Final[list[Message]] = []
"""What all lines that were always empty have in common; never added to. Most queues are such, and a list takes 56
bytes."""


class Line:
    """Messages in order. ``items[head:]`` are in it; what is before ``head`` has left and is trimmed now and
    then.

    ``timed`` counts those with a deadline: without any, a whole run can leave unlooked at. ``gone`` counts
    all that have left since this object was made: whoever looks from outside knows a message again by its
    place, ``gone`` for the first in line.
    """

    __slots__ = ("gone", "head", "items", "timed")

    def __init__(self) -> None:
        self.items = _NOTHING
        self.head = 0
        self.timed = 0
        self.gone = 0

    def count(self) -> int:
        """How many are in line."""
        return len(self.items) - self.head

    def append(self, message: Message) -> None:
        """Add one at the end."""
        self.own_items().append(message)
        if message.deadline_ms >= 0:
            self.timed += 1

    def own_items(self) -> list[Message]:
        """``items``, to append to."""
        if self.items is _NOTHING:
            self.items = []
        return self.items

    def first_deadline_ms(self) -> int:
        """The deadline of the head; -1 when it has none or there is no head."""
        if self.timed == 0 or self.head == len(self.items):
            return -1
        return self.items[self.head].deadline_ms

    def advance(self, count: int) -> None:
        """The first ``count`` have left (their share of ``timed`` is taken off by the caller)."""
        self.gone += count
        head = self.head + count
        items = self.items
        if head == len(items):
            items.clear()
            self.head = 0
        elif head >= _TRIM_FROM and head * 2 >= len(items):
            del items[:head]
            self.head = 0
        else:
            self.head = head

    def live(self) -> list[Message]:
        """A copy of what is in line, in order."""
        return self.items[self.head :]

    def fill(self, messages: list[Message], timed: int) -> None:
        """These instead of what was in line; ``timed`` of them have a deadline."""
        self.gone += self.count()
        self.items = messages
        self.head = 0
        self.timed = timed

    def leave(self) -> tuple[list[Message], int]:
        """All that is in line leaves it: a list, and from where on it has them. However many, it takes no time."""
        items, head = self.items, self.head
        self.fill(_NOTHING, 0)
        return items, head

    def replace(self, messages: list[Message]) -> None:
        """These instead of what was in line."""
        timed = 0
        for message in messages:
            if message.deadline_ms >= 0:
                timed += 1
        self.fill(messages, timed)
