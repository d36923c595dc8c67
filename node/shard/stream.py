"""What a queue has besides that is a stream: its messages stay, and each consumer has its own place (RULES J1). HOT.

The messages are those in the queue's ``ready`` line, in the order of their offsets, without gaps; a message knows its
own (`Message.stream_offset`). What leaves the line leaves at its head: by age, or because there is too much.
"""

from bisect import bisect_left
from typing import Any, Final

from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import NO_TTL, Message
from mayfly.node.shard.packed import ENQUEUED_MS, Packed

# From where a consumer begins.
FIRST: Final = 0
LAST: Final = 1
NEXT: Final = 2
OFFSET: Final = 3
"""From this offset on, or from the first one there is behind it."""
TIME: Final = 4
"""From the first message on that came at this shard time (ms) or later."""
SINCE: Final = 5
"""The same so many ms ago."""

_UNPACKED_PIECES: Final = 4
_NO_MESSAGES: Final[list[Message]] = []


class Start:
    """From where a consumer begins: one of the kinds above, with its number where it takes one."""

    __slots__ = ("kind", "number")

    def __init__(self, kind: int, number: int = 0) -> None:
        self.kind = kind
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Start) and (self.kind, self.number) == (other.kind, other.number)

    def __hash__(self) -> int:
        return hash((self.kind, self.number))

    def __repr__(self) -> str:
        return f"Start({self.kind}, {self.number})"


AT_THE_END: Final = Start(NEXT)


class Stream:
    """The places in one stream.

    ``next_offset`` is that of the next message that is published. ``places`` has, for each attached consumer by its
    order, the offset of the next message that it is given: it may be one that is still to come. Consumers that have
    room and are given nothing because there is nothing new are ``idle``, all others with room wait in their band.
    ``woken_offset``: ``next_offset`` when the idle ones were last looked at.
    """

    __slots__ = ("_unpacked", "idle", "next_offset", "places", "woken_offset")

    def __init__(self) -> None:
        self.next_offset = 0
        self.places: dict[int, int] = {}
        self.idle: dict[int, Holder] = {}
        self.woken_offset = 0
        # Pieces that were read last, by their first offset, as several consumers are often at the same place. Of this
        # replica, and no part of the state.
        self._unpacked: dict[int, list[Message]] = {}

    def placed(self, content: Message, enqueued_ms: int, deadline_ms: int) -> Message:
        """The content as the next message of the stream."""
        offset = self.next_offset
        self.next_offset = offset + 1
        return Message(
            content.index, content.offset, content.key_length, content.header_length, content.body_length,
            enqueued_ms, deadline_ms, offset, NO_TTL,
        )

    def first_offset(self, line: Line) -> int:
        """The offset of the first message that is there; ``next_offset`` where there is none."""
        return self.next_offset - line.count()

    def start(self, line: Line, start: Start, now_ms: int) -> int:
        """The place of a consumer that begins there."""
        if start.kind == FIRST:
            return self.first_offset(line)
        if start.kind == LAST:
            return max(self.next_offset - 1, self.first_offset(line))
        if start.kind == OFFSET:
            return max(start.number, self.first_offset(line))
        if start.kind == NEXT:
            return self.next_offset
        return self._since(line, start.number if start.kind == TIME else now_ms - start.number)

    def _since(self, line: Line, time_ms: int) -> int:
        """The offset of the first message that came then or later. Shard time never goes back, so neither do they."""
        offset = self.first_offset(line)
        at_hand = len(line.items) - line.head
        found = bisect_left([message.enqueued_ms for message in line.items], time_ms, line.head) - line.head
        if found < at_hand:
            return offset + found
        offset += at_hand
        for packed in line.packed:
            assert isinstance(packed, Packed)
            if packed.last(ENQUEUED_MS) >= time_ms:
                return offset + bisect_left(list(packed.column(ENQUEUED_MS)), time_ms)
            offset += packed.count
        return offset + bisect_left([message.enqueued_ms for message in line.back], time_ms)

    def read(self, line: Line, offset: int, most: int) -> list[Message]:
        """Messages from this offset on, one of those that are there, at most so many: fewer where the line is cut."""
        place = offset - self.first_offset(line)
        at_hand = len(line.items) - line.head
        if place < at_hand:
            start = line.head + place
            return line.items[start : start + most]
        place -= at_hand
        if place >= line.packed_count:
            start = place - line.packed_count
            return line.back[start : start + most]
        return self._read_packed(line, offset, place, most)

    def _read_packed(self, line: Line, offset: int, place: int, most: int) -> list[Message]:
        """``place``: where it is behind the first that is packed."""
        for first, messages in self._unpacked.items():
            if first <= offset < first + len(messages):
                return messages[offset - first : offset - first + most]
        before = 0
        for packed in line.packed:
            if place < before + packed.count:
                assert isinstance(packed, Packed)
                messages = packed.messages()
                self._remember(offset - (place - before), messages)
                return messages[place - before : place - before + most]
            before += packed.count
        return _NO_MESSAGES

    def _remember(self, first: int, messages: list[Message]) -> None:
        unpacked = self._unpacked
        unpacked[first] = messages
        if len(unpacked) > _UNPACKED_PIECES:
            del unpacked[next(iter(unpacked))]

    def forget(self, holder: Holder) -> None:
        """The consumer is detached."""
        self.places.pop(holder.order, None)
        self.idle.pop(holder.order, None)

    def row(self) -> list[object]:
        """As it is written to snapshots: what is idle follows from it."""
        return [self.next_offset, list(self.places.items())]

    def restore(self, row: Any, holders: list[Holder]) -> None:
        """Become what a ``row`` says, with these holders, of which those that wait are in their bands."""
        self.next_offset, places = row
        self.woken_offset = self.next_offset
        self.places = dict(places)
        for holder in holders:
            if holder.attached and holder.active and not holder.waiting and holder.room() > 0:
                self.idle[holder.order] = holder
