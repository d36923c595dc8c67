"""Soaking: fresh seeds for as long as one likes; seeds that fail, hang or kill their process are reported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulation.runner import Task, run_seeds
from simulation.simulator import Simulator
from simulation.simulators import RAFT, SIMULATORS
from simulation.soak import Tally, soak
from tests.waiting import BOUND_S

# Worker processes find what they run by its name, so the broken simulations are a module on the path.
BROKEN = '''
import os
from dataclasses import dataclass

from simulation.cluster.events import EventQueue
from simulation.cluster.trace import Trace
from simulation.simulator import ScenarioRun, Violation

@dataclass
class Plan:
    seed: int

    def describe(self):
        return "plan: none"

class well(ScenarioRun):
    def __init__(self, scenario, sink):
        self.scenario, self.queue = scenario, EventQueue()
        self.trace = Trace(self.queue, sink)

    def pass_time(self):
        pass

    def judge(self):
        return []

    def happened(self):
        return {}

class every_fifth_fails(well):
    def judge(self):
        return [] if self.scenario.seed % 5 else [Violation("all", f"seed {self.scenario.seed} broke a promise")]

class raises(well):
    def pass_time(self):
        raise ValueError(f"seed {self.scenario.seed} is beyond me")

class hangs_at_12(well):
    def pass_time(self):
        while self.scenario.seed == 12:
            try:
                while True:
                    pass
            except Exception:
                pass

class kills_its_process_at_12(well):
    def pass_time(self):
        if self.scenario.seed == 12:
            os._exit(3)
'''


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"broken_simulations_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def simulator(module: str, name: str) -> Simulator[Any]:
    broken = __import__(module)
    return Simulator(name, "", broken.Plan, getattr(broken, name))


class Listener:
    """Ends a soak with KeyboardInterrupt, as Ctrl-C does, when enough has been said: each of these, in any order."""

    def __init__(self, until: Sequence[str]) -> None:
        self.lines: list[str] = []
        self._missing = set(until)

    def __call__(self, text: str) -> None:
        self.lines += text.splitlines()
        said = {each for each in self._missing if each in text}
        self._missing -= said
        if said and not self._missing:
            raise KeyboardInterrupt


def soak_until(said: Sequence[str], simulators: list[Simulator[Any]], directory: Path) -> tuple[Tally, list[str]]:
    """With two workers: which of them ends its seed first is not known."""
    listener = Listener(said)
    tally = soak(simulators, 10, 600.0, 2, directory, 0.5, listener)
    assert listener.lines[-1] == "interrupted"
    return tally, listener.lines


def test_a_seed_that_fails_is_reported(broken: str, tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    simulators = [simulator(broken, "every_fifth_fails"), simulator(broken, "well")]
    tally, lines = soak_until(["seed 10 failed", "seed 15 failed", "seed 20 failed"], simulators, failures)
    assert tally.any_failed()
    assert sorted(tally.failed[0])[:3] == [10, 15, 20] and tally.failed[1] == []
    assert "every_fifth_fails: seed 15 failed" in lines
    replay = "replay: python -m simulation every_fifth_fails --seed 15 --trace"
    assert replay in lines
    assert (failures / "every_fifth_fails-15.txt").read_text() == (
        f"every_fifth_fails: seed 15 failed\n  all: seed 15 broke a promise\nplan: none\n{replay}\n"
    )
    assert {file.name for file in failures.iterdir()} == {f"every_fifth_fails-{n}.txt" for n in tally.failed[0]}
    assert ", ".join(map(str, tally.failed[0])) in tally.totals().splitlines()[0]


def test_what_a_simulation_raises_is_a_failure(broken: str, tmp_path: Path) -> None:
    _, lines = soak_until(["seed 11 failed"], [simulator(broken, "raises")], tmp_path)
    assert "ValueError: seed 11 is beyond me" in (tmp_path / "raises-11.txt").read_text()
    assert "replay: python -m simulation raises --seed 11 --trace" in lines


@pytest.mark.parametrize(
    ("function", "text"),
    [("hangs_at_12", "does not end within 0.5 s"), ("kills_its_process_at_12", "died with exit code 3")],
)
def test_a_seed_that_does_not_end_is_reported_and_the_rest_goes_on(
    broken: str, tmp_path: Path, function: str, text: str
) -> None:
    tally, _ = soak_until(["seed 12 failed"], [simulator(broken, function)], tmp_path)
    assert text in (tmp_path / f"{function}-12.txt").read_text()
    assert tally.failed == [[12]]


LIMITED = """
import resource
from simulation.runner import failure_within

