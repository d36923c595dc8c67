"""Soaking: fresh seeds for as long as one likes; seeds that fail, hang or kill their process are reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulation.node.soak import HOSTS, RAFT, SIMULATORS, Simulator, Tally, Task, soak
from tests.waiting import BOUND_S

# Worker processes find what they run by its name, so the broken simulations are a module on the path.
BROKEN = '''
import os

def every_fifth_fails(seed):
    return f"seed {seed} broke a promise\\nplan: none" if seed % 5 == 0 else ""

def well(seed):
    return ""

def raises(seed):
    raise ValueError(f"seed {seed} is beyond me")

def hangs_at_12(seed):
    while seed == 12:
        try:
            while True:
                pass
        except Exception:
            pass
    return ""

def kills_its_process_at_12(seed):
    if seed == 12:
        os._exit(3)
    return ""
'''


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"broken_simulations_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def simulator(module: str, function: str) -> Simulator:
    return Simulator(function, getattr(__import__(module), function), "replay it with")


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


def soak_until(said: Sequence[str], simulators: list[Simulator], directory: Path) -> tuple[Tally, list[str]]:
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
    assert "replay: replay it with 15" in lines
    assert (failures / "every_fifth_fails-15.txt").read_text() == (
        "every_fifth_fails: seed 15 failed\nseed 15 broke a promise\nplan: none\nreplay: replay it with 15\n"
    )
    assert {file.name for file in failures.iterdir()} == {f"every_fifth_fails-{n}.txt" for n in tally.failed[0]}
    assert ", ".join(map(str, tally.failed[0])) in tally.totals().splitlines()[0]


def test_what_a_simulation_raises_is_a_failure(broken: str, tmp_path: Path) -> None:
    _, lines = soak_until(["seed 11 failed"], [simulator(broken, "raises")], tmp_path)
    assert "ValueError: seed 11 is beyond me" in (tmp_path / "raises-11.txt").read_text()
    assert "replay: replay it with 11" in lines


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
from simulation.node.soak import failure_within

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
    tally = Tally([Simulator("a", str, "", 1), Simulator("b", str, "", 3)], 100)
    cpu_s = [0.0, 0.0]
    for _ in range(400):
        task = tally.next_task()
        cost_s = (0.5, 0.1)[task.place]
        cpu_s[task.place] += cost_s
        tally.finished(task, cost_s, "")
    assert cpu_s[1] / cpu_s[0] == pytest.approx(3, rel=0.1)
    assert tally.line(90_061.0).startswith("1d 01:01:01  a ")


def test_seeds_are_never_repeated() -> None:
    tally = Tally([Simulator("a", str, "")], 7)
    assert [tally.next_task() for _ in range(3)] == [Task(0, 7), Task(0, 8), Task(0, 9)]


@pytest.mark.parametrize("place", range(len(SIMULATORS)))
def test_the_real_ones(place: int) -> None:
    assert SIMULATORS[place].failure_of(1_795_000_000_000 + place) == ""


def test_reports_of_the_real_ones_name_a_command_that_replays() -> None:
    for each in (RAFT, HOSTS):
        command = each.report(77, "broken").splitlines()[-1].removeprefix("replay: ").split()
        assert command[0] == "python"
        replayed = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True)
        assert "seed 77" in replayed.stdout


def test_the_command_ends_with_totals_and_obeys_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulation.node.soak", "--hours", "1", "--workers", "1", "--only", "raft"]
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
    command = [sys.executable, "-m", "simulation.node.soak", "--hours", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--hours is 0.0, and must be more than 0" in refused.stderr
