"""The messages of a stream by their offsets: any of them is found, and may leave, wherever it stands. HOT.

They are in a line (`node.shard.line`), in the order of their offsets. Where one has left that was deep inside, its
piece keeps a note of that until half of it has gone; then the piece is packed anew, and small ones are put together. So
what one that leaves costs does not depend on how many there are, and what is left of a stream is packed as well as
before.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from mayfly.node.shard.leavers import GONE
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.packed import ENQUEUED_MS, STREAM_OFFSET, Packed, pack

_UNPACKED_PIECES: Final = 4
_SMALL_PARTS: Final = 16
"""A piece with less than one of so many parts of its messages is put together with another such."""
_NO_MESSAGES: Final[list[Message]] = []


class Unpacked:
    """Pieces of one line that were read last, as several consumers are often at the same place. Of this replica, and no
    part of the state."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: dict[Packed, list[Message]] = {}

    def of(self, piece: Packed) -> list[Message]:
        """Its messages; not to be changed."""
        messages = self._messages.get(piece)
        if messages is None:
            messages = piece.messages()
            self._messages[piece] = messages
            if len(self._messages) > _UNPACKED_PIECES:
                del self._messages[next(iter(self._messages))]
        return messages

    def forget(self, piece: Packed) -> None:
        """It is another by now."""
        if self._messages:
            self._messages.pop(piece, None)

    def clear(self) -> None:
        """All of them are."""
        self._messages.clear()


def last_offset(line: Line) -> int:
    """The offset of the last message that is there, of at least one."""
    if line.back:
        return line.back[-1].stream_offset
    if line.packed_count:
        piece = _piece(line, len(line.packed) - 1)
        if piece.there is None:
            return piece.last(STREAM_OFFSET)
        return piece.message(piece.there.rindex(1)).stream_offset
    return line.items[-1].stream_offset


def last_enqueued_ms(line: Line) -> int:
    """When the last message came that is there, 0 where none is."""
    if not line.count():
        return 0
    if line.back:
        return line.back[-1].enqueued_ms
    if line.packed_count:
        piece = _piece(line, len(line.packed) - 1)
        # It is part of the state, so not of those that were gone before the piece was cut.
        piece.settle()
        return piece.last(ENQUEUED_MS)
    return line.items[-1].enqueued_ms


def read(line: Line, unpacked: Unpacked, offset: int, most: int) -> list[Message]:
    """Messages from this offset on, at most so many: fewer where the line is cut, none only where there are none."""
    items = line.items
    if line.head < len(items) and items[-1].stream_offset >= offset:
        start = _place_from(items, line.head, offset)
        return items[start : start + most]
    if line.packed_count:
        number = _number_from(line, offset)
        while number < len(line.packed):
            messages = unpacked.of(_piece(line, number))
            start = _place_from(messages, 0, offset)
            if start < len(messages):
                return messages[start : start + most]
            # All from there on have left.
            number += 1
    if line.back:
        start = _place_from(line.back, 0, offset)
        return line.back[start : start + most]
    return _NO_MESSAGES


def find(line: Line, offset: int) -> Message | None:
    """The message with this offset, if it is there."""
    for messages, head in ((line.items, line.head), (line.back, 0)):
        if head < len(messages) and messages[head].stream_offset <= offset <= messages[-1].stream_offset:
            place = _place_from(messages, head, offset)
            message = messages[place]
            return message if message.stream_offset == offset else None
    if line.packed_count:
        number = _number_from(line, offset)
        if number < len(line.packed):
            piece = _piece(line, number)
            place = piece.place_from(offset)
            if piece.is_at(place, offset):
                return piece.message(place)
    return None


