"""Transient queues of other nodes: what travels between a client's node (the guest) and
the node that hosts the queue.

Six kinds of notices, carried by the frames between nodes all but TRANSFER and RECEIVED in order:

    REQUEST   guest -> host   commands of a stream, numbered 1, 2, 3, ...
    EVENTS    host -> guest   their answers, deliveries and cancellations, numbered alike
    LOST      host -> guest   the stream is over
    ENDED     guest -> host   the stream is over
    TRANSFER  any  -> host    dead letters for a hosted queue (an encoded TRANSFER)
    RECEIVED  host -> any     how far a lane of dead letters has arrived

A stream is a session: it holds as long as nothing is missing.  A gap in the numbers,
silence, or the end of the peer's stream ends it on both sides: the guest's commands
are answered with SESSION_LOST, its consumers are cancelled, the host takes back what
they held.  The next command opens a new stream.  Transfers need no stream: they are
repeated until RECEIVED says that they have arrived.

    REQUEST  = stream u64, sequence u64, msgpack [[flags, command], ...]
    EVENTS   = stream u64, sequence u64, length u32, msgpack [item, ...][length], contents
    LOST, ENDED = stream u64
    RECEIVED = queue u64, source u64, up to u64
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final

import msgspec

from mayfly.cluster.group.fed_entry import Payloads
from mayfly.node.limits import MIB
from mayfly.node.notice_kinds import RECEIVED, TRANSFER
from mayfly.node.shard.effects import ConsumerCancelled, Deliver
from mayfly.node.shard.message import Message
from mayfly.node.shard.results import GetResult
from mayfly.node.shard.travel import Packer, Unpacker

UNORDERED: Final = frozenset((TRANSFER, RECEIVED))
"""Kinds that belong to no stream: they may overtake the others and be overtaken (`cluster.host.frame.Frame`)."""

WANTED: Final = 1
"""Flag of commands without a result: somebody waits for their end."""

NOBODY: Final = (0, 0)
"""The session in effects that have travelled: they are for whoever gets them."""

_REQUEST_HEAD: Final = Struct("<QQ")
_EVENTS_HEAD: Final = Struct("<QQI")
_STREAM: Final = Struct("<Q")
_RECEIVED: Final = Struct("<QQQ")

_MESSAGE_FIELDS: Final = 8
_ACQUIRED: Final = 6

_RESULT: Final = 0
_DELIVER: Final = 1
_CANCELLED: Final = 2

_encoder: Final = msgspec.msgpack.Encoder()
_units_decoder: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
_items_decoder: Final = msgspec.msgpack.Decoder(list[list[Any]])

Unit = tuple[int, bytes]
"""Flags, and one command that answers, or any number that do not."""


NOTICE_BYTES: Final = 2 * MIB
"""Commands, and contents, beyond this go in another notice: a frame between nodes takes so much and not any more. A
single larger one goes alone."""


class MalformedNotice(ValueError):
    """Octets that no encoder of this module wrote."""


def encode_request(stream: int, sequence: int, units: Sequence[Unit]) -> bytes:
    """A REQUEST."""
    return _REQUEST_HEAD.pack(stream, sequence) + _encoder.encode(units)


def divided(units: Sequence[Unit], most_bytes: int = NOTICE_BYTES) -> list[list[Unit]]:
    """The units for one REQUEST each, in order."""
    parts: list[list[Unit]] = []
    size_bytes = 0
    for unit in units:
        size_bytes += len(unit[1])
        if not parts or size_bytes > most_bytes:
            parts.append([])
            size_bytes = len(unit[1])
        parts[-1].append(unit)
    return parts


def decode_request(data: bytes) -> tuple[int, int, list[Unit]]:
    """Stream, sequence and units of a REQUEST.  Raises MalformedNotice."""
    try:
        stream, sequence = _REQUEST_HEAD.unpack_from(data)
        return stream, sequence, _units_decoder.decode(memoryview(data)[_REQUEST_HEAD.size :])
    except (struct.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedNotice(str(error)) from error


def encode_lost(stream: int) -> bytes:
    """A LOST or ENDED."""
    return _STREAM.pack(stream)


def decode_lost(data: bytes) -> int:
    """The stream of a LOST or ENDED.  Raises MalformedNotice."""
    try:
        stream: int = _STREAM.unpack(data)[0]
    except struct.error as error:
        raise MalformedNotice(str(error)) from error
    return stream


def encode_received(queue_id: int, source: int, up_to: int) -> bytes:
    """A RECEIVED."""
    return _RECEIVED.pack(queue_id, source, up_to)


def decode_received(data: bytes) -> tuple[int, int, int]:
    """Queue, source and highest sequence of a RECEIVED.  Raises MalformedNotice."""
    try:
        queue_id, source, up_to = _RECEIVED.unpack(data)
    except struct.error as error:
        raise MalformedNotice(str(error)) from error
    return queue_id, source, up_to


class EventsWriter:
    """Gathers answers and effects for one guest until they are sent."""

    def __init__(self, payloads: Payloads, most_bytes: int = NOTICE_BYTES) -> None:
        """`payloads` are those that messages refer to. `most_bytes`: contents in one notice."""
        self._packer = _GuestPacker(payloads)
        self._most_bytes = most_bytes
        self._full: list[tuple[list[list[object]], list[bytes | memoryview]]] = []
        """Items and contents of the notices before the last."""
        self._items: list[list[object]] = []

    def __bool__(self) -> bool:
        return bool(self._items) or bool(self._full)

    def result(self, result: object) -> None:
        """The answer to the next command somebody waits for."""
        if isinstance(result, GetResult) and result.message is not None:
            self._make_room(result.message)
        self._items.append([_RESULT, *self._packer.result(result)])

    def effect(self, effect: object) -> None:
        """A delivery or cancellation."""
        if isinstance(effect, Deliver):
            messages: list[list[int]] = []
            item: list[object] = [_DELIVER, effect.consumer_id, effect.first_delivery_id, messages]
            for place, message in enumerate(effect.messages):
                if self._make_room(message) and messages:
                    self._full[-1][0].append(item)
                    messages = []
                    item = [_DELIVER, effect.consumer_id, effect.first_delivery_id + place, messages]
                messages.append(self._packer.message(message))
            self._items.append(item)
        elif isinstance(effect, ConsumerCancelled):
            self._items.append([_CANCELLED, effect.consumer_id, effect.queue_id])

    def take(self, stream: int, sequence: int) -> list[bytes]:
        """The EVENTS notices with everything gathered; `sequence` is the number of the first. There is always one."""
        self._begin_another()
        taken, self._full = self._full, []
        notices = []
        for place, (gathered, contents) in enumerate(taken):
            items = _encoder.encode(gathered)
            notices.append(b"".join([_EVENTS_HEAD.pack(stream, sequence + place, len(items)), items, *contents]))
        return notices

    def _make_room(self, message: Message) -> bool:
        """Begin another notice if this one is too full for the message."""
        size_bytes = self._packer.size_bytes
        if not size_bytes or size_bytes + message.content_length <= self._most_bytes:
            return False
        self._begin_another()
        return True

    def _begin_another(self) -> None:
        self._full.append((self._items, self._packer.take()))
        self._items = []


class _GuestPacker(Packer):
    """A guest tells its client no counts of transient queues: of how often a message came back it is told enough for
    the word redelivered."""

    def message(self, message: Message) -> list[int]:
        """See `Packer.message`."""
        fields = super().message(message)[:_MESSAGE_FIELDS]
        fields[_ACQUIRED] = abs(fields[_ACQUIRED])
        return fields


class _GuestUnpacker(Unpacker):
    """What a `_GuestPacker` made."""

    def message(self, fields: list[int]) -> Message:
        """See `Unpacker.message`."""
        return super().message([*fields, 0])


class Events:
    """A decoded EVENTS notice.  Its messages refer to `payload` and carry its sequence as their index."""

    def __init__(self, data: bytes) -> None:
        """Raises MalformedNotice."""
        try:
            self.stream, self.sequence, length = _EVENTS_HEAD.unpack_from(data)
            start = _EVENTS_HEAD.size
            self._items = _items_decoder.decode(memoryview(data)[start : start + length])
        except (struct.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedNotice(str(error)) from error
        self.payload = data
        self._unpacker = _GuestUnpacker(data, start + length, self.sequence)

    def items(self) -> Iterator[tuple[bool, object]]:
        """(whether it is a result, result or effect), in order.  Raises MalformedNotice."""
        for item in self._items:
            try:
                if item[0] == _RESULT:
                    yield True, self._unpacker.result(item[1:])
                elif item[0] == _DELIVER:
                    messages = [self._unpacker.message(fields) for fields in item[3]]
                    yield False, Deliver(int(item[1]), int(item[2]), messages, NOBODY)
                elif item[0] == _CANCELLED:
                    yield False, ConsumerCancelled(int(item[1]), int(item[2]), NOBODY)
                else:
                    raise MalformedNotice(f"unknown item {item[0]!r}")
            except (IndexError, TypeError, ValueError, OverflowError) as error:
                raise MalformedNotice(str(error)) from error
