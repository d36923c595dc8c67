"""What peers send to this node."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Executor

import grpc
import grpc.aio

from cluster import limits
from cluster.frame import Frame
from cluster.log.batch import CorruptStore
from cluster.log.snapshot_codec import ReceivedSnapshot
from cluster.rpc import peer_pb2
from cluster.transport import codec, framing, joining, options
from cluster.transport.codec import Refused
from cluster.transport.complaints import Complaints
from cluster.transport.counters import PeerCounters
from cluster.transport.frame_stream import FrameConnection
from cluster.transport.gate import Gate
from cluster.transport.intake import Intake
from cluster.transport.spool import PartialSnapshot, SnapshotSpool, Stream
from cluster.transport.steps import run_steps
from cluster.versions import VersionRange, protocol_fault

log = logging.getLogger(__name__)


class TurnedAway(Refused):
    """A peer that has no business here; `code` tells it why."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class PeerStream:
    """What comes from one peer: its Exchange, and the connection that carries its frames. Where one ends, both do."""

    def __init__(self, peer: int, protocol: int, intake: Intake, host: str) -> None:
        """`intake` gets encoded frames; what it raises (`Refused`) ends the stream."""
        self.peer = peer
        self.protocol = protocol
        """The version of what comes."""
        self.intake = intake
        self.host = host
        self.ended = False
        self.refusal: Refused | None = None
        """Why it was ended, if there is something to complain of."""
        self.reading: asyncio.Timeout | None = None
        """The bound within which the Exchange is read."""
        self._connection: FrameConnection | None = None

    def attached(self, connection: FrameConnection) -> None:
        """See `StreamHolder`."""
        self._connection = connection
        if self.ended:
            connection.abort()

    def take(self, data: bytes) -> None:
        """See `StreamHolder`."""
        try:
            self.intake.take(data)
        except Refused as refusal:
            self.end(refusal)

    def refuse(self, text: str) -> None:
        """See `StreamHolder`."""
        self.end(Refused(text))

    def lost(self) -> None:
        """See `StreamHolder`. The peer will end its Exchange, too: a status that crosses that is an error to gRPC."""
        self.end(None, limits.HELLO_TIMEOUT_SECONDS)

    def still_alone(self) -> None:
        """The peer should have come with its ticket by now."""
        if self._connection is None:
            text = f"no frame stream came within {limits.HELLO_TIMEOUT_SECONDS} s"
            self.end(TurnedAway(grpc.StatusCode.DEADLINE_EXCEEDED, text))

    def end(self, refusal: Refused | None, patience_s: float = 0.0) -> None:
        """End both; the peer has so long to end the Exchange itself."""
        if self.ended:
            return
        self.ended, self.refusal = True, refusal
        if self._connection is not None:
            self._connection.abort()
        if self.reading is not None and not self.reading.expired():
            self.reading.reschedule(asyncio.get_running_loop().time() + patience_s)


