"""What a host needs to know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mayfly.cluster.group.clock import GroupClock
from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.limits import HEARTBEATS_IN_ELECTION_TIMEOUT

_FEWER_AT_REST: Final = 2
"""A node at rest leaves out every second heartbeat."""


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

    @property
    def heartbeat_ticks_at_rest(self) -> int:
        """Ticks from one heartbeat of a node at rest to the next: more than else, if an election timeout has enough of
        them all the same, and a leader that looks at its clock no more often charges leases for all of the time."""
        usual = self.group.heartbeat_ticks
        ticks = _FEWER_AT_REST * usual
        has_enough = HEARTBEATS_IN_ELECTION_TIMEOUT * ticks <= self.group.election_ticks
        return ticks if has_enough and ticks * self.tick_ms <= GroupClock.LONGEST_LED_STEP_MS else usual
