"""What a leader does: take proposals, follow the others' progress, answer reads, hand over its lead."""

from mayfly.cluster.raft.conf_change import ConfChange, ConfChangeV2, decode_conf_change
from mayfly.cluster.raft.config import ReadOnlyOption
from mayfly.cluster.raft.errors import ProposalDropped
from mayfly.cluster.raft.messages import NO_LEADER, NO_NODE, Entry, EntryType, MessageType, RaftMessage
from mayfly.cluster.raft.progress import Progress, ProgressState
from mayfly.cluster.raft.raft import Raft
from mayfly.cluster.raft.read_only import ReadRequest
from mayfly.cluster.raft.ready import ReadState
from mayfly.cluster.raft.replication import (
    append_entries,
    broadcast_append,
    broadcast_heartbeat,
    maybe_commit,
    send_append,
)


def on_beat(raft: Raft, message: RaftMessage) -> None:
    broadcast_heartbeat(raft)


def on_check_quorum(raft: Raft, message: RaftMessage) -> None:
    """Step down when no quorum was heard of since the last time (thesis 6.2)."""
    if not raft.tracker.quorum_is_active():
        raft.tell("steps down: no quorum answers")
        raft.become_follower(raft.term, NO_LEADER)
    raft.tracker.mark_inactive(but=raft.id)


# Proposals.


def on_proposal(raft: Raft, message: RaftMessage) -> None:
    propose(raft, message.entries)


def propose(raft: Raft, entries: list[Entry]) -> None:
    """Append entries to the group's log and send them out. Raises `ProposalDropped`."""
    if raft.id not in raft.tracker.progress:
        raise ProposalDropped("this node was removed from the group")
    if raft.lead_transferee != NO_NODE:
        raise ProposalDropped(f"leadership is being handed to {raft.lead_transferee}")
    pending_before = raft.pending_conf_index
    for entry in entries:
        if entry.type != EntryType.NORMAL:
            entries = _admit_conf_changes(raft, entries)
            break
    try:
        append_entries(raft, entries)
    except ProposalDropped:
        raft.pending_conf_index = pending_before
        raise
    broadcast_append(raft)


def _admit_conf_changes(raft: Raft, entries: list[Entry]) -> list[Entry]:
    """The entries, with an empty one in place of each membership change that can't be made now.

    One change at a time may be under way, and a joint configuration must be left before the next.
    """
    changes = [
        decode_conf_change(entry) if entry.type != EntryType.NORMAL else None for entry in entries
    ]
    admitted: list[Entry] = []
    for position, entry in enumerate(entries):
        change = changes[position]
        if change is not None:
            refusal = _conf_change_refusal(raft, change)
            if refusal and not raft.disable_conf_change_validation:
                raft.tell(f"membership change ignored: {refusal}")
                entry = Entry()
            else:
                raft.pending_conf_index = raft.raft_log.last_index() + position + 1
        admitted.append(entry)
    return admitted


def _conf_change_refusal(raft: Raft, change: ConfChange | ConfChangeV2) -> str:
    if raft.pending_conf_index > raft.raft_log.applied:
        return f"another may be pending at {raft.pending_conf_index}"
    leaves_joint = not change.as_v2().changes
    if raft.tracker.configuration.is_joint():
        return "" if leaves_joint else "the joint configuration must be left first"
    return "there is no joint configuration to leave" if leaves_joint else ""


# Answers of followers.


def on_append_response(raft: Raft, message: RaftMessage) -> None:
    progress = raft.tracker.progress.get(message.from_)
    if progress is None:
        return
    progress.recent_active = True
    if message.reject:
        _on_refusal(raft, message, progress)
        return
    index = message.index
    if progress.acknowledge(index):
        pass
    elif not (progress.match == index and progress.state == ProgressState.PROBE):
        return
    state = progress.state
    if state == ProgressState.REPLICATE:
        progress.inflights.free_to(index)
    elif state == ProgressState.PROBE:
        progress.become_replicate()
    elif progress.match + 1 >= raft.raft_log.first_index():
        # A snapshot arrived, from wherever: what matters is that the log reaches the follower again.
        progress.become_probe()
        progress.become_replicate()
    _after_acknowledgement(raft, message.from_, progress)


def _after_acknowledgement(raft: Raft, from_: int, progress: Progress) -> None:
    """Commit what can be, and send the follower what its answer made room for."""
    # Only an acknowledgement beyond the commit index can move it.
    if progress.match > raft.raft_log.committed and maybe_commit(raft):
        _answer_postponed_reads(raft)
        broadcast_append(raft)
    elif from_ != raft.id and progress.can_bump_commit(raft.raft_log.committed):
        send_append(raft, from_, progress, True)
    if from_ == raft.id:
        return
    while send_append(raft, from_, progress, False):
        pass
    if from_ == raft.lead_transferee and progress.match == raft.raft_log.last_index():
        raft.messages.append(RaftMessage(MessageType.TIMEOUT_NOW, from_, raft.id, raft.term))


