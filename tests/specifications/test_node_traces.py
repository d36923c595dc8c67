"""What whole simulated nodes do is what the specifications allow, and what broken ones do is not (RULES L2 to L8 by
specifications/lease, D6 to D8 by specifications/outbox, C2, C3, L6 and L7 by specifications/clock; sessions by
specifications/session, replicas that move by specifications/move)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from simulation.node.run import Simulation
from simulation.node.scenario import draw_scenario
from tests.specifications import tlc
from tests.specifications.move_traces import recorded_moves
from tests.specifications.node_runs import (
    BROKEN_NODES,
    CLOCKS,
    LEASES,
    MOVES,
    OUTBOXES,
    SCRIPTED_MOVES,
    SESSIONS,
    WITH_FEEDS,
    WITH_MOVES,
    BrokenNodes,
    Traced,
    judge,
    record,
    refusal,
)
from tests.specifications.scripted_feeds import behind_a_hole
from tests.specifications.scripted_moves import SCRIPTS

NEEDS_TLC = pytest.mark.skipif(bool(tlc.why_not()) and not tlc.DEMANDED, reason=tlc.why_not())


@pytest.mark.slow
@NEEDS_TLC
@pytest.mark.parametrize(
    ("traced", "seeds", "least_states"),
    [
        (LEASES, range(1, 41), 2_000),
        (OUTBOXES, range(1, 7), 2_500),
        (CLOCKS, range(5, 18), 30_000),
        (SESSIONS, WITH_FEEDS, 40_000),
        (SESSIONS, (-1, -2, -3, -4), 1_500),
        (MOVES, (*WITH_MOVES, *SCRIPTED_MOVES), 2_000),
    ],
)
def test_the_specification_allows_what_nodes_do(
    traced: Traced, seeds: Sequence[int], least_states: int, tmp_path: Path
) -> None:
    answer = judge(tmp_path, traced, seeds)
    assert answer.is_complete, answer.last_lines
    assert answer.states > least_states


@pytest.mark.slow
@NEEDS_TLC
@pytest.mark.parametrize("broken", BROKEN_NODES, ids=str)
def test_the_specification_refuses_what_broken_nodes_do(broken: BrokenNodes, tmp_path: Path) -> None:
    assert {action for _, action in refusal(tmp_path, broken)} == {broken.at}


def test_a_run_is_recorded_with_uses_decisions_and_ends(tmp_path: Path) -> None:
    record(LEASES, range(1, 5), tmp_path / "Leases.tla")
    text = (tmp_path / "Leases.tla").read_text()
    assert all(f'<<"{name}",' in text for name in ("enter", "create", "renew", "decide", "end"))


def test_a_run_is_recorded_with_clocks_that_are_handed_over(tmp_path: Path) -> None:
    record(CLOCKS, [9], tmp_path / "Clocks.tla")
    text = (tmp_path / "Clocks.tla").read_text()
    lines = [line for line in text.splitlines() if line.startswith("<<")]
    assert all(f'<<"{name}",' in text for name in ("begin", "has", "heard", "lead", "stamp", "decide"))
    assert sum(line.startswith('<<"lead"') for line in lines) > text.count("[lines |->"), "more leaders than groups"


def test_a_run_is_recorded_with_sessions_that_end(tmp_path: Path) -> None:
    record(SESSIONS, [47], tmp_path / "Sessions.tla")
    text = (tmp_path / "Sessions.tla").read_text()
    assert all(f'<<"{name}",' in text for name in ("anew", "send", "batch", "answer", "told", "close", "over"))


def test_a_run_is_recorded_with_replicas_that_come_and_go(tmp_path: Path) -> None:
    record(MOVES, [34], tmp_path / "Moves.tla")
    text = (tmp_path / "Moves.tla").read_text()
    names = ("begin", "has", "commit", "change", "decide", "apply", "give up", "vote", "end")
    assert all(f'<<"{name}",' in text for name in names)


@pytest.mark.parametrize("variant", range(4))
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_comes_to_its_end(script: Callable[[int], None], variant: int) -> None:
    """Recorded ones are recorded up to an error, whatever it is."""
    script(variant)


def test_the_script_of_a_hole_comes_to_its_end() -> None:
    for variant in range(4):
        behind_a_hole(variant)


def test_a_recorded_run_is_the_run() -> None:
    """Recording changes nothing, and has no errors of its own: they would end the run unseen."""
    plain, outcomes = Simulation(draw_scenario(34)).run(), []
    recorded_moves(lambda: outcomes.append(Simulation(draw_scenario(34)).run()))
    assert [outcome.summary() for outcome in outcomes] == [plain.summary()]
