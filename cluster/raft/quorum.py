"""Majorities, and pairs of majorities that must agree (thesis section 4.3, joint consensus)."""

from collections.abc import Collection, Mapping
from typing import Final

from mayfly.cluster.raft.messages import NO_LIMIT


class VoteResult:
    """How an election stands."""

    PENDING: Final = 0
    LOST: Final = 1
    WON: Final = 2


def majority_committed(voters: Collection[int], acknowledged: Mapping[int, int]) -> int:
    """The highest index that a majority of the voters has acknowledged.

    A voter that isn't in ``acknowledged`` counts as 0. No voters at all agree to everything (`NO_LIMIT`),
    so that an empty half of a joint configuration decides nothing.
    """
    if not voters:
        return NO_LIMIT
    indices = [acknowledged.get(voter, 0) for voter in voters]
    indices.sort()
    return indices[(len(indices) - 1) // 2]


def joint_committed(
    incoming: Collection[int], outgoing: Collection[int], acknowledged: Mapping[int, int]
) -> int:
    """The highest index that a majority of either half has acknowledged."""
    return min(majority_committed(incoming, acknowledged), majority_committed(outgoing, acknowledged))


def majority_vote(voters: Collection[int], votes: Mapping[int, bool]) -> int:
    """The `VoteResult` among the voters. An election among nobody is won."""
    if not voters:
        return VoteResult.WON
    granted = 0
    missing = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote is None:
            missing += 1
        elif vote:
            granted += 1
    needed = len(voters) // 2 + 1
    if granted >= needed:
        return VoteResult.WON
    if granted + missing >= needed:
        return VoteResult.PENDING
    return VoteResult.LOST


def joint_vote(incoming: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]) -> int:
    """The `VoteResult` of an election that both halves must win; one lost half loses it."""
    first = majority_vote(incoming, votes)
    second = majority_vote(outgoing, votes)
    if first == second:
        return first
    if first == VoteResult.LOST or second == VoteResult.LOST:
        return VoteResult.LOST
    return VoteResult.PENDING
