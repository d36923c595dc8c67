"""Whole clusters under chaos: RULES T3-T8, T11, T14, L2-L8, D2-D8, C1-C3, S1-S5, X2, J1-J5, judged over histories.

Each seed decides settings, load, faults and every delay. `python -m simulation clusters --seed N` replays one.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport import codec
from simulation.node.run import Simulation
from simulation.node.scenario import draw_scenario
from simulation.simulator import Outcome, Violation
from simulation.simulators import CLUSTERS

SEEDS = 300
CHUNK = 10
FIRST_SEED = 1


def run(seed: int) -> Outcome:
    return CLUSTERS.kept(Simulation(draw_scenario(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, CHUNK))
def test_clusters_keep_their_promises(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run(seed)


def test_a_few_clusters() -> None:
    for seed in range(100_001, 100_007):
        outcome = run(seed)
        assert outcome.counts["confirmed"] > 20
        assert outcome.counts["dead"] > 10
        assert outcome.counts["published"] >= outcome.counts["confirmed"]


def through_octets(frame: Frame, sender: int, receiver: int) -> Frame:
    """What the transport makes of a frame."""
    return codec.decode_frame(codec.encode_frame(frame), sender, receiver)


@pytest.mark.slow
def test_clusters_whose_frames_are_encoded() -> None:
    """The transport's encoding carries all that matters, and nodes share no object by accident."""
    for seed in range(200_001, 200_009):
        scenario = draw_scenario(seed)
        outcome = CLUSTERS.kept(Simulation(scenario, on_wire=through_octets))
        assert Simulation(scenario).run().trace_digest == outcome.trace_digest


def digest_in_another_process(seed: int, hash_seed: str) -> str:
    code = (
        "from simulation.node.run import Simulation\n"
        "from simulation.node.scenario import draw_scenario\n"
        f"print(Simulation(draw_scenario({seed})).run().trace_digest)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_seed_replays_exactly_in_any_process() -> None:
    """The same trace, line by line, here and in processes with other hash seeds."""
    seed = 33
    here = run(seed).trace_digest
    assert digest_in_another_process(seed, "1") == here
    assert digest_in_another_process(seed, "2") == here
    assert run(seed + 1).trace_digest != here


class Loses(Simulation):
    """A run that is not right."""

    def judge(self) -> list[Violation]:
        return [Violation("lost", "a message")]


def test_a_failing_seed_says_how_to_replay_it() -> None:
    with pytest.raises(AssertionError) as failed:
        CLUSTERS.kept(Loses(draw_scenario(33)))
    lines = str(failed.value).splitlines()
    assert lines[:2] == ["clusters: seed 33 failed", "  lost: a message"]
    assert any("freeze 2 for" in line for line in lines)
    assert lines[-1] == "replay: python -m simulation clusters --seed 33 --trace"
