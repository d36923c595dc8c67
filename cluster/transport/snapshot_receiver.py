"""Snapshots that peers send to this node."""

import asyncio
from concurrent.futures import Executor

import grpc
import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import CorruptStore
from mayfly.cluster.log.snapshot_codec import ReceivedSnapshot
from mayfly.cluster.transport import codec, options
from mayfly.cluster.transport.authentication import Authentication, TurnedAway
from mayfly.cluster.transport.codec import DamagedOnTheWay, PeerRefused
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.handshake import Handshake, first_message
from mayfly.cluster.transport.intakes import Intakes
from mayfly.cluster.transport.spool import PartialSnapshot, SnapshotSpool, SnapshotStream
from mayfly.cluster.transport.steps import run_steps


class SnapshotReceiver:
    """Gathers them in files, and hands over those that have come whole."""

    def __init__(
        self,
        handshake: Handshake,
        authentication: Authentication,
        intakes: Intakes,
        spool: SnapshotSpool,
        executor: Executor,
    ) -> None:
        """What blocks is done by the executor."""
        self._node_id = handshake.local.node_id
        self._handshake = handshake
        self._authentication = authentication
        self._intakes = intakes
        self._spool = spool
        self._executor = executor
        self._places = asyncio.Semaphore(limits.MAX_SNAPSHOTS_AT_ONCE)

    async def receive(self, context: grpc.aio.ServicerContext) -> None:
        """One snapshot of a peer; it is handed over like a frame that holds its message. Raises `PeerRefused`."""
        self._authentication.check(context)
        first = await first_message(context)
        if first is None:
            return
        header = codec.decode_snapshot_header(first, self._node_id)
        peer, protocol, counters = self._handshake.admit(header.hello)
        self._authentication.check_id(context, peer)
        self._authentication.admit(context)
        stream = SnapshotStream(peer, header.message.term)
        partial = self._spool.claim(header.name, stream)
        if isinstance(partial, str):
            raise TurnedAway(grpc.StatusCode.RESOURCE_EXHAUSTED, partial)
        try:
            async with self._places:
                self._check_room(partial)
                await context.send_initial_metadata(
                    (
                        options.CONSENT, (options.PROTOCOL, str(protocol)),
                        (options.SNAPSHOT_OFFSET, str(partial.received_bytes)),
                    )
                )
                await self._take_pieces(context, partial, stream, counters)
                await self._hand_over(peer, header, partial, stream, counters)
        except OSError as error:
            self._spool.drop(partial)
            text = f"node {self._node_id} can't keep the snapshot: {error.strerror or error}"
            raise TurnedAway(grpc.StatusCode.RESOURCE_EXHAUSTED, text) from None
        finally:
            self._spool.leave(partial, stream)

    def _check_room(self, partial: PartialSnapshot) -> None:
        missing_bytes = partial.name.total_bytes - partial.received_bytes
        free_bytes = self._spool.free_bytes(partial)
        if missing_bytes > free_bytes:
            text = f"{missing_bytes} bytes of a snapshot are to come, node {self._node_id} has room for {free_bytes}"
            raise TurnedAway(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        partial.expected = True

    async def _take_pieces(
        self, context: grpc.aio.ServicerContext, partial: PartialSnapshot, stream: SnapshotStream,
        counters: PeerCounters,
    ) -> None:  # fmt: skip
        """Write what comes to the file, until all is there. Raises `PeerRefused`, `OSError`."""
        loop = asyncio.get_running_loop()
        total_bytes = partial.name.total_bytes
        while partial.received_bytes < total_bytes:
            _check_owner(partial, stream)
            try:
                async with asyncio.timeout(limits.SNAPSHOT_STALL_SECONDS) as partial.reading:
                    data = await context.read()
            except TimeoutError:
                _check_owner(partial, stream)
                text = f"nothing was sent for {limits.SNAPSHOT_STALL_SECONDS} s"
                raise TurnedAway(grpc.StatusCode.DEADLINE_EXCEEDED, text) from None
            _check_owner(partial, stream)
            partial.reading = None
            if data is grpc.aio.EOF:
                raise PeerRefused(f"snapshot ended {total_bytes - partial.received_bytes} bytes early")
            counters.bytes_received += len(data)
            offset = partial.received_bytes
            try:
                piece = codec.decode_snapshot_data(data, offset, total_bytes)
            except DamagedOnTheWay:
                counters.damaged += 1
                raise
            await loop.run_in_executor(self._executor, partial.file().write, offset, piece)
            _check_owner(partial, stream)
            partial.received_bytes += len(piece)

    async def _hand_over(
        self,
        peer: int,
        header: codec.SnapshotHeader,
        partial: PartialSnapshot,
        stream: SnapshotStream,
        counters: PeerCounters,
    ) -> None:
        """All has come: check it, and give it to the layer above like a frame that holds its message."""
        name = partial.name
        body = ReceivedSnapshot(partial.file().read, name.total_bytes, name.digest, name.index)
        try:
            await run_steps(self._executor, body.check())
        except CorruptStore as error:
            self._spool.drop(partial)
            raise TurnedAway(grpc.StatusCode.DATA_LOSS, f"{error}; it is to be sent anew") from None
        _check_owner(partial, stream)
        clock_ms = self._intakes.clock_ms(peer, asyncio.get_running_loop().time())
        if clock_ms is None:
            # Without its clock there is no frame; the peer sends one before long, and the snapshot again.
            raise TurnedAway(grpc.StatusCode.UNAVAILABLE, f"nothing was heard of node {peer} yet")
        header.snapshot.data, header.snapshot.body = body.state, body
        # From here on the file has no name, and goes with the last one that reads it.
        self._spool.drop(partial)
        frame = Frame(clock_ms)
        frame.raft.append((name.group, header.message))
        self._intakes.of(peer, counters, asyncio.get_running_loop().time).hand_over(frame)


def _check_owner(partial: PartialSnapshot, stream: SnapshotStream) -> None:
    if partial.owner is not stream:
        group = partial.name.group
        raise TurnedAway(grpc.StatusCode.ABORTED, f"a newer stream brings a snapshot of group {group}")
