"""Runs of the Raft simulator, recorded and given to TLC with the specification."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bugs.bug import ROOT, Bug, broken_source
from tests.bugs.raft_bugs import RAFT_BUGS
from tests.specifications import tlc
from tests.specifications.raft_traces import recorded_module

SPECIFICATIONS = ROOT / "specifications"
MOST_MEMBERS = 7
"""Of any run of the simulator of groups."""
LONGEST_S = 900


@dataclass(frozen=True, slots=True)
class BrokenRuns:
    """Runs of a broken source, and the line of each at which the specification refuses it."""

    bug: Bug
    seeds: tuple[int, ...]
    steps: int
    at: str
    """The action that was not allowed; "is": what the code had in memory then."""


QUIET_LEARNER = Bug(
    "counts a learner, outside of joint configurations",
    "cluster/raft/tracker.py",
    "            matches.sort()\n",
    "            matches = sorted(each.match for each in progress.values())\n",
    "",
    "",
)
"""The planted bug of that name ends the process in a joint configuration, before it does harm."""

_SEEDS = {
    "votes twice in a term": ((23,), 300, "grant"),
    "forgets its vote at restart": ((21,), 300, "is"),
    "says its vote before it is on disk": ((2,), 100, "say"),
    "acknowledges entries before they are on disk": ((4,), 100, "say"),
    "commits an entry of an older term by counting": ((30,), 800, "commit"),
    "truncates where nothing conflicts": ((1,), 300, "is"),
    "counts the response of a past term": ((1,), 300, "is"),
    "serves a read from a deposed leader": ((155,), 800, "answer"),
}

NOT_REFUSED = {
    "counts a learner": "it ends the process; QUIET_LEARNER takes its place",
    "asks one to lead whose disk was late": "whom a leader asks to lead is no matter of safety: any member may stand",
}
"""Planted bugs of `cluster/raft` that no run is tried of, and why."""

BROKEN = [
    *(BrokenRuns(bug, *_SEEDS[bug.name]) for bug in RAFT_BUGS if bug.name in _SEEDS),
    BrokenRuns(QUIET_LEARNER, (7,), 3_000, "commit"),
]


def record(seeds: Sequence[int], steps: int, module: Path, source: Path = ROOT) -> None:
    """Write a module with the first steps of these seeds, run with the sources of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    program = source / "tests" / "specifications" / "record_raft.py"
    ran = subprocess.run(
        [sys.executable, "-P", program, ",".join(map(str, seeds)), str(steps), module],
        cwd=source, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def prepare(folder: Path) -> None:
    """Put the specification of Raft into an empty folder."""
    for file in (SPECIFICATIONS / "raft").iterdir():
        shutil.copy(file, folder)


def judge(folder: Path, seeds: Sequence[int], steps: int) -> tlc.Answer:
    """Record runs of the sources as they are, and follow each in the specification, with all invariants."""
    prepare(folder)
    record(seeds, steps, folder / "Sound.tla")
    (folder / "Recorded.tla").write_text(recorded_module(["Sound"], MOST_MEMBERS))
    return tlc.check(folder, "RaftTrace", "RaftTrace.cfg", LONGEST_S)


def refusals(folder: Path, broken: Sequence[BrokenRuns]) -> dict[str, dict[int, tuple[int, str]]]:
    """Record runs of broken sources. By bug and seed: the line that the specification refuses, and its action."""
    prepare(folder)
    names, owners = [], []
    for number, runs in enumerate(broken):
        source = folder / f"source{number}"
        source.mkdir()
        broken_source(runs.bug, source)
        record(runs.seeds, runs.steps, folder / f"Bug{number}.tla", source)
        shutil.rmtree(source)
        names.append(f"Bug{number}")
        owners += [(runs.bug.name, seed) for seed in runs.seeds]
    (folder / "Recorded.tla").write_text(recorded_module(names, MOST_MEMBERS))
    answer = tlc.check(folder, "RaftTrace", "RaftRefusals.cfg", LONGEST_S, ("-deadlock",))
    assert answer.is_complete, answer.last_lines
    refused: dict[str, dict[int, tuple[int, str]]] = {runs.bug.name: {} for runs in broken}
    for told in answer.told:
        _, run, line, action = told.strip("<>").split(", ")
        name, seed = owners[int(run) - 1]
        refused[name][seed] = (int(line), action.strip('"'))
    return refused
