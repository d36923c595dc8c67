"""A crash between any two system calls of a store, in all of its files: what was answered by then is there.

The calls are those of a short history of the real store (`recorded_history.py`), recorded by strace; what a crash
leaves of them is composed (`recorded_disk.py`), and opened by the store. `test_torn_writes.py` looks at one commit of
the log file alone, and at every byte of it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from mayfly.cluster.log.batch import LogError, LogStore
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.store.recorded_disk import OPTIONS, RecordedDisk
from tests.cluster.store.recorded_history import OWN, STEPS, opened, take_step
from tests.cluster.store.test_torn_writes import Shown, folder, shown

ROOT = Path(__file__).resolve().parent.parent.parent.parent

State = tuple[Shown, bytes | None]


def state(store: LogStore) -> State:
    """All that a store shows."""
    return shown(store), store.get_meta(OWN)


def states() -> list[State]:
    """After each step of the history."""
    model = MemoryStore()
    found = [state(model)]
    for step in range(1, STEPS + 1):
        take_step(model, step)
        found.append(state(model))
    return found


def recorded_calls(path: Path) -> tuple[str, str]:
    """The folder of the history's store, and strace's list of what was done to it."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    program = Path(__file__).with_name("recorded_history.py")
    log, calls = path.resolve() / "log", path / "calls"
    python_path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    traced = subprocess.run(
        ["strace", *OPTIONS, "-o", str(calls), sys.executable, "-P", str(program), str(log)],
        env={**os.environ, "PYTHONPATH": python_path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ptrace" in traced.stderr and traced.returncode:
        pytest.skip(f"strace may not trace here: {traced.stderr.strip()}")
    assert traced.returncode == 0, traced.stderr
    return str(log), calls.read_text()


def check_crash(disk: RecordedDisk, random: Random, known: list[State]) -> None:
    """What was answered is there, and at most the step that was under way; and the store works on."""
    allowed = known[disk.answered : disk.answered + 2]
    with folder() as path:
        disk.crash(path, random)
        store = opened(path)
        found = state(store)
        assert found in allowed, f"not what was answered, {disk.answered} steps, nor one more"
        step = disk.answered + allowed.index(found) + 1
        if step <= STEPS:
            take_step(store, step)
        store.close()
        store = opened(path)
        assert state(store) == known[min(step, STEPS)]
        store.close()


def check_crashes(disk: RecordedDisk, listing: str, known: list[State], times: int = 1) -> int:
    """So many after the beginning and the end of each call; at how many moments."""
    moments = 0
    for moments, _ in enumerate(disk.follow(listing), 1):
        for number in range(times):
            check_crash(disk, Random(moments + 10_000 * number), known)
    return moments


@pytest.mark.slow
def test_after_a_crash_between_any_two_calls_all_that_was_answered_is_there(tmp_path: Path) -> None:
    path, listing = recorded_calls(tmp_path)
    disk = RecordedDisk(path)
    assert check_crashes(disk, listing, states()) > 4 * STEPS
    assert disk.answered == STEPS
    written = {name for name, changes in disk.files.items() if changes}
    assert written == {"ahead-1", "ahead-2", "data.mdb", "last-commit", "format"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ahead-1", "data.mdb"])
def test_a_sync_that_does_nothing_would_be_seen(name: str, tmp_path: Path) -> None:
    path, listing = recorded_calls(tmp_path)
    disk = RecordedDisk(path, forgets_syncs_of=name)
    with pytest.raises((AssertionError, LogError)):
        check_crashes(disk, listing, states(), times=5)
