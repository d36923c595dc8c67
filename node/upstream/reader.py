"""Reads one stream of another cluster over one AMQP connection, as any client could (RULES J4).

    octets of the other side -> `receive` -> `take_messages`, `next_offset`, `fault`
                                          -> `take_output` -> octets for the other side

It asks for each message's place (`node.catalog.streams.TELLS_PLACES`), which it hands on as it comes. Acknowledgements
are credit: no more than `PREFETCH` messages are on their way. Once it has a `fault` it takes nothing more in; another
reader begins anew.
"""

import struct
from typing import Any, Final, NamedTuple

from pamqp import commands
from pamqp.base import Frame

from mayfly.node.amqp.content import BASIC_CLASS_ID, Content, MalformedHeaderError, check_header
from mayfly.node.amqp.errors import ProtocolError
from mayfly.node.amqp.methods import decode_method, method_frame, unchecked

PREFETCH: Final = 1000
HEARTBEAT_S: Final = 10
"""Asked for where the other side wants them less often, or none: so it is noticed where a connection broke without a
word."""
LOOK_EVERY_MS: Final = 5_000
"""How often the other side is asked for the last message that is there."""

_PROTOCOL: Final = b"AMQP\x00\x00\x09\x01"
_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_TAG_AND_FLAG: Final = struct.Struct(">QB")
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_FRAME_END: Final = 0xCE
_FRAME_MAX: Final = 131_072
_READING: Final = 1
_LOOKING: Final = 2
"""The channels: for all messages, and for looks at the last one."""
_TAG: Final = "mirror"
_LAST_TAG: Final = "last"
# What the other side says on channel 0 until the consumer can begin, each once.
_BEGINNING: Final = (commands.Connection.Start, commands.Connection.Tune, commands.Connection.OpenOk)
_CAPABILITIES: Final = {
    "consumer_cancel_notify": True, "authentication_failure_close": True, "basic.nack": True,
}  # fmt: skip


class UpstreamLogin(NamedTuple):
    """Who reads, and where. Never shown."""

    user: str
    password: str
    vhost: str

    def __repr__(self) -> str:
        return f"UpstreamLogin({self.user!r}, {self.vhost!r})"


class ReadMessage(NamedTuple):
    """A message, and the tag that acknowledges it and all before it."""

    tag: int
    content: Content


class _Coming:
    """A message that is not all there yet."""

    __slots__ = ("body", "channel", "header", "left_bytes", "names", "tag")

    def __init__(self, channel: int, tag: int, names: bytes) -> None:
        self.channel = channel
        self.tag = tag
        self.names = names
        self.header = b""
        self.left_bytes = 0
        self.body = bytearray()


