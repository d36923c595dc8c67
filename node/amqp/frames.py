"""Walks frames out of received octets.  HOT.

Publishes and settlements, nearly all that a busy client sends, are recognised here and become events without
an object of pamqp; header and body of a message cost one slice each.  Every other frame is handed to the connection.

A frame is: type (1 octet), channel (2), payload size (4), payload, 0xCE (AMQP 0-9-1 section 4.2.3).
"""

import struct
from collections.abc import Callable
from typing import Final

from mayfly.node.amqp.channel import ReceivingChannel
from mayfly.node.amqp.channel_state import BODY_EXPECTED, CLOSING, HEADER_EXPECTED, OPEN
from mayfly.node.amqp.content import BASIC_CLASS_ID, Content, MalformedHeaderError, check_header
from mayfly.node.amqp.errors import FRAME_ERROR, SYNTAX_ERROR, UNEXPECTED_FRAME, FramingError, ProtocolError
from mayfly.node.amqp.events import ACK, NACK, REJECT, Event, PublishesReceived, SettlementsReceived

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD_BYTES: Final = 8

_PUBLISH_METHOD: Final = 0x003C0028
_ACK_METHOD: Final = 0x003C0050
_REJECT_METHOD: Final = 0x003C005A
_NACK_METHOD: Final = 0x003C0078
_SETTLEMENTS: Final = frozenset((_ACK_METHOD, _NACK_METHOD, _REJECT_METHOD))
_BASIC: Final = 60
_PUBLISH: Final = 40
_SETTLEMENT_BYTES: Final = 13
_FRAME: Final = struct.Struct(">BHI")
_FRAME_AND_METHOD: Final = struct.Struct(">BHII")
_TAG_AND_BITS: Final = struct.Struct(">QB")
_HEADER_FIELDS: Final = struct.Struct(">HHQ")
# What is remembered to save work on repetitions; each is emptied when full.
_REMEMBERED_PUBLISHES: Final = 256
_REMEMBERED_PROPERTIES: Final = 256
_REMEMBERED_PROPERTIES_BYTES: Final = 128


def erlang_octets(octets: bytes) -> str:
    """Octets as RabbitMQ prints them in its texts: <<"text">> if printable, else <<1,2,3>>."""
    if octets and all(32 <= octet < 127 and octet not in b'"\\' for octet in octets):
        return f'<<"{octets.decode("ascii")}">>'
    return "<<" + ",".join([str(octet) for octet in octets]) + ">>"


def frame_snippet(kind: int, payload: bytes) -> str:
    """How RabbitMQ quotes a frame it complains of; 17 octets of the payload are enough."""
    shown = "all" if len(payload) <= 16 else "first 16"
    return f"type {kind}, {shown} octets = {erlang_octets(payload[:16])}"


def unknown_frame(kind: int, payload: bytes) -> ProtocolError:
    """The error for a frame that is none of the protocol's."""
    return ProtocolError(FRAME_ERROR, f"{frame_snippet(kind, payload)}: unknown_frame")