def waits_for_itself(seed):
    while True:
        seed += 1

before = resource.getrlimit(resource.RLIMIT_CPU)
print("waits_for_itself" in failure_within(waits_for_itself, 1, 0.1))
print(failure_within(lambda seed: "", 1, 0.1) == "")
print(resource.getrlimit(resource.RLIMIT_CPU) == before)  # or this process would be ended a while later
"""


def test_the_limit_is_one_of_cpu_time_and_names_the_place() -> None:
    """In a process of its own, for signals and limits are the whole process's."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LIMITED]
    limited = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (limited.returncode, limited.stdout.split()) == (0, ["True"] * 3), limited.stderr


def test_cpu_time_is_shared_out() -> None:
    tally = Tally([replace(RAFT, name="a"), replace(RAFT, name="b", share=3)], 100)
    cpu_s = [0.0, 0.0]
    for _ in range(400):
        task = tally.next_task()
        cost_s = (0.5, 0.1)[task.place]
        cpu_s[task.place] += cost_s
        tally.finished(task, cost_s, "")
    assert cpu_s[1] / cpu_s[0] == pytest.approx(3, rel=0.1)
    assert tally.line(90_061.0).startswith("1d 01:01:01  a ")


def test_seeds_are_never_repeated() -> None:
    tally = Tally([RAFT], 7)
    assert [tally.next_task() for _ in range(3)] == [Task(0, 7), Task(0, 8), Task(0, 9)]


@pytest.mark.parametrize("place", range(len(SIMULATORS)))
def test_the_real_ones(place: int) -> None:
    assert SIMULATORS[place].failure_of(1_795_000_000_000 + place) == ""


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=pytest.mark.slow if place else ()) for place in range(len(SIMULATORS))]
)
def test_reports_of_the_real_ones_name_a_command_that_replays(place: int) -> None:
    command = SIMULATORS[place].report(77, "broken").splitlines()[-1].removeprefix("replay: ").split()
    assert command[0] == "python"
    replayed = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True)
    lines = replayed.stdout.splitlines()
    assert lines[0].startswith("seed 77: ")
    assert re.fullmatch(r"seed 77: \d+ events, .*; trace [0-9a-f]{32}", lines[-2]), lines[-2]
    assert lines[-1] == f"replay: {' '.join(command)}"
    assert len(lines) > 200, "there is no trace"


def test_a_range_of_seeds_is_shared_out_and_told_in_order(broken: str) -> None:
    results = list(run_seeds(simulator(broken, "every_fifth_fails"), range(7, 27), 2, 10.0))
    assert [result.task.seed for result in results] == [*range(7, 27)]
    assert [result.task.seed for result in results if result.failure] == [10, 15, 20, 25]
    assert all(result.outcome is not None and result.outcome.seed == result.task.seed for result in results)


def test_in_a_range_a_seed_that_kills_its_process_fails_alone(broken: str) -> None:
    results = list(run_seeds(simulator(broken, "kills_its_process_at_12"), range(10, 15), 1, 10.0))
    assert [result.failure for result in results] == ["", "", "its process died with exit code 3", "", ""]


def test_the_command_for_a_range_ends_with_totals() -> None:
    command = [sys.executable, "-m", "simulation", "forming", "--seeds", "3:6", "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["seed 3", "seed 4", "seed 5"]
    assert lines[4].startswith("3 seeds, 0 failed, ")


def test_the_command_ends_with_totals_and_obeys_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulation", "soak", "--hours", "1", "--workers", "1", "--only", "raft"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    # As a shell starts what runs in its background.
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, ignored)
    assert process.stdout is not None
    assert "seeds from" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    try:
        output, _ = process.communicate(timeout=BOUND_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "interrupted" in output
    assert "raft: " in output


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulation", "soak", "--hours", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--hours is 0.0, and must be more than 0" in refused.stderr
