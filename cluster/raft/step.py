"""The way of a tick and of a message through a node.

A message first meets the term rule (section 5.1): a higher term makes this node a follower of it, a lower
one is out of date. What is left goes to the table of the role, which has one place per message type; an
empty place means that the role ignores the type.
"""

from collections.abc import Callable
from typing import Final

from mayfly.cluster.raft import candidate, follower, leader, voting
from mayfly.cluster.raft.conf_change import ConfChangeV2, encode_conf_change
from mayfly.cluster.raft.errors import ProposalDropped
from mayfly.cluster.raft.messages import (
    MESSAGE_TYPE_NAMES,
    NO_LEADER,
    NO_NODE,
    Entry,
    MessageType,
    RaftMessage,
    Snapshot,
    StateType,
    entry_bytes,
)
from mayfly.cluster.raft.raft import Raft

Handler = Callable[[Raft, RaftMessage], None]


def tick(raft: Raft) -> None:
    """One unit of time has passed."""
    if raft.state == StateType.LEADER:
        _tick_leader(raft)
        return
    raft.election_elapsed += 1
    if raft.election_elapsed >= raft.randomized_election_timeout and raft.is_promotable():
        raft.election_elapsed = 0
        voting.on_hup(raft, RaftMessage(MessageType.HUP))


def _tick_leader(raft: Raft) -> None:
    raft.heartbeat_elapsed += 1
    raft.election_elapsed += 1
    if raft.election_elapsed >= raft.election_timeout:
        raft.election_elapsed = 0
        if raft.check_quorum:
            leader.on_check_quorum(raft, RaftMessage(MessageType.CHECK_QUORUM))
        if raft.state != StateType.LEADER:
            return
        # A transfer that took so long won't succeed any more.
        raft.lead_transferee = NO_NODE
        leave_joint_if_due(raft)
    if raft.heartbeat_elapsed >= raft.heartbeat_timeout:
        raft.heartbeat_elapsed = 0
        leader.on_beat(raft, RaftMessage(MessageType.BEAT))


def step(raft: Raft, message: RaftMessage) -> None:
    """Take a message that `admission.check_message` has passed, or that comes from this node itself.

    Raises `ProposalDropped` for a proposal that isn't taken.
    """
    term = message.term
    if term != raft.term and term != 0:
        if term < raft.term:
            _answer_lower_term(raft, message)
            return
        if not _meet_higher_term(raft, message):
            return
    if message.type == MessageType.SNAP and raft.raft_log.applying > raft.raft_log.applied:
        # It would put its membership in force before the changes among the entries that are being applied.
        raft.held_snapshot = message
        return
    handler = TABLES[raft.state][message.type]
    if handler is not None:
        handler(raft, message)


def _meet_higher_term(raft: Raft, message: RaftMessage) -> bool:
    """Enter the message's term, as far as it is one to be entered. False: the message is to be ignored."""
    kind = message.type
    is_request = kind == MessageType.VOTE or kind == MessageType.PRE_VOTE
    if is_request and voting.is_kept_by_lease(raft, message):
        raft.tell(f"no vote for {message.from_}: {raft.lead} leads")
        return False
    # Pre-votes, and pre-votes granted, speak of a term that nobody has entered.
    if kind == MessageType.PRE_VOTE or (kind == MessageType.PRE_VOTE_RESP and not message.reject):
        return True
    is_from_leader = kind == MessageType.APP or kind == MessageType.HEARTBEAT or kind == MessageType.SNAP
    raft.become_follower(message.term, message.from_ if is_from_leader else NO_LEADER)
    return True


def _answer_lower_term(raft: Raft, message: RaftMessage) -> None:
    kind = message.type
    if (kind == MessageType.HEARTBEAT or kind == MessageType.APP) and (raft.check_quorum or raft.pre_vote):
        # A leader of a past term. With check-quorum or pre-vote it would not learn of this term from a
        # request for a vote, which it and its followers ignore; so tell it, or this node stays outside.
        raft.messages_after_append.append(
            RaftMessage(MessageType.APP_RESP, message.from_, raft.id, raft.term)
        )
    elif kind == MessageType.PRE_VOTE:
        # Silence would leave a candidate of a past term in the dark for ever.
        raft.messages_after_append.append(
            RaftMessage(MessageType.PRE_VOTE_RESP, message.from_, raft.id, raft.term, reject=True)
        )
    elif kind == MessageType.STORAGE_APPEND_RESP:
        # Entries may have been replaced since by those of another term, whose write is under way. Snapshots
        # hold only what is committed, whatever the term.
        if message.snapshot is not None:
            snapshot_applied(raft, message.snapshot)
    elif raft.trace is not None:
        raft.tell(f"ignores {MESSAGE_TYPE_NAMES[kind]} of {message.from_} at past term {message.term}")


