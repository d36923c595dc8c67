"""The server's side of an AMQP 0-9-1 connection as a state machine: octets in, events out.

Nothing here waits, reads a clock or touches a socket.  The owner feeds `receive` with what the socket
brings, handles the events, calls `tick` a few times a second, and after each of these writes what
`take_output` gives; then, if `should_close` is set, it closes the socket.
"""

from collections.abc import Callable
from typing import Any, Final

from pamqp.base import Frame
from pamqp.commands import Connection as ConnectionClass

from mayfly.node.amqp import connection_state as states
from mayfly.node.amqp import handshake
from mayfly.node.amqp.channel import ReceivingChannel
from mayfly.node.amqp.channels import Channels
from mayfly.node.amqp.errors import (
    ACCESS_REFUSED,
    PRECONDITION_FAILED,
    FramingError,
    ProtocolError,
    is_hard,
    reply_text,
)
from mayfly.node.amqp.events import ConnectionClosed, Event, OpenRequested, SecretUpdated
from mayfly.node.amqp.field_table import table_to_python
from mayfly.node.amqp.frames import BODY, HEADER, HEARTBEAT, METHOD, FrameReader, frame_snippet, unknown_frame
from mayfly.node.amqp.heartbeat import Heartbeat
from mayfly.node.amqp.method_table import ON_CHANNEL_0
from mayfly.node.amqp.methods import decode_method, method_ids
from mayfly.node.amqp.output import Output
from mayfly.node.amqp.sasl import EXTERNAL
from mayfly.node.amqp.settings import ConnectionSettings

_CLOSE_OK_FRAME: Final = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"
_HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
# Input that may wait while the broker checks a password or a virtual host: from the first on the owner is
# asked to stop reading, at the second the client is given up.
_HELD_BYTES: Final = 262_144
# The same of a client that has not logged in: its limits and connection.open come to some hundred octets, and there may
# be as many strangers as sockets. One read of a socket may bring more.
_HELD_OF_STRANGERS_BYTES: Final = 16_384
_MOST_HELD_BYTES: Final = 4_194_304
# How long a client that cannot be understood any more, or failed to log in, may take to read why.
_HASTY_CLOSING_MS: Final = 3_000


