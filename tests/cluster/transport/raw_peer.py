"""A peer made by hand: what it says, it says whether a node would or not."""

import asyncio

import grpc
import grpc.aio

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport import codec, framing, options
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.versions import PROTOCOL_CHECKSUMS, PROTOCOL_LOWEST, VersionRange
from tests.cluster.transport.members import Member


class RawPeer:
    """An Exchange with a member, and the connection for its frames."""

    def __init__(self, member: Member, node_id: int, protocol: int = PROTOCOL_LOWEST) -> None:
        self.protocol = protocol
        self.member = member
        self.node_id = node_id
        self.channel = grpc.aio.insecure_channel(member.address)
        self.call = self.channel.stream_unary(options.EXCHANGE)()
        self.ticket = b""
        self.port = 0
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def greet(self) -> "RawPeer":
        """Open the Exchange; the member says where it takes frames."""
        spoken = VersionRange(PROTOCOL_LOWEST, self.protocol)
        hello = LocalPeer(self.node_id, f"node-{self.node_id}", "blue", protocols=spoken).hello()
        await self.call.write(codec.encode_hello(hello))
        answer = dict(tuple(await self.call.initial_metadata()))
        self.port, self.ticket = int(answer[options.FRAMES_PORT]), bytes.fromhex(answer[options.TICKET])
        return self

    async def show(self, ticket: bytes, node_id: int | None = None) -> bytes:
        """Connect and show a ticket; what the member answers, b"" when it hangs up."""
        node_id = self.node_id if node_id is None else node_id
        return await self.say(framing.encode_greeting(self.protocol, node_id, ticket))

    async def say(self, data: bytes) -> bytes:
        """Connect and say something; what the member answers, b"" when it hangs up."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.member.transport.frames_port)
        self.writer.write(data)
        try:
            return await self.reader.readexactly(len(framing.encode_answer(self.protocol)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def connect(self) -> "RawPeer":
        """Open both."""
        await self.greet()
        assert await self.show(self.ticket) == framing.encode_answer(self.protocol)
        return self

    def send(self, frame: Frame) -> None:
        """Send a frame on the frame stream."""
        data = codec.encode_frame(frame)
        self.writer.write(framing.frame_header([data], len(data), self.protocol >= PROTOCOL_CHECKSUMS) + data)

    async def send_apart(self, frame: Frame) -> None:
        """Send a frame on the Exchange."""
        data = codec.encode_frame(frame)
        await self.call.write(framing.encode_apart(data) if self.protocol >= PROTOCOL_CHECKSUMS else data)

    async def hung_up(self) -> bool:
        """Wait for the member to close the frame stream."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        """End both."""
        if hasattr(self, "writer"):
            self.writer.transport.abort()
        await self.channel.close()
