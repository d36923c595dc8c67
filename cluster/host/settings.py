"""What a host needs to know."""

from collections.abc import Sequence
from dataclasses import dataclass

from mayfly.cluster.group.settings import GroupSettings


@dataclass(slots=True, eq=False)
class HostSettings:
    """What a host needs to know; times in ms.

    `nodes` are the members at first, `Host.set_members` follows their changes. With `bootstrap` a group that is not
    stored begins with these members; without it, it begins with nothing and waits to be sent a snapshot: the node
    joins a cluster that is there. `everywhere`: until members are told (`Host.set_members`), all nodes have a replica
    of every group, and not of the catalog alone.
    """

    node: int
    nodes: Sequence[int]
    replication_factor: int
    tick_ms: int
    election_timeout_ms: int
    clock_bound_ms: int
    group: GroupSettings
    bootstrap: bool = True
    everywhere: bool = False

    def __post_init__(self) -> None:
        self.nodes = sorted(self.nodes)
