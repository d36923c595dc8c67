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

    __slots__ = ("_held", "_ids", "queue_ttl_ms", "retiming", "way")

    def __init__(
        self, held: dict[int, Message], way: int, retiming: Retiming | None, queue_ttl_ms: int = AS_PACKED
    ) -> None:
        """``held`` is nobody else's from now on, and not empty."""
        self._held = held
        self.way = way
        self.retiming = retiming
        self.queue_ttl_ms = queue_ttl_ms
        first, last = next(iter(held)), next(reversed(held))
        if last - first < 2 * len(held):
            self._ids: Iterator[int] = iter(range(first, last + 1))
        else:
            self._ids = iter(list(held))

    @property
    def count(self) -> int:
        """How many are left."""
        return len(self._held)

    def held(self) -> list[Message]:
        """Those that are left, as they were held."""
        return list(self._held.values())

    def take(self, most: int) -> list[Message]:
        """The next ones, as they came back; they leave."""
        taken: list[Message] = []
        held = self._held
        if not held:
            return taken
        for number in self._ids:
            message = held.pop(number, None)
            if message is not None:
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
