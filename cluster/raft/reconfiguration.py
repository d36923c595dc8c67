"""What happens to a running node when the membership changes."""

from mayfly.cluster.raft.conf_change import ConfChangeV2
from mayfly.cluster.raft.leader import answer_waiting_reads
from mayfly.cluster.raft.membership import changed_membership
from mayfly.cluster.raft.messages import NO_LEADER, NO_NODE, ConfState, StateType
from mayfly.cluster.raft.progress import Progress
from mayfly.cluster.raft.raft import Raft
from mayfly.cluster.raft.replication import broadcast_append, maybe_commit, send_append
from mayfly.cluster.raft.tracker import Configuration


def apply_conf_change(raft: Raft, change: ConfChangeV2) -> ConfState:
    """Put a committed change in force. Raises `ConfChangeError`, leaving everything as it was."""
    configuration, progress = changed_membership(
        raft.tracker.configuration, raft.tracker.progress, change, raft.raft_log.last_index(), raft.limits
    )
    return switch_to(raft, configuration, progress)


def switch_to(raft: Raft, configuration: Configuration, progress: dict[int, Progress]) -> ConfState:
    """Put a membership in force and act on it where this node leads."""
    raft.tracker.install(configuration, progress)
    raft.configuration_changed()
    raft.tell(f"members: {configuration!r}")
    if raft.state == StateType.LEADER:
        if raft.id not in progress or raft.is_learner:
            # It goes on leading until the rest has moved on, or at least as long as it is let.
            if raft.step_down_on_removal:
                raft.become_follower(raft.term, NO_LEADER)
        else:
            _lead_on(raft, configuration)
    return configuration.conf_state()


def _lead_on(raft: Raft, configuration: Configuration) -> None:
    if maybe_commit(raft):
        broadcast_append(raft)
    else:
        # New members needn't wait for the next heartbeat or proposal.
        for node_id in raft.tracker.members():
            if node_id != raft.id:
                send_append(raft, node_id, raft.tracker.progress[node_id], False)
    answer_waiting_reads(raft)
    if raft.lead_transferee != NO_NODE and not configuration.is_voter(raft.lead_transferee):
        raft.lead_transferee = NO_NODE
