"""A frame as bytes of `proto/peer.proto` and back, without protobuf's objects. Pure.

A frame of one Raft message has about twenty values; made of protobuf's objects each of them costs a call out of
compiled code, and large data is copied once more. What is written here is what protobuf writes, and what is read here
is what protobuf reads: fields that a newer release may have added are passed over.

HOT: compiled by mypyc where that is possible.
"""

from typing import Final

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import MAX_NODE_ID, Entry, RaftMessage

_MAX_U32: Final = (1 << 32) - 1
_MAX_I64: Final = (1 << 63) - 1
_MAX_TERM: Final = limits.MAX_TERM
_MAX_INDEX: Final = limits.MAX_INDEX
_MAX_GROUP: Final = limits.MAX_GROUP
_MAX_CONTEXT_BYTES: Final = limits.MAX_CONTEXT_BYTES
_MAX_ENTRIES: Final = limits.MAX_ENTRIES_PER_MESSAGE
_MAX_ITEMS: Final = limits.MAX_ITEMS_PER_FRAME

LARGE_BYTES: Final = 64 * limits.KIB
"""From this on a copy costs more than a piece of its own."""

# A field begins with eight times its number, plus 2 when a length follows: one octet up to number 15.
_LAST: Final[list[bytes]] = [bytes((octet,)) for octet in range(128)]
_MORE: Final[list[bytes]] = [bytes((octet | 128,)) for octet in range(128)]


# --- writing ------------------------------------------------------------------------------------------


def encode(frame: Frame) -> bytes:
    """A frame without snapshots, and without what is unordered. Raises `ValueError`: a number that has no place."""
    return b"".join(encode_pieces(frame))


def encode_pieces(frame: Frame) -> list[bytes]:
    """The same as one piece, or as several if there are data of LARGE_BYTES or more: these are not copied, so that what
    several peers get is there once."""
    parts: list[bytes] = []
    large = False
    _put_number(parts, 8, frame.clock_ms)
    for group, message in frame.raft:
        encoded = _encode_message(group, message)
        if _has_large_entry(message):
            large = True
            size = 0
            for part in encoded:
                size += len(part)
            parts.append(_LAST[18])
            _put_varint(parts, size)
            parts += encoded
        else:
            _put_octets(parts, 18, b"".join(encoded))
    for group, time_ms, led_ms in frame.group_clocks:
        clock: list[bytes] = []
        _put_number(clock, 8, group)
        _put_number(clock, 16, time_ms)
        _put_number(clock, 24, led_ms)
        _put_octets(parts, 26, b"".join(clock))
    for group, envelope in frame.proposals:
        _put_pair(parts, 34, group, envelope)
        large = large or len(envelope) >= LARGE_BYTES
    for kind, data in frame.notices:
        _put_pair(parts, 42, kind, data)
        large = large or len(data) >= LARGE_BYTES
    return parts if large else [b"".join(parts)]


def _has_large_entry(message: RaftMessage) -> bool:
    for entry in message.entries:  # noqa: SIM110 - a generator costs more than most messages have entries
        if len(entry.data) >= LARGE_BYTES:
            return True
    return False


def _encode_message(group: int, message: RaftMessage) -> list[bytes]:
    parts: list[bytes] = []
    _put_number(parts, 8, group)
    _put_number(parts, 16, message.type)
    _put_number(parts, 24, message.term)
    _put_number(parts, 32, message.log_term)
    _put_number(parts, 40, message.index)
    _put_number(parts, 48, message.commit)
    _put_number(parts, 56, message.vote)
    if message.reject:
        _put_number(parts, 64, 1)
    _put_number(parts, 72, message.reject_hint)
    if message.context:
        _put_octets(parts, 82, message.context)
    for entry in message.entries:
        head: list[bytes] = []
        _put_number(head, 8, entry.term)
        _put_number(head, 16, entry.index)
        _put_number(head, 24, entry.type)
        if entry.data:
            head.append(_LAST[34])
            _put_varint(head, len(entry.data))
        before = b"".join(head)
        parts.append(_LAST[90])
        _put_varint(parts, len(before) + len(entry.data))
        parts.append(before)
        parts.append(entry.data)
    return parts


def _put_pair(parts: list[bytes], tag: int, number: int, data: bytes) -> None:
    head: list[bytes] = []
    _put_number(head, 8, number)
    if data:
        head.append(_LAST[18])
        _put_varint(head, len(data))
    before = b"".join(head)
    parts.append(_LAST[tag])
    _put_varint(parts, len(before) + len(data))
    parts.append(before)
    parts.append(data)


def _put_octets(parts: list[bytes], tag: int, octets: bytes) -> None:
    parts.append(_LAST[tag])
    _put_varint(parts, len(octets))
    parts.append(octets)


def _put_number(parts: list[bytes], tag: int, value: int) -> None:
    """A field with a number; 0 is what is not there."""
    if value == 0:
        return
    if value < 0 or value > _MAX_I64:
        raise ValueError(f"number {value} in a frame, 0 to {_MAX_I64} have a place")
    parts.append(_LAST[tag])
    _put_varint(parts, value)


def _put_varint(parts: list[bytes], value: int) -> None:
    while value > 127:
        parts.append(_MORE[value & 127])
        value >>= 7
    parts.append(_LAST[value])


# --- reading ------------------------------------------------------------------------------------------

_NO_FRAME: Final = "not a message of this protocol"


def decode(data: bytes, sender: int, receiver: int) -> Frame:
    """The frame that `sender` sent to `receiver`, all numbers in their bounds. Types of messages and entries are not
    checked, nor is the order of entries. Raises `ValueError`."""
    return _Reader(data).frame(sender, receiver)


