"""What a (pre-)candidate does: count votes, and give way to whoever leads its term (section 5.2)."""

from mayfly.cluster.raft.errors import ProposalDropped
from mayfly.cluster.raft.follower import answer_heartbeat, take_entries, take_snapshot
from mayfly.cluster.raft.messages import RaftMessage
from mayfly.cluster.raft.raft import Raft


def on_append(raft: Raft, message: RaftMessage) -> None:
    raft.become_follower(message.term, message.from_)
    take_entries(raft, message)


def on_heartbeat(raft: Raft, message: RaftMessage) -> None:
    raft.become_follower(message.term, message.from_)
    answer_heartbeat(raft, message)


def on_snapshot(raft: Raft, message: RaftMessage) -> None:
    raft.become_follower(message.term, message.from_)
    take_snapshot(raft, message)


def on_proposal(raft: Raft, message: RaftMessage) -> None:
    raise ProposalDropped("an election is under way")
