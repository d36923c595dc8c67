"""A client that decides itself when it reads, and what the node has for it."""

import socket

from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from mayfly.node.limits import MIB
from tests.node.broker.direct_node import DirectNode
from tests.waiting import BOUND_S

LARGEST_READ = 1 << 20


class Client:
    """A socket that reads only when it is told to, with as little room for what it does not read as can be."""

    def __init__(self, node: DirectNode, heartbeat: int = 0) -> None:
        self.node = node
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(BOUND_S)
        self.socket.connect(("127.0.0.1", node.port))
        start = commands.Connection.StartOk(client_properties={}, mechanism="PLAIN", response="\0guest\0guest")
        tune = commands.Connection.TuneOk(0x7FF, 131_072, heartbeat)
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.send(0, start, tune, commands.Connection.Open())
        self.send(1, commands.Channel.Open())
        self.buffer = b""
        while not isinstance(self.read(), commands.Channel.OpenOk):
            pass

    def send(self, channel: int, *methods: Frame) -> None:
        self.socket.sendall(b"".join(frame.marshal(method, channel) for method in methods))

    def read(self) -> object:
        """The next frame."""
        while True:
            if len(self.buffer) >= 7:
                size = int.from_bytes(self.buffer[3:7], "big") + 8
                if len(self.buffer) >= size:
                    _, _, found = frame.unmarshal(self.buffer[:size])
                    self.buffer = self.buffer[size:]
                    return found
            self.receive()

    def receive(self, most_bytes: int = LARGEST_READ) -> None:
        """Add to the buffer what has come."""
        data = self.socket.recv(most_bytes)
        assert data, "closed by the node"
        self.buffer += data

    def bodies(self, count: int) -> list[int]:
        """The numbers of so many messages."""
        numbers: list[int] = []
        left = 0
        while len(numbers) < count or left:
            found = self.read()
            if isinstance(found, ContentHeader):
                left = found.body_size
            elif isinstance(found, ContentBody):
                if left == MIB:
                    numbers.append(int(found.value[:6]))
                left -= len(found.value)
        return numbers


def protocol_of(client: Client) -> object:
    """The node's end of it."""
    name = "{}:{}".format(*client.socket.getsockname())
    for protocol in list(client.node.listener._protocols):
        connection = protocol._connection
        if connection is not None and connection.name.startswith(f"{name}#"):
            return protocol
    return None
