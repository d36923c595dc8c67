"""How one peer is reached: connections to its address, and the proof of the cluster secret on them."""

import asyncio

import grpc
import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import options, proving
from mayfly.cluster.transport.cluster_secret import ClusterSecrets, ProvenSecret
from mayfly.cluster.transport.frame_stream import FrameSender, host_of
from mayfly.cluster.transport.tls import NodeTls


class Dialer:
    """Connects to one peer."""

    def __init__(
        self, peer: int, address: str, hello: peer_pb2.Hello, credentials: NodeTls | None, known: ClusterSecrets
    ) -> None:
        """`hello` is what is said to this peer first. `known` is the cluster secret."""
        self.peer = peer
        self.address = address
        self.hello = hello
        self._credentials = credentials
        self._known = known

    @property
    def has_tls(self) -> bool:
        """Whether what is sent is protected on the way."""
        return self._credentials is not None

    def channel(self) -> grpc.aio.Channel:
        """A new one, which connects when it is used."""
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.address, options.channel_options(""), options.compression())
        settings = options.channel_options(self._credentials.server_name)
        return grpc.aio.secure_channel(self.address, self._credentials.channel, settings, options.compression())

    async def prove(self, channel: grpc.aio.Channel) -> ProvenSecret | None:
        """Prove the cluster secret on a connection, if this node has one. Raises `NotProven`."""
        hello = self.hello
        return await proving.prove(channel, self._known, hello.node_id, hello.store, self.peer, self.address)

    async def connect_frames(self, port: int, frames: FrameSender) -> None:
        """Connect where the peer takes frames. Raises `OSError`, `ssl.SSLError`."""
        host = host_of(self.address)
        tls = None if self._credentials is None else self._credentials.frames
        name = None if self._credentials is None else self._credentials.server_name or host
        await asyncio.get_running_loop().create_connection(lambda: frames, host, port, ssl=tls, server_hostname=name)

    async def is_refused(self) -> bool:
        """Whether the peer's host says that nobody listens there. One that is frozen, cut off or switched off does not
        say so."""
        host, port = host_of(self.address), self.address.rpartition(":")[2]
        try:
            async with asyncio.timeout(limits.RECONNECT_LAST_MS / 1000):
                _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        writer.close()
        return False


async def status_of(call: grpc.aio.StreamUnaryCall) -> tuple[grpc.StatusCode, str]:
    """Code and text with which a call ended."""
    code = await call.code()
    return code, await call.details() or code.name


async def give_up(call: grpc.aio.StreamUnaryCall) -> None:
    """End a call, if it has not ended. One that is cancelled and the error that says so hold each other in gRPC, until
    somebody takes the error."""
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
