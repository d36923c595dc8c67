"""Whole clusters under chaos: RULES T3-T8, T11, T14, L2-L8, D2-D8, C1-C3 judged over the histories of clients.

Each seed decides settings, load, faults and every delay. `python -m simulation.node --seed N` replays one.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport import codec
from simulation.node.__main__ import failure_text
from simulation.node.run import Outcome, Simulation
from simulation.node.scenario import draw_scenario

SEEDS = 300
CHUNK = 10
FIRST_SEED = 1


def run(seed: int) -> Outcome:
    scenario = draw_scenario(seed)
    try:
        outcome = Simulation(scenario).run()
    except Exception as error:
        raise AssertionError(failure_text(scenario, [f"{type(error).__name__}: {error}"])) from error
    assert not outcome.violations, failure_text(scenario, [str(each) for each in outcome.violations])
    return outcome


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
        outcome = Simulation(scenario, on_wire=through_octets).run()
        assert not outcome.violations, failure_text(scenario, [str(each) for each in outcome.violations])
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


def test_a_failing_seed_says_how_to_replay_it() -> None:
    text = failure_text(draw_scenario(33), ["lost: a message"])
    assert "SEED 33 FAILED" in text
    assert "lost: a message" in text
    assert "freeze 2 for" in text
    assert text.endswith("replay: python -m simulation.node --seed 33 --trace")
