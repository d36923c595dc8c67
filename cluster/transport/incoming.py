"""What peers send to this node."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Executor

import grpc
import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import CorruptStore
from mayfly.cluster.log.snapshot_codec import ReceivedSnapshot
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import codec, framing, joining, options
from mayfly.cluster.transport.codec import DamagedOnTheWay, Refused
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.frame_stream import FrameConnection
from mayfly.cluster.transport.gate import Gate
from mayfly.cluster.transport.guard import Guard, TurnedAway
from mayfly.cluster.transport.intake import Intake
from mayfly.cluster.transport.seal import is_damaged
from mayfly.cluster.transport.spool import PartialSnapshot, SnapshotSpool, Stream
from mayfly.cluster.transport.steps import run_steps
from mayfly.cluster.versions import PROTOCOL_CHECKSUMS, VersionRange, protocol_fault

log = logging.getLogger(__name__)


class PeerStream:
    """What comes from one peer: its Exchange, and the connection that carries its frames. Where one ends, both do."""

    def __init__(
        self, peer: int, protocol: int, intake: Intake, host: str, checked: bool = False, proof: bytes = b""
    ) -> None:
        """`intake` gets encoded frames; what it raises (`Refused`) ends the stream. For `checked` and `proof` see
        `StreamHolder`."""
        self.peer = peer
        self.protocol = protocol
        """The version of what comes."""
        self.intake = intake
        self.host = host
        self.checked = checked
        self.proof = proof
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

    def take_apart(self, data: bytes) -> None:
        """A message of the Exchange that holds a frame. Raises `Refused`."""
        try:
            self.intake.take_unordered(framing.decode_apart(data) if self.checked else data)
        except framing.Damaged as error:
            self.damaged(str(error))

    def damaged(self, text: str) -> None:
        """See `StreamHolder`. The peer connects again, and sends again what Raft and the sessions miss."""
        self.intake.counters.damaged += 1
        log.warning("node %d at %s: %s; the connection is closed, and nothing of it used", self.peer, self.host, text)
        self.end(DamagedOnTheWay(text))

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
        greeted: Callable[[int], None],
        guard: Guard,
        has_tls: bool,
    ) -> None:
        """`counters` gives those of a known peer, None for an unknown one; `let_in(peer, address)` makes it known.
        `greeted(peer)` when the stream of one was taken. What blocks is done by the executor. With TLS frames need no
        checksums."""
        self._greeted = greeted
        self._guard = guard
        self._has_tls = has_tls
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
        self.complaints = guard.complaints
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
                **dict((self._guard.handler(),)),
            },
        )

    async def exchange(self, _: object, context: grpc.aio.ServicerContext) -> bytes:
        """The stream of one peer, until it goes. Its frames come on a connection of their own (`redeem`), and here
        those that are in no order with them."""
        try:
            await self._exchange(context)
        except Refused as refusal:
            await self._guard.turn_away(context, refusal)
        return peer_pb2.ExchangeEnd().SerializeToString()

    async def join(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """A node asks for a place in the cluster."""
        return await joining.answer_join(data, context, self._guard, self._protocols, self._gate.join)

    async def _exchange(self, context: grpc.aio.ServicerContext) -> None:
        self._guard.check(context)
        first = await self._first(context)
        if first is None:
            return
        peer, protocol, counters = self._admit(codec.decode_hello(first))
        self._guard.check_id(context, peer)
        loop = asyncio.get_running_loop()
        ticket, proven = secrets.token_bytes(framing.TICKET_BYTES), self._guard.proven(context)
        shown, proof = ticket, b""
        if proven is not None:
            shown, proof = proven.ticket(ticket, peer), proven.answer_to_ticket(ticket, peer)
        checked = protocol >= PROTOCOL_CHECKSUMS and not self._has_tls
        intake, host = self.intake(peer, counters, loop.time), self._guard.host(context)
        stream = PeerStream(peer, protocol, intake, host, checked, proof)
        self._guard.admit(context)
        older = self._streams.get(peer)
        self._streams[peer] = stream
        if older is not None:
            older.end(TurnedAway(grpc.StatusCode.ABORTED, f"node {peer} has opened a newer stream"))
        self._greeted(peer)
        self._tickets.give(shown, peer, stream, loop.time())
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
            self._tickets.withdraw(shown)
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
                        stream.take_apart(data)
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
            await self._guard.turn_away(context, refusal)
        return peer_pb2.SnapshotReceipt().SerializeToString()

    async def _receive_snapshot(self, context: grpc.aio.ServicerContext) -> None:
        self._guard.check(context)
        first = await self._first(context)
        if first is None:
            return
        header = codec.decode_snapshot_header(first, self._node_id)
        peer, protocol, counters = self._admit(header.hello)
        self._guard.check_id(context, peer)
        self._guard.admit(context)
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
        """The first message, None when the peer has ended its stream. Raises `TurnedAway` when none comes, and
        `DamagedOnTheWay`."""
        timeout_seconds = limits.HELLO_TIMEOUT_SECONDS
        try:
            async with asyncio.timeout(timeout_seconds):
                data: bytes | None = await context.read()
        except TimeoutError:
            raise TurnedAway(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing was sent for {timeout_seconds} s"
            ) from None
        if data is None or data is grpc.aio.EOF:
            return None
        if is_damaged(data, context.invocation_metadata()):
            raise DamagedOnTheWay("the first message of a call was damaged on its way, its checksum differs")
        return data

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


def _check_owner(partial: PartialSnapshot, stream: Stream) -> None:
    if partial.owner is not stream:
        group = partial.name.group
        raise TurnedAway(grpc.StatusCode.ABORTED, f"a newer stream brings a snapshot of group {group}")
