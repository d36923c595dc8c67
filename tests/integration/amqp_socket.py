"""AMQP without a client library: octets as they are, for what no library would send."""

import socket
import struct
from typing import Any, Final

from pamqp import commands
from pamqp import frame as frames
from pamqp.base import Frame

from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S

HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_END: Final = b"\xce"
METHOD: Final = 1


def raw_frame(kind: int, channel: int, payload: bytes, end: bytes = FRAME_END) -> bytes:
    """Any frame, right or wrong."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method_frame(method: Frame, channel: int) -> bytes:
    """A method as it stands on the wire."""
    return bytes(frames.marshal(method, channel))


def login_octets(user: str = "guest", password: str = "guest", vhost: str = "/") -> bytes:
    """Everything a client says up to connection.open, at once: the server takes it in order."""
    start = commands.Connection.StartOk(
        client_properties={}, mechanism="PLAIN", response=f"\0{user}\0{password}", locale="en_US"
    )
    tune = commands.Connection.TuneOk(channel_max=2047, frame_max=131072, heartbeat=0)
    opening = commands.Connection.Open(virtual_host=vhost)
    return HEADER + b"".join(method_frame(method, 0) for method in (start, tune, opening))


class AmqpSocket:
    """A socket to a node, and what the node says on it, frame by frame."""

    def __init__(self, nodes: Nodes, id: int) -> None:
        address = nodes.plan(id).amqp
        self._socket = socket.create_connection((address.host, address.port), timeout=BOUND_S)
        self._buffer = b""

    def __enter__(self) -> "AmqpSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send octets."""
        self._socket.sendall(data)

    def call(self, method: Frame, channel: int, answer: type[Any]) -> Any:
        """Send a method; the answer, which must be of this type."""
        self.send(method_frame(method, channel))
        return self.expect(answer)

    def expect(self, answer: type[Any]) -> Any:
        """The next method, which must be of this type."""
        _, method = self.next()
        assert isinstance(method, answer), f"{method!r} where {answer.__name__} was due"
        return method

    def next(self) -> tuple[int, Any]:
        """Channel and content of the next frame. Fails when the node has closed the socket."""
        while True:
            if len(self._buffer) >= 7:
                size = struct.unpack(">I", self._buffer[3:7])[0] + 8
                if len(self._buffer) >= size:
                    data, self._buffer = self._buffer[:size], self._buffer[size:]
                    _, channel, content = frames.unmarshal(data)
                    return channel, content
            data = self._socket.recv(65536)
            assert data, f"closed by the node; before that: {self._buffer!r}"
            self._buffer += data

    def rest(self) -> bytes:
        """Everything until the node closes the socket."""
        data = self._buffer
        while chunk := self._socket.recv(65536):
            data += chunk
        return data

    def half_close(self) -> None:
        """Say that nothing more will come."""
        self._socket.shutdown(socket.SHUT_WR)

    def login(self) -> "AmqpSocket":
        """Open the connection as guest."""
        self.send(login_octets())
        for answer in (commands.Connection.Start, commands.Connection.Tune, commands.Connection.OpenOk):
            self.expect(answer)
        return self

    def open_channel(self, channel: int = 1) -> None:
        """Open a channel."""
        self.call(commands.Channel.Open(), channel, commands.Channel.OpenOk)
