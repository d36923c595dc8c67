"""Who may call: what a node's gRPC server knows of the connections at its port, and the secret that it demands."""

import secrets

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import options, proving
from mayfly.cluster.transport.cluster_secret import NONCE_BYTES, ClusterSecrets, Dialogue, ProvenSecret
from mayfly.cluster.transport.codec import DamagedOnTheWay, PeerRefused
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.peer_port import PeerPort


class TurnedAway(PeerRefused):
    """A peer that has no business here; `code` tells it why."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Authentication:
    """Asks for the cluster secret, and tells the peer port who has proven it."""

    def __init__(self, port: PeerPort, known: ClusterSecrets, complaints: Complaints) -> None:
        self.node_id = 0
        """Of this node; 0: it has none yet."""
        self.complaints = complaints
        self._port = port
        self._known = known

    def handler(self) -> tuple[str, grpc.RpcMethodHandler]:
        """Name and handler of the call that proves the secret."""
        return options.PROVE.rsplit("/", 1)[1], grpc.stream_stream_rpc_method_handler(self.prove)

    def host(self, context: grpc.aio.ServicerContext) -> str:
        """Where the one is that calls."""
        return self._port.host(context.peer())

    def check(self, context: grpc.aio.ServicerContext) -> None:
        """Raises `TurnedAway` if the secret is demanded and was not proven on the connection of a call."""
        if self._known.demanded and self.proven(context) is None:
            raise TurnedAway(grpc.StatusCode.UNAUTHENTICATED, proving.DEMANDED)

    def check_id(self, context: grpc.aio.ServicerContext, node_id: int) -> None:
        """Raises `TurnedAway` if the secret was proven on this connection by another node than this."""
        connection = self._port.connection(context.peer())
        if connection is not None and connection.proven is not None and connection.proven_as != node_id:
            text = f"node {node_id} says hello where node {connection.proven_as} has proven the cluster secret"
            raise TurnedAway(grpc.StatusCode.UNAUTHENTICATED, text)

    def admit(self, context: grpc.aio.ServicerContext) -> None:
        """The one that calls is a member."""
        connection = self._port.connection(context.peer())
        if connection is not None:
            connection.admit()

    def wait(self, context: grpc.aio.ServicerContext, seconds: float) -> None:
        """The one that calls asks for something that takes so long."""
        connection = self._port.connection(context.peer())
        if connection is not None:
            connection.wait(seconds)

    def proven(self, context: grpc.aio.ServicerContext) -> ProvenSecret | None:
        """The secret that was proven on the connection of a call."""
        connection = self._port.connection(context.peer())
        return None if connection is None else connection.proven

    async def prove(self, _: object, context: grpc.aio.ServicerContext) -> None:
        """A node shows that it knows the secret, and wants to see that this one does. The port bounds the time."""
        try:
            await self._prove(context)
        except PeerRefused as refusal:
            await self.turn_away(context, refusal)

    async def _prove(self, context: grpc.aio.ServicerContext) -> None:
        first = await _step(context)
        dialogue = proving.dialogue_of(first)
        nonce = secrets.token_bytes(NONCE_BYTES)
        await context.write(peer_pb2.ProofStep(nonce=nonce, without_secret=not self._known).SerializeToString())
        if not self._known:
            return
        if dialogue.target not in (0, self.node_id) and self.node_id:
            raise TurnedAway(grpc.StatusCode.UNAVAILABLE, f"node {dialogue.target} is meant, this is {self.node_id}")
        dialogue = Dialogue(
            dialogue.node_id, dialogue.store, dialogue.target, dialogue.address, dialogue.nonce, nonce
        )
        proven = self._known.proven_by((await _step(context)).proofs[: proving.MOST_PROOFS], dialogue)
        if proven is None:
            raise TurnedAway(grpc.StatusCode.UNAUTHENTICATED, proving.WRONG)
        connection = self._port.connection(context.peer())
        if connection is not None:
            connection.proven, connection.proven_as = proven, dialogue.node_id
            connection.admit()
        await context.write(peer_pb2.ProofStep(proofs=[proven.answer(dialogue)]).SerializeToString())

    async def turn_away(self, context: grpc.aio.ServicerContext, refusal: PeerRefused) -> None:
        """End a call, and say why in the log and to the one that calls."""
        code = grpc.StatusCode.INVALID_ARGUMENT
        if isinstance(refusal, TurnedAway):
            code = refusal.code
        elif isinstance(refusal, DamagedOnTheWay):
            code = grpc.StatusCode.UNAVAILABLE  # Sent again at once, it may come through.
        self.complaints.say(self.host(context), str(refusal))
        await context.abort(code, str(refusal))


async def _step(context: grpc.aio.ServicerContext) -> peer_pb2.ProofStep:
    """What the one that calls says next. Raises `PeerRefused`."""
    data = await context.read()
    if data is grpc.aio.EOF:
        raise PeerRefused("a proof of the cluster secret that breaks off")
    try:
        return peer_pb2.ProofStep.FromString(data)
    except DecodeError:
        raise PeerRefused("not a message of this protocol") from None