def since(line: Line, time_ms: int) -> int:
    """The offset of the first message that came then or later, -1 if there is none. Shard time never goes back, so
    neither do they."""
    items = line.items
    if line.head < len(items) and items[-1].enqueued_ms >= time_ms:
        return items[_first_since(items, line.head, time_ms)].stream_offset
    for piece in line.packed:
        assert isinstance(piece, Packed)
        if piece.last(ENQUEUED_MS) >= time_ms:
            place = bisect_left(list(piece.column(ENQUEUED_MS)), time_ms)
            if place < piece.count:
                return list(piece.column(STREAM_OFFSET))[place]
    if line.back and line.back[-1].enqueued_ms >= time_ms:
        return line.back[_first_since(line.back, 0, time_ms)].stream_offset
    return -1


def remove(line: Line, unpacked: Unpacked, offset: int) -> Message | None:
    """The message with this offset leaves; None if it is not there."""
    items = line.items
    if line.head < len(items) and offset <= items[-1].stream_offset:
        place = _place_from(items, line.head, offset)
        message = items[place]
        if message.stream_offset != offset:
            return None
        if place == line.head:
            line.advance(1)
        else:
            del items[place]
        return message
    if line.packed_count:
        number = _number_from(line, offset)
        if number < len(line.packed):
            return _remove_packed(line, unpacked, number, offset)
    back = line.back
    if back and offset <= back[-1].stream_offset:
        place = _place_from(back, 0, offset)
        message = back[place]
        if message.stream_offset == offset:
            del back[place]
            return message
    return None


def _remove_packed(line: Line, unpacked: Unpacked, number: int, offset: int) -> Message | None:
    """The same, of a piece."""
    piece = _piece(line, number)
    place = piece.place_from(offset)
    if not piece.is_at(place, offset):
        return None
    message = piece.message(place)
    unpacked.forget(piece)
    piece.leave(place)
    line.packed_count -= 1
    _tidy(line, unpacked, number)
    return message


def _tidy(line: Line, unpacked: Unpacked, number: int) -> None:
    """One has left this piece: if half of it has, it is packed anew."""
    piece = _piece(line, number)
    if not piece.count:
        del line.packed[number]
        piece.let_go()
    elif 2 * piece.count <= piece.cut:
        piece.halve()
        _join(line, unpacked, number)


