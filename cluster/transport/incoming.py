"""What peers send to this node."""

import asyncio
import logging
import secrets
from collections.abc import Callable

import grpc
import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import codec, framing, joining, options
from mayfly.cluster.transport.authentication import Authentication, TurnedAway
from mayfly.cluster.transport.codec import DamagedOnTheWay, PeerRefused
from mayfly.cluster.transport.frame_stream import FrameConnection
from mayfly.cluster.transport.handshake import Handshake, first_message
from mayfly.cluster.transport.intake import Intake
from mayfly.cluster.transport.intakes import Intakes
from mayfly.cluster.transport.snapshot_receiver import SnapshotReceiver
from mayfly.cluster.versions import PROTOCOL_CHECKSUMS

log = logging.getLogger(__name__)


class PeerStream:
    """What comes from one peer: its Exchange, and the connection that carries its frames. Where one ends, both do."""

    def __init__(
        self, peer: int, protocol: int, intake: Intake, host: str, checked: bool = False, proof: bytes = b""
    ) -> None:
        """`intake` gets encoded frames; what it raises (`PeerRefused`) ends the stream. For `checked` and `proof` see
        `StreamHolder`."""
        self.peer = peer
        self.protocol = protocol
        """The version of what comes."""
        self.intake = intake
        self.host = host
        self.checked = checked
        self.proof = proof
        self.ended = False
        self.refusal: PeerRefused | None = None
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
        except PeerRefused as refusal:
            self.end(refusal)

    def refuse(self, text: str) -> None:
        """See `StreamHolder`."""
        self.end(PeerRefused(text))

    def take_apart(self, data: bytes) -> None:
        """A message of the Exchange that holds a frame. Raises `PeerRefused`."""
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

    def end(self, refusal: PeerRefused | None, patience_s: float = 0.0) -> None:
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
        handshake: Handshake,
        authentication: Authentication,
        intakes: Intakes,
        snapshots: SnapshotReceiver,
        greeted: Callable[[int], None],
        has_tls: bool,
    ) -> None:
        """`greeted(peer)` when the stream of one was taken. With TLS frames need no checksums."""
        self._handshake = handshake
        self._authentication = authentication
        self._intakes = intakes
        self._snapshots = snapshots
        self._greeted = greeted
        self._has_tls = has_tls
        self._streams: dict[int, PeerStream] = {}
        self._tickets: framing.Tickets[PeerStream] = framing.Tickets(limits.HELLO_TIMEOUT_SECONDS)
        self.complaints = authentication.complaints
        self.frames_port = 0
        """Where peers bring their frames; to be set before the first call."""

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
                **dict((self._authentication.handler(),)),
            },
        )

    async def exchange(self, _: object, context: grpc.aio.ServicerContext) -> bytes:
        """The stream of one peer, until it goes. Its frames come on a connection of their own (`redeem`), and here
        those that are in no order with them."""
        try:
            await self._exchange(context)
        except PeerRefused as refusal:
            await self._authentication.turn_away(context, refusal)
        return peer_pb2.ExchangeEnd().SerializeToString()

    async def join(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """A node asks for a place in the cluster."""
        protocols, admission = self._handshake.local.protocols, self._handshake.admission
        return await joining.answer_join(data, context, self._authentication, protocols, admission.join)

    async def _exchange(self, context: grpc.aio.ServicerContext) -> None:
        self._authentication.check(context)
        first = await first_message(context)
        if first is None:
            return
        peer, protocol, counters = self._handshake.admit(codec.decode_hello(first))
        self._authentication.check_id(context, peer)
        loop = asyncio.get_running_loop()
        ticket, proven = secrets.token_bytes(framing.TICKET_BYTES), self._authentication.proven(context)
        shown, proof = ticket, b""
        if proven is not None:
            shown, proof = proven.ticket(ticket, peer), proven.answer_to_ticket(ticket, peer)
        checked = protocol >= PROTOCOL_CHECKSUMS and not self._has_tls
        intake, host = self._intakes.of(peer, counters, loop.time), self._authentication.host(context)
        stream = PeerStream(peer, protocol, intake, host, checked, proof)
        self._authentication.admit(context)
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
        """Take frames of the Exchange itself until either end of the stream has ended. Raises `PeerRefused`."""
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

    async def receive_snapshot(self, _: object, context: grpc.aio.ServicerContext) -> bytes:
        """One snapshot of a peer; it is handed over like a frame that holds its message."""
        try:
            await self._snapshots.receive(context)
        except PeerRefused as refusal:
            await self._authentication.turn_away(context, refusal)
        return peer_pb2.SnapshotReceipt().SerializeToString()
