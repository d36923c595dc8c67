"""The sockets of the frame stream; what is said on them is in `cluster.transport.framing`."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol, cast

from cluster import limits
from cluster.transport import framing
from cluster.transport.complaints import Complaints
from cluster.transport.framing import LENGTH, FrameCutter, NotFrames
from cluster.versions import VersionRange

_BACKLOG: Final = 100
_USER_TIMEOUT_MS: Final = limits.KEEPALIVE_INTERVAL_MS + limits.KEEPALIVE_TIMEOUT_MS


class FrameSender(asyncio.Protocol):
    """The end that connects, greets and sends."""

    def __init__(
        self, version: int, greeting: bytes, on_writable: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        """`version` is what the greeting says. `on_writable()` after `writable` was false for a while, `on_end()` when
        the connection is gone."""
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the peer has taken the stream; or with an OSError."""
        self.ended = False
        self.writable = False
        """Whether frames may be sent; not so before the peer has answered, and while too much is on its way out."""
        self._version = VersionRange(version, version)
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
        _give_up_in_time(transport)
        self._transport.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._answer += data[: framing.ANSWER_BYTES + 1]
        try:
            framing.check_beginning(self._answer, self._version)
        except NotFrames as error:
            self.fail(str(error))
        else:
            if len(self._answer) > framing.ANSWER_BYTES:
                self.fail("a receiver of frames that says something")
            elif len(self._answer) == framing.ANSWER_BYTES and not self.accepted.done():
                self.writable = True
                self.accepted.set_result(None)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable = False

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable = not self.ended and self.accepted.done()
        if self.writable:
            self._on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.fail(str(exc) if exc else "closed by the peer")

    def send(self, frame: bytes) -> None:
        """Send an encoded frame, never blocking; for when it is `writable`."""
        assert self._transport is not None
        self._transport.write(LENGTH.pack(len(frame)) + frame)

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

    def attached(self, connection: "FrameConnection") -> None:
        """The peer has come with its ticket."""
        ...

    def take(self, data: bytes) -> None:
        """A frame, encoded."""
        ...

    def refuse(self, text: str) -> None:
        """The peer sends what can't be."""
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
        self.port = 0
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._connections: dict[FrameConnection, None] = {}
        self._strangers: dict[FrameConnection, None] = {}

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `OSError`."""
        try:
            await self._bind(host, port)
        except OSError as error:
            self._close()
            text = f"can't listen on {host}:{port} for frames: {error.strerror or error}"
            raise OSError(text) from None
        self.port = self._sockets[0].getsockname()[1]
        for listening in self._sockets:
            listening.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listening), name="accepting frame streams"))

    async def _bind(self, host: str, port: int) -> None:
        """Listen at all addresses of a name, at the first one if any port will do."""
        if host == "::" and socket.has_dualstack_ipv6():
            both = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
            self._sockets.append(both)
            return
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        addresses = {(family, sockaddr[:2]): None for family, _, _, _, sockaddr in found}
        for family, (address, _) in list(addresses)[: 1 if port == 0 else None]:
            self._sockets.append(socket.create_server((str(address), port), family=family, backlog=_BACKLOG))

    async def stop(self) -> None:
        """Listen no more, and break all connections."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.secured for connection in connections))
        self._close()

    def _close(self) -> None:
        for listening in self._sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # It went while it waited.
            except OSError as error:
                # No file descriptors, or no memory: others have to give theirs back first.
                self.complaints.say_first("the port for frames", f"can't accept: {error.strerror or error}")
                await asyncio.sleep(limits.ACCEPT_RETRY_SECONDS)
                continue
            self._came(FrameConnection(self, accepted, str(address[0])))

    def _came(self, connection: "FrameConnection") -> None:
        """Somebody has connected and not shown a ticket; of too many, who waits longest has to go."""
        self._connections[connection] = self._strangers[connection] = None
        if len(self._strangers) > limits.MAX_FRAME_STRANGERS:
            next(iter(self._strangers)).turn_away("too many connections without a ticket")

    def admitted(self, connection: "FrameConnection") -> None:
        """It has shown its ticket."""
        self._strangers.pop(connection, None)

    def gone(self, connection: "FrameConnection") -> None:
        """It is closed."""
        self._strangers.pop(connection, None)
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
            self._holder = self._listener.redeem(version, node_id, ticket)
            self._timer.cancel()
            self._listener.admitted(self)
            self._listener.complaints.forget(self.host)
            assert self._transport is not None
            self._transport.write(framing.encode_answer(version))
            self._holder.attached(self)

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


def _give_up_in_time(transport: asyncio.BaseTransport) -> None:
    """A peer that takes nothing for so long is gone: as with gRPC's keepalive, and not after the usual 15 minutes."""
    handle = transport.get_extra_info("socket")
    if handle is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)


def _nothing() -> None:
    pass
