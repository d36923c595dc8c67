"""How a node asks for a place in a cluster that is there, and what it is told."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from mayfly.cluster import limits
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import options, proving
from mayfly.cluster.transport.authentication import Authentication
from mayfly.cluster.transport.checksum import checksum_of, is_damaged
from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets
from mayfly.cluster.transport.codec import PeerRefused
from mayfly.cluster.transport.peer_text import address_fault, name_fault, printable
from mayfly.cluster.transport.proving import NotProven
from mayfly.cluster.transport.tls import PeerTlsFiles
from mayfly.cluster.versions import LEVELS, PROTOCOLS, VersionRange, range_of_peer

_OTHER_PROTOCOL = "protocol version"


class JoinRefused(Exception):
    """The node can't join; the text says why. With `again`, a later try may succeed. `of_peer`: the one asked does not
    fit, others may. `stance` and `store` are those of the answer, "" if there was none."""

    def __init__(self, text: str, again: bool, stance: str = "", store: str = "", of_peer: bool = False) -> None:
        super().__init__(text)
        self.again = again
        self.of_peer = of_peer
        self.stance = stance
        self.store = store


@dataclass(frozen=True)
class JoinRequest:
    """Who wants to join: see proto/peer.proto."""

    name: str
    address: str
    store: str
    levels: VersionRange = LEVELS
    cluster: str = ""
    founder: int = 0


@dataclass(frozen=True)
class JoinAnswer:
    """A place in the cluster, or why there is none. `members` maps node ids to (name, address)."""

    refusal: str = ""
    again: bool = False
    node_id: int = 0
    node_name: str = ""
    cluster_id: str = ""
    shards: int = 0
    replication_factor: int = 0
    members_version: int = 0
    members: dict[int, tuple[str, str]] = field(default_factory=dict)
    stance: str = ""
    store: str = ""

    @classmethod
    def refused(cls, text: str, again: bool = False, stance: str = "", store: str = "") -> "JoinAnswer":
        """An answer that says no."""
        return cls(refusal=text, again=again, stance=stance, store=store)


def decode_request(data: bytes, protocols: VersionRange) -> JoinRequest | str:
    """The request in the bytes, or why it is none that a node which speaks these versions can take."""
    try:
        wire = peer_pb2.JoinRequest.FromString(data)
    except DecodeError:
        return "not a message of this protocol"
    spoken = range_of_peer(wire.protocol_version, wire.highest_protocol_version)
    if spoken is None or not protocols.common(spoken):
        said = f"{wire.protocol_version} to {wire.highest_protocol_version}" if spoken is None else repr(spoken)
        return f"{_OTHER_PROTOCOL} {said}, {protocols!r} is spoken here"
    levels = range_of_peer(wire.lowest_level, wire.highest_level)
    if levels is None:
        return f"feature levels {wire.lowest_level} to {wire.highest_level}"
    names = {"name": wire.name, "store": wire.store, "cluster": wire.cluster}
    fault = next(filter(None, (name_fault(key, name) for key, name in names.items())), "")
    fault = fault or address_fault(wire.address)
    if fault:
        return fault
    if not wire.address or not wire.store:
        return "no address, or no name of the data"
    return JoinRequest(wire.name, wire.address, wire.store, levels, wire.cluster, wire.founder)


def encode_request(request: JoinRequest, protocols: VersionRange) -> bytes:
    """The request of a node that speaks these versions as bytes."""
    wire = peer_pb2.JoinRequest(
        protocol_version=protocols.lowest, highest_protocol_version=protocols.highest,
        lowest_level=request.levels.lowest, highest_level=request.levels.highest,
        name=request.name, address=request.address, store=request.store,
        cluster=request.cluster, founder=request.founder,
    )
    return wire.SerializeToString()


def encode_answer(answer: JoinAnswer) -> bytes:
    """The answer as bytes."""
    members = [
        peer_pb2.Member(node_id=id, name=name, address=address) for id, (name, address) in answer.members.items()
    ]
    wire = peer_pb2.JoinAnswer(
        refusal=answer.refusal, again=answer.again, node_id=answer.node_id, node_name=answer.node_name,
        cluster_id=answer.cluster_id, shards=answer.shards, replication_factor=answer.replication_factor,
        members_version=answer.members_version, members=members, stance=answer.stance, store=answer.store,
    )
    return wire.SerializeToString()


async def answer_join(
    data: bytes,
    context: grpc.aio.ServicerContext,
    authentication: Authentication,
    protocols: VersionRange,
    join: Callable[[JoinRequest], Awaitable[JoinAnswer]],
) -> bytes:
    """What a node is answered that asks for a place: by `join`, if it may ask."""
    try:
        authentication.check(context)
    except PeerRefused as refusal:
        authentication.complaints.say(authentication.host(context), f"it asks for a place: {refusal}")
        return encode_answer(JoinAnswer.refused(str(refusal)))
    authentication.wait(context, limits.JOIN_TIMEOUT_SECONDS)
    answer = encode_answer(await _answer(data, context, authentication, protocols, join))
    await context.send_initial_metadata(checksum_of(answer))
    return answer


async def _answer(
    data: bytes,
    context: grpc.aio.ServicerContext,
    authentication: Authentication,
    protocols: VersionRange,
    join: Callable[[JoinRequest], Awaitable[JoinAnswer]],
) -> JoinAnswer:
    if is_damaged(data, context.invocation_metadata()):
        return JoinAnswer.refused("the request was damaged on its way, its checksum differs", again=True)
    request = decode_request(data, protocols)
    if isinstance(request, str):
        authentication.complaints.say(authentication.host(context), f"it asks for a place: {request}")
        return JoinAnswer.refused(request)
    return await join(request)


async def ask_to_join(
    seed: str,
    request: JoinRequest,
    tls: PeerTlsFiles | None,
    protocols: VersionRange = PROTOCOLS,
    known: ClusterSecrets = NO_SECRET,
) -> JoinAnswer:
    """Ask the member at `seed` ("host:port") once. Raises `JoinRefused`, `OSError` (TLS files)."""
    server_name = "" if tls is None else tls.server_name
    settings = options.channel_options(server_name)
    if tls is None:
        channel = grpc.aio.insecure_channel(seed, settings)
    else:
        tls.check()
        channel = grpc.aio.secure_channel(seed, tls.channel_credentials(), settings)
    try:
        await proving.prove(channel, known, 0, request.store, 0, seed)
        question = encode_request(request, protocols)
        call = channel.unary_unary(options.JOIN)(
            question, timeout=limits.JOIN_TIMEOUT_SECONDS, metadata=checksum_of(question)
        )
        data = await call
        if is_damaged(data, await call.initial_metadata()):
            raise JoinRefused(f"the answer of {seed} was damaged on its way, its checksum differs", True, of_peer=True)
    except NotProven as error:
        again = error.code is not grpc.StatusCode.UNAUTHENTICATED
        raise JoinRefused(f"no proof for {seed}: {error}", again, of_peer=True) from None
    except grpc.aio.AioRpcError as error:
        # Whatever it is: somebody else may have that address for a while.
        text = f"no answer from {seed}: {printable(error.details() or error.code().name)}"
        raise JoinRefused(text, True, of_peer=True) from None
    finally:
        await channel.close()
    return decode_answer(data, seed)


def decode_answer(data: bytes, seed: str) -> JoinAnswer:
    """What the one at `seed` answers. Raises `JoinRefused`."""
    try:
        answer = peer_pb2.JoinAnswer.FromString(data)
    except DecodeError:
        raise JoinRefused(f"{seed} does not answer as a MayflyMQ node", False, of_peer=True) from None
    if answer.refusal:
        of_peer = answer.refusal.startswith(_OTHER_PROTOCOL)
        raise JoinRefused(printable(answer.refusal), answer.again, answer.stance, answer.store, of_peer)
    names = (answer.node_name, answer.cluster_id, *(member.name for member in answer.members))
    fault = next(filter(None, (name_fault("name", name) for name in names)), "")
    fault = fault or next(filter(None, (address_fault(member.address) for member in answer.members)), "")
    if fault:
        raise JoinRefused(f"{seed} gives a place with {fault}", True, of_peer=True)
    return JoinAnswer(
        node_id=answer.node_id, node_name=answer.node_name, cluster_id=answer.cluster_id, shards=answer.shards,
        replication_factor=answer.replication_factor, members_version=answer.members_version,
        members={member.node_id: (member.name, member.address) for member in answer.members},
    )