class Leaving:
    """Messages leave a line one after the other, from anywhere, and the same becomes of the line as of a `remove` of
    each, but that the entries in which they stand are told to ``departed``, sooner or later. Which pieces there are is
    looked up once for many. ``body_bytes``: of all that have left.
    """

    __slots__ = ("_departed", "_lasts", "_line", "_pieces", "_unpacked", "body_bytes")

    def __init__(self, line: Line, unpacked: Unpacked, departed: list[tuple[int, int]]) -> None:
        self._line = line
        self._unpacked = unpacked
        self._departed = departed
        self._pieces: list[Packed] = []
        self._lasts: list[int] = []
        self.body_bytes = 0

    def begin(self) -> None:
        """Something else may have become of the line; nothing has left yet."""
        self.body_bytes = 0
        packed = self._line.packed
        # New pieces come at the end alone.
        if len(packed) != len(self._pieces) or (packed and packed[-1] is not self._pieces[-1]):
            self._look()

    def _look(self) -> None:
        """Know the pieces as they are."""
        line = self._line
        self._pieces = [_piece(line, number) for number in range(len(line.packed))]
        self._lasts = [piece.last(STREAM_OFFSET) for piece in self._pieces]

    def leave_together(self, offsets: list[int], are_there: bool) -> list[int]:
        """Those with these offsets, which are all different, leave in this order; those that were not there.
        ``are_there``: all are."""
        line = self._line
        if not are_there or not self._lasts:
            return [offset for offset in offsets if not self.leave(offset, are_there)]
        # Of most pieces it does not matter who of them comes first, and each is asked once for all of its messages.
        ordered = sorted(offsets)
        start = bisect_right(ordered, line.items[-1].stream_offset)
        if start >= len(line.items) - line.head:
            # The first piece is unpacked meanwhile.
            return [offset for offset in offsets if not self.leave(offset, are_there)]
        stop = bisect_right(ordered, self._lasts[-1])
        small = line.piece // _SMALL_PARTS
        apart = set(ordered[:start])
        apart.update(ordered[stop:])
        number = 0
        at = start
        while at < stop:
            number = bisect_left(self._lasts, ordered[at], number)
            piece = self._pieces[number]
            if piece.has_left:
                self._look()
                continue
            end = bisect_right(ordered, self._lasts[number], at, stop)
            left = piece.count - (end - at)
            if left <= small or 2 * left <= piece.cut:
                apart.update(ordered[at:end])
            else:
                self.body_bytes += piece.leave_together(ordered[at:end], self._departed)
                self._unpacked.forget(piece)
                line.packed_count -= end - at
            at = end
        if apart:
            for offset in offsets:
                if offset in apart:
                    self.leave(offset, is_there=True)
        return []

    def leave(self, offset: int, is_there: bool) -> bool:
        """The one with this offset leaves; whether it was there. ``is_there``: it is."""
        line = self._line
        lasts = self._lasts
        if not lasts or offset > lasts[-1] or offset <= line.items[-1].stream_offset:
            return self._leave_at_hand(offset)
        number = bisect_left(lasts, offset)
        piece = self._pieces[number]
        if piece.has_left:
            self._look()
            return self.leave(offset, is_there)
        body_length = piece.leave_at(offset, is_there, self._departed)
        if body_length == GONE:
            return False
        self._unpacked.forget(piece)
        line.packed_count -= 1
        self.body_bytes += body_length
        if 2 * piece.count <= piece.cut:
            _tidy(line, self._unpacked, number)
            if len(line.packed) != len(self._pieces):
                self._look()
        return True

    def _leave_at_hand(self, offset: int) -> bool:
        """The same of one that is not packed."""
        line = self._line
        message = remove(line, self._unpacked, offset)
        if message is None:
            return False
        if len(line.packed) != len(self._pieces):
            self._look()
        self._departed.append((message.index, 1))
        self.body_bytes += message.body_length
        return True


def count_off(line: Line) -> None:
    """What has left pieces of a line is all told to ``departed`` (`Leaving`)."""
    for number in range(len(line.packed)):
        _piece(line, number).count_off()


def _join(line: Line, unpacked: Unpacked, number: int) -> None:
    """If a piece has become small, and one beside it is, they are one from now on."""
    small = line.piece // _SMALL_PARTS
    piece = _piece(line, number)
    if piece.count > small:
        return
    for other in (number - 1, number + 1):
        if 0 <= other < len(line.packed) and _piece(line, other).count <= small:
            first = min(number, other)
            one, two = _piece(line, first), _piece(line, first + 1)
            unpacked.forget(one)
            unpacked.forget(two)
            line.packed[first] = pack(one.messages() + two.messages())
            del line.packed[first + 1]
            one.let_go()
            two.let_go()
            return


def _piece(line: Line, number: int) -> Packed:
    piece = line.packed[number]
    assert isinstance(piece, Packed)
    return piece


def _number_from(line: Line, offset: int) -> int:
    """Which of what is packed is the first that reaches to this offset."""
    low, high = 0, len(line.packed)
    while low < high:
        middle = (low + high) // 2
        if _piece(line, middle).last(STREAM_OFFSET) < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _place_from(messages: list[Message], head: int, offset: int) -> int:
    """The place, from ``head`` on, of the first with this offset or a higher one."""
    low = head + offset - messages[head].stream_offset
    if low <= head:
        return head
    high = len(messages)
    if low < high:
        if messages[low].stream_offset == offset:
            # No gap before it.
            return low
        high = low
    low = head
    while low < high:
        middle = (low + high) // 2
        if messages[middle].stream_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _first_since(messages: list[Message], head: int, time_ms: int) -> int:
    """The place, from ``head`` on, of the first that came then or later."""
    low, high = head, len(messages)
    while low < high:
        middle = (low + high) // 2
        if messages[middle].enqueued_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    return low