class UpstreamReader:
    """One connection. ``is_reading``: the stream's messages come. ``fault``: why nothing comes any more, "" before
    that."""

    def __init__(self, stream: str, login: UpstreamLogin, start: int, most_body_bytes: int, now_ms: int) -> None:
        """From the offset ``start`` on, or the first there is behind it. A body that is larger is a fault."""
        self.is_reading: bool = False
        self.fault: str = ""
        self._stream = stream
        self._login = login
        self._start = start
        self._most_body_bytes = most_body_bytes
        self._tail = bytearray()
        self._output: list[bytes] = [_PROTOCOL]
        self._messages: list[ReadMessage] = []
        self._last: list[Content] = []
        self._coming: _Coming | None = None
        self._heard_ms = now_ms
        self._said_ms = now_ms
        self._looked_ms = now_ms - LOOK_EVERY_MS
        self._looks_open = False
        self._looking = False
        self._look_tag = 0
        self._has_looked = False
        """The message that was looked for is there, and its consumer is being cancelled."""
        self._begun = 0
        """How much of `_BEGINNING` was heard."""

    # ------------------------------------------------------------------ what its user calls

    def take_output(self) -> bytes:
        """What is to be sent."""
        output, self._output = self._output, []
        return b"".join(output)

    def take_messages(self) -> list[ReadMessage]:
        """What has come since the last call, in its order."""
        messages, self._messages = self._messages, []
        return messages

    def take_last(self) -> Content | None:
        """The last message of the stream, when it was looked for lately and has come; None if there is no news."""
        return self._last.pop() if self._last else None

    def acknowledge(self, tag: int) -> None:
        """What has come up to this tag is kept: as much may come again."""
        self._send(_READING, unchecked(commands.Basic.Ack, delivery_tag=tag, multiple=True))

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self.fault:
            return
        if now_ms - self._heard_ms > 2 * HEARTBEAT_S * 1000:
            self.fault = f"nothing was heard for {2 * HEARTBEAT_S} s"
            return
        if self.is_reading and now_ms - self._said_ms >= HEARTBEAT_S * 1000 // 2:
            self._output.append(_HEARTBEAT_FRAME)
        if self._output:
            self._said_ms = now_ms
        if self.is_reading and not self._looking and now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self._looked_ms = now_ms
            self._look()

    def receive(self, octets: bytes, now_ms: int) -> None:
        """What the other side has sent."""
        self._heard_ms = now_ms
        tail = self._tail
        tail += octets
        position = 0
        while not self.fault and len(tail) - position >= _FRAME.size:
            kind, channel, size = _FRAME.unpack_from(tail, position)
            end = position + _FRAME.size + size
            if kind == b"A"[0] or size > _FRAME_MAX:
                self.fault = "what answers there does not speak AMQP 0-9-1"
            elif len(tail) <= end:
                break
            elif tail[end] != _FRAME_END:
                self.fault = "a frame of the other side does not end where it says"
            else:
                payload = bytes(tail[position + _FRAME.size : end])
                position = end + 1
                self._frame(kind, channel, payload)
        del tail[:position]

    # ------------------------------------------------------------------ frames

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == _METHOD:
            if payload.startswith(_DELIVER):
                self._on_deliver(channel, payload)
                return
            try:
                method, _ = decode_method(payload)
            except ProtocolError as error:
                self.fault = f"a method of the other side can't be read: {error}"
                return
            if channel == 0:
                self._on_connection(method)
            else:
                self._on_channel(channel, method)
        elif kind == _HEADER:
            self._on_header(channel, payload)
        elif kind == _BODY:
            self._on_body(channel, payload)

    def _on_deliver(self, channel: int, payload: bytes) -> None:
        """A message is announced. Its names stay the octets that they are."""
        tag_length = payload[len(_DELIVER)] if len(payload) > len(_DELIVER) else 0
        names_at = len(_DELIVER) + 1 + tag_length + _TAG_AND_FLAG.size
        names = payload[names_at:]
        key_at = 1 + names[0] if names else 0
        if not names or key_at >= len(names) or key_at + 1 + names[key_at] != len(names):
            self.fault = "a method of the other side can't be read: basic.deliver"
            return
        try:
            names[1:key_at].decode()
            names[key_at + 1 :].decode()
        except UnicodeDecodeError:
            self.fault = "a method of the other side can't be read: names in basic.deliver that are not UTF-8"
            return
        if self._coming is not None:
            self.fault = "a message began before the one before it was whole"
            return
        tag, _ = _TAG_AND_FLAG.unpack_from(payload, names_at - _TAG_AND_FLAG.size)
        self._coming = _Coming(channel, tag, names)

    def _on_header(self, channel: int, payload: bytes) -> None:
        coming = self._coming
        try:
            check_header(payload)
        except MalformedHeaderError as error:
            self.fault = f"the header of a message can't be read: {error}"
            return
        if coming is None or coming.header or coming.channel != channel:
            self.fault = "a message came that nobody has announced"
            return
        class_id, _, coming.left_bytes = _CONTENT.unpack_from(payload)
        if class_id != BASIC_CLASS_ID:
            self.fault = f"the header of a message can't be read: it is of class {class_id}"
            return
        coming.header = payload
        if coming.left_bytes > self._most_body_bytes:
            self.fault = f"a message has {coming.left_bytes} octets: more than max_message_bytes of this node"
        elif not coming.left_bytes:
            self._came(coming)

    def _on_body(self, channel: int, payload: bytes) -> None:
        coming = self._coming
        if coming is None or not coming.header or coming.channel != channel or len(payload) > coming.left_bytes:
            self.fault = "a part of a message came that belongs to none"
            return
        # Joined at once: parts of an octet each, or of none, would take many times their octets.
        coming.body += payload
        coming.left_bytes -= len(payload)
        if not coming.left_bytes:
            self._came(coming)

    def _came(self, coming: _Coming) -> None:
        self._coming = None
        content = Content(coming.names, coming.header, bytes(coming.body))
        if coming.channel == _READING:
            self._messages.append(ReadMessage(coming.tag, content))
        elif self._looking and not self._has_looked:
            self._has_looked = True
            self._last[:] = [content]
            self._look_tag = coming.tag
            # Acknowledged first, it would be followed by the next one.
            self._send(_LOOKING, unchecked(commands.Basic.Cancel, consumer_tag=_LAST_TAG, nowait=False))

    # ------------------------------------------------------------------ methods

    def _on_connection(self, method: Frame) -> None:
        if isinstance(method, _BEGINNING):
            if self._begun >= len(_BEGINNING) or not isinstance(method, _BEGINNING[self._begun]):
                self.fault = f"the other side says {method.name} where that is not to come"
                return
            self._begun += 1
        if isinstance(method, commands.Connection.Start):
            user, password = self._login.user, self._login.password
            self._send(0, unchecked(
                commands.Connection.StartOk,
                client_properties={"product": "MayflyMQ", "capabilities": _CAPABILITIES},
                mechanism="PLAIN", response=f"\0{user}\0{password}", locale="en_US",
            ))  # fmt: skip
        elif isinstance(method, commands.Connection.Tune):
            frame_max = min(method.frame_max or _FRAME_MAX, _FRAME_MAX)
            beat_s = min(method.heartbeat or HEARTBEAT_S, HEARTBEAT_S)
            self._send(0, unchecked(
                commands.Connection.TuneOk, channel_max=method.channel_max, frame_max=frame_max, heartbeat=beat_s
            ))  # fmt: skip
            self._send(0, unchecked(
                commands.Connection.Open, virtual_host=self._login.vhost, capabilities="", insist=False
            ))  # fmt: skip
        elif isinstance(method, commands.Connection.OpenOk):
            self._begin(_READING, PREFETCH)
            self._consume(_READING, _TAG, self._start if self._start else "first")
        elif isinstance(method, commands.Connection.Close):
            self._send(0, commands.Connection.CloseOk())
            self.fault = f"the other side has closed the connection: {method.reply_code} {method.reply_text!r}"

    def _on_channel(self, channel: int, method: Frame) -> None:
        if self._begun < len(_BEGINNING):
            self.fault = f"the other side says {method.name} where that is not to come"
        elif isinstance(method, commands.Channel.Close):
            self.fault = f"the other side refuses: {method.reply_code} {method.reply_text!r}"
        elif isinstance(method, commands.Basic.Cancel):
            self.fault = "the other side has ended the consumer: the stream was deleted, or has no leader"
        elif isinstance(method, commands.Basic.ConsumeOk) and channel == _READING:
            self.is_reading = True
        elif isinstance(method, commands.Basic.CancelOk) and self._has_looked:
            self._send(_LOOKING, unchecked(commands.Basic.Ack, delivery_tag=self._look_tag, multiple=True))
            self._looking = self._has_looked = False

    def _look(self) -> None:
        """Have the last message come, alone. Where there is none yet, it is the first to come."""
        if not self._looks_open:
            self._looks_open = True
            self._begin(_LOOKING, 1)
        self._looking = True
        self._consume(_LOOKING, _LAST_TAG, "last")

    def _begin(self, channel: int, prefetch: int) -> None:
        self._send(channel, unchecked(commands.Channel.Open, out_of_band="0"))
        self._send(
            channel, unchecked(commands.Basic.Qos, prefetch_size=0, prefetch_count=prefetch, global_=False)
        )

    def _consume(self, channel: int, tag: str, start: int | str) -> None:
        arguments: dict[str, Any] = {"x-stream-offset": start, "x-stream-places": True}
        self._send(channel, unchecked(
            commands.Basic.Consume, ticket=0, queue=self._stream, consumer_tag=tag, no_local=False, no_ack=False,
            exclusive=False, nowait=False, arguments=arguments,
        ))  # fmt: skip

    def _send(self, channel: int, method: Frame) -> None:
        if not self.fault:
            self._output.append(method_frame(channel, method))
