"""Clusters of three to seven nodes with one or three replicas of a shard, while replicas, queues and members move:
clients of nodes that are told by others lose nothing and get nothing twice.

`python -m simulation wide --seed N` replays a seed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from simulation.node.run import Simulation
from simulation.node.scenario import draw_wide
from simulation.simulator import Outcome
from simulation.simulators import WIDE

SEEDS = 100
CHUNK = 10
FIRST_SEED = 100_001


def run(seed: int) -> Outcome:
    return WIDE.kept(Simulation(draw_wide(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, CHUNK))
def test_wide_clusters_keep_their_promises(first: int) -> None:
    """Nearly every seed has nodes that are told by others, and ask for what they missed."""
    told = [run(seed).counts for seed in range(first, first + CHUNK)]
    assert sum(counts["feeds"] > 0 and counts["resumes"] > 0 for counts in told) >= CHUNK - 3


def test_a_few_wide_clusters() -> None:
    happened: Counter[str] = Counter()
    for seed in range(3):
        happened.update(run(seed).counts)
    assert happened["confirmed"] > 100
    assert happened["feeds"] > 200 and happened["resumes"] > 20
    assert happened["replicas moved"] > 2 and happened["moves made"] > 2


def test_what_seeds_decide_is_of_all_kinds() -> None:
    scenarios = [draw_wide(seed) for seed in range(400)]
    kinds = Counter((len(scenario.nodes), scenario.node_profile.replication_factor) for scenario in scenarios)
    assert sorted(kinds) == [(nodes, copies) for nodes in range(3, 8) for copies in (1, 3)]
    for scenario in scenarios:
        if scenario.node_profile.replication_factor == 1:
            # Nothing may be lost for good, and one clock is all that a shard has.
            assert not scenario.absent
            assert not {"wipe", "rot-entry", "clock-step"}.intersection(fault.kind for fault in scenario.plan)
            assert "replace" not in [change.kind for change in scenario.changes]
    assert sum(bool(scenario.placings) for scenario in scenarios) > 300
    assert sum(bool(scenario.moves) for scenario in scenarios) > 200


def test_where_nothing_moves_no_replica_moves() -> None:
    scenario = replace(draw_wide(FIRST_SEED), placings=(), moves=(), changes=(), growth=())
    counts = WIDE.kept(Simulation(scenario)).counts
    assert counts["replicas moved"] == counts["moves made"] == 0