class Incoming:
    """Answers the calls of peers."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        counters: Callable[[int], PeerCounters | None],
        on_frame: Callable[[int, Frame], None],
        gate: Gate,
        let_in: Callable[[int, str], None],
        spool: SnapshotSpool,
        executor: Executor,
        protocols: VersionRange,
    ) -> None:
        """`counters` gives those of a known peer, None for an unknown one; `let_in(peer, address)` makes it known.
        What blocks is done by the executor."""
        self._spool = spool
        self._executor = executor
        self._gate = gate
        self._let_in = let_in
        self._protocols = protocols
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._counters = counters
        self._on_frame = on_frame
        self._streams: dict[int, PeerStream] = {}
        self._clocks: dict[int, tuple[int, float]] = {}
        """By peer: its clock in its last frame, and the loop's time when that came."""
        self._tickets: framing.Tickets[PeerStream] = framing.Tickets(limits.HELLO_TIMEOUT_SECONDS)
        self.complaints = Complaints()
        self.frames_port = 0
        """Where peers bring their frames; to be set before the first call."""
        self._snapshot_places = asyncio.Semaphore(limits.MAX_SNAPSHOTS_AT_ONCE)

    def handlers(self) -> grpc.GenericRpcHandler:
        """The service for the server. It takes bytes: what gRPC can't parse, it logs with a traceback."""
        service, exchange = options.EXCHANGE.lstrip("/").split("/")
        send_snapshot = options.SEND_SNAPSHOT.rsplit("/", 1)[1]
        return grpc.method_handlers_generic_handler(
            service,
            {
                exchange: grpc.stream_unary_rpc_method_handler(self.exchange),
                send_snapshot: grpc.stream_unary_rpc_method_handler(self.receive_snapshot),
                options.JOIN.rsplit("/", 1)[1]: grpc.unary_unary_rpc_method_handler(self.join),
            },
        )

    async def exchange(self, _: object, context: grpc.aio.ServicerContext) -> bytes:
        """The stream of one peer, until it goes. Its frames come on a connection of their own (`redeem`), and here
        those that are in no order with them."""
        try:
            await self._exchange(context)
        except Refused as refusal:
            await self._turn_away(context, refusal)
        return peer_pb2.ExchangeEnd().SerializeToString()

    async def join(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """A node asks for a place in the cluster."""
        request = joining.decode_request(data, self._protocols)
        if isinstance(request, str):
            log.warning("refused to take in a node at %s: %s", _host(context), request)
            return joining.encode_answer(joining.JoinAnswer.refused(request))
        return joining.encode_answer(await self._gate.join(request))

    async def _exchange(self, context: grpc.aio.ServicerContext) -> None:
        first = await self._first(context)
        if first is None:
            return
        peer, protocol, counters = self._admit(codec.decode_hello(first))
        loop = asyncio.get_running_loop()
        stream = PeerStream(peer, protocol, self.intake(peer, counters, loop.time), _host(context))
        older = self._streams.get(peer)
        self._streams[peer] = stream
        if older is not None:
            older.end(TurnedAway(grpc.StatusCode.ABORTED, f"node {peer} has opened a newer stream"))
        ticket = secrets.token_bytes(framing.TICKET_BYTES)
        self._tickets.give(ticket, peer, stream, loop.time())
        timer = loop.call_later(limits.HELLO_TIMEOUT_SECONDS, stream.still_alone)
        try:
            await context.send_initial_metadata(
                (
                    options.CONSENT, (options.PROTOCOL, str(protocol)),
                    (options.FRAMES_PORT, str(self.frames_port)), (options.TICKET, ticket.hex()),
                )
            )
            await self._read_unordered(context, stream)
        finally:
            timer.cancel()
            self._tickets.withdraw(ticket)
            stream.end(None)
            if self._streams.get(peer) is stream:
                del self._streams[peer]

    async def _read_unordered(self, context: grpc.aio.ServicerContext, stream: PeerStream) -> None:
        """Take frames of the Exchange itself until either end of the stream has ended. Raises `Refused`."""
        try:
            async with asyncio.timeout(limits.HELLO_TIMEOUT_SECONDS if stream.ended else None) as stream.reading:
                while not (stream.ended and stream.refusal):
                    data = await context.read()
                    if data is grpc.aio.EOF:
                        return
                    if not stream.ended:
                        stream.intake.take_unordered(data)
        except TimeoutError:
            pass
        finally:
            stream.reading = None
        if stream.refusal is not None:
            raise stream.refusal

    def redeem(self, version: int, node_id: int, ticket: bytes) -> PeerStream:
        """Whose frames come on a connection that shows this ticket. Raises `NotFrames`."""
        stream = self._tickets.redeem(ticket, node_id, asyncio.get_running_loop().time())
        if version != stream.protocol:
            raise framing.NotFrames(f"version {version} of the frame stream, {stream.protocol} was agreed upon")
        self.complaints.forget(stream.host)
        return stream

    def intake(self, peer: int, counters: PeerCounters, now_s: Callable[[], float]) -> Intake:
        """For what comes on a stream of this peer."""
        return Intake(
            peer, self._node_id, counters, self._counters, self._refuse_stranger, self._on_frame, self._clocks, now_s
        )

    def _refuse_stranger(self, peer: int) -> None:
        self._check_data(peer, "", 0, 0)
        raise TurnedAway(grpc.StatusCode.PERMISSION_DENIED, f"node {peer} is no peer any more")

    async def receive_snapshot(self, _: object, context: grpc.aio.ServicerContext) -> bytes:
        """One snapshot of a peer; it is handed over like a frame that holds its message."""
        try:
            await self._receive_snapshot(context)
        except Refused as refusal:
            await self._turn_away(context, refusal)
        return peer_pb2.SnapshotReceipt().SerializeToString()

    async def _receive_snapshot(self, context: grpc.aio.ServicerContext) -> None:
        first = await self._first(context)
        if first is None:
            return
        header = codec.decode_snapshot_header(first, self._node_id)
        peer, protocol, counters = self._admit(header.hello)
        stream = Stream(peer, header.message.term)
        partial = self._spool.claim(header.name, stream)
        if isinstance(partial, str):
            raise TurnedAway(grpc.StatusCode.RESOURCE_EXHAUSTED, partial)
        try:
            async with self._snapshot_places:
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
        self, context: grpc.aio.ServicerContext, partial: PartialSnapshot, stream: Stream, counters: PeerCounters
    ) -> None:
        """Write what comes to the file, until all is there. Raises `Refused`, `OSError`."""
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
                raise Refused(f"snapshot ended {total_bytes - partial.received_bytes} bytes early")
            counters.bytes_received += len(data)
            offset = partial.received_bytes
            piece = codec.decode_snapshot_data(data, offset, total_bytes)
            await loop.run_in_executor(self._executor, partial.file().write, offset, piece)
            _check_owner(partial, stream)
            partial.received_bytes += len(piece)

    async def _hand_over(
        self,
        peer: int,
        header: codec.SnapshotHeader,
        partial: PartialSnapshot,
        stream: Stream,
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
        seen = self._clocks.get(peer)
        if seen is None:
            # Without its clock there is no frame; the peer sends one before long, and the snapshot again.
            raise TurnedAway(grpc.StatusCode.UNAVAILABLE, f"nothing was heard of node {peer} yet")
        header.snapshot.data, header.snapshot.body = body.state, body
        # From here on the file has no name, and goes with the last one that reads it.
        self._spool.drop(partial)
        elapsed_ms = int((asyncio.get_running_loop().time() - seen[1]) * 1000)
        frame = Frame(seen[0] + elapsed_ms)
        frame.raft.append((name.group, header.message))
        self.intake(peer, counters, asyncio.get_running_loop().time).hand_over(frame)

    async def _first(self, context: grpc.aio.ServicerContext) -> bytes | None:
        return await self._next(context, limits.HELLO_TIMEOUT_SECONDS)

    async def _next(self, context: grpc.aio.ServicerContext, timeout_seconds: float) -> bytes | None:
        """The next message, None when the peer has ended its stream. Raises `TurnedAway` when none comes."""
        try:
            async with asyncio.timeout(timeout_seconds):
                data = await context.read()
        except TimeoutError:
            raise TurnedAway(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing was sent for {timeout_seconds} s"
            ) from None
        return None if data is grpc.aio.EOF else data

    def _admit(self, hello: peer_pb2.Hello) -> tuple[int, int, PeerCounters]:
        """The id of a peer that belongs to the cluster, the protocol version for it, and its counters. Raises
        `TurnedAway`."""
        theirs = codec.protocols_of(hello)
        protocol = self._protocols.common(theirs)
        if not protocol:
            text = protocol_fault(self._node_id, self._protocols, hello.node_id, theirs)
            raise TurnedAway(grpc.StatusCode.FAILED_PRECONDITION, text)
        if hello.cluster_id != self._cluster_id:
            raise TurnedAway(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"node {self._node_id} belongs to cluster {self._cluster_id!r}, "
                f"node {hello.node_id} to {hello.cluster_id!r}",
            )
        if hello.target not in (0, self._node_id):
            # Heartbeats do not say for whom they are: those for a predecessor must not come here.
            raise TurnedAway(
                grpc.StatusCode.UNAVAILABLE, f"node {hello.node_id} means node {hello.target}, this is {self._node_id}"
            )
        self._check_data(hello.node_id, hello.store, hello.starts, hello.previous)
        fault = self._gate.level_fault(codec.levels_of(hello))
        if fault:
            text = f"node {hello.node_id} ({hello.node_name}) can't be let in: {fault}"
            raise TurnedAway(grpc.StatusCode.FAILED_PRECONDITION, text)
        counters = self._counters(hello.node_id)
        if counters is None and hello.address and self._gate.is_newcomer(hello.node_id):
            log.info("node %d (%s) at %s is new here", hello.node_id, hello.node_name, hello.address)
            self._let_in(hello.node_id, hello.address)
            counters = self._counters(hello.node_id)
        if counters is None:
            raise TurnedAway(
                grpc.StatusCode.PERMISSION_DENIED,
                f"node {self._node_id} knows no node {hello.node_id} ({hello.node_name!r})",
            )
        return hello.node_id, protocol, counters

    def _check_data(self, peer: int, store: str, starts: int, previous: int) -> None:
        objection = self._gate.objection(peer, store, starts, previous)
        if objection is not None:
            raise TurnedAway(objection.code, objection.text)

    async def _turn_away(self, context: grpc.aio.ServicerContext, refusal: Refused) -> None:
        code = refusal.code if isinstance(refusal, TurnedAway) else grpc.StatusCode.INVALID_ARGUMENT
        self.complaints.say(_host(context), str(refusal))
        await context.abort(code, str(refusal))


def _check_owner(partial: PartialSnapshot, stream: Stream) -> None:
    if partial.owner is not stream:
        group = partial.name.group
        raise TurnedAway(grpc.StatusCode.ABORTED, f"a newer stream brings a snapshot of group {group}")


def _host(context: grpc.aio.ServicerContext) -> str:
    """Where the peer is, without its port: "ipv4:10.0.0.7"."""
    address: str = context.peer()
    return address.rpartition(":")[0]
