"""Raft groups alone on the worst network: the properties of figure 3 of the Raft paper hold at every step.

`python -m simulation raft --seed N` replays a group, with `--trace` message by message.
"""

from __future__ import annotations

import pytest

from simulation.cluster.raft_group import RaftGroup
from simulation.cluster.raft_invariants import InvariantError
from simulation.cluster.raft_scenario import draw_scenario
from simulation.cluster.raft_schedules import PLAIN, RIVALS, SHORT_REIGNS
from simulation.simulators import RAFT

SEEDS = 3_000
CHUNK = 100


def run(seed: int, schedule: str | None = None) -> RaftGroup:
    group = RaftGroup(draw_scenario(seed, schedule))
    RAFT.kept(group)
    return group


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_groups_keep_rafts_properties(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run(seed)


def test_a_few_groups() -> None:
    for seed in range(10_000, 10_010):
        run(seed)


@pytest.mark.parametrize("schedule", [RIVALS, SHORT_REIGNS])
def test_an_aimed_schedule_brings_about_what_it_is_for(schedule: str) -> None:
    group = run(1, schedule)
    assert len(group.observer.leaders) > 10 * len(run(1, PLAIN).observer.leaders) / (3 if schedule == RIVALS else 1)
    assert group.observer.highest_applied > 5


def test_a_seed_replays_exactly() -> None:
    first, second = run(6), run(6)
    assert first.trace.digest() == second.trace.digest()
    assert first.trace.lines > 500


def test_the_observer_objects() -> None:
    group = run(1)
    observer = group.observer
    leader_term = max(observer.leaders)
    with pytest.raises(InvariantError, match="election safety"):
        observer.leads(99, leader_term)
    index = observer.highest_applied
    other = group.observer.applied[index]
    with pytest.raises(InvariantError, match="leader completeness"):
        observer.leader_has(99, other.term + 1, {index: other.term - 1})
    changed = type(other)(other.term, other.index, other.type, other.data + b"!")
    with pytest.raises(InvariantError, match="state machine safety"):
        observer.entry_applied(99, changed, b"")
    with pytest.raises(InvariantError, match="restored another state"):
        observer.snapshot_restored(99, index, b"other")
    observer.read_requested(b"late")
    with pytest.raises(InvariantError, match="stale read"):
        observer.read_answered(99, b"late", index - 1)
