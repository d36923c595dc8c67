"""How many threads there are, may be, and want a core."""

import sys
import threading
from pathlib import Path

import pytest

from mayfly.node.shell.process_threads import threads


def made(folder: Path, states: list[str], pids_max: str = "max") -> tuple[Path, Path]:
    proc, groups = folder / "proc", folder / "groups"
    for number, state in enumerate(states):
        (proc / "self" / "task" / str(number)).mkdir(parents=True)
        (proc / "self" / "task" / str(number) / "stat").write_text(f"{number} (a ) R b) {state} 1 1 1")
    (proc / "sys" / "kernel").mkdir(parents=True)
    (proc / "sys" / "kernel" / "threads-max").write_text("99\n")
    groups.mkdir()
    (groups / "pids.max").write_text(pids_max)
    return proc, groups


def test_those_that_want_a_core_beside_the_one_that_asks(tmp_path: Path) -> None:
    seen = threads(*made(tmp_path, ["R", "S", "R", "D", "R"]))
    assert seen is not None and (seen.used, seen.waiting) == (5, 2)


@pytest.mark.parametrize(("pids_max", "allowed"), [("max", 99), ("7", 7), ("nonsense", 99)])
def test_the_lowest_limit_counts(tmp_path: Path, pids_max: str, allowed: int) -> None:
    seen = threads(*made(tmp_path, ["R"], pids_max))
    assert seen is not None and seen.allowed == allowed and seen.waiting == 0


def test_where_nothing_is_known_nothing_is_said(tmp_path: Path) -> None:
    assert threads(tmp_path / "none") is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")
def test_those_of_this_process() -> None:
    seen = threads()
    assert seen is not None and seen.used >= threading.active_count()
