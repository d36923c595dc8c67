"""Machines with two nodes each that are lost as a whole: no majority and no confirmed command goes with any of them.

`python -m simulation machines --seed N` replays a seed, with `--trace` event by event.
"""

from __future__ import annotations

import pytest

from simulation import simulators
from simulation.cluster.machine_loss import MACHINES, MachineLoss, draw_machines
from simulation.cluster.raft_invariants import InvariantError

SEEDS = 300
CHUNK = 50


def run(seed: int) -> MachineLoss:
    simulation = MachineLoss(draw_machines(seed))
    simulators.MACHINES.kept(simulation)
    return simulation


def check(seed: int) -> None:
    simulation = run(seed)
    assert simulation.counts["machine lost"] == MACHINES
    assert len(simulation.members()) == 4


def test_a_few_seeds() -> None:
    for seed in range(8):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 100 + SEEDS, CHUNK))
def test_whichever_machine_goes_every_group_goes_on(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check(seed)


def test_a_cluster_that_does_not_know_its_machines_stands_still() -> None:
    """The same course is too much for a plan that takes each node for a machine: these seeds can fail."""
    with pytest.raises(InvariantError, match="no calm"):
        MachineLoss(draw_machines(1, told=False)).run()


def test_a_seed_replays_exactly() -> None:
    assert run(3).trace.digest() == run(3).trace.digest()
