"""Messages that a holder gave back, too many to be put in line in one go. HOT.

They stand in line at once, as one piece, and become messages that came back when they are next, or bit by bit with the
entries that follow (RULES C4).
"""

from collections.abc import Iterator
from itertools import islice

from mayfly.node.shard.message import Message, deadline_ms
from mayfly.node.shard.packed import AS_PACKED
from mayfly.node.shard.retiming import Retiming


class ReturningMessages:
    """What was held, in order of delivery; taken from the front.

    ``way``: in which they come back (`node.shard.message`). ``retiming`` and, unless it is AS_PACKED, ``queue_ttl_ms``
    say which deadlines are others by now.
    """

    __slots__ = (
        "_first", "_held", "_ids", "_last", "_listed", "_readers", "_visited", "queue_ttl_ms", "retiming", "way",
    )  # fmt: skip

    def __init__(
        self, held: dict[int, Message], way: int, retiming: Retiming | None, queue_ttl_ms: int = AS_PACKED
    ) -> None:
        """``held`` is nobody else's from now on, and not empty."""
        self._held = held
        self.way = way
        self.retiming = retiming
        self.queue_ttl_ms = queue_ttl_ms
        self._first, self._last = next(iter(held)), next(reversed(held))
        # Long settled ids in between are walked over, unless they are most.
        self._listed: list[int] | None = None if self._last - self._first < 2 * len(held) else list(held)
        self._visited = 0
        self._ids: Iterator[int] = self._left()
        self._readers: list[ReturningReader] = []

    @property
    def count(self) -> int:
        """How many are left."""
        return len(self._held)

    def held(self) -> list[Message]:
        """Those that are left, as they were held."""
        return list(self._held.values())

    def _left(self) -> Iterator[int]:
        """The ids behind those that were visited."""
        if self._listed is None:
            return iter(range(self._first + self._visited, self._last + 1))
        return islice(self._listed, self._visited, None)

    def read(self) -> "ReturningReader":
        """Whoever looks at what is left now, some at a time."""
        reader = ReturningReader(self, self._held, self._left())
        self._readers.append(reader)
        return reader

    def is_read(self, reader: "ReturningReader") -> None:
        """It looks no more."""
        if reader in self._readers:
            self._readers.remove(reader)

    def take(self, most: int) -> list[Message]:
        """The next ones, as they came back; they leave."""
        taken: list[Message] = []
        held = self._held
        if not held:
            return taken
        readers = self._readers
        for number in self._ids:
            self._visited += 1
            message = held.pop(number, None)
            if message is not None:
                for reader in readers:
                    if number > reader.seen:
                        reader.taken[number] = message
                taken.append(self._back(message))
                if len(taken) >= most or not held:
                    break
        return taken

    def between(self, start: int, stop: int) -> list[Message]:
        """Some of those that are left, as they will have come back."""
        return [self._back(message) for message in islice(self._held.values(), start, stop)]

    def messages(self) -> list[Message]:
        """All that are left, as they will have come back."""
        return self.between(0, self.count)

    def retime(self, queue_ttl_ms: int) -> None:
        """As `Packed.retime`."""
        self.queue_ttl_ms = queue_ttl_ms

    def _back(self, message: Message) -> Message:
        if self.queue_ttl_ms != AS_PACKED:
            message = message.with_deadline(
                deadline_ms(message.enqueued_ms, message.ttl_ms, self.queue_ttl_ms)
            )
        elif self.retiming is not None:
            message = self.retiming.of(message)
        return message.returned(self.way)


class ReturningReader:
    """Looks at messages that return, as they were held at one moment, some at a time, while the queue goes on: what
    leaves meanwhile is kept for it. All of a million at once would hold up everything else."""

    __slots__ = ("_held", "_ids", "_returning", "queue_ttl_ms", "retiming", "seen", "taken")

    def __init__(self, returning: ReturningMessages, held: dict[int, Message], ids: Iterator[int]) -> None:
        """``held`` is the messages' own: those that are left have these ``ids``."""
        self._returning = returning
        self._held = held
        self._ids = ids
        self.seen = -1
        """The last id that it has come to."""
        self.taken: dict[int, Message] = {}
        """What has left since then, and it has not come to."""
        self.queue_ttl_ms = returning.queue_ttl_ms
        self.retiming = returning.retiming

    def next(self, most: int) -> list[Message]:
        """The next ones, as they were held; none at the end."""
        found: list[Message] = []
        held, taken = self._held, self.taken
        for number in self._ids:
            self.seen = number
            message = held.get(number)
            if message is None:
                message = taken.pop(number, None)
            if message is not None:
                found.append(message)
                if len(found) >= most:
                    return found
        self.close()
        return found

    def close(self) -> None:
        """Look no more."""
        self._returning.is_read(self)
        self.taken.clear()