class FrameReader:
    """The input side of a connection.

    `channels` is the connection's table of channels, shared with it.
    `other_frame(type, channel id, payload)` gets each frame that is not handled here and may raise
    ProtocolError; `fail(error)` is told of every ProtocolError, and the walk goes on with the next frame;
    `refuse_message(channel, body size)` is called for a body beyond `max_message_bytes`.
    The connection sets `stopped` to keep what follows unread until `feed` is called with it unset.
    With `holds_publishes` set it stops by itself in front of the first publish.
    `publish_begun` says that it has met a publish.
    """

    def __init__(
        self,
        channels: dict[int, ReceivingChannel],
        other_frame: Callable[[int, int, bytes], None],
        fail: Callable[[ProtocolError], None],
        refuse_message: Callable[[ReceivingChannel, int], None],
        max_message_bytes: int,
        frame_max_bytes: int,
    ) -> None:
        self.channels: dict[int, ReceivingChannel] = channels
        self.other_frame: Callable[[int, int, bytes], None] = other_frame
        self.fail: Callable[[ProtocolError], None] = fail
        self.refuse_message: Callable[[ReceivingChannel, int], None] = refuse_message
        self.max_message_bytes: int = max_message_bytes
        self.frame_max_bytes: int = frame_max_bytes
        self.stopped: bool = False
        self.holds_publishes: bool = False
        self.publish_begun: bool = False
        self.events: list[Event] = []
        # Octets not yet walked: the beginning of a frame of which `_needed` octets are wanted next, or
        # (`_held`) whatever came while stopped.
        self._tail: bytearray = bytearray()
        self._needed: int = 0
        self._held: bool = False
        # A body frame whose payload goes to its channel as it arrives.
        self._streaming: bool = False
        self._stream_channel: ReceivingChannel | None = None
        self._stream_left: int = 0
        self._stream_beginning: bytes = b""
        self._publishes: dict[bytes, tuple[bytes, int]] = {}
        self._properties: set[bytes] = set()

    def let_go(self) -> None:
        """Nothing comes any more, and nobody is told of anything: the connection is not held."""
        self.other_frame, self.fail, self.refuse_message = _no_frame, _no_error, _no_message
        self.discard()

    @property
    def buffered_bytes(self) -> int:
        """Octets received and not yet walked."""
        return len(self._tail)

    def feed(self, data: bytes) -> None:
        """Walk these octets; what they bring about is appended to `events`.

        Raises FramingError, after which no further input can be understood.
        """
        if self.stopped:
            self._tail += data
            self._held = True
            return
        offset = 0
        if self._streaming:
            offset = self._continue_body(data, 0)
            if self._streaming:
                return
        if self._tail:
            if self._held:
                self._held = False
                data = bytes(self._tail) + data
                self._tail.clear()
            else:
                offset = self._complete_tail(data, offset)
        self._walk(data, offset)

    def discard(self) -> None:
        """Forget what was received and not walked."""
        self._tail.clear()
        self._held = False
        self._streaming = False
        self._stream_channel = None

    def _walk(self, data: bytes, offset: int) -> None:
        """Handle every whole frame from `offset` on and keep the rest."""
        end = len(data)
        channels = self.channels
        publishes = self._publishes
        frame_max = self.frame_max_bytes
        holds_publishes = self.holds_publishes
        unpack_frame = _FRAME_AND_METHOD.unpack_from
        settling = -1
        settlements: list[tuple[int, int, bool, bool]] = []
        kind: int
        channel_id: int
        size: int
        index: int
        tag: int
        bits: int
        while not self.stopped:
            if end - offset >= 11:
                kind, channel_id, size, index = unpack_frame(data, offset)
            elif end - offset >= 8:
                kind, channel_id, size = _FRAME.unpack_from(data, offset)
                index = 0
            else:
                break
            stop = offset + 7 + size
            if size > frame_max or stop >= end:
                break
            if data[stop] != FRAME_END:
                raise self._bad_end(kind, data[offset + 7 : stop], data[stop])
            try:
                if kind == METHOD:
                    if index == _PUBLISH_METHOD:
                        channel = channels.get(channel_id)
                        if channel is not None and channel.state == OPEN:
                            if holds_publishes:
                                self.publish_begun = self.stopped = True
                                break
                            method = data[offset + 11 : stop]
                            known = publishes.get(method)
                            if known is None:
                                known = self._read_publish(method)
                            channel.begin_message(known[0], known[1])
                            self.publish_begun = True
                            offset = stop + 1
                            continue
                    elif index in _SETTLEMENTS and size == _SETTLEMENT_BYTES:
                        channel = channels.get(channel_id)
                        if channel is not None and channel.state == OPEN:
                            if settling != channel_id:
                                settlements = self._settlement_run(channel_id)
                                settling = channel_id
                            tag, bits = _TAG_AND_BITS.unpack_from(data, offset + 11)
                            if index == _ACK_METHOD:
                                settlements.append((ACK, tag, bits & 1 == 1, False))
                            elif index == _NACK_METHOD:
                                settlements.append((NACK, tag, bits & 1 == 1, bits & 2 == 2))
                            else:
                                settlements.append((REJECT, tag, False, bits & 1 == 1))
                            offset = stop + 1
                            continue
                self._handle(kind, channel_id, data[offset + 7 : stop])
            except ProtocolError as error:
                self.fail(error)
            # Anything may have happened there: events of another kind, a new frame_max.
            settling = -1
            frame_max = self.frame_max_bytes
            offset = stop + 1
        if offset < end:
            self._keep(data, offset)

    def _handle(self, kind: int, channel_id: int, payload: bytes) -> None:
        """A whole frame that is neither a publish nor a settlement."""
        channel = self.channels.get(channel_id)
        if channel is None or kind in (METHOD, HEARTBEAT):
            self.other_frame(kind, channel_id, payload)
        elif channel.state == HEADER_EXPECTED and kind == HEADER:
            self._take_header(channel, payload)
        elif channel.state == BODY_EXPECTED and kind == BODY:
            channel.take_body(payload)
            if channel.state == OPEN:
                self._finish_message(channel)
        else:
            self.other_frame(kind, channel_id, payload)

    def _take_header(self, channel: ReceivingChannel, payload: bytes) -> None:
        """A content header where one is expected."""
        if len(payload) < _HEADER_FIELDS.size:
            raise unknown_frame(HEADER, payload)
        class_id, weight, body_size = _HEADER_FIELDS.unpack_from(payload)
        if class_id != BASIC_CLASS_ID:
            text = f"expected content header for class 60, got one for class {class_id} instead"
            raise ProtocolError(UNEXPECTED_FRAME, text, _BASIC, _PUBLISH)
        if weight:
            text = "expected content header for class 60, got non content header frame instead"
            raise ProtocolError(UNEXPECTED_FRAME, text, _BASIC, _PUBLISH)
        self._check_properties(payload)
        if body_size > self.max_message_bytes:
            self.refuse_message(channel, body_size)
            return
        channel.take_header(payload, body_size)
        if not body_size:
            self._finish_message(channel)

    def _finish_message(self, channel: ReceivingChannel) -> None:
        """The last piece of a message has come."""
        run = self._publish_run(channel.channel_id)
        run.contents.append(Content(channel.exchange_and_key, channel.header, channel.take_message_body()))
        run.flags.append(channel.flags)

    def _publish_run(self, channel_id: int) -> PublishesReceived:
        """The event to which a message of this channel belongs: the last one or a new one."""
        events = self.events
        if events:
            last = events[-1]
            if isinstance(last, PublishesReceived) and last.channel_id == channel_id:
                return last
        run = PublishesReceived(channel_id, [], [])
        events.append(run)
        return run

    def _settlement_run(self, channel_id: int) -> list[tuple[int, int, bool, bool]]:
        """The list to which a settlement on this channel belongs."""
        events = self.events
        if events:
            last = events[-1]
            if isinstance(last, SettlementsReceived) and last.channel_id == channel_id:
                return last.settlements
        run = SettlementsReceived(channel_id, [])
        events.append(run)
        return run.settlements

    def _read_publish(self, method: bytes) -> tuple[bytes, int]:
        """Exchange and routing key (as in Content) and flags of basic.publish's arguments."""
        end = len(method)
        # ticket (2 octets), exchange, routing key, bits (1 octet)
        key_at = 3 + method[2] if end > 3 else end
        bits_at = key_at + 1 + method[key_at] if key_at < end else end
        if bits_at != end - 1:
            raise ProtocolError(SYNTAX_ERROR, "malformed arguments of Basic.Publish", _BASIC, _PUBLISH)
        try:
            method[3:key_at].decode("utf-8")
            method[key_at + 1 : bits_at].decode("utf-8")
        except UnicodeDecodeError as error:
            text = "Malformed UTF-8 in shortstr"
            raise ProtocolError(FRAME_ERROR, text, _BASIC, _PUBLISH) from error
        known = (method[2:bits_at], method[bits_at] & 3)
        if len(self._publishes) >= _REMEMBERED_PUBLISHES:
            self._publishes.clear()
        self._publishes[method] = known
        return known

    def _check_properties(self, header: bytes) -> None:
        """Refuse a content header that would not be readable later."""
        if header[12:] in self._properties:
            return
        try:
            check_header(header)
        except MalformedHeaderError as error:
            raise ProtocolError(SYNTAX_ERROR, str(error), _BASIC, _PUBLISH) from error
        if len(header) <= _REMEMBERED_PROPERTIES_BYTES:
            if len(self._properties) >= _REMEMBERED_PROPERTIES:
                self._properties.clear()
            self._properties.add(header[12:])

    def _keep(self, data: bytes, offset: int) -> None:
        """Keep data[offset:], the beginning of a frame or what was not to be walked yet."""
        if self.stopped:
            self._tail += data[offset:]
            self._held = True
            return
        if len(data) - offset < 7:
            self._tail += data[offset:]
            self._needed = 7
            return
        kind, channel_id, size = _FRAME.unpack_from(data, offset)
        if size > self.frame_max_bytes:
            detail = f"{{frame_too_large,{size},{self.frame_max_bytes - FRAME_OVERHEAD_BYTES}}}"
            raise FramingError(FRAME_ERROR, f"{frame_snippet(kind, b'')}: {detail}")
        if kind == BODY:
            channel = self.channels.get(channel_id)
            if channel is not None and (
                channel.state == CLOSING or (channel.state == BODY_EXPECTED and size <= channel.body_left)
            ):
                self._streaming = True
                self._stream_channel = channel
                self._stream_left = size
                self._stream_beginning = b""
                self._continue_body(data, offset + 7)
                return
        self._tail += data[offset:]
        self._needed = size + FRAME_OVERHEAD_BYTES

    def _complete_tail(self, data: bytes, offset: int) -> int:
        """Complete the frame in the tail from data[offset:] and handle it; where the walk goes on."""
        tail = self._tail
        while tail and not self.stopped:
            missing = self._needed - len(tail)
            piece = data[offset : offset + missing]
            tail += piece
            offset += len(piece)
            if len(piece) < missing:
                break
            whole = bytes(tail)
            tail.clear()
            if self._needed > 7:
                self._walk(whole, 0)
                break
            self._keep(whole, 0)
            if self._streaming:
                offset = self._continue_body(data, offset)
        return offset

    def _continue_body(self, data: bytes, offset: int) -> int:
        """Give data[offset:] to the body frame that is arriving; where the walk goes on."""
        channel = self._stream_channel
        if self._stream_left:
            piece = data[offset : offset + self._stream_left]
            if not piece:
                return offset
            offset += len(piece)
            self._stream_left -= len(piece)
            if len(self._stream_beginning) <= 16:
                self._stream_beginning += piece[:17]
            if channel is not None and channel.state == BODY_EXPECTED:
                channel.take_body(piece)
        if self._stream_left or offset >= len(data):
            return offset
        self._streaming = False
        self._stream_channel = None
        if data[offset] != FRAME_END:
            raise self._bad_end(BODY, self._stream_beginning, data[offset])
        if channel is not None and channel.state == OPEN:
            self._finish_message(channel)
        return offset + 1

    def _bad_end(self, kind: int, payload: bytes, octet: int) -> FramingError:
        return FramingError(
            FRAME_ERROR, f"{frame_snippet(kind, payload)}: {{invalid_frame_end_marker,{octet}}}"
        )


def _no_frame(kind: int, channel_id: int, payload: bytes) -> None:
    pass


def _no_error(error: ProtocolError) -> None:
    pass


def _no_message(channel: ReceivingChannel, body_bytes: int) -> None:
    pass
