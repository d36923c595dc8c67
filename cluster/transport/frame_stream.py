"""The sockets of the frame stream; what is said on them is in `cluster.transport.framing`."""

import asyncio
import contextlib
import hmac
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from mayfly.cluster import limits
from mayfly.cluster.transport import framing
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.framing import Damaged, FrameCutter, NotFrames, frame_header
from mayfly.cluster.transport.listening import Listening, give_up_in_time
from mayfly.cluster.transport.strangers import Strangers
from mayfly.cluster.versions import VersionRange


class FrameSender(asyncio.Protocol):
    """The end that connects, greets and sends."""

    def __init__(
        self,
        version: int,
        greeting: bytes,
        on_writable: Callable[[], None],
        on_end: Callable[[], None],
        proof: bytes = b"",
        checked: bool = False,
    ) -> None:
        """`version` is what the greeting says, and `proof` what has to be in the answer. `on_writable()` after
        `writable` was false for a while, `on_end()` when the connection is gone. `checked`: frames carry checksums."""
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the peer has taken the stream; or with an OSError."""
        self.ended = False
        self.writable = False
        """Whether frames may be sent; not so before the peer has answered, and while too much is on its way out."""
        self._version = VersionRange(version, version)
        self._right_answer = framing.encode_answer(version, proof)
        self._checked = checked
        self._greeting = greeting
        self._on_writable = on_writable
        self._on_end = on_end
        self._answer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of this class
        if self.ended:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(limits.FRAME_STREAM_BUFFER_BYTES)
        give_up_in_time(transport)
        self._transport.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        right = self._right_answer
        self._answer += data[: len(right) + 1]
        try:
            framing.check_beginning(self._answer, self._version)
        except NotFrames as error:
            self.fail(str(error))
        else:
            if len(self._answer) > len(right):
                self.fail("a receiver of frames that says something")
            elif len(self._answer) == len(right) and not hmac.compare_digest(self._answer, right):
                self.fail("the receiver of frames does not know the cluster secret")
            elif len(self._answer) == len(right) and not self.accepted.done():
                self.writable = True
                self.accepted.set_result(None)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable = False

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable = not self.ended and self.accepted.done()
        if self.writable:
            # Not here, in the middle of a write: if the next one fails, asyncio ends the connection twice.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.writable:
            self._on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.fail(str(exc) if exc else "closed by the peer")

    def send(self, frame: list[bytes], size_bytes: int) -> None:
        """Send an encoded frame of this size, never blocking; for when it is `writable`."""
        assert self._transport is not None
        header = frame_header(frame, size_bytes, self._checked)
        if len(frame) == 1:
            self._transport.write(header + frame[0])
        else:
            # uvloop keeps the pieces as they are, and hands them to the system together.
            self._transport.writelines([header, *frame])

    @property
    def waiting_bytes(self) -> int:
        """What the socket has not taken yet."""
        return 0 if self.ended or self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """End it at once, and tell nobody."""
        self._on_end = _nothing
        self.fail("given up")
        if not self.accepted.cancelled():
            self.accepted.exception()  # Nobody may be waiting for it any more.

    def fail(self, text: str) -> None:
        """End it at once."""
        if self.ended:
            return
        self.ended, self.writable = True, False
        if self._transport is not None:
            self._transport.abort()
        if not self.accepted.done():
            self.accepted.set_exception(ConnectionError(text))
        self._on_end()


class StreamHolder(Protocol):
    """Whose frames come on a connection."""

    @property
    def checked(self) -> bool:
        """Whether its frames carry checksums."""
        ...

    @property
    def proof(self) -> bytes:
        """What the answer to its greeting has to have in it."""
        ...

    def attached(self, connection: "FrameConnection") -> None:
        """The peer has come with its ticket."""
        ...

    def take(self, data: bytes) -> None:
        """A frame, encoded."""
        ...

    def refuse(self, text: str) -> None:
        """The peer sends what can't be."""
        ...

    def damaged(self, text: str) -> None:
        """What the peer sends is damaged on the way."""
        ...

    def lost(self) -> None:
        """The connection is gone."""
        ...


