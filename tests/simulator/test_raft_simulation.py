"""Raft groups alone on the worst network: the properties of figure 3 of the Raft paper hold at every step.

`python -m cluster.simulator --seed N` replays a group, with `--trace` message by message.
"""

from __future__ import annotations

import pytest

from cluster.simulator.raft_group import RaftGroup
from cluster.simulator.raft_invariants import InvariantError

SEEDS = 240
CHUNK = 20


def run(seed: int) -> RaftGroup:
    group = RaftGroup(seed)
    try:
        group.run()
    except Exception as error:
        raise AssertionError(
            f"Raft seed {seed}: {error}\nreplay: python -m cluster.simulator --seed {seed} --trace"
        ) from error
    return group


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_groups_keep_rafts_properties(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run(seed)


def test_a_few_groups() -> None:
    for seed in range(10_000, 10_010):
        run(seed)


# Seeds that once found something.
@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (2, "a snapshot stepped while entries with a membership change were being applied"),
        (16, "a removed leader with one voter left answered reads alone"),
        (1443, "the same"),
    ],
)
def test_seeds_of_the_past(seed: int, what: str) -> None:
    run(seed)


def test_a_seed_replays_exactly() -> None:
    first, second = run(6), run(6)
    assert first.trace.digest() == second.trace.digest()
    assert first.trace.lines > 1_000


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
