"""Who this node is to its peers."""

from dataclasses import dataclass

from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.versions import LEVELS, PROTOCOLS, VersionRange


@dataclass(frozen=True, slots=True)
class LocalPeer:
    """`store`, `starts` and `earlier_starts` (the oldest first) tell this node's data from other, `address` is its
    own."""

    node_id: int
    name: str
    cluster_id: str
    store: str = ""
    starts: int = 0
    address: str = ""
    earlier_starts: tuple[int, ...] = ()
    protocols: VersionRange = PROTOCOLS
    levels: VersionRange = LEVELS

    def hello(self, target: int = 0) -> peer_pb2.Hello:
        """What it says first to a peer; 0: whoever that is."""
        return peer_pb2.Hello(
            protocol_version=self.protocols.lowest,
            highest_protocol_version=self.protocols.highest,
            lowest_level=self.levels.lowest,
            highest_level=self.levels.highest,
            node_id=self.node_id,
            node_name=self.name,
            cluster_id=self.cluster_id,
            store=self.store,
            starts=self.starts,
            previous=self.earlier_starts[-1] if self.earlier_starts else 0,
            earlier_starts=self.earlier_starts,
            address=self.address,
            target=target,
        )