class FrameListener:
    """Takes connections of peers that have a ticket. What others cost is bounded.

    It accepts the sockets itself: so who never ends its TLS handshake is counted as well, and who speaks before it is
    accepted loses no word, as it may when a transport in plain is made first and secured afterwards.
    """

    def __init__(
        self,
        redeem: Callable[[int, int, bytes], StreamHolder],
        spoken: VersionRange,
        complaints: Complaints,
        tls: ssl.SSLContext | None,
    ) -> None:
        """`redeem(version, node id, ticket)` says whose connection it is, or raises `NotFrames`."""
        self.redeem = redeem
        self.spoken = spoken
        self.complaints = complaints
        self.tls = tls
        self._listening = Listening("frames", complaints, self._came)
        self._connections: dict[FrameConnection, None] = {}
        self._strangers: Strangers[FrameConnection] = Strangers()

    @property
    def port(self) -> int:
        """The port that is listened on, once it is started."""
        return self._listening.port

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `OSError`."""
        await self._listening.bind(host, port)
        self._listening.begin()

    async def stop(self) -> None:
        """Listen no more, and break all connections."""
        self._listening.end()
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.secured for connection in connections))
        self._listening.close()

    def _came(self, accepted: socket.socket, host: str) -> None:
        """Somebody has connected and not shown a ticket."""
        connection = FrameConnection(self, accepted, host)
        self._connections[connection] = None
        turned_away = self._strangers.came(connection, host)
        if turned_away is not None:
            turned_away.turn_away("too many connections without a ticket")

    def admitted(self, connection: "FrameConnection") -> None:
        """It has shown its ticket."""
        self._strangers.gone(connection)

    def gone(self, connection: "FrameConnection") -> None:
        """It is closed."""
        self._strangers.gone(connection)
        self._connections.pop(connection, None)


class FrameConnection(asyncio.Protocol):
    """The end that listens: it waits for a greeting with a ticket, answers, and hands frames over."""

    def __init__(self, listener: FrameListener, accepted: socket.socket, host: str) -> None:
        self.host = host
        self._listener = listener
        self._socket = accepted
        self._transport: asyncio.Transport | None = None
        self._greeting = b""
        self._holder: StreamHolder | None = None
        self._cutter = FrameCutter()
        self._ended = False
        timeout_s = limits.HELLO_TIMEOUT_SECONDS
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._late, timeout_s)
        self.secured = asyncio.create_task(self._secure(), name="TLS of a frame stream")
        """Done when there is a transport, with TLS if that is asked for, or will be none."""

    async def _secure(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self, self._socket, ssl=self._listener.tls)
        except (OSError, ssl.SSLError) as error:
            self.turn_away(f"TLS: {getattr(error, 'reason', None) or error or 'no handshake'}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`; with TLS, the handshake is over."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of this class
        if self._ended:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._ended:
            return
        try:
            if self._holder is None:
                self._greeted(data)
                return
            for frame in self._cutter.cut(data):
                self._holder.take(frame)
                if self._ended:
                    return
        except NotFrames as error:
            if self._holder is None:
                self.turn_away(str(error))
            elif isinstance(error, Damaged):
                self._holder.damaged(str(error))
            else:
                self._holder.refuse(str(error))

    def _greeted(self, data: bytes) -> None:
        """Some of a greeting has come. Raises `NotFrames`."""
        self._greeting += data[: framing.GREETING_BYTES + 1 - len(self._greeting)]
        spoken = self._listener.spoken
        framing.check_beginning(self._greeting, spoken)
        if len(self._greeting) > framing.GREETING_BYTES:
            raise NotFrames("more than a greeting before the answer")
        if len(self._greeting) == framing.GREETING_BYTES:
            version, node_id, ticket = framing.decode_greeting(self._greeting, spoken)
            self._holder = holder = self._listener.redeem(version, node_id, ticket)
            self._cutter = FrameCutter(checked=holder.checked)
            self._timer.cancel()
            self._listener.admitted(self)
            self._listener.complaints.forget(self.host)
            assert self._transport is not None
            self._transport.write(framing.encode_answer(version, holder.proof))
            holder.attached(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._greeting and not self._ended and self._holder is None:
            self.turn_away("a greeting that breaks off")
        self._closed()

    def turn_away(self, text: str) -> None:
        """End it, and say so in the log."""
        if not self._ended:
            self._listener.complaints.say_first(self.host, text)
            self.abort()

    def abort(self) -> None:
        """End it at once."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()
        else:
            # The transport that is being made for it finds the end, and closes it.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._closed()

    def _late(self, timeout_s: float) -> None:
        self.turn_away(f"no ticket within {timeout_s} s")

    def _closed(self) -> None:
        self._ended = True
        self._timer.cancel()
        self._listener.gone(self)
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.lost()


def host_of(address: str) -> str:
    """The host in "host:port" or "[host]:port"."""
    host = address.rpartition(":")[0]
    return host[1:-1] if host.startswith("[") else host


def _nothing() -> None:
    pass
