"""Failed comparisons of much data end, and say what differs."""

import os
import reprlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.large_comparisons import LARGE, explained

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 120
"""Without the explanation of our own it takes hours; with it, as long as pytest needs to start."""

FAILS = """
import random

def test_megabytes():
    generator = random.Random(1)
    kept = [b"head", generator.randbytes(1 << 21)]
    got = [b"head", generator.randbytes(1 << 21)]
    assert kept == got, "it was kept"
"""


@pytest.mark.parametrize("surroundings", [{"CI": "1"}, {"BUILD_NUMBER": "7"}, {"PYTEST_ADDOPTS": "-vv"}])
def test_a_failed_comparison_of_megabytes_of_octets_ends(surroundings: dict[str, str], tmp_path: Path) -> None:
    """Where pytest is not to shorten what it prints."""
    (tmp_path / "test_fails.py").write_text(FAILS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--confcutdir", str(tmp_path),
         "-p", "tests.conftest", "test_fails.py"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | surroundings,
        capture_output=True, text=True, check=False, timeout=LONGEST_S,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "it was kept" in ran.stdout and "[1]: first at 0, b'" in ran.stdout
    assert len(ran.stdout) < 10_000


@dataclass
class Record:
    body: bytes


@pytest.mark.parametrize(
    ("left", "right", "says"),
    [
        (bytes(LARGE), bytes(LARGE - 1), [f"in all: {LARGE} and {LARGE - 1} long"]),
        (bytes(LARGE) + b"ab", bytes(LARGE) + b"ac", [f"in all: first at {LARGE + 1}, b'b' and b'c'"]),
        ("x" * LARGE + "é", "x" * LARGE + "e", [f"in all: first at {LARGE}, 'é' and 'e'"]),
        ([b"", (1, bytes(LARGE))], [b"", (2, bytes(LARGE)), 3], ["in all: 2 and 3 items", "[1][0]: 1 and 2"]),
        ({"a": bytes(LARGE), "b": b"1"}, {"a": bytes(LARGE), "b": b"2"}, ["['b']: first at 0, b'1' and b'2'"]),
        ({1: bytes(LARGE)}, {2: b"1"}, ["in all: the keys {1, 2} are on one side alone"]),
        (memoryview(bytes(LARGE) + b"a"), bytes(LARGE) + b"b", [f"in all: first at {LARGE}, b'a' and b'b'"]),
        (bytes(LARGE + 1), None, [f"in all: {reprlib.repr(bytes(LARGE))} and None"]),
        (Record(bytes(LARGE)), Record(bytes(LARGE) + b"2"), [f"['body']: {LARGE} and {LARGE + 1} long"]),
    ],
)  # fmt: skip
def test_it_says_what_differs_first(left: object, right: object, says: list[str]) -> None:
    assert explained("==", left, right)[2:] == says
    assert all(len(line) < 200 for line in explained("==", left, right))


def test_other_comparisons_are_not_shown_either() -> None:
    assert explained("not in", "x", "x" * LARGE)[2:] == ["too much to be shown"]


@pytest.mark.parametrize("large", [Record(bytes(LARGE)), list(range(LARGE)), {bytes(LARGE)}, {"a": [bytes(LARGE)]}])
def test_what_is_much_is_counted_wherever_it_stands(large: object) -> None:
    assert explained("==", large, large)
    assert not explained("==", [Record(b"a"), 2, "3"], [Record(b"b"), {4: 5}])


def test_what_contains_itself_is_counted_too() -> None:
    itself: list[object] = [bytes(LARGE)]
    itself.append(itself)
    assert explained("==", itself, None)
