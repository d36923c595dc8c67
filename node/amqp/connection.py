"""The server's side of an AMQP 0-9-1 connection as a state machine: octets in, events out.

Nothing here waits, reads a clock or touches a socket.  The owner feeds `receive` with what the socket
brings, handles the events, calls `tick` a few times a second, and after each of these writes what
`take_output` gives; then, if `should_close` is set, it closes the socket.
"""

from collections.abc import Callable
from typing import Final

from pamqp.base import Frame
from pamqp.commands import Connection as ConnectionClass

from node.amqp import channel as channel_states
from node.amqp import connection_state as states
from node.amqp.channel import Channel
from node.amqp.channel_methods import ChannelMethods
from node.amqp.content import Content
from node.amqp.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    NOT_ALLOWED,
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
    FramingError,
    ProtocolError,
    is_hard,
    reply_text,
)
from node.amqp.events import (
    AuthenticationRequested,
    ChannelClosed,
    ConnectionClosed,
    Event,
    OpenRequested,
    SecretUpdated,
)
from node.amqp.frame_writer import append_confirms, append_deliveries, append_get_ok, append_return
from node.amqp.frames import HEARTBEAT, METHOD, FrameReader, frame_snippet, unknown_frame
from node.amqp.heartbeat import Heartbeat
from node.amqp.methods import decode_method, long_string, method_frame, method_ids, unchecked
from node.amqp.sasl import EXTERNAL, read_response
from node.amqp.settings import MIN_FRAME_BYTES, ConnectionSettings, check_negotiated

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
_ACCEPTED_HEADERS: Final = frozenset(
    (
        PROTOCOL_HEADER,
        # 0-9 and two ways to write 0-8: connection.start tells their clients which version they get.
        b"AMQP\x01\x01\x00\x09",
        b"AMQP\x01\x01\x08\x00",
        b"AMQP\x01\x01\x09\x01",
    )
)
_CLOSE_OK_FRAME: Final = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"
_HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_LARGEST_NUMBER: Final = 0xFFFF
# Input that may wait while the broker checks a password or a virtual host: from the first on the owner is
# asked to stop reading, at the second the client is given up.
_HELD_BYTES: Final = 262_144
_MOST_HELD_BYTES: Final = 4_194_304
# How long a client that cannot be understood any more, or failed to log in, may take to read why.
_HASTY_CLOSING_MS: Final = 3_000

_INPUT_OF_METHOD: Final[dict[int, int]] = {
    ConnectionClass.StartOk.index: states.RECEIVE_START_OK,
    ConnectionClass.TuneOk.index: states.RECEIVE_TUNE_OK,
    ConnectionClass.Open.index: states.RECEIVE_OPEN,
    ConnectionClass.UpdateSecret.index: states.RECEIVE_UPDATE_SECRET,
    ConnectionClass.Close.index: states.RECEIVE_CLOSE,
    ConnectionClass.CloseOk.index: states.RECEIVE_CLOSE_OK,
}


