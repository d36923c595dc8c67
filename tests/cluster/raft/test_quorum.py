"""Majorities and joint majorities, against counting by hand."""

from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.raft.messages import NO_LIMIT
from mayfly.cluster.raft.quorum import VoteResult, joint_committed, joint_vote, majority_committed, majority_vote

VOTERS = st.frozensets(st.integers(min_value=1, max_value=9), max_size=7)
ACKNOWLEDGED = st.dictionaries(st.integers(min_value=1, max_value=9), st.integers(min_value=1, max_value=20))
VOTES = st.dictionaries(st.integers(min_value=1, max_value=9), st.booleans())


def has_majority(voters: frozenset[int], having: set[int]) -> bool:
    return 2 * len(voters & having) > len(voters)


def highest_agreed(voters: frozenset[int], acknowledged: dict[int, int]) -> int:
    """The same as `majority_committed`, by trying every index."""
    agreed = 0
    for index in range(1, 21):
        if has_majority(voters, {voter for voter, own in acknowledged.items() if own >= index}):
            agreed = index
    return agreed if voters else NO_LIMIT


def outcome(voters: frozenset[int], votes: dict[int, bool]) -> int:
    """The same as `majority_vote`, by looking whether the missing votes could still decide."""
    granted = {voter for voter, vote in votes.items() if vote}
    missing = voters - votes.keys()
    if not voters or has_majority(voters, granted):
        return VoteResult.WON
    return VoteResult.PENDING if has_majority(voters, granted | missing) else VoteResult.LOST


@given(VOTERS, ACKNOWLEDGED)
def test_a_majority_commits_what_most_have(voters: frozenset[int], acknowledged: dict[int, int]) -> None:
    assert majority_committed(voters, acknowledged) == highest_agreed(voters, acknowledged)


@given(VOTERS, VOTERS, ACKNOWLEDGED)
def test_both_halves_must_commit(
    incoming: frozenset[int], outgoing: frozenset[int], acknowledged: dict[int, int]
) -> None:
    expected = min(highest_agreed(incoming, acknowledged), highest_agreed(outgoing, acknowledged))
    assert joint_committed(incoming, outgoing, acknowledged) == expected


@given(VOTERS, VOTES)
def test_a_majority_elects(voters: frozenset[int], votes: dict[int, bool]) -> None:
    assert majority_vote(voters, votes) == outcome(voters, votes)


@given(VOTERS, VOTERS, VOTES)
def test_both_halves_must_elect(
    incoming: frozenset[int], outgoing: frozenset[int], votes: dict[int, bool]
) -> None:
    halves = {outcome(incoming, votes), outcome(outgoing, votes)}
    if VoteResult.LOST in halves:
        expected = VoteResult.LOST
    elif VoteResult.PENDING in halves:
        expected = VoteResult.PENDING
    else:
        expected = VoteResult.WON
    assert joint_vote(incoming, outgoing, votes) == expected
