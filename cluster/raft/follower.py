"""What a follower does: take the leader's log, and pass on what only the leader can do."""

from mayfly.cluster.raft.config import ReadOnlyOption
from mayfly.cluster.raft.errors import ProposalDropped
from mayfly.cluster.raft.membership import restored_membership
from mayfly.cluster.raft.messages import NO_LEADER, ConfState, Entry, MessageType, RaftMessage, Snapshot, StateType
from mayfly.cluster.raft.raft import Raft
from mayfly.cluster.raft.ready import ReadState
from mayfly.cluster.raft.reconfiguration import switch_to
from mayfly.cluster.raft.voting import Campaign, start_election


def on_append(raft: Raft, message: RaftMessage) -> None:
    _hear_leader(raft, message)
    take_entries(raft, message)


def on_heartbeat(raft: Raft, message: RaftMessage) -> None:
    _hear_leader(raft, message)
    answer_heartbeat(raft, message)


def on_snapshot(raft: Raft, message: RaftMessage) -> None:
    _hear_leader(raft, message)
    take_snapshot(raft, message)


def _hear_leader(raft: Raft, message: RaftMessage) -> None:
    raft.election_elapsed = 0
    raft.lead = message.from_


def take_entries(raft: Raft, message: RaftMessage) -> None:
    """Append a leader's entries and acknowledge them, or say where the logs may agree (section 5.3).

    The hint skips at once all entries of terms above that of the refused one, as 5.3 allows: they can't
    agree with the leader's.
    """
    log = raft.raft_log
    if message.index < log.committed:
        _acknowledge(raft, message.from_, log.committed)
        return
    last = log.maybe_append(message.index, message.log_term, message.entries, message.commit)
    if last >= 0:
        _acknowledge(raft, message.from_, last)
        return
    hint, hint_term = log.find_agreement(min(message.index, log.last_index()), message.log_term)
    raft.messages_after_append.append(
        RaftMessage(
            MessageType.APP_RESP,
            message.from_,
            raft.id,
            raft.term,
            hint_term,
            message.index,
            reject=True,
            reject_hint=hint,
        )
    )


def _acknowledge(raft: Raft, leader: int, index: int) -> None:
    raft.messages_after_append.append(
        RaftMessage(MessageType.APP_RESP, leader, raft.id, raft.term, 0, index)
    )


def answer_heartbeat(raft: Raft, message: RaftMessage) -> None:
    raft.raft_log.commit_to(message.commit)
    raft.messages.append(
        RaftMessage(
            MessageType.HEARTBEAT_RESP, message.from_, raft.id, raft.term, context=message.context
        )
    )


def take_snapshot(raft: Raft, message: RaftMessage) -> None:
    """Take a snapshot in place of the log (section 7), unless the log has all of it already."""
    snapshot = message.snapshot
    log = raft.raft_log
    if snapshot is not None and _restore(raft, snapshot):
        _acknowledge(raft, message.from_, log.last_index())
    else:
        _acknowledge(raft, message.from_, log.committed)


def _restore(raft: Raft, snapshot: Snapshot) -> bool:
    log = raft.raft_log
    index, term = snapshot.metadata.index, snapshot.metadata.term
    if index <= log.committed:
        return False
    members = snapshot.metadata.conf_state
    if not _is_member(raft.id, members):
        raft.tell(f"refused a snapshot of a group without this node: {members!r}")
        return False
    if log.matches(index, term):
        # The log is there, only its commitment wasn't known.
        log.commit_to(index)
        return False
    configuration, progress = restored_membership(members, index, raft.limits)
    log.restore(snapshot)
    switch_to(raft, configuration, progress)
    raft.tell(f"restored from a snapshot of {index}")
    return True


def _is_member(node_id: int, members: ConfState) -> bool:
    return node_id in members.voters or node_id in members.learners or node_id in members.voters_outgoing


def forward_proposal(raft: Raft, entries: list[Entry], from_: int) -> None:
    """Pass a proposal on to the leader. Raises `ProposalDropped` when there is none or it isn't wanted."""
    if raft.state != StateType.FOLLOWER or raft.lead == NO_LEADER:
        raise ProposalDropped("no leader is known")
    if raft.disable_proposal_forwarding:
        raise ProposalDropped(f"{raft.lead} leads, and proposals are not forwarded")
    raft.messages.append(RaftMessage(MessageType.PROP, raft.lead, from_, entries=entries))


def on_proposal(raft: Raft, message: RaftMessage) -> None:
    forward_proposal(raft, message.entries, message.from_ or raft.id)


def on_transfer_leader(raft: Raft, message: RaftMessage) -> None:
    if raft.lead != NO_LEADER:
        raft.messages.append(
            RaftMessage(MessageType.TRANSFER_LEADER, raft.lead, message.from_ or raft.id, raft.term)
        )


def on_forget_leader(raft: Raft, message: RaftMessage) -> None:
    """Act as if no leader had been heard of in this term, so that others can be voted for."""
    if raft.read_only.option == ReadOnlyOption.LEASE_BASED:
        raft.tell("the leader is not forgotten: its lease is what reads rely on")
    elif raft.lead != NO_LEADER:
        raft.tell(f"forgets leader {raft.lead}")
        raft.lead = NO_LEADER


def on_timeout_now(raft: Raft, message: RaftMessage) -> None:
    """The leader wants this node to lead: no pre-vote, and no waiting (thesis 3.10)."""
    start_election(raft, Campaign.TRANSFER)


def on_read_index(raft: Raft, message: RaftMessage) -> None:
    if raft.lead != NO_LEADER:
        raft.messages.append(
            RaftMessage(
                MessageType.READ_INDEX, raft.lead, message.from_ or raft.id, entries=message.entries
            )
        )


def on_read_index_response(raft: Raft, message: RaftMessage) -> None:
    raft.read_states.append(ReadState(message.index, message.entries[0].data))
