"""Elections: how one begins, and how a request for a vote is answered (sections 5.2 and 5.4.1)."""

import struct
from typing import Final

from mayfly.cluster.raft.messages import NO_LEADER, NO_NODE, Entry, MessageType, RaftMessage, StateType
from mayfly.cluster.raft.quorum import VoteResult
from mayfly.cluster.raft.raft import Raft
from mayfly.cluster.raft.replication import append_entries, broadcast_append

_POSITION: Final = struct.Struct(">QQ")


class Campaign:
    """Why and how a node stands for election."""

    PRE_ELECTION: Final = 0
    ELECTION: Final = 1
    TRANSFER: Final = 2


TRANSFER_CONTEXT: Final = b"transfer"
"""Context of a VOTE that the leader itself asked for: it is heard even while the leader is well."""


def start_election(raft: Raft, kind: int) -> None:
    """Stand for election, unless this node leads, may not, or has a membership change left to apply."""
    if raft.state == StateType.LEADER:
        return
    if not raft.is_promotable():
        raft.tell("may not stand for election")
        return
    if raft.raft_log.has_unapplied_conf_change():
        raft.tell("stands for no election before the membership change is applied")
        return
    campaign(raft, kind)


def campaign(raft: Raft, kind: int) -> None:
    """Become (pre-)candidate and ask every voter. The own vote counts when it is on disk."""
    if kind == Campaign.PRE_ELECTION:
        raft.become_pre_candidate()
        request, response = MessageType.PRE_VOTE, MessageType.PRE_VOTE_RESP
        term = raft.term + 1
    else:
        raft.become_candidate()
        request, response = MessageType.VOTE, MessageType.VOTE_RESP
        term = raft.term
    context = TRANSFER_CONTEXT if kind == Campaign.TRANSFER else b""
    log = raft.raft_log
    for voter in raft.tracker.configuration.voters():
        if voter == raft.id:
            raft.messages_after_append.append(RaftMessage(response, voter, voter, term))
        else:
            raft.messages.append(
                RaftMessage(request, voter, raft.id, term, log.last_term(), log.last_index(), context=context)
            )


def count_vote(raft: Raft, message: RaftMessage) -> None:
    """Count an answer to the request that this (pre-)candidate made."""
    if message.reject and _learn_commit(raft, message.context):
        raft.become_follower(raft.term, NO_LEADER)
        return
    if raft.state == StateType.PRE_CANDIDATE and not message.reject and message.term != raft.term + 1:
        # Of an earlier term's pre-vote, and late: who said so may follow a leader by now.
        return
    raft.tracker.record_vote(message.from_, not message.reject)
    result = raft.tracker.tally()
    if result == VoteResult.WON:
        if raft.state == StateType.PRE_CANDIDATE:
            campaign(raft, Campaign.ELECTION)
        else:
            take_lead(raft)
    elif result == VoteResult.LOST:
        raft.become_follower(raft.term, NO_LEADER)


# Without what follows a group can lock up. Membership counts when it is applied; say a leader commits a
# change that makes another node the only voter, appends a little more, and goes. The others' logs are now
# longer than that node's, so they refuse it their vote; but they are no voters any more, and it doesn't know,
# because it hasn't heard of the commitment. So a refusal says what its sender knows to be committed.


def _committed_position(raft: Raft) -> bytes:
    log = raft.raft_log
    return _POSITION.pack(log.committed, log.term_or_zero(log.committed))


def _learn_commit(raft: Raft, context: bytes) -> bool:
    """Commit what the sender of a refusal knows to be committed, where it is in this log too (Log Matching).

    True when a membership change is among it: then there is no standing for election before it is applied.
    """
    if len(context) != _POSITION.size:
        return False
    index, term = _POSITION.unpack(context)
    log = raft.raft_log
    return log.maybe_commit(index, term) and log.has_unapplied_conf_change()


def take_lead(raft: Raft) -> None:
    """Begin to lead with an empty entry, which commits what former terms left (section 5.4.2)."""
    if raft.id not in raft.tracker.progress:
        raft.become_follower(raft.term, NO_LEADER)
        return
    raft.become_leader()
    append_entries(raft, [Entry()])
    broadcast_append(raft)


def on_hup(raft: Raft, message: RaftMessage) -> None:
    """The election timeout is over, or the caller wants an election."""
    start_election(raft, Campaign.PRE_ELECTION if raft.pre_vote else Campaign.ELECTION)


def on_vote_request(raft: Raft, message: RaftMessage) -> None:
    """Grant a vote once per term, or a pre-vote for a term to come, to a log as complete as this one.

    Learners vote too: a learner that has been promoted may not know it yet, and its vote may be needed.
    The answer carries the request's term, since a pre-vote is about a term that nobody is in.
    """
    is_pre_vote = message.type == MessageType.PRE_VOTE
    response = MessageType.PRE_VOTE_RESP if is_pre_vote else MessageType.VOTE_RESP
    may_vote = (
        raft.vote == message.from_
        or (raft.vote == NO_NODE and raft.lead == NO_LEADER)
        or (is_pre_vote and message.term > raft.term)
    )
    if may_vote and raft.raft_log.is_up_to_date(message.index, message.log_term):
        raft.messages_after_append.append(RaftMessage(response, message.from_, raft.id, message.term))
        if not is_pre_vote:
            raft.election_elapsed = 0
            raft.vote = message.from_
    else:
        raft.messages_after_append.append(
            RaftMessage(
                response, message.from_, raft.id, raft.term, reject=True, context=_committed_position(raft)
            )
        )
        raft.tell(f"no vote for {message.from_}")


def is_kept_by_lease(raft: Raft, message: RaftMessage) -> bool:
    """Whether a request for a vote is ignored because a leader was heard of just now (section 6)."""
    return (
        raft.check_quorum
        and raft.lead != NO_LEADER
        and raft.election_elapsed < raft.election_timeout
        and message.context != TRANSFER_CONTEXT
    )
