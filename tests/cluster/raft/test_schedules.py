"""Groups under loss, repetition, reordering, crashes, transfers and membership changes keep Raft's promises.

What is checked at every step is said in `simulated_group` (figure 3 of the Raft paper); after the schedule
the network is healed and all members must come to apply the same.
"""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.raft.simulated_group import SimulatedGroup

ACTIONS = st.tuples(
    st.integers(min_value=0, max_value=17),
    st.integers(min_value=0, max_value=4),
    st.integers(min_value=0, max_value=(1 << 16) - 1),
)
OPTIONS = st.fixed_dictionaries(
    {
        "pre_vote": st.booleans(),
        "check_quorum": st.booleans(),
        "async_storage_writes": st.booleans(),
        "step_down_on_removal": st.booleans(),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    size=st.integers(min_value=3, max_value=5),
    seed=st.integers(min_value=0, max_value=1 << 16),
    options=OPTIONS,
    schedule=st.lists(ACTIONS, min_size=20, max_size=250),
)
def test_figure_3_holds_under_any_schedule(
    size: int, seed: int, options: dict[str, bool], schedule: list[tuple[int, int, int]]
) -> None:
    group = SimulatedGroup(size, seed, **options)
    for action, first, second in schedule:
        group.act(action, first, second)
    group.heal()


@pytest.mark.parametrize("seed", range(24))
def test_figure_3_holds_in_long_runs(seed: int) -> None:
    random = Random(seed)
    group = SimulatedGroup(
        3 + seed % 3,
        seed,
        pre_vote=bool(seed & 1),
        check_quorum=bool(seed & 2),
        async_storage_writes=bool(seed & 4),
        step_down_on_removal=bool(seed & 8),
    )
    for _ in range(4000):
        group.act(random.randrange(18), random.randrange(1 << 16), random.randrange(1 << 16))
    group.heal()
    assert group.promises.applied
