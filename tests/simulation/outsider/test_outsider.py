"""Whole simulated clusters under the outsider's clients, judged from outside, through changes of leaders.

RULES T1-T11, T14, L1-L8, L10, L11, D1-D9, C2, S2, S3, S5, confirms and linearizability.

`python -m simulation outsider --seed N` replays one, `python -m simulation ages --seed N` one of those for months.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mayfly.node.broker import crossings
from simulation.node.nodes import SimulatedNode
from simulation.outsider.judging.history import history_of, lines_of
from simulation.outsider.judging.judge import judge
from simulation.outsider.run import OutsiderRun
from simulation.outsider.scenario import draw_ages, draw_moving, draw_scenario
from simulation.simulators import AGES, MOVING, OUTSIDER

SEEDS = 200
CHUNK = 10
AGES_SEEDS = (500_005, 500_010)
LEASED_FOR_AGES = 500_036
"""Of the shortest of their runs."""
DAY_US = 86_400_000_000


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


def test_clusters_whose_queues_move() -> None:
    """And which they are is written down."""
    for seed in (500_001, 500_002):
        run = OutsiderRun(draw_moving(seed))
        assert MOVING.kept(run).counts["moves"] > 3
        assert judge(history_of(lines_of(run.history))) == run.judgement


@pytest.mark.skipif(crossings.__file__.endswith(".so"), reason="a method of a compiled class stays what it is")
def test_it_notices_a_channel_that_overtakes_itself_when_its_queue_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers that do not wait for what they have on its way to the new shard."""
    monkeypatch.setattr(crossings.Crossings, "uncrossed", lambda crossings, queues: [])
    found = (str(each) for seed in (1, 2, 3) for each in OutsiderRun(draw_moving(seed)).run().violations)
    assert any(each.startswith("order: hurried: message") for each in found)


@pytest.mark.parametrize("seed", AGES_SEEDS)
def test_clusters_for_months(seed: int) -> None:
    """A node alone, and three that crash and of which one has its clock stepped by months."""
    outcome = AGES.kept(OutsiderRun(draw_ages(seed)))
    assert outcome.counts["confirmed"] > 20
    assert outcome.virtual_us > 50 * DAY_US


def test_leases_end_on_time_though_ticks_are_minutes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """RULES L6. And it is noticed if they do not: leaders that look at nothing but ticks charge too little."""
    AGES.kept(OutsiderRun(draw_ages(LEASED_FOR_AGES)))
    monkeypatch.setattr(SimulatedNode, "_look", lambda node, now_ms: None)
    assert "queue leased.1: nothing explains" in AGES.failure_of(LEASED_FOR_AGES)


def test_some_of_their_times_are_longer_than_31_bits_of_milliseconds() -> None:
    scenario = draw_ages(3)
    lives = [queue.ttl_ms or queue.expires_ms or 0 for queue in scenario.workload.queues]
    assert max(lives) > 1 << 31


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 1 + SEEDS, CHUNK))
def test_clusters_keep_their_promises_from_outside(first: int) -> None:
    """By both judges."""
    for seed in range(first, first + CHUNK):
        outcome = OUTSIDER.kept(OutsiderRun(draw_scenario(seed)))
        assert (outcome.counts["judged twice"], outcome.counts["judges differ"]) == (1, 0)
