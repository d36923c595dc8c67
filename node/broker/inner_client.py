"""An AMQP client inside the process: who has logged in elsewhere does what AMQP clients do, by the same way in.

It is served as the connection of any client is: its octets are read, checked and answered by the same code. It counts
for no limit of connections and is in no list, as it is there for one request only.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from pamqp import commands
from pamqp.base import Frame

from mayfly.node.amqp.frames import BODY, HEADER, METHOD
from mayfly.node.amqp.handshake import PROTOCOL_HEADER
from mayfly.node.amqp.methods import decode_method, method_frame, unchecked
from mayfly.node.amqp.sasl import EXTERNAL
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.client_socket import ClientSocket
from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.broker.connection import ClientConnection
from mayfly.node.catalog.token_user import AnyUser, name_of

_CHANNEL: Final = 1
_FRAME_START: Final = Struct(">BHI")
_FRAME_END: Final = b"\xce"
_FRAME_OVERHEAD_BYTES: Final = 8
_BODY_SIZE_AT: Final = 4


class Received(NamedTuple):
    """A method from the broker, with the content that it came with."""

    method: Frame
    header: bytes = b""
    """The payload of the content header."""
    body: bytes = b""


class InnerClient:
    """One connection with one channel. Implements `ConnectionHost`."""

    def __init__(
        self, broker: Broker, user: AnyUser, vhost: str, soon: Callable[[Callable[[], None]], None],
        received: Callable[[Received], None],
    ) -> None:  # fmt: skip
        """It acts as this user, who has logged in by other means, in this vhost. `soon(call)` has the cluster do what
        was asked for, and then makes the call; `received` is told of all that comes once the channel is open, the
        open-ok first, and of the close if one comes."""
        self._soon: Callable[[Callable[[], None]], None] = soon
        self._received: Callable[[Received], None] = received
        self._vhost = vhost
        self._frame_max_bytes = 0
        self._input = b""
        self._content: Received | None = None
        """The method whose content is coming."""
        self._body: list[bytes] = []
        self._left_bytes = 0
        """What has come of its body, and how much has not."""
        self._is_woken = False
        socket = ClientSocket(("127.0.0.1", 0), ("127.0.0.1", 0), False, 0, inner=user)
        self._connection: ClientConnection = broker.connect(self, "inside", True, name_of(user), socket)
        self._give(PROTOCOL_HEADER)

    # -- for whoever uses it ----------------------------------------------------------

    def send(self, method: Frame) -> None:
        """A method on the channel."""
        self._give(method_frame(_CHANNEL, method))

    def publish(self, method: Frame, header: bytes, body: bytes) -> None:
        """basic.publish; `header` is the payload of the content header."""
        frames = [method_frame(_CHANNEL, method), _frame(HEADER, header)]
        room = self._frame_max_bytes - _FRAME_OVERHEAD_BYTES
        frames += [_frame(BODY, body[start : start + room]) for start in range(0, len(body), room)]
        self._give(b"".join(frames))

    def close(self) -> None:
        """The socket is gone, so to say: what is held goes back to its queues."""
        self._connection.lost()

    # -- ConnectionHost ---------------------------------------------------------------

    def wake(self) -> None:
        """See `ConnectionHost.wake`."""
        if not self._is_woken:
            self._is_woken = True
            self._soon(self._flush)

    def verify_password(self, stored_hash: str, password: str, done: OnDone) -> None:
        """There is none: the user has logged in."""
        done(False)

    def reading_changed(self) -> None:
        """Nothing waits to be read."""

    # -- what comes -------------------------------------------------------------------

    def _give(self, octets: bytes) -> None:
        self._connection.receive(octets)
        self.wake()

    def _flush(self) -> None:
        self._is_woken = False
        octets = b"".join([self._input, *self._connection.flush()])
        frames: list[tuple[int, int, bytes]] = []
        at = 0
        while len(octets) - at >= _FRAME_OVERHEAD_BYTES:
            kind, channel, size = _FRAME_START.unpack_from(octets, at)
            end = at + _FRAME_START.size + size
            if len(octets) <= end:
                break
            frames.append((kind, channel, octets[at + _FRAME_START.size : end]))
            at = end + 1
        self._input = octets[at:]
        for frame in frames:
            self._frame_came(*frame)

    def _frame_came(self, kind: int, channel: int, payload: bytes) -> None:
        content = self._content
        if kind == METHOD:
            method, _ = decode_method(payload)
            if isinstance(method, commands.Basic.GetOk | commands.Basic.Deliver | commands.Basic.Return):
                self._content = Received(method)
            elif channel == 0:
                self._connection_method(method)
            else:
                self._received(Received(method))
        elif kind == HEADER and content is not None:
            self._content = content = Received(content.method, payload)
            self._left_bytes = int.from_bytes(payload[_BODY_SIZE_AT : _BODY_SIZE_AT + 8], "big")
            self._look_whether_whole(content)
        elif kind == BODY and content is not None:
            self._body.append(payload)
            self._left_bytes -= len(payload)
            self._look_whether_whole(content)

    def _look_whether_whole(self, content: Received) -> None:
        if self._left_bytes <= 0:
            self._content, body, self._body = None, self._body, []
            self._received(content._replace(body=b"".join(body)))

    def _connection_method(self, method: Frame) -> None:
        if isinstance(method, commands.Connection.Start):
            start_ok = unchecked(
                commands.Connection.StartOk, client_properties={}, mechanism=EXTERNAL, response="", locale="en_US"
            )
            self._give(method_frame(0, start_ok))
        elif isinstance(method, commands.Connection.Tune):
            self._frame_max_bytes = method.frame_max
            tune_ok = unchecked(
                commands.Connection.TuneOk, channel_max=_CHANNEL, frame_max=method.frame_max, heartbeat=0
            )
            opening = unchecked(commands.Connection.Open, virtual_host=self._vhost, capabilities="", insist=False)
            self._give(method_frame(0, tune_ok) + method_frame(0, opening))
        elif isinstance(method, commands.Connection.OpenOk):
            self._give(method_frame(_CHANNEL, unchecked(commands.Channel.Open, out_of_band="0")))
        elif isinstance(method, commands.Connection.Close):
            self._received(Received(method))


def _frame(kind: int, payload: bytes) -> bytes:
    return _FRAME_START.pack(kind, _CHANNEL, len(payload)) + payload + _FRAME_END
