"""What a redrive looks at next, for who decides about it: read off the queue, in the order in which messages leave it.
"""

from typing import Final

from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.moment import LineName, named_lines
from mayfly.node.shard.packed import ACQUIRED_COUNT, ENQUEUED_MS, INDEX, OFFSET, Packed
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.redrive import Place

AT_ONCE: Final = 4096
"""Messages at most that one look brings."""


class LineAhead:
    """Messages of one line, in order; with none the line ``name`` is at its end, and there is no other behind it."""

    __slots__ = ("messages", "name")

    def __init__(self, name: LineName, messages: list[Message]) -> None:
        self.name = name
        self.messages = messages

    def place_of(self, message: Message | None) -> Place:
        """The place behind a message of this line that stays, or at its beginning."""
        is_back, priority = self.name
        if message is None:
            return Place(is_back, priority, 0, 0, 0, 0)
        return Place(
            is_back, priority, message.index, message.offset, message.enqueued_ms, message.acquired_count
        )


def ahead_of(queue: Queue, place: Place | None, until_ms: int) -> LineAhead:
    """What comes behind a place (None: from the beginning on), some thousands at most. Of what was never delivered
    only that which was enqueued until then."""
    names = {id(line): name for name, line in named_lines(queue)}
    lines = [(names[id(line)], line) for line in queue.lines()]
    if place is not None:
        wanted = (place.is_back, place.priority)
        numbers = [number for number, (name, _) in enumerate(lines) if name == wanted]
        lines = lines[numbers[0] if numbers else 0 :]
        if not numbers:
            place = None
    for number, (name, line) in enumerate(lines):
        start = _place_behind(line, place) if place is not None and number == 0 else 0
        messages = _segment(line, start)
        if not name[0]:
            messages = _up_to(messages, until_ms)
        if messages:
            return LineAhead(name, messages)
    return LineAhead(lines[-1][0], [])


def _up_to(messages: list[Message], until_ms: int) -> list[Message]:
    """Those before the first that came later."""
    for number, message in enumerate(messages):
        if message.enqueued_ms > until_ms:
            return messages[:number]
    return messages


def _is_at(message: Message, place: Place) -> bool:
    return (
        message.index == place.index
        and message.offset == place.offset
        and message.enqueued_ms == place.enqueued_ms
        and message.acquired_count == place.acquired_count
    )


def _place_behind(line: Line, place: Place) -> int:
    """How many of a line are up to a message, that one included; 0 if it is not there any more."""
    passed = 0
    for message in line.items[line.head :]:
        passed += 1
        if _is_at(message, place):
            return passed
    for piece in line.packed:
        if isinstance(piece, Packed) and piece.may_hold(place.index, place.index):
            wanted = (place.index, place.offset, place.enqueued_ms, place.acquired_count)
            columns = [piece.column(number) for number in (INDEX, OFFSET, ENQUEUED_MS, ACQUIRED_COUNT)]
            for within, found in enumerate(zip(*columns, strict=True), 1):
                if found == wanted:
                    return passed + within
        passed += piece.count
    for message in line.back:
        passed += 1
        if _is_at(message, place):
            return passed
    return 0


def _segment(line: Line, start: int) -> list[Message]:
    """Messages of a line from a place on, up to the end of the piece that this is in."""
    end = len(line.items) - line.head
    if start < end:
        return line.between(start, min(end, start + AT_ONCE))
    for piece in line.packed:
        if start < end + piece.count:
            return line.between(start, min(end + piece.count, start + AT_ONCE))
        end += piece.count
    return line.between(start, min(end + len(line.back), start + AT_ONCE))
