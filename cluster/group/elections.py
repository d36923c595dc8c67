"""Leading less or sooner than Raft's clock says, within what Raft allows at any moment."""

from collections.abc import Collection
from typing import Final

from mayfly.cluster.raft import NO_LEADER, Message, MessageType
from mayfly.cluster.raft.messages import NO_NODE
from mayfly.cluster.raft.raft import Raft

TICKS_BETWEEN_CANDIDATES: Final = 4
"""When a leader's process is gone: time for one candidate to win before the next one tries."""


def succession(voters: Collection[int], lost: int, first: int) -> list[int]:
    """The voters without the leader `lost`, in the order in which they stand for election; see `hasten_election`."""
    left = [node for node in sorted(voters) if node != lost]
    start = first % len(left) if left else 0
    return left[start:] + left[:start]


def hasten_election(raft: Raft, voters: Collection[int], lost: int, first: int) -> None:
    """The process of the leader `lost` is gone: campaign soon instead of after a whole timeout.

    The voters left take turns, a few ticks apart, because those that campaign at once split the vote and then wait
    for a whole timeout after all. `first` says who comes first; it should differ from group to group, so that each
    leads its share."""
    left = succession(voters, lost, first)
    if raft.id in left:
        turn = left.index(raft.id)
        hastened = raft.randomized_election_timeout - 1 - turn * TICKS_BETWEEN_CANDIDATES
        raft.election_elapsed = max(raft.election_elapsed, hastened)


def challenge(raft: Raft, request: Message, voters: Collection[int], lost: int, first: int) -> None:
    """Somebody without the end of this log asks for a vote and gets none (a leader may have held its last entries back
    from them): so that no time is lost, stand for election in the next tick, if no leader is followed. Of several whose
    logs are longer the voters take turns, as in `hasten_election`."""
    if (
        (raft.lead == NO_LEADER or raft.election_elapsed >= raft.election_timeout)
        and not raft.raft_log.is_up_to_date(request.index, request.log_term)
    ):
        left = [node for node in succession(voters, lost, first) if node != request.from_]
        if raft.id in left:
            hastened = raft.randomized_election_timeout - 1 - left.index(raft.id) * TICKS_BETWEEN_CANDIDATES
            raft.election_elapsed = max(raft.election_elapsed, hastened)


def resign(raft: Raft, late: Collection[int], draining: Collection[int]) -> Message | None:
    """Give the lead up at once; a message that has the most advanced voter stand for election, if one is known.

    None of the `late`, whose disks hang or did a moment ago: they would not stand. One of the `draining` only where
    there is nobody else: it is about to stop.

    Safe at any moment: it is the step down of a leader that finds no quorum (thesis 6.2), and whoever is asked
    still has to win an election. For a leader whose disk hangs: its Ready may be stuck behind the write, so the
    message does not go through it."""
    members = raft.tracker.progress
    able = [
        node
        for node, progress in members.items()
        if node != raft.id and not progress.is_learner and progress.recent_active and node not in late
    ]
    best = max(able, key=lambda node: (node not in draining, members[node].match), default=NO_NODE)
    term = raft.term
    raft.become_follower(term, NO_LEADER)
    return Message(MessageType.TIMEOUT_NOW, best, raft.id, term) if best != NO_NODE else None
