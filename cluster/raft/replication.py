"""What a leader sends to bring the others' logs to its own, and when an entry counts as committed."""

from mayfly.cluster.raft.errors import ProposalDropped, SnapshotTemporarilyUnavailable, StorageError
from mayfly.cluster.raft.messages import Entry, MessageType, RaftMessage
from mayfly.cluster.raft.progress import Progress, ProgressState
from mayfly.cluster.raft.raft import Raft


def append_entries(raft: Raft, entries: list[Entry]) -> None:
    """Append to the leader's own log, in its term. Raises `ProposalDropped` above the size limit.

    The leader's acknowledgement of its own entries is a message to itself that waits for the disk.
    """
    if not raft.take_uncommitted(entries):
        raise ProposalDropped(f"more than {raft.max_uncommitted_bytes} bytes are uncommitted")
    term = raft.term
    index = raft.raft_log.last_index()
    numbered: list[Entry] = []
    for entry in entries:
        index += 1
        numbered.append(Entry(term, index, entry.type, entry.data))
    raft.raft_log.append(numbered)
    raft.messages_after_append.append(RaftMessage(MessageType.APP_RESP, raft.id, raft.id, term, 0, index))


def send_append(raft: Raft, to: int, progress: Progress, even_if_empty: bool) -> bool:
    """Send what comes next to a follower; True when something was sent.

    An empty message still tells the commit index. Into a full window only empty ones go: if all that is
    under way got lost, the answer to one of them gets things going again.
    """
    if progress.is_paused():
        return False
    log = raft.raft_log
    following = progress.next
    if not even_if_empty and following > log.last_index():
        return False
    entries: list[Entry] = []
    try:
        previous_term = log.term(following - 1)
        if progress.state != ProgressState.REPLICATE or not progress.inflights.full():
            entries = log.entries_from(following, raft.max_message_bytes)
    except StorageError:
        return _send_snapshot(raft, to, progress)
    if not entries and not even_if_empty:
        return False
    committed = log.committed
    raft.messages.append(
        RaftMessage(
            MessageType.APP, to, raft.id, raft.term, previous_term, following - 1, committed, entries=entries
        )
    )
    size = 0
    for entry in entries:
        size += len(entry.data)
    progress.sent_entries(len(entries), size)
    progress.sent_commit = committed
    return True


def _send_snapshot(raft: Raft, to: int, progress: Progress) -> bool:
    """The log no longer reaches back so far: send the newest snapshot, to a node that is there."""
    if not progress.recent_active:
        return False
    try:
        snapshot = raft.raft_log.snapshot()
    except SnapshotTemporarilyUnavailable:
        raft.tell(f"no snapshot for {to} yet")
        return False
    if snapshot.is_empty():
        raft.tell(f"storage was compacted without a snapshot; {to} can't be helped")
        return False
    progress.become_snapshot(snapshot.metadata.index)
    raft.messages.append(RaftMessage(MessageType.SNAP, to, raft.id, raft.term, snapshot=snapshot))
    raft.tell(f"snapshot of {snapshot.metadata.index} for {to}")
    return True


def broadcast_append(raft: Raft) -> None:
    """Send to everybody what comes next, or at least the commit index."""
    progress = raft.tracker.progress
    for node_id in raft.tracker.members():
        if node_id != raft.id:
            send_append(raft, node_id, progress[node_id], True)


def broadcast_heartbeat(raft: Raft) -> None:
    """Tell everybody that the leader is there (section 5.2), asking for confirmation of waiting reads.

    The commit index it carries never exceeds what the follower is known to have.
    """
    context = raft.read_only.context()
    committed = raft.raft_log.committed
    for node_id in raft.tracker.members():
        if node_id == raft.id:
            continue
        progress = raft.tracker.progress[node_id]
        commit = progress.match if progress.match < committed else committed
        raft.messages.append(
            RaftMessage(
                MessageType.HEARTBEAT, node_id, raft.id, raft.term, commit=commit, context=context
            )
        )
        progress.sent_commit = commit


def maybe_commit(raft: Raft) -> bool:
    """Commit what a quorum has, if it is of the present term (section 5.4.2). True when that is more."""
    return raft.raft_log.maybe_commit(raft.tracker.committed(), raft.term)
