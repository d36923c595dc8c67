"""Leases at their edges, in whole clusters on virtual time (RULES L2-L10): see simulation/node/lease_edges.

`python -m simulation leases --seeds 1:5000` runs as many as one likes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.node.checker import check_edges
from simulation.node.history import (
    BROKEN,
    NOT_FOUND,
    OK,
    Attachment,
    Disappearance,
    History,
    LeaseUse,
    Life,
    Renewal,
    Sent,
)
from simulation.node.lease_edges import plan as edges
from simulation.node.lease_edges.course import EdgeRun
from simulation.node.lease_edges.plan import Edge, EdgeFault, EdgePlan, draw_plan
from simulation.node.nodes import NodeProfile
from simulation.simulators import LEASES

SEEDS_IN_CI = 1_000
CHUNK = 250


def run_range(first: int, end: int) -> None:
    failures = [LEASES.report(seed, failure) for seed in range(first, end) if (failure := LEASES.failure_of(seed))]
    assert not failures, "\n".join(failures[:3])


def test_l2_l3_l4_seeds_that_find_bugs() -> None:
    """RULES L2-L8, L10. The first seeds; the bugs in tests/bugs that shorten or prolong leases fail here."""
    run_range(1, 51)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(51, SEEDS_IN_CI, CHUNK))
def test_l4_l5_l6_l7_l8_uses_and_faults_at_the_end_of_a_lease(first: int) -> None:
    """RULES L2-L8, L10: attach, get, redeclare, passive declare and the last consumer's end in the same instant as the
    deadline, while leaders die, freeze, hand over or are cut off, the cluster is down, clocks are stepped."""
    run_range(first, min(first + CHUNK, SEEDS_IN_CI + 1))


def test_both_sides_of_the_edge_are_hit() -> None:
    """Of each use some come in time and some too late: else the edge is not where it is aimed at."""
    answers: dict[tuple[str, str], int] = {}
    for seed in range(1, 61):
        run = EdgeRun(draw_plan(seed))
        run.run()
        for use in run.history.uses:
            answers[(use.kind, use.answer)] = answers.get((use.kind, use.answer), 0) + 1
    for kind in (edges.ATTACH, edges.GET, edges.GET_EMPTY, edges.PASSIVE):
        assert answers.get((kind, OK), 0) >= 3, answers
        assert answers.get((kind, NOT_FOUND), 0) >= 3, answers
    assert answers.get((edges.REDECLARE, OK), 0) >= 10, answers


def test_all_kinds_of_fault_are_drawn() -> None:
    """Each with each victim; clocks either way, with a restart and without."""
    faults = [fault for seed in range(1, 401) if (fault := draw_plan(seed).fault)]
    clocks = {
        (fault.whom, fault.step_us > 0, fault.duration_us > 0) for fault in faults if fault.kind == edges.CLOCK
    }
    assert len(clocks) == 12
    assert all(abs(fault.step_us) in (0, 3_600 * SECOND_US) for fault in faults)
    assert {fault.kind for fault in faults} == {
        edges.CRASH, edges.FREEZE, edges.TRANSFER, edges.CUT_OFF, edges.OUTAGE, edges.CLOCK,
    }  # fmt: skip
    around_us = {fault.delta_us for fault in faults if fault.kind == edges.CRASH}
    assert {-MILLISECOND_US, 0, MILLISECOND_US} <= around_us


def test_a_seed_replays_exactly() -> None:
    """Whole-cluster outage and clock steps included."""
    for seed in (3, 12, 13):
        assert EdgeRun(draw_plan(seed)).run().trace_digest == EdgeRun(draw_plan(seed)).run().trace_digest


# ---------------------------------------------------------------------- made by hand

SLOW = NodeProfile(shards=1, tick_ms=50, heartbeat_ms=100, election_timeout_ms=700, session_timeout_ms=1_500)


def plan_of(expires_ms: int, *kinds: str, fault: EdgeFault | None = None) -> EdgePlan:
    drawn = tuple(Edge(f"edge{n}", kind, edges.DEADLINE, 0, n % 2 == 0) for n, kind in enumerate(kinds))
    return EdgePlan(1, SLOW, expires_ms, drawn, fault, (0, 0, 0), (0, 0, 0))


def run_plan(plan: EdgePlan) -> History:
    run = EdgeRun(plan)
    LEASES.kept(run)
    return run.history


def test_l6_l7_an_outage_of_all_adds_no_whole_period_to_a_quiet_lease() -> None:
    """RULES L6, L7: the log is told now and then how far leases have come, so that one with an hour to run is not given
    the hour again by every outage."""
    fault = EdgeFault(edges.OUTAGE, edges.ALL, -SECOND_US, 2 * SECOND_US)
    history = run_plan(plan_of(15_000, edges.NOTHING, fault=fault))
    (life,) = history.lives.values()
    assert life.gone_us is not None
    assert life.gone_us - history.uses[-1].completed_us < (15 + 10 + 2 + 3) * SECOND_US


@pytest.mark.parametrize("step_us", [-edges.HOUR_US, edges.HOUR_US])
@pytest.mark.parametrize("whom", [edges.LEADER, edges.OTHER, edges.ALL])
@pytest.mark.parametrize("down_us", [0, SECOND_US // 2])
def test_l8_no_stepped_clock_ends_a_lease(step_us: int, whom: str, down_us: int) -> None:
    """RULES L8, L7: one node's clock, the leader's, all of them; the processes restarted with it or not."""
    fault = EdgeFault(edges.CLOCK, whom, -2 * SECOND_US, down_us, step_us)
    history = run_plan(plan_of(4_000, edges.NOTHING, edges.GET_EMPTY, edges.ATTACH, fault=fault))
    assert all(life.gone_us is not None for life in history.lives.values())


@pytest.mark.parametrize("delta_us", [-MILLISECOND_US, 0, MILLISECOND_US])
@pytest.mark.parametrize("kind", [edges.CRASH, edges.FREEZE, edges.TRANSFER, edges.CUT_OFF])
def test_l5_l6_the_leader_goes_a_millisecond_before_and_after(kind: str, delta_us: int) -> None:
    """RULES L5, L6: whichever of them decides, a consumer that was told that it consumes keeps its queue, and the
    others go at their time."""
    fault = EdgeFault(kind, edges.LEADER, delta_us, 0 if kind == edges.TRANSFER else SECOND_US)
    run_plan(plan_of(1_000, *edges.USES, edges.NOTHING, fault=fault))


# ---------------------------------------------------------------------- the judge can say no


def history_of(gone_us: int | None = 2_000_000) -> tuple[History, EdgePlan]:
    """A queue with a lease of one second, used at 1 s through a leader that stays, gone at 2 s."""
    plan = plan_of(1_000, edges.NOTHING)
    history = History(ended_us=3_000_000)
    history.lives[1] = Life("edge0", 1, 1, 900_000, gone_us, "expired")
    history.leading.append((500_000, 1, 1, True))
    history.established.append((500_000, 1, 1, True))
    history.uses.append(LeaseUse("edge0", edges.PASSIVE, 1_000_000, 1_001_000, OK))
    history.renewals.append(Renewal("edge0", "passive", 1_000_000, 1_001_000))
    if gone_us is not None:
        history.disappearances.append(Disappearance("edge0", 1, gone_us, "expired"))
    return history, plan


def rules_of(history: History, plan: EdgePlan) -> set[str]:
    return {violation.rule for violation in check_edges(history, plan)}


def test_the_judge_is_content_with_what_is_right() -> None:
    history, plan = history_of()
    assert check_edges(history, plan) == []


def test_the_judge_sees_leases_that_end_early_and_late() -> None:
    """RULES L4, L6."""
    assert "L4" in rules_of(*history_of(1_990_000))
    assert rules_of(*history_of(2_600_000)) == {"L6"}
    assert "L6" in rules_of(*history_of(None))


def test_the_judge_looks_at_the_shard_in_which_the_queue_was_and_not_at_that_of_the_next_of_its_name() -> None:
    history, plan = history_of()
    history.lives[2] = Life("edge0", 2, 2, 2_001_000)
    assert {"L4", "L7"}.isdisjoint(rules_of(history, plan)), "shard 2 had no leader all the time"


def test_the_judge_sees_that_time_without_a_leader_was_charged() -> None:
    """RULES L7."""
    history, plan = history_of()
    history.leading += [(1_200_000, 1, 1, False), (1_500_000, 1, 2, True)]
    assert rules_of(history, plan) == {"L7"}


def test_the_judge_sees_answers_that_do_not_fit() -> None:
    """RULES L5, L10: ok for what goes at once, 404 for what is there, no answer, an odd one."""
    for answer, completed_us, rule in (
        (OK, 2_001_000, "L4"),
        (NOT_FOUND, 1_950_000, "L10"),
        (BROKEN, 1_950_000, "unanswered"),
        ("", -1, "unanswered"),
        ("541 what?", 1_950_000, "unanswered"),
    ):
        history, plan = history_of()
        history.uses.append(LeaseUse("edge0", edges.GET, 1_940_000, completed_us, answer))
        assert rule in rules_of(history, plan), answer


def test_the_judge_sees_consumers_that_lose_their_queue() -> None:
    """RULES L3, L5."""
    history, plan = history_of()
    use = LeaseUse("edge0", edges.ATTACH, 1_100_000, 1_101_000, OK)
    history.uses.append(use)
    history.attachments.append(Attachment("edge0", "edge0", 1_100_000, 1_101_000))
    assert "L3" in rules_of(history, plan)
    history.cancelled.append((2_000_000, "edge0", "edge0"))
    history.sent.append(Sent("edge0", use, 1_200_000))
    assert "L5" in rules_of(history, plan)


def test_the_judge_sees_messages_that_come_back() -> None:
    """RULES L4: what a declare said is there can be published to."""
    history, plan = history_of()
    history.sent.append(Sent("edge0", history.uses[0], 1_002_000, returned=True))
    assert rules_of(history, plan) == {"L4"}


def test_the_judge_sees_what_is_left_behind() -> None:
    """RULES L10."""
    history, plan = history_of()
    history.left_behind.append("node 2 has a binding to edge0")
    history.final["edge0 in the end"] = "was answered"
    assert [violation.rule for violation in check_edges(history, plan)] == ["L10", "L10"]
    assert check_edges(replace(history, left_behind=[], final={"edge0 in the end": "gone"}), plan) == []
