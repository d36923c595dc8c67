"""The peer port: connections are accepted, counted and bounded here, and what they say is carried to gRPC's server.

gRPC's own listener takes connections without bound and waits for two minutes for their first words. It listens at a
socket of this machine instead, in a folder that its user alone may open, and each connection has one there with a name
of its own; so a call that gRPC answers is known to belong to a connection (`grpc.ServicerContext.peer`).
"""

import asyncio
import contextlib
import errno
import itertools
import os
import socket
import sys
from typing import Final, cast

import grpc
import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.transport.cluster_secret import ProvenSecret
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.frame_stream import host_of
from mayfly.cluster.transport.listening import Listening, give_up_in_time
from mayfly.cluster.transport.socket_folder import SocketFolder
from mayfly.cluster.transport.strangers import Strangers

_FIRST_PAUSE_S: Final = 0.005
_LAST_PAUSE_S: Final = 1.0
"""Until the server behind the port has room in its backlog; twice as long each time."""


class PeerPort:
    """Takes connections for a gRPC server. A call says by its `peer` to which of them it belongs."""

    def __init__(self, listen_address: str, complaints: Complaints) -> None:
        self.complaints = complaints
        self._address = listen_address
        self._folder: SocketFolder | None = None
        self._listening = Listening("peers", complaints, self._came)
        self._strangers: Strangers[PortConnection] = Strangers()
        self._named: dict[str, PortConnection] = {}
        self._all: dict[PortConnection, None] = {}
        self._numbers = itertools.count()
        self.ending = False

    @property
    def port(self) -> int:
        """The port that is listened on, once it is open."""
        return self._listening.port

    @property
    def _path(self) -> str:
        assert self._folder is not None
        return str(self._folder.socket)

    async def open(self) -> None:
        """Take the address. Raises `OSError`."""
        self._folder = SocketFolder()
        await self._listening.bind(host_of(self._address), int(self._address.rpartition(":")[2]))

    def serve(self, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None) -> None:
        """Have a server listen behind the port, with TLS if there are credentials. Raises `OSError`."""
        target = f"unix:{self._path}"
        try:
            if credentials is None:
                server.add_insecure_port(target)
            else:
                server.add_secure_port(target, credentials)
        except RuntimeError:
            raise OSError(f"can't listen on {self._path}, where connections of peers are passed on to") from None

    def begin(self) -> None:
        """Let connections in, once the server has started."""
        self._listening.begin()

    async def end(self) -> None:
        """Let nobody in any more: the server is going to stop."""
        self.ending = True
        self._listening.end()

    async def close(self) -> None:
        """Break all connections, and give the address back. Also for one that was opened in part."""
        await self.end()
        self._listening.close()
        for connection in list(self._all):
            connection.abort()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()

    def connection(self, peer: str) -> "PortConnection | None":
        """The connection of a call; None if that has gone."""
        return self._named.get(peer)

    def host(self, peer: str) -> str:
        """Where the one is that calls."""
        connection = self._named.get(peer)
        return "an address that has gone" if connection is None else connection.host

    def _came(self, accepted: socket.socket, host: str) -> None:
        connection = PortConnection(self, accepted, host)
        self._all[connection] = None
        turned_away = self._strangers.came(connection, host)
        if turned_away is not None:
            turned_away.turn_away("too many connections of which nobody knows whose they are")

    def admit(self, connection: "PortConnection") -> None:
        """It is a member's: neither its number nor what it sends is bounded any more."""
        self._strangers.gone(connection)

    def is_stranger(self, connection: "PortConnection") -> bool:
        """Whether nobody knows yet whose it is."""
        return connection in self._strangers

    def gone(self, connection: "PortConnection") -> None:
        """It is closed."""
        self._strangers.gone(connection)
        self._all.pop(connection, None)
        self._named.pop(connection.name, None)

    async def connect(self, connection: "PortConnection") -> socket.socket:
        """A connection of this name to gRPC's server. Raises `OSError`."""
        inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inside.setblocking(False)
            if sys.platform == "linux":
                inside.bind("")  # The system makes up a name that nothing else has.
                connection.name = "unix-abstract:" + inside.getsockname()[1:].decode()
            else:
                if self._folder is None:
                    raise OSError(errno.ESHUTDOWN, "the port is closed")
                path = f"{self._path}-{next(self._numbers)}"
                inside.bind(path)
                connection.name = f"unix:{path}"
            self._named[connection.name] = connection
            await self._connect(inside)
            if sys.platform != "linux":
                os.unlink(path)
        except BaseException:
            inside.close()
            raise
        return inside

    async def _connect(self, inside: socket.socket) -> None:
        """Raises `OSError`.

        Not by the loop: with a full backlog such a socket says at once that it would block, and nothing comes of it
        later; a loop that waits for that takes it for connected, or ends the process when it is closed meanwhile.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            if self._folder is None:
                raise OSError(errno.ESHUTDOWN, "the port is closed")
            try:
                inside.connect(self._path)
            except BlockingIOError:
                if pause_s > _LAST_PAUSE_S:
                    raise
                await asyncio.sleep(pause_s)
                pause_s *= 2
            else:
                return


class PortConnection(asyncio.Protocol):
    """A connection at the peer port, and its other half to gRPC's server once it has said something."""

    def __init__(self, port: PeerPort, accepted: socket.socket, host: str) -> None:
        self.host = host
        self.name = ""
        """That of its other half."""
        self.proven: ProvenSecret | None = None
        """The cluster secret that was proven on it."""
        self.proven_as = 0
        """The node id that was said with the proof."""
        self._port = port
        self._socket = accepted
        self._outside: asyncio.Transport | None = None
        self._inside: _Inside | None = None
        self._first = b""
        self._received_bytes = 0
        self._ended = False
        self._waits = False
        # A moment longer than a call that is not followed by a hello: it is told why.
        patience_s = limits.HELLO_TIMEOUT_SECONDS + limits.STOP_GRACE_SECONDS
        self._timer = asyncio.get_running_loop().call_later(patience_s, self._late)
        self._work = asyncio.create_task(self._take(), name="a connection at the peer port")

    async def _take(self) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self, self._socket)
        except OSError:
            self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._outside = cast(asyncio.Transport, transport)  # uvloop's are not of this class
        if self._ended:
            self._outside.abort()
            return
        give_up_in_time(transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._ended:
            return
        self._received_bytes += len(data)
        if self._received_bytes > limits.MAX_STRANGER_BYTES and self._port.is_stranger(self):
            self.turn_away(f"more than {limits.MAX_STRANGER_BYTES} bytes without saying whose they are")
            return
        if self._inside is not None:
            self._inside.send(data)
        elif self._first:
            self._first += data
        else:
            self._first = data
            self._work = asyncio.create_task(self._go_inside(), name="a connection to gRPC")

    async def _go_inside(self) -> None:
        assert self._outside is not None
        self._outside.pause_reading()
        try:
            inside = await self._port.connect(self)
            _, half = await asyncio.get_running_loop().create_unix_connection(lambda: _Inside(self), sock=inside)
            # Not in its `connection_made`: uvloop learns only now that the descriptor is the socket's. If it was closed
            # there, the socket would close the number a second time, which is somebody else's by then.
            self._went_inside(half)
        except OSError as error:
            if not self._port.ending:
                text = f"a connection can't be passed on: {error.strerror or error}"
                self._port.complaints.say_first("the peer port", text)
            self.abort()
        finally:
            if self._ended:  # It went meanwhile.
                self._port.gone(self)

    def _went_inside(self, inside: "_Inside") -> None:
        if self._ended:
            inside.abort()
            return
        self._inside = inside
        inside.send(self._first)
        self._first = b""
        self.take_more()

    def admit(self) -> None:
        """It has shown that it is a member's."""
        self._timer.cancel()
        self._port.admit(self)

    def wait(self, seconds: float) -> None:
        """It asks for something that takes so long; it stays one of whom nobody knows who they are. Granted once."""
        if not self._ended and not self._waits and self._port.is_stranger(self):
            self._waits = True
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._late)

    def send(self, data: bytes) -> None:
        """gRPC says something to it."""
        if self._outside is not None and not self._outside.is_closing():
            self._outside.write(data)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._inside is not None:
            self._inside.take_no_more()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._inside is not None:
            self._inside.take_more()

    def take_no_more(self) -> None:
        """gRPC takes no more for a while."""
        if self._outside is not None and not self._outside.is_closing():
            self._outside.pause_reading()

    def take_more(self) -> None:
        """gRPC takes more."""
        if self._outside is not None and not self._outside.is_closing():
            self._outside.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._end()

    def inside_lost(self) -> None:
        """gRPC has ended it; what it has said goes out first, if it does so soon."""
        if self._outside is not None and not self._ended:
            self._outside.close()
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(limits.STOP_GRACE_SECONDS, self.abort)

    def turn_away(self, text: str) -> None:
        """End it, and say so in the log."""
        if not self._ended:
            self._port.complaints.say_first(self.host, text)
            self.abort()

    def abort(self) -> None:
        """End it at once."""
        if self._outside is not None:
            self._outside.abort()
        else:
            # The transport that is being made for it finds the end, and closes it.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._end()

    def _late(self) -> None:
        if self._port.is_stranger(self):
            self.turn_away("a connection that has not said in time whose it is")

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._timer.cancel()
        self._port.gone(self)
        # Each half knows the other: what has ended would wait for the collector.
        inside, self._inside = self._inside, None
        if inside is not None:
            inside.close()


class _Inside(asyncio.Protocol):
    """The half of a connection that leads to gRPC's server."""

    def __init__(self, connection: PortConnection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._connection.send(data)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._connection.take_no_more()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._connection.take_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._connection.inside_lost()

    def send(self, data: bytes) -> None:
        """The connection says something."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def take_no_more(self) -> None:
        """The connection takes no more for a while."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def take_more(self) -> None:
        """The connection takes more."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """The connection has gone, after what it has said."""
        self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        self._transport.abort()
