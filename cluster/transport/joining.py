"""How a node asks for a place in a cluster that is there, and what it is told."""

from dataclasses import dataclass, field

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from cluster import limits
from cluster.rpc import peer_pb2
from cluster.transport import options
from cluster.transport.tls import TlsFiles
from cluster.versions import LEVELS, PROTOCOLS, VersionRange, said_range

_TIMEOUT_S = 15.0
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
    spoken = said_range(wire.protocol_version, wire.highest_protocol_version)
    if spoken is None or not protocols.common(spoken):
        said = f"{wire.protocol_version} to {wire.highest_protocol_version}" if spoken is None else repr(spoken)
        return f"{_OTHER_PROTOCOL} {said}, {protocols!r} is spoken here"
    levels = said_range(wire.lowest_level, wire.highest_level)
    if levels is None:
        return f"feature levels {wire.lowest_level} to {wire.highest_level}"
    if max(map(len, (wire.name, wire.address, wire.store, wire.cluster))) > limits.MAX_NAME_LENGTH:
        return "a name that is too long"
    if not wire.address or not wire.store:
        return "no address, or no name of the data"
    return JoinRequest(wire.name, wire.address, wire.store, levels, wire.cluster, wire.founder)


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


async def ask_to_join(
    seed: str, request: JoinRequest, tls: TlsFiles | None, protocols: VersionRange = PROTOCOLS
) -> JoinAnswer:
    """Ask the member at `seed` ("host:port") once. Raises `JoinRefused`, `OSError` (TLS files)."""
    wire = peer_pb2.JoinRequest(
        protocol_version=protocols.lowest, highest_protocol_version=protocols.highest,
        lowest_level=request.levels.lowest, highest_level=request.levels.highest,
        name=request.name, address=request.address, store=request.store,
        cluster=request.cluster, founder=request.founder,
    )
    server_name = "" if tls is None else tls.server_name
    settings = options.channel_options(server_name)
    if tls is None:
        channel = grpc.aio.insecure_channel(seed, settings)
    else:
        tls.check()
        channel = grpc.aio.secure_channel(seed, tls.channel_credentials(), settings)
    try:
        data: bytes = await channel.unary_unary(options.JOIN)(wire.SerializeToString(), timeout=_TIMEOUT_S)
        answer = peer_pb2.JoinAnswer.FromString(data)
    except grpc.aio.AioRpcError as error:
        # Whatever it is: somebody else may have that address for a while.
        text = f"no answer from {seed}: {error.details() or error.code().name}"
        raise JoinRefused(text, True, of_peer=True) from None
    except DecodeError:
        raise JoinRefused(f"{seed} does not answer as a MayflyMQ node", False, of_peer=True) from None
    finally:
        await channel.close()
    if answer.refusal:
        of_peer = answer.refusal.startswith(_OTHER_PROTOCOL)
        raise JoinRefused(answer.refusal, answer.again, answer.stance, answer.store, of_peer)
    return JoinAnswer(
        node_id=answer.node_id, node_name=answer.node_name, cluster_id=answer.cluster_id, shards=answer.shards,
        replication_factor=answer.replication_factor, members_version=answer.members_version,
        members={member.node_id: (member.name, member.address) for member in answer.members},
    )
