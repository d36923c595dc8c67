"""How often a group is handed to its preferred leader."""

from itertools import pairwise

import pytest

from mayfly.cluster.host.leader_balance import (
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    STABLE_BEFORE_TRANSFER_MS,
    LeaderBalance,
)


def attempts(balance: LeaderBalance, wanted_after_ms: list[int]) -> list[int]:
    """Moments of the attempts; so long after one the group is there again to be handed over. It is looked at once a
    second."""
    now_ms, moments = STABLE_BEFORE_TRANSFER_MS, []
    for after_ms in wanted_after_ms:
        while not balance.is_due(1, 0, now_ms):
            now_ms += 1000
        balance.attempted(1, now_ms)
        moments.append(now_ms)
        now_ms += after_ms
    return moments


@pytest.mark.parametrize("kept_ms", [0, 3000, 5000, 8000])
def test_a_preferred_leader_that_soon_gives_the_group_back_is_tried_after_pauses_that_double(kept_ms: int) -> None:
    moments = attempts(LeaderBalance(), [kept_ms] * 16)
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses[0] >= FIRST_PAUSE_MS
    assert pauses[-1] >= LONGEST_PAUSE_MS
    assert pauses[-1] < LONGEST_PAUSE_MS + 2000


def test_one_that_kept_it_and_died_is_given_it_again_soon() -> None:
    """A node that is killed or frozen every twenty seconds: its groups do not stay away ever longer."""
    moments = attempts(LeaderBalance(), [20_000] * 30)
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert max(pauses) <= 22_000