# Answers of storage and of the state machine.


def on_storage_append_response(raft: Raft, message: RaftMessage) -> None:
    """Entries up to (index, log_term), and perhaps a snapshot, are durable."""
    if message.index != 0:
        raft.raft_log.unstable.stable_to(message.index, message.log_term)
    if message.snapshot is not None:
        snapshot_applied(raft, message.snapshot)


def on_storage_apply_response(raft: Raft, message: RaftMessage) -> None:
    entries_applied(raft, message.entries)


def entries_applied(raft: Raft, entries: list[Entry]) -> None:
    """The state machine has applied these committed entries."""
    if entries:
        size = 0
        for entry in entries:
            size += entry_bytes(entry)
        _applied_to(raft, entries[-1].index, size)
        raft.release_uncommitted(entries)


def snapshot_applied(raft: Raft, snapshot: Snapshot) -> None:
    """Storage and state machine have taken a snapshot over."""
    raft.raft_log.unstable.stable_snapshot_to(snapshot.metadata.index)
    _applied_to(raft, snapshot.metadata.index, 0)


def _applied_to(raft: Raft, index: int, size: int) -> None:
    log = raft.raft_log
    log.applied_to(index if index > log.applied else log.applied, size)
    leave_joint_if_due(raft)
    held = raft.held_snapshot
    if held is not None and log.applying == log.applied:
        raft.held_snapshot = None
        step(raft, held)


def leave_joint_if_due(raft: Raft) -> None:
    """Propose to leave a joint configuration that is to be left by itself, once it is in force."""
    if (
        raft.tracker.configuration.auto_leave
        and raft.state == StateType.LEADER
        and raft.raft_log.applied >= raft.pending_conf_index
    ):
        try:
            leader.propose(raft, [encode_conf_change(ConfChangeV2())])
        except ProposalDropped as reason:
            # Leadership is being handed over. The next leader does it, or this one when that has failed.
            raft.tell(f"doesn't leave the joint configuration yet: {reason}")


def _table(handlers: dict[int, Handler]) -> list[Handler | None]:
    """What a role does, by message type, together with what every role does."""
    shared: dict[int, Handler] = {
        MessageType.HUP: voting.on_hup,
        MessageType.VOTE: voting.on_vote_request,
        MessageType.PRE_VOTE: voting.on_vote_request,
        MessageType.STORAGE_APPEND_RESP: on_storage_append_response,
        MessageType.STORAGE_APPLY_RESP: on_storage_apply_response,
    }
    table: list[Handler | None] = [None] * len(MESSAGE_TYPE_NAMES)
    for kind, handler in (shared | handlers).items():
        table[kind] = handler
    return table


_FOLLOWER: Final[dict[int, Handler]] = {
    MessageType.PROP: follower.on_proposal,
    MessageType.APP: follower.on_append,
    MessageType.HEARTBEAT: follower.on_heartbeat,
    MessageType.SNAP: follower.on_snapshot,
    MessageType.TRANSFER_LEADER: follower.on_transfer_leader,
    MessageType.FORGET_LEADER: follower.on_forget_leader,
    MessageType.TIMEOUT_NOW: follower.on_timeout_now,
    MessageType.READ_INDEX: follower.on_read_index,
    MessageType.READ_INDEX_RESP: follower.on_read_index_response,
}

_CANDIDATE: Final[dict[int, Handler]] = {
    MessageType.PROP: candidate.on_proposal,
    MessageType.APP: candidate.on_append,
    MessageType.HEARTBEAT: candidate.on_heartbeat,
    MessageType.SNAP: candidate.on_snapshot,
}

_LEADER: Final[dict[int, Handler]] = {
    MessageType.BEAT: leader.on_beat,
    MessageType.CHECK_QUORUM: leader.on_check_quorum,
    MessageType.PROP: leader.on_proposal,
    MessageType.APP_RESP: leader.on_append_response,
    MessageType.HEARTBEAT_RESP: leader.on_heartbeat_response,
    MessageType.SNAP_STATUS: leader.on_snapshot_status,
    MessageType.UNREACHABLE: leader.on_unreachable,
    MessageType.TRANSFER_LEADER: leader.on_transfer_leader,
    MessageType.READ_INDEX: leader.on_read_index,
}

TABLES: Final[list[list[Handler | None]]] = [[], [], [], []]
TABLES[StateType.FOLLOWER] = _table(_FOLLOWER)
TABLES[StateType.CANDIDATE] = _table(_CANDIDATE | {MessageType.VOTE_RESP: voting.count_vote})
TABLES[StateType.PRE_CANDIDATE] = _table(_CANDIDATE | {MessageType.PRE_VOTE_RESP: voting.count_vote})
TABLES[StateType.LEADER] = _table(_LEADER)