def _on_refusal(raft: Raft, message: RaftMessage, progress: Progress) -> None:
    """Go back to where the logs may agree, skipping terms that can't (section 5.3)."""
    hint = message.reject_hint
    if message.log_term > 0:
        hint = raft.raft_log.find_agreement(hint, message.log_term)[0]
    if progress.refuse(message.index, hint):
        if progress.state == ProgressState.REPLICATE:
            progress.become_probe()
        send_append(raft, message.from_, progress, True)


def on_heartbeat_response(raft: Raft, message: RaftMessage) -> None:
    progress = raft.tracker.progress.get(message.from_)
    if progress is None:
        return
    progress.recent_active = True
    progress.flow_paused = False
    if progress.match < raft.raft_log.last_index() or progress.state == ProgressState.PROBE:
        send_append(raft, message.from_, progress, True)
    if message.context and raft.read_only.option == ReadOnlyOption.SAFE:
        raft.read_only.acknowledge(message.from_, message.context)
        _answer_confirmed_reads(raft)


def on_snapshot_status(raft: Raft, message: RaftMessage) -> None:
    """The transport says how the sending of a snapshot ended.

    After success the next message waits for the follower's own word, after failure for its heartbeat.
    """
    progress = raft.tracker.progress.get(message.from_)
    if progress is None or progress.state != ProgressState.SNAPSHOT:
        return
    if message.reject:
        progress.pending_snapshot = 0
    progress.become_probe()
    progress.flow_paused = True


def on_unreachable(raft: Raft, message: RaftMessage) -> None:
    """What was sent ahead is probably lost."""
    progress = raft.tracker.progress.get(message.from_)
    if progress is not None and progress.state == ProgressState.REPLICATE:
        progress.become_probe()


# Handing over (thesis 3.10).


def on_transfer_leader(raft: Raft, message: RaftMessage) -> None:
    """Bring a voter's log up to date, taking no proposals meanwhile, and have it stand for election."""
    target = message.from_
    progress = raft.tracker.progress.get(target)
    if progress is None or progress.is_learner or target == raft.lead_transferee:
        return
    raft.lead_transferee = NO_NODE
    if target == raft.id:
        return
    raft.tell(f"hands over to {target}")
    # It has one election timeout; then the leader goes on.
    raft.election_elapsed = 0
    raft.lead_transferee = target
    if progress.match == raft.raft_log.last_index():
        raft.messages.append(RaftMessage(MessageType.TIMEOUT_NOW, target, raft.id, raft.term))
    else:
        send_append(raft, target, progress, True)


# Reads.


def on_read_index(raft: Raft, message: RaftMessage) -> None:
    """Find out an index up to which state is fresh (section 8). Waits for the term's first commit.

    A single voter waits for it too: after a restart the commit index that it stored may be behind what it had answered.
    """
    if not raft.has_committed_in_term():
        raft.postponed_reads.append(message)
    # A leader that was removed may be left with one voter, which is not itself: that one may lead by now.
    elif raft.tracker.is_singleton() and raft.tracker.configuration.is_voter(raft.id):
        _answer_read(raft, message, raft.raft_log.committed)
    else:
        _begin_read(raft, message)


def _begin_read(raft: Raft, message: RaftMessage) -> None:
    if raft.read_only.option == ReadOnlyOption.LEASE_BASED:
        _answer_read(raft, message, raft.raft_log.committed)
        return
    raft.read_only.add(message, raft.raft_log.committed)
    raft.read_only.acknowledge(raft.id, raft.read_only.context())
    broadcast_heartbeat(raft)


def answer_waiting_reads(raft: Raft) -> None:
    """The membership has changed: what other nodes had to confirm, or to commit, may be settled now."""
    _answer_postponed_reads(raft)
    _answer_confirmed_reads(raft)


def _answer_postponed_reads(raft: Raft) -> None:
    if raft.postponed_reads and raft.has_committed_in_term():
        postponed = raft.postponed_reads
        raft.postponed_reads = []
        for message in postponed:
            on_read_index(raft, message)


def _answer_confirmed_reads(raft: Raft) -> None:
    configuration = raft.tracker.configuration
    confirmed: list[ReadRequest] = raft.read_only.take_confirmed(
        configuration.incoming, configuration.outgoing
    )
    for request in confirmed:
        _answer_read(raft, request.message, request.index)


def _answer_read(raft: Raft, request: RaftMessage, index: int) -> None:
    if request.from_ == NO_NODE or request.from_ == raft.id:
        raft.read_states.append(ReadState(index, request.entries[0].data))
    else:
        raft.messages.append(
            RaftMessage(
                MessageType.READ_INDEX_RESP,
                request.from_,
                raft.id,
                raft.term,
                0,
                index,
                entries=request.entries,
            )
        )