class Connection:
    """One connection, from the protocol header to its end.

    should_close: the socket is to be closed as soon as all that take_output() gives has been written.
    closed_by_client: the client said close first, and may have sent more behind it.
    reading_paused: set by the owner while it does not read the socket, so that silence is not held against
    the client.
    client_properties, client_capabilities: from start-ok.  channel_max, heartbeat_seconds: as agreed (channel_max 0
    never occurs).  channels: what is open on it.  output: what is to be sent; on channels the owner sends with it.
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
        self._client_properties = b""
        self.client_capabilities: frozenset[str] = frozenset()
        self.channel_max = settings.channel_max
        self.heartbeat_seconds = settings.heartbeat_seconds
        open_channels: dict[int, ReceivingChannel] = {}
        self.output = Output(open_channels, settings.frame_max_bytes)
        self._reader = FrameReader(
            open_channels,
            self._other_frame,
            self._fail,
            self._refuse_message,
            settings.max_message_bytes,
            settings.initial_frame_max_bytes,
        )
        self.channels = Channels(open_channels, settings.channel_max, self._reader.events, self.output)
        self._heartbeat = Heartbeat()
        self._protocol_header = b""
        self._mechanism = ""
        self._understands_refusal = False
        self._framing_lost = False
        self._last_input = b""
        self._ended = False
        self._held_bytes = _HELD_OF_STRANGERS_BYTES
        self._waited_ms = 0
        self._closing_ms = settings.closing_timeout_ms

    @property
    def client_properties(self) -> dict[str, object]:
        """From start-ok, decoded anew at each call: for years of a connection they are seldom asked for, and a stranger
        may send what takes twenty times its octets."""
        return dict(table_to_python(self._client_properties)) if self._client_properties else {}

    @property
    def mechanism(self) -> str:
        """How the client has logged in."""
        return self._mechanism

    @property
    def wants_input(self) -> bool:
        """False while the owner had better not read on: input waits for an answer it owes."""
        return self._reader.buffered_bytes < self._held_bytes or not self._reader.stopped

    @property
    def publish_begun(self) -> bool:
        """Whether the client has begun with a publish, or has one that is held (`hold_publishes`)."""
        return self._reader.publish_begun

    def hold_publishes(self) -> None:
        """Take nothing from the next publish on; the owner had better not read on once `publish_begun`."""
        self._reader.holds_publishes = True

    def take_publishes(self) -> bool:
        """Take publishes again.  Whether there is something held: then call receive(b"") for it."""
        reader = self._reader
        held = reader.holds_publishes and reader.stopped and self.state == states.RUNNING
        reader.holds_publishes = False
        if held:
            reader.stopped = False
        return held

    def receive(self, data: bytes) -> list[Event]:
        """What these octets of the client bring about, in order.  Never raises.

        With b"" it goes on with what came while an answer was awaited.
        """
        if data:
            self._heartbeat.received()
        if self.state == states.AWAITING_HEADER:
            data = self._read_protocol_header(data)
        if self.state not in (states.AWAITING_HEADER, states.CLOSED):
            if self._framing_lost:
                self._look_for_close_ok(data)
            else:
                self._read_frames(data)
        if self.state == states.CLOSED or self._framing_lost:
            self._reader.discard()
        return self._take_events()

    def connection_lost(self) -> list[Event]:
        """The socket is gone; the last events."""
        self._drop("the client closed the TCP connection")
        self._reader.let_go()
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events = self._reader.events[:]
        self._reader.events.clear()
        return events

    def _read_protocol_header(self, data: bytes) -> bytes:
        """Gather the eight octets that open a connection; what is left of the data."""
        missing = len(handshake.PROTOCOL_HEADER) - len(self._protocol_header)
        self._protocol_header += data[:missing]
        if len(self._protocol_header) < len(handshake.PROTOCOL_HEADER):
            return b""
        if self._protocol_header not in handshake.ACCEPTED_HEADERS:
            self.output.append(handshake.PROTOCOL_HEADER)
            self._drop(f"the client began with {self._protocol_header!r}")
            return b""
        self._move(states.RECEIVE_PROTOCOL_HEADER)
        self.output.append_method(0, handshake.start(self.settings, self._mechanisms))
        return data[missing:]

    def _read_frames(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except FramingError as error:
            self._framing_lost = True
            self._closing_ms = min(self._closing_ms, _HASTY_CLOSING_MS)
            self._fail(error)
        if self._reader.stopped and self._reader.buffered_bytes > _MOST_HELD_BYTES:
            self._drop("too much input while an answer to the client was outstanding")

    def _look_for_close_ok(self, data: bytes) -> None:
        """The client may still answer our close, though its frames cannot be told apart any more."""
        self._last_input = (self._last_input + data)[-len(_CLOSE_OK_FRAME) :]
        if self._last_input == _CLOSE_OK_FRAME:
            self._move(states.RECEIVE_CLOSE_OK)
            self._finish()

    # -- frames other than messages and settlements ----------------------------

    def _other_frame(self, kind: int, channel_id: int, payload: bytes) -> None:
        """A frame that the reader does not handle."""
        if channel_id:
            self._move(states.RECEIVE_CHANNEL_FRAME, kind, payload)
            if self.state == states.RUNNING:
                self.channels.frame(kind, channel_id, payload)
        elif kind == METHOD and len(payload) >= 4:
            self._method(payload)
        elif kind in (HEADER, BODY):
            self._move(states.RECEIVE_CONTENT, kind, payload)
        elif kind != HEARTBEAT or payload:
            self._move(states.RECEIVE_UNKNOWN_FRAME, kind, payload)

    def _method(self, payload: bytes) -> None:
        """A method on channel 0. After our own close only closes matter, and no arguments."""
        class_id, method_id = method_ids(payload)
        happening = ON_CHANNEL_0.get(class_id << 16 | method_id, states.RECEIVE_OTHER_METHOD)
        if self.state == states.CLOSING:
            self._move(happening, METHOD, payload)
            if happening == states.RECEIVE_CLOSE:
                self.output.append_method(0, ConnectionClass.CloseOk())
            if self.state == states.CLOSED:
                self._finish()
            return
        method, table = decode_method(payload)
        self._move(happening, METHOD, payload)
        if happening == states.RECEIVE_START_OK:
            self._client_properties = table
        _ACTIONS[happening](self, method)

    def _start_ok(self, method: ConnectionClass.StartOk) -> None:
        """The client's properties and credentials."""
        self.client_capabilities = handshake.capabilities_of(method.client_properties)
        self._mechanism = method.mechanism
        login = handshake.read_login(method, self._mechanisms, self._certificate_user)
        self._understands_refusal = not login.fault and "authentication_failure_close" in self.client_capabilities
        self._reader.stopped = True
        self._reader.events.append(login)

    def _tune_ok(self, method: ConnectionClass.TuneOk) -> None:
        """The client's limits, which may be lower than ours."""
        handshake.check_limits(method, self.settings)
        self.output.frame_max_bytes = self._reader.frame_max_bytes = method.frame_max
        self.channel_max = self.channels.most = method.channel_max
        self.heartbeat_seconds = method.heartbeat
        self._heartbeat.interval_ms = method.heartbeat * 1_000

    def _open(self, method: ConnectionClass.Open) -> None:
        self._reader.stopped = True
        self._reader.events.append(OpenRequested(method.virtual_host))

    def _update_secret(self, method: ConnectionClass.UpdateSecret) -> None:
        # The library declares text, and gives octets where these are none.
        given: Any = method
        secret: str | bytes = given.new_secret or ""
        text = secret.decode("utf-8", "surrogateescape") if isinstance(secret, bytes) else secret
        self._reader.events.append(SecretUpdated(text))

    def _close(self, method: ConnectionClass.Close) -> None:
        self.output.append_method(0, ConnectionClass.CloseOk())
        self.closed_by_client = True
        self._drop(f"the client closed the connection: {method.reply_code} {method.reply_text}")

    def _refuse_message(self, channel: ReceivingChannel, body_size: int) -> None:
        """A body larger than the broker takes: the channel is closed before any of it is kept."""
        limit = self.settings.max_message_bytes
        text = f"message size {body_size} is larger than configured max size {limit}"
        self.channels.refuse_message(channel, PRECONDITION_FAILED, text)

    # -- answers to what the client asked of the broker -------------------------

    def secret_updated(self) -> None:
        """Yes to SecretUpdated."""
        if self.state == states.RUNNING:
            self.output.append_method(0, ConnectionClass.UpdateSecretOk())

    def authenticated(self) -> None:
        """Yes to AuthenticationRequested; then call receive(b"") for what came meanwhile."""
        if self._stays(states.ACCEPT_LOGIN):
            return
        self._move(states.ACCEPT_LOGIN)
        self._held_bytes = _HELD_BYTES
        self._reader.stopped = False
        self.output.append_method(0, handshake.tune(self.settings))

    def authentication_failed(self, text: str = "") -> None:
        """No to AuthenticationRequested; `text` is for the log, clients are told no details.

        A client without the capability authentication_failure_close gets its socket closed, nothing else; nor, as with
        RabbitMQ, does one of which it cannot be told who it is.
        """
        if self._stays(states.REFUSE_LOGIN):
            return
        reason = f"{self._mechanism} login refused: {text}"
        if self._understands_refusal:
            message = (
                f"Login was refused using authentication mechanism {self._mechanism}."
                " For details see the broker logfile."
            )
            self._closing_ms = min(self._closing_ms, _HASTY_CLOSING_MS)
            self._end(reason)
            self._move(states.REFUSE_LOGIN)
            self._send_close(ProtocolError(ACCESS_REFUSED, message))
        else:
            self._drop(reason)

    def opened(self) -> None:
        """Yes to OpenRequested; then call receive(b"") for what came meanwhile."""
        if self._stays(states.ACCEPT_OPEN):
            return
        self._move(states.ACCEPT_OPEN)
        self._reader.stopped = False
        self.output.append_method(0, ConnectionClass.OpenOk())

    def refuse_open(self, code: int, text: str) -> None:
        """No to OpenRequested (RabbitMQ: 530 "vhost x not found")."""
        if not self._stays(states.ACCEPT_OPEN):
            self.close(code, text, 10, 40)

    # -- what is sent -----------------------------------------------------------

    def take_output(self) -> list[bytes]:
        """Octets to write, in order; each is given once.  Of large bodies there is a part at a time."""
        output = self.output.take()
        if output:
            self._heartbeat.sent()
        return output

    def send_blocked(self, reason: str) -> None:
        """connection.blocked, if the client can take it."""
        self._notify(ConnectionClass.Blocked(reason))

    def send_unblocked(self) -> None:
        """connection.unblocked, if the client can take it."""
        self._notify(ConnectionClass.Unblocked())

    def _notify(self, method: Frame) -> None:
        if self.state == states.RUNNING and "connection.blocked" in self.client_capabilities:
            self.output.append_method(0, method)

    # -- the end ----------------------------------------------------------------

    def close_channel(
        self, channel_id: int, code: int, text: str, class_id: int = 0, method_id: int = 0
    ) -> None:
        """Close a channel with an error: `text` gets the code's name in front.  Nothing if it is not open.

        A hard code (errors.is_hard) closes the connection instead, as AMQP 0-9-1 section 1.2.1 has it.
        """
        if not self.output.takes(channel_id):
            return
        if is_hard(code):
            self.close(code, text, class_id, method_id)
        else:
            self.channels.close(self.channels.by_id[channel_id], code, text, class_id, method_id)

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
        self._move(states.FAIL)
        if self.state == states.CLOSING:
            self._send_close(error)
        else:
            self._finish()

    def _send_close(self, error: ProtocolError) -> None:
        self._waited_ms = 0
        self._reader.stopped = False
        whole = reply_text(error.code, error.text)
        self.output.append_method(0, ConnectionClass.Close(error.code, whole, error.class_id, error.method_id))

    def _drop(self, reason: str) -> None:
        """Give the client up without a word."""
        self._end(reason)
        self._move(states.DROP)
        self._finish()

    def _end(self, reason: str) -> None:
        """Tell the broker, once; no channel exists any more."""
        if not self._ended:
            self._ended = True
            self.channels.end()
            self._reader.events.append(ConnectionClosed(reason))

    def _finish(self) -> None:
        """Nothing more is read or sent: the socket can go."""
        self.should_close = True
        self._reader.stopped = True

    # -- states -----------------------------------------------------------------

    def _stays(self, happening: int) -> bool:
        """Whether this changes nothing in the state it is in: an answer that nobody waits for any more."""
        return states.TRANSITIONS[happening][self.state] == self.state

    def _move(self, happening: int, kind: int = METHOD, payload: bytes = b"") -> None:
        """Go to the next state.  Raises ProtocolError where TRANSITIONS has a refusal of the frame given."""
        following = states.TRANSITIONS[happening][self.state]
        if following < 0:
            raise self._refused(following, kind, payload)
        self.state = following

    def _refused(self, refusal: int, kind: int, payload: bytes) -> ProtocolError:
        """The error for a refusal of TRANSITIONS, in RabbitMQ's words."""
        if refusal == states.UNKNOWN:
            return unknown_frame(kind, payload)
        code = states.REFUSALS[refusal]
        if refusal == states.NOT_DUE:
            text = f"unexpected method in connection state {states.STATE_NAMES[self.state]}"
            return ProtocolError(code, text, *method_ids(payload))
        return ProtocolError(code, frame_snippet(kind, payload))

    # -- time -------------------------------------------------------------------

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
                self._move(states.DROP)
                self._finish()
        elif self.state != states.RUNNING:
            self._waited_ms += passed_ms
            if self._waited_ms >= self.settings.handshake_timeout_ms:
                self._drop(f"the client took too long in state {states.STATE_NAMES[self.state]}")
        if self.state != states.CLOSING and self._heartbeat.peer_is_silent():
            self._drop(f"missed heartbeats from client, timeout: {self.heartbeat_seconds}s")
        # Behind a large body it would be of no use before that is taken, and then there is no silence.
        if self.state != states.CLOSED and self._heartbeat.beat_is_due() and not self.output.has_large:
            self.output.append(_HEARTBEAT_FRAME)
        return self._take_events()


_ACTIONS: Final[dict[int, Callable[[Connection, Any], None]]] = {
    states.RECEIVE_START_OK: Connection._start_ok,
    states.RECEIVE_TUNE_OK: Connection._tune_ok,
    states.RECEIVE_OPEN: Connection._open,
    states.RECEIVE_UPDATE_SECRET: Connection._update_secret,
    states.RECEIVE_CLOSE: Connection._close,
}
"""What is done for a method that TRANSITIONS lets through; none other is before a connection closes."""
