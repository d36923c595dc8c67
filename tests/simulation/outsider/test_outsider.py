"""Whole simulated clusters under the outsider's clients, judged from outside, through changes of leaders.

RULES T1-T11, T14, L1-L8, L10, L11, D1-D9, C2, S2, S3, S5, confirms and linearizability.

`python -m simulation outsider --seed N` replays one.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.outsider.judging.history import history_of, lines_of
from simulation.outsider.judging.judge import judge
from simulation.outsider.run import OutsiderRun
from simulation.outsider.scenario import draw_scenario
from simulation.simulators import OUTSIDER

SEEDS = 200
CHUNK = 10


def test_a_few_clusters_from_outside() -> None:
    """And what was judged can be written down and judged again."""
    for seed in range(500_001, 500_005):
        run = OutsiderRun(draw_scenario(seed))
        outcome = OUTSIDER.kept(run)
        assert outcome.counts["confirmed"] > 20
        assert outcome.counts["handed"] > 20
        assert outcome.counts["undecided"] <= 1
        assert judge(history_of(lines_of(run.history))) == run.judgement


def test_the_same_seed_is_the_same_run() -> None:
    first, second = (OutsiderRun(draw_scenario(500_006)) for _ in range(2))
    assert first.run().trace_digest == second.run().trace_digest
    assert list(lines_of(first.history)) == list(lines_of(second.history))


def test_it_notices_a_message_that_is_lost_or_changed() -> None:
    run = OutsiderRun(draw_scenario(500_005))
    OUTSIDER.kept(run)
    for number in range(len(run.history.handed)):
        handed = run.history.handed[number]
        publish = next(each for each in run.history.publishes if each.message == handed.message)
        if publish.outcome != "confirmed" or handed.redelivered or handed.deaths:
            continue
        run.history.handed[number] = replace(handed, expiration="12345678")
        assert "T11" in {finding.rule for finding in judge(run.history).findings}
        run.history.handed[number] = replace(handed, message=-1)
        assert "once" in {finding.rule for finding in judge(run.history).findings}
        return
    raise AssertionError("a run without a message that was handed to anybody")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 1 + SEEDS, CHUNK))
def test_clusters_keep_their_promises_from_outside(first: int) -> None:
    for seed in range(first, first + CHUNK):
        OUTSIDER.kept(OutsiderRun(draw_scenario(seed)))
