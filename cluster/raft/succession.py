"""Who stands for election next, and sooner than a timeout, when a leader is gone or gives up.

Safe at any moment: Raft's timers are for liveness alone (section 5.6), and whoever stands has to win an election.
"""

from collections.abc import Collection
from typing import Final

from mayfly.cluster.raft.messages import NO_LEADER, NO_NODE, MessageType, RaftMessage
from mayfly.cluster.raft.raft import Raft

TICKS_BETWEEN_CANDIDATES: Final = 4
"""When a leader's process is gone: time for one candidate to win before the next one tries."""


def succession(voters: Collection[int], lost: int, first: int) -> list[int]:
    """The voters without the leader `lost`, in the order in which they stand for election; see
    `RawNode.hasten_election`."""
    left = [node for node in sorted(voters) if node != lost]
    start = first % len(left) if left else 0
    return left[start:] + left[:start]


def hasten_election(raft: Raft, lost: int, first: int) -> None:
    """See `RawNode.hasten_election`."""
    left = succession(raft.tracker.configuration.incoming, lost, first)
    if raft.id in left:
        _stand_in_turn(raft, left)


def challenge(raft: Raft, request: RaftMessage, lost: int, first: int) -> None:
    """See `RawNode.challenge`."""
    if (
        (raft.lead == NO_LEADER or raft.election_elapsed >= raft.election_timeout)
        and not raft.raft_log.is_up_to_date(request.index, request.log_term)
    ):
        voters = raft.tracker.configuration.incoming
        left = [node for node in succession(voters, lost, first) if node != request.from_]
        if raft.id in left:
            _stand_in_turn(raft, left)


def _stand_in_turn(raft: Raft, left: list[int]) -> None:
    hastened = raft.randomized_election_timeout - 1 - left.index(raft.id) * TICKS_BETWEEN_CANDIDATES
    raft.election_elapsed = max(raft.election_elapsed, hastened)


def resign(raft: Raft, late: Collection[int], draining: Collection[int]) -> RaftMessage | None:
    """See `RawNode.resign`."""
    members = raft.tracker.progress
    able = [
        node
        for node, progress in members.items()
        if node != raft.id and not progress.is_learner and progress.recent_active and node not in late
    ]
    best = max(able, key=lambda node: (node not in draining, members[node].match), default=NO_NODE)
    term = raft.term
    raft.become_follower(term, NO_LEADER)
    return RaftMessage(MessageType.TIMEOUT_NOW, best, raft.id, term) if best != NO_NODE else None