class _Reader:
    """Where in the octets we are; `end` arguments are where the part that is read ends."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data: bytes = data
        self._at: int = 0

    def frame(self, sender: int, receiver: int) -> Frame:
        end = len(self._data)
        frame = Frame()
        while self._at < end:
            tag = self._varint(end)
            if tag == 8:
                frame.clock_ms = self._time(end)
            elif tag == 18:
                frame.raft.append(self._message(self._stop(end), sender, receiver))
            elif tag == 26:
                frame.group_clocks.append(self._clock(self._stop(end)))
            elif tag == 34:
                frame.proposals.append(self._pair(self._stop(end), _MAX_GROUP, "group"))
            elif tag == 42:
                frame.notices.append(self._pair(self._stop(end), _MAX_U32, "notice of kind"))
            else:
                self._pass_over(tag, end)
        items = len(frame.raft) + len(frame.group_clocks) + len(frame.proposals) + len(frame.notices)
        if items > _MAX_ITEMS:
            raise ValueError(f"frame with {items} items")
        return frame

    def _message(self, end: int, sender: int, receiver: int) -> tuple[int, RaftMessage]:
        group = 0
        message = RaftMessage(0, receiver, sender)
        while self._at < end:
            tag = self._varint(end)
            if tag == 8:
                group = self._number(end, _MAX_GROUP, "group")
            elif tag == 16:
                message.type = self._number(end, _MAX_U32, "Raft message of type")
            elif tag == 24:
                message.term = self._number(end, _MAX_TERM, "term")
            elif tag == 32:
                message.log_term = self._number(end, _MAX_TERM, "term")
            elif tag == 40:
                message.index = self._number(end, _MAX_INDEX, "log index")
            elif tag == 48:
                message.commit = self._number(end, _MAX_INDEX, "log index")
            elif tag == 56:
                message.vote = self._number(end, MAX_NODE_ID, "vote for node")
            elif tag == 64:
                message.reject = self._varint(end) != 0
            elif tag == 72:
                message.reject_hint = self._number(end, _MAX_INDEX, "log index")
            elif tag == 82:
                message.context = self._octets(end)
            elif tag == 90:
                message.entries.append(self._entry(self._stop(end)))
            else:
                self._pass_over(tag, end)
        if len(message.context) > _MAX_CONTEXT_BYTES:
            raise ValueError(f"Raft message with a context of {len(message.context)} bytes")
        if len(message.entries) > _MAX_ENTRIES:
            raise ValueError(f"Raft message with {len(message.entries)} entries")
        return group, message

    def _entry(self, end: int) -> Entry:
        entry = Entry()
        while self._at < end:
            tag = self._varint(end)
            if tag == 8:
                entry.term = self._number(end, _MAX_TERM, "entry of term")
            elif tag == 16:
                entry.index = self._number(end, _MAX_INDEX, "entry of index")
            elif tag == 24:
                entry.type = self._number(end, _MAX_U32, "entry of type")
            elif tag == 34:
                entry.data = self._octets(end)
            else:
                self._pass_over(tag, end)
        return entry

    def _clock(self, end: int) -> tuple[int, int, int]:
        group = time_ms = led_ms = 0
        while self._at < end:
            tag = self._varint(end)
            if tag == 8:
                group = self._number(end, _MAX_GROUP, "group")
            elif tag == 16:
                time_ms = self._time(end)
            elif tag == 24:
                led_ms = self._time(end)
            else:
                self._pass_over(tag, end)
        return group, time_ms, led_ms

    def _pair(self, end: int, most: int, what: str) -> tuple[int, bytes]:
        number = 0
        data = b""
        while self._at < end:
            tag = self._varint(end)
            if tag == 8:
                number = self._number(end, most, what)
            elif tag == 18:
                data = self._octets(end)
            else:
                self._pass_over(tag, end)
        return number, data

    def _pass_over(self, tag: int, end: int) -> None:
        """The value of a field that is not known here; the lower three bits of its tag say what that looks like."""
        shape = tag & 7
        if not 8 <= tag <= _MAX_U32 or shape in (3, 4, 6, 7):
            raise ValueError(_NO_FRAME)
        if shape == 0:
            self._varint(end)
        elif shape == 2:
            self._at = self._stop(end)
        else:
            self._at += 8 if shape == 1 else 4
            if self._at > end:
                raise ValueError(_NO_FRAME)

    def _octets(self, end: int) -> bytes:
        stop = self._stop(end)
        octets = self._data[self._at : stop]
        self._at = stop
        return octets

    def _stop(self, end: int) -> int:
        """Where the part ends whose length stands here."""
        length = self._varint(end)
        if length > end - self._at:
            raise ValueError(_NO_FRAME)
        return self._at + length

    def _number(self, end: int, most: int, what: str) -> int:
        value = self._varint(end)
        if value > most:
            raise ValueError(f"{what} {value}")
        return value

    def _time(self, end: int) -> int:
        """Of a clock: a number with a sign."""
        value = self._varint(end)
        if value > _MAX_TERM:
            raise ValueError(f"clock {value if value <= _MAX_I64 else value - (1 << 64)}")
        return value

    def _varint(self, end: int) -> int:
        data, at = self._data, self._at
        value = shift = 0
        while at < end and shift < 63:
            octet = data[at]
            at += 1
            if octet < 128:
                self._at = at
                return value | octet << shift
            value |= (octet & 127) << shift
            shift += 7
        # The 64th bit has an octet for itself.
        if at == end or data[at] > 1:
            raise ValueError(_NO_FRAME)
        self._at = at + 1
        return value | data[at] << 63
