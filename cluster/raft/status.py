"""A copy of what a node knows, for people and metrics."""

from typing import NamedTuple

from mayfly.cluster.raft.messages import HardState, StateType
from mayfly.cluster.raft.progress import Progress, ProgressState
from mayfly.cluster.raft.raft import Raft
from mayfly.cluster.raft.tracker import Configuration


class FollowerStatus(NamedTuple):
    """Another member as the leader sees it."""

    node: int
    match: int
    """The last index known to be on its disk."""
    sent: int
    """The last index that it has if everything arrives that was sent."""
    takes_snapshot: bool
    """Whether a snapshot is on its way to it, of `sent`."""
    replicates: bool
    """Whether entries are sent ahead of its acknowledgements."""


class Status:
    """``progress`` is empty except on a leader."""

    def __init__(
        self,
        id: int,
        hard_state: HardState,
        lead: int,
        state: int,
        applied: int,
        last_index: int,
        lead_transferee: int,
        configuration: Configuration,
        progress: dict[int, Progress],
    ) -> None:
        self.id: int = id
        self.hard_state: HardState = hard_state
        self.lead: int = lead
        self.state: int = state
        self.applied: int = applied
        self.last_index: int = last_index
        self.lead_transferee: int = lead_transferee
        self.configuration: Configuration = configuration
        self.progress: dict[int, Progress] = progress


def status_of(raft: Raft) -> Status:
    progress: dict[int, Progress] = {}
    if raft.state == StateType.LEADER:
        for node_id in raft.tracker.members():
            progress[node_id] = raft.tracker.progress[node_id].copy(share_inflights=False)
    log = raft.raft_log
    return Status(
        raft.id,
        HardState(raft.term, raft.vote, log.committed),
        raft.lead,
        raft.state,
        log.applied,
        log.last_index(),
        raft.lead_transferee,
        raft.tracker.configuration.copy(),
        progress,
    )


def followers_of(raft: Raft) -> list[FollowerStatus]:
    """All other members, seen from the leader; nobody where it does not lead."""
    if raft.state != StateType.LEADER:
        return []
    return [
        FollowerStatus(
            node_id,
            progress.match,
            progress.next - 1,
            progress.state == ProgressState.SNAPSHOT,
            progress.state == ProgressState.REPLICATE,
        )
        for node_id, progress in raft.tracker.progress.items()
        if node_id != raft.id
    ]
