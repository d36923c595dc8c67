"""What fails twice fails the run; what fails once, beside others, is named."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.waiting import BOUND_S

ROOT: Final = Path(__file__).resolve().parents[2]

CONFTEST: Final = f"""
import sys

sys.path.append({str(ROOT)!r})
from tests.second_look import name_what_passed_alone, pytest_addoption, pytest_sessionfinish

def pytest_unconfigure(config):
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        name_what_passed_alone(config, reporter)
"""

TESTS: Final = """
import os
from pathlib import Path

import pytest

def is_first(name):
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

@pytest.fixture
def ends_badly():
    yield
    assert not is_first("teardown")

@pytest.mark.parametrize("number", range(8))
def test_once(number):
    assert not is_first(f"once {number}")

@pytest.mark.parametrize("text", ["with a blank", "and::colons"])
def test_named(text):
    assert not is_first(text[:4])

def test_that_ends_badly(ends_badly):
    pass

def test_always():
    assert False

def test_that_ends_its_process():
    if is_first("process"):
        os.abort()

def test_right():
    pass
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code, and what was said."""
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "test_it.py").write_text(TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def named(said: str) -> list[str]:
    words = "FAILED BESIDE OTHERS, PASSED ALONE: "
    return sorted(line.removeprefix(words) for line in said.splitlines() if line.startswith(words))


def test_what_passes_alone_is_named_and_its_failure_shown(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--second-look", "-k", "named or badly or right")
    assert code == 0, said
    assert named(said) == [
        "test_it.py::test_named[and::colons]",
        "test_it.py::test_named[with a blank]",
        "test_it.py::test_that_ends_badly",
    ]
    assert 'assert not is_first("teardown")' in said, "the failure"
    assert "2 failed, 2 passed, 1 error" in said
    assert "3 passed" in said


@pytest.mark.parametrize(
    "chosen, looks",
    [
        ("always or once and 3", True),  # one of the two fails again
        ("always", True),
        ("once", False),  # too many
        ("test_that_ends_its_process", False),
    ],
)
def test_the_run_fails(tmp_path: Path, chosen: str, looks: bool) -> None:
    code, said = run(tmp_path, "--second-look", "-k", chosen)
    assert code == 1, said
    assert ("a second look" in said) is looks
    assert named(said) == []


def test_only_who_asks_for_it_gets_a_second_look(tmp_path: Path) -> None:
    code, said = run(tmp_path, "-k", "named")
    assert code == 1, said
    assert "a second look" not in said


def test_what_can_t_be_collected_counts_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    code, said = run(tmp_path, "--second-look", "-k", "right")
    assert code != 0 and "a second look" not in said, said
