"""What Raft groups do is what the specification allows, and what broken ones do is not (specifications/raft)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mayfly.cluster.raft import RawNode
from simulation.cluster.raft_group import RaftGroup
from simulation.cluster.raft_scenario import draw_scenario
from tests.bugs.test_bugs_are_caught import BUGS
from tests.specifications import tlc
from tests.specifications.raft_runs import BROKEN, NOT_REFUSED, judge, refusals
from tests.specifications.raft_traces import TracedRun, recorded_steps

NEEDS_TLC = pytest.mark.skipif(bool(tlc.why_not()) and not tlc.DEMANDED, reason=tlc.why_not())


@pytest.mark.slow
@NEEDS_TLC
def test_the_specification_allows_what_groups_do(tmp_path: Path) -> None:
    """More by `make specifications`."""
    answer = judge(tmp_path, range(1, 13), 1_500)
    assert answer.is_complete, answer.last_lines
    assert answer.states > 10_000


@pytest.mark.slow
@NEEDS_TLC
def test_the_specification_refuses_what_broken_groups_do(tmp_path: Path) -> None:
    found = refusals(tmp_path, BROKEN)
    for runs in BROKEN:
        assert found[runs.bug.name], f"{runs.bug} was allowed"
        assert {action for _, action in found[runs.bug.name].values()} == {runs.at}, f"{runs.bug}: {found}"


def test_each_planted_bug_is_to_be_refused_or_it_is_said_why_not() -> None:
    planted = {bug.name for bug in BUGS if bug.path.startswith("cluster/raft/")}
    assert planted == {runs.bug.name for runs in BROKEN[:-1]} | set(NOT_REFUSED)


def test_a_trace_shows_elections_snapshots_changes_of_members_crashes_and_transfers() -> None:
    names = {line.name for seed in range(1, 13) for line in traced(seed).lines}
    assert names >= {
        *("restart", "hear", "down", "ask", "stand", "grant", "count", "lead", "learn"),
        *("propose", "take", "accepted", "commit", "apply", "say", "promise", "write", "written", "is"),
        *("read", "answer"),
    }
    texts = {text for seed in range(1, 13) for text in traced(seed).lines_as_text()}
    assert {text.split('"')[3] for text in texts if text.startswith('<<"stand"')} == {"timeout", "prevotes", "asked"}


def traced(seed: int) -> TracedRun:
    scenario = draw_scenario(seed)
    return TracedRun(recorded_steps(scenario, 2_000), scenario.pre_vote, str(seed))


def test_a_node_that_is_not_recorded_is_the_plain_one() -> None:
    """Recording costs nothing where it is off: it is another class, and nobody asks whether it is on."""
    group = RaftGroup(draw_scenario(1))
    member = group.members[1]
    member.start()
    assert type(member.raw) is RawNode
    assert not any("record" in name for name in vars(RawNode)), "the plain node knows of recording"


def test_recording_changes_nothing_about_a_run() -> None:
    plain, recorded = RaftGroup(draw_scenario(7)), RaftGroup(draw_scenario(7), record=lambda step: None)
    assert plain.run().trace_digest == recorded.run().trace_digest