class Connection:
    """One connection, from the protocol header to its end.

    should_close: the socket is to be closed as soon as take_output() has been written.
    closed_by_client: the client said close first, and may have sent more behind it.
    closed: the connection has ended; nothing will come from it or be sent any more.
    reading_paused: set by the owner while it does not read the socket, so that silence is not held against
    the client.
    client_properties, client_capabilities: from start-ok.  frame_max_bytes, channel_max, heartbeat_seconds:
    as agreed (channel_max 0 never occurs).  channel_refusal: set by the owner: given how many channels are open, why
    there may not be one more (530), or None.  output_bytes: octets that take_output() would give.
    """

    def __init__(self, settings: ConnectionSettings, certificate_user: str | None = None) -> None:
        """`certificate_user` is whom the client's certificate names; then EXTERNAL is offered as well."""
        self.settings = settings
        self._certificate_user = certificate_user
        self._mechanisms = settings.mechanisms if certificate_user is None else (*settings.mechanisms, EXTERNAL)
        self.state = states.AWAITING_HEADER
        self.should_close = False
        self.closed_by_client = False
        self.reading_paused = False
        self.client_properties: dict[str, object] = {}
        self.client_capabilities: frozenset[str] = frozenset()
        self.channel_max = settings.channel_max
        self.frame_max_bytes = settings.frame_max_bytes
        self.heartbeat_seconds = settings.heartbeat_seconds
        self.output_bytes = 0
        self.channel_refusal: Callable[[int], str | None] = _no_refusal
        self._output: list[bytes] = []
        self._channels: dict[int, Channel] = {}
        self._reader = FrameReader(
            self._channels,
            self._other_frame,
            self._fail,
            self._refuse_message,
            settings.max_message_bytes,
            settings.initial_frame_max_bytes,
        )
        self._channel_methods = ChannelMethods(self._channels, self._reader.events, self._send_frame)
        self._heartbeat = Heartbeat()
        self._protocol_header = b""
        self._mechanism = ""
        self._framing_lost = False
        self._last_input = b""
        self._ended = False
        self._waited_ms = 0
        self._closing_ms = settings.closing_timeout_ms

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self.state == states.CLOSED

    @property
    def wants_input(self) -> bool:
        """False while the owner had better not read on: input waits for an answer it owes."""
        return self._reader.buffered_bytes < _HELD_BYTES or not self._reader.stopped

    def receive(self, data: bytes) -> list[Event]:
        """What these octets of the client bring about, in order.  Never raises.

        With b"" it goes on with what came while an answer was awaited.
        """
        if data:
            self._heartbeat.received()
        if self.state == states.AWAITING_HEADER:
            data = self._read_protocol_header(data)
        if self._framing_lost:
            self._look_for_close_ok(data)
        elif self.state not in (states.AWAITING_HEADER, states.CLOSED):
            try:
                self._reader.feed(data)
            except FramingError as error:
                self._framing_lost = True
                self._closing_ms = min(self._closing_ms, _HASTY_CLOSING_MS)
                self._fail(error)
            if self._reader.stopped and self._reader.buffered_bytes > _MOST_HELD_BYTES:
                self._drop("too much input while an answer to the client was outstanding")
        if self.state == states.CLOSED or self._framing_lost:
            self._reader.discard()
        return self._take_events()

    def connection_lost(self) -> list[Event]:
        """The socket is gone; the last events."""
        self._drop("the client closed the TCP connection")
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events = self._reader.events[:]
        self._reader.events.clear()
        return events

    def _read_protocol_header(self, data: bytes) -> bytes:
        """Gather the eight octets that open a connection; what is left of the data."""
        missing = len(PROTOCOL_HEADER) - len(self._protocol_header)
        self._protocol_header += data[:missing]
        if len(self._protocol_header) < len(PROTOCOL_HEADER):
            return b""
        if self._protocol_header not in _ACCEPTED_HEADERS:
            self._append(PROTOCOL_HEADER)
            self._drop(f"the client began with {self._protocol_header!r}")
            return b""
        self._move(states.RECEIVE_PROTOCOL_HEADER)
        start = unchecked(
            ConnectionClass.Start,
            version_major=0,
            version_minor=9,
            server_properties=self.settings.server_properties(),
            mechanisms=" ".join(self._mechanisms),
            locales="en_US",
        )
        self._send_frame(0, start)
        return data[missing:]

    def _look_for_close_ok(self, data: bytes) -> None:
        """The client may still answer our close, though its frames cannot be told apart any more."""
        self._last_input = (self._last_input + data)[-len(_CLOSE_OK_FRAME) :]
        if self._last_input == _CLOSE_OK_FRAME:
            self._finish()

    def _other_frame(self, kind: int, channel_id: int, payload: bytes) -> None:
        """A frame that the reader does not handle."""
        if self.state == states.CLOSING:
            if channel_id == 0 and kind == METHOD and len(payload) >= 4:
                self._method_while_closing(method_ids(payload))
            return
        if channel_id == 0:
            self._frame_of_connection(kind, payload)
        elif states.RECEIVE_CHANNEL_FRAME not in states.TRANSITIONS[self.state]:
            raise ProtocolError(UNEXPECTED_FRAME, frame_snippet(kind, payload))
        else:
            if channel_id not in self._channels and len(self._channels) >= self.channel_max:
                text = (
                    f"number of channels opened ({len(self._channels)}) has reached"
                    f" the negotiated channel_max ({self.channel_max})"
                )
                raise ProtocolError(NOT_ALLOWED, text)
            if channel_id not in self._channels:
                refusal = self.channel_refusal(len(self._channels))
                if refusal is not None:
                    raise ProtocolError(NOT_ALLOWED, refusal)
            self._channel_methods.frame(kind, channel_id, payload)

    def _frame_of_connection(self, kind: int, payload: bytes) -> None:
        """A frame on channel 0."""
        if kind == HEARTBEAT and not payload:
            return
        if kind == METHOD and len(payload) >= 4:
            method, _ = decode_method(payload)
            self._method_of_connection(method, *method_ids(payload))
        elif kind in (METHOD, HEARTBEAT) or kind not in (2, 3):
            raise unknown_frame(kind, payload)
        else:
            raise ProtocolError(UNEXPECTED_FRAME, frame_snippet(kind, payload))

    def _method_while_closing(self, ids: tuple[int, int]) -> None:
        """Only closes matter after our own close."""
        if ids == (10, 50):
            self._send_frame(0, ConnectionClass.CloseOk())
        elif ids == (10, 51):
            self._finish()

    def _method_of_connection(self, method: Frame, class_id: int, method_id: int) -> None:
        """A method on channel 0 where TRANSITIONS allows it."""
        happening = _INPUT_OF_METHOD.get(method.index, states.RECEIVE_OTHER)
        if happening not in states.TRANSITIONS[self.state]:
            text = f"unexpected method in connection state {states.STATE_NAMES[self.state]}"
            raise ProtocolError(CHANNEL_ERROR, text, class_id, method_id)
        if isinstance(method, ConnectionClass.StartOk):
            self._start_ok(method)
        elif isinstance(method, ConnectionClass.TuneOk):
            self._tune_ok(method)
        elif isinstance(method, ConnectionClass.Open):
            self._move(states.RECEIVE_OPEN)
            self._reader.stopped = True
            self._reader.events.append(OpenRequested(method.virtual_host))
        elif isinstance(method, ConnectionClass.UpdateSecret):
            self._send_frame(0, ConnectionClass.UpdateSecretOk())
            self._reader.events.append(SecretUpdated(_text(long_string(method, "new_secret")), method.reason or ""))
        elif isinstance(method, ConnectionClass.Close):
            self._send_frame(0, ConnectionClass.CloseOk())
            self.closed_by_client = True
            self._end(f"the client closed the connection: {method.reply_code} {method.reply_text}")
            self._finish()

    def _start_ok(self, method: ConnectionClass.StartOk) -> None:
        """The client's properties and credentials."""
        self._move(states.RECEIVE_START_OK)
        self.client_properties = dict(method.client_properties)
        capabilities = self.client_properties.get("capabilities")
        if isinstance(capabilities, dict):
            self.client_capabilities = frozenset([name for name, on in capabilities.items() if on is True])
        self._mechanism = method.mechanism
        if self._mechanism not in self._mechanisms:
            self._drop(f"unknown authentication mechanism {self._mechanism!r}")
            return
        certificate_user = self._certificate_user
        credentials: tuple[str, str] | None
        if self._mechanism == EXTERNAL and certificate_user is not None:
            credentials = certificate_user, ""  # The response would say as whom to act: clients send anything there.
        else:
            credentials = read_response(self._mechanism, long_string(method, "response"))
        if credentials is None:
            self._drop(f"the {self._mechanism} response of the client is malformed")
            return
        self._reader.stopped = True
        self._reader.events.append(AuthenticationRequested(self._mechanism, *credentials))

    def _tune_ok(self, method: ConnectionClass.TuneOk) -> None:
        """The client's limits, which may be lower than ours."""
        check_negotiated("frame_max", MIN_FRAME_BYTES, self.settings.frame_max_bytes, method.frame_max)
        check_negotiated("channel_max", 1, self.settings.channel_max, method.channel_max)
        self._move(states.RECEIVE_TUNE_OK)
        self.frame_max_bytes = self._reader.frame_max_bytes = method.frame_max
        self.channel_max = method.channel_max
        self.heartbeat_seconds = method.heartbeat
        self._heartbeat.interval_ms = method.heartbeat * 1_000

    def _refuse_message(self, channel: Channel, body_size: int) -> None:
        """A body larger than the broker takes: the channel is closed before any of it is kept."""
        limit = self.settings.max_message_bytes
        text = f"message size {body_size} is larger than configured max size {limit}"
        self.close_channel(channel.channel_id, PRECONDITION_FAILED, text, 60, 40)
        # The close was not the broker's: it must hear of it now.  Nothing is told again at the close-ok.
        self._channel_methods.told_closed.add(channel.channel_id)
        self._reader.events.append(ChannelClosed(channel.channel_id))

    def authenticated(self) -> None:
        """Yes to AuthenticationRequested; then call receive(b"") for what came meanwhile."""
        if self.state != states.SECURING:
            return
        self._move(states.AUTHENTICATED)
        self._reader.stopped = False
        settings = self.settings
        self._send_frame(
            0,
            ConnectionClass.Tune(settings.channel_max, settings.frame_max_bytes, settings.heartbeat_seconds),
        )

    def authentication_failed(self, text: str = "") -> None:
        """No to AuthenticationRequested; `text` is for the log, clients are told no details.

        A client without the capability authentication_failure_close gets its socket closed, nothing else.
        """
        if self.state != states.SECURING:
            return
        reason = f"{self._mechanism} login refused: {text}"
        if "authentication_failure_close" in self.client_capabilities:
            message = (
                f"Login was refused using authentication mechanism {self._mechanism}."
                " For details see the broker logfile."
            )
            self._closing_ms = min(self._closing_ms, _HASTY_CLOSING_MS)
            self._end(reason)
            self._send_close(ACCESS_REFUSED, message, 0, 0)
        else:
            self._drop(reason)

    def opened(self) -> None:
        """Yes to OpenRequested; then call receive(b"") for what came meanwhile."""
        if self.state == states.CHECKING_VHOST:
            self._move(states.OPENED)
            self._reader.stopped = False
            self._send_frame(0, ConnectionClass.OpenOk())

    def refuse_open(self, code: int, text: str) -> None:
        """No to OpenRequested (RabbitMQ: 530 "vhost x not found")."""
        if self.state == states.CHECKING_VHOST:
            self.close(code, text, 10, 40)

    def take_output(self) -> list[bytes]:
        """Octets to write, in order; each is given once."""
        output = self._output
        if output:
            self._heartbeat.sent()
            self._output = []
            self.output_bytes = 0
        return output

    def _append(self, octets: bytes) -> None:
        self._output.append(octets)
        self.output_bytes += len(octets)

    def _send_frame(self, channel_id: int, method: Frame) -> None:
        self._append(method_frame(channel_id, method))

    def _can_send(self, channel_id: int) -> bool:
        channel = self._channels.get(channel_id)
        return channel is not None and channel.state != channel_states.CLOSING

    def send(self, channel_id: int, method: Frame) -> None:
        """Send a method; dropped if the channel (0: the connection) is not open any more.

        TypeError if an argument of the method has not the type it needs.  Names may be any UTF-8: build such
        methods with methods.unchecked().
        """
        if self._can_send(channel_id) or (channel_id == 0 and self.state == states.RUNNING):
            self._send_frame(channel_id, method)

    def send_deliveries(
        self, channel_id: int, consumer_tag: bytes, deliveries: list[tuple[int, bool, Content]]
    ) -> None:
        """basic.deliver with content for each (delivery tag, redelivered, content); dropped as in `send`."""
        if self._can_send(channel_id):
            self.output_bytes += append_deliveries(
                self._output, channel_id, consumer_tag, deliveries, self.frame_max_bytes
            )

    def send_get_ok(
        self, channel_id: int, delivery_tag: int, redelivered: bool, content: Content, message_count: int
    ) -> None:
        """basic.get-ok with its content; dropped as in `send`."""
        if self._can_send(channel_id):
            self.output_bytes += append_get_ok(
                self._output,
                channel_id,
                delivery_tag,
                redelivered,
                content,
                message_count,
                self.frame_max_bytes,
            )

    def send_return(self, channel_id: int, code: int, text: str, content: Content) -> None:
        """basic.return with its content; the text is sent as it is (312: "NO_ROUTE")."""
        if self._can_send(channel_id):
            self.output_bytes += append_return(
                self._output, channel_id, code, text.encode(), content, self.frame_max_bytes
            )

    def send_confirms(self, channel_id: int, confirms: list[tuple[int, bool]], nack: bool = False) -> None:
        """basic.ack (or nack) for each (delivery tag, multiple); dropped as in `send`."""
        if confirms and self._can_send(channel_id):
            self.output_bytes += append_confirms(self._output, channel_id, confirms, nack)

    def send_blocked(self, reason: str) -> None:
        """connection.blocked, if the client can take it."""
        if "connection.blocked" in self.client_capabilities:
            self.send(0, ConnectionClass.Blocked(reason))

    def send_unblocked(self) -> None:
        """connection.unblocked, if the client can take it."""
        if "connection.blocked" in self.client_capabilities:
            self.send(0, ConnectionClass.Unblocked())

    def close_channel(
        self, channel_id: int, code: int, text: str, class_id: int = 0, method_id: int = 0
    ) -> None:
        """Close a channel with an error: `text` gets the code's name in front.  Nothing if it is not open.

        A hard code (errors.is_hard) closes the connection instead, as AMQP 0-9-1 section 1.2.1 has it.
        """
        channel = self._channels.get(channel_id)
        if channel is None or channel.state == channel_states.CLOSING:
            return
        if is_hard(code):
            self.close(code, text, class_id, method_id)
        else:
            self._channel_methods.close(channel, code, reply_text(code, text), class_id, method_id)

    def close(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection: `text` gets the code's name in front.

        All but the client's close-ok is ignored from now on; should_close is set when that comes, or when
        closing_timeout_ms have passed.  ConnectionClosed is among the next events.
        """
        self._fail(ProtocolError(code, text, class_id, method_id))

    def _fail(self, error: ProtocolError) -> None:
        """End the connection for this reason: with a close where the client is known well enough."""
        if self.state in (states.CLOSING, states.CLOSED):
            return
        self._end(reply_text(error.code, error.text))
        told = self.state >= states.OPENING or (self.state == states.TUNING and error.code == NOT_ALLOWED)
        if told:
            self._send_close(error.code, error.text, error.class_id, error.method_id)
        else:
            self._finish()

    def _send_close(self, code: int, text: str, class_id: int, method_id: int) -> None:
        self._move(states.SEND_CLOSE)
        self._waited_ms = 0
        self._reader.stopped = False
        whole = reply_text(code, text)
        self._send_frame(0, ConnectionClass.Close(code, whole, class_id, method_id))

    def _drop(self, reason: str) -> None:
        """Give the client up without a word."""
        self._end(reason)
        self._finish()

    def _end(self, reason: str) -> None:
        """Tell the broker, once; no channel exists any more."""
        if not self._ended:
            self._ended = True
            for channel in self._channels.values():
                channel.end()
            self._channels.clear()
            self._reader.events.append(ConnectionClosed(reason))

    def _finish(self) -> None:
        """Nothing more is read or sent: the socket can go."""
        self._move(states.DROP)
        self.should_close = True
        self._reader.stopped = True

    def _move(self, happening: int) -> None:
        self.state = states.TRANSITIONS[self.state][happening]

    def tick(self, now_ms: int) -> list[Event]:
        """Heartbeats and time limits; to be called several times per heartbeat interval and second.

        `now_ms` is any clock that does not go back.  A client silent for two heartbeat intervals is dropped
        without a close frame, as is one that has not opened the connection within handshake_timeout_ms.
        """
        passed_ms = self._heartbeat.pass_time(now_ms, self.reading_paused)
        if self.state == states.CLOSED:
            return self._take_events()
        if self.state == states.CLOSING:
            self._waited_ms += passed_ms
            if self._waited_ms >= self._closing_ms:
                self._finish()
        elif self.state != states.RUNNING:
            self._waited_ms += passed_ms
            if self._waited_ms >= self.settings.handshake_timeout_ms:
                self._drop(f"the client took too long in state {states.STATE_NAMES[self.state]}")
        if self.state != states.CLOSING and self._heartbeat.peer_is_silent():
            self._drop(f"missed heartbeats from client, timeout: {self.heartbeat_seconds}s")
        if self.state != states.CLOSED and self._heartbeat.beat_is_due():
            self._append(_HEARTBEAT_FRAME)
        return self._take_events()


def _no_refusal(channels: int) -> str | None:
    return None


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
