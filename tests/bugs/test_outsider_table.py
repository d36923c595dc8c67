"""The outsider's judge fails on broken builds: what it has caught before it catches again (RULES T5, L4; confirms)."""

from pathlib import Path

import pytest

from tests.bugs.bug import ROOT, Bug
from tests.bugs.outsider_table import (
    CAUGHT,
    ENDED,
    KINDS,
    NOT_RUN,
    OUTSIDE,
    PASSED,
    is_settled,
    put_row,
    row_of,
    try_in_a_process,
)

PAGE = ROOT / "docs" / "measurements" / "second-judge.md"
WHOLE_KINDS = ("time", "Raft", "HTTP", "transport", "moves")
"""Kinds all of whose bugs have been tried."""


def test_the_page_has_every_bug_of_the_kinds_that_are_whole() -> None:
    bugs = [(kind, bug) for kind in WHOLE_KINDS for bug in KINDS[kind]]
    missing = [bug.name for kind, bug in bugs if not is_settled(PAGE, kind, bug, only_new=True)]
    command = f"python -m tests.bugs.outsider_table --new --write {PAGE.relative_to(ROOT)}"
    assert not missing, f"`{command}` adds their rows"


def test_each_row_of_the_page_is_of_a_bug_that_is_there() -> None:
    lines = PAGE.read_text(encoding="utf-8").split("| kind | bug |")[1].splitlines()[2:]
    rows = [tuple(line.removeprefix("| ").split(" | ")[:2]) for line in lines if line.startswith("| ")]
    assert len(rows) == len(set(rows)) > 100
    assert set(rows) <= {(kind, bug.name) for kind, bugs in KINDS.items() for bug in bugs}


@pytest.mark.parametrize(
    ("name", "seed", "rule"),
    [
        ("delivers past the deadline", 353, "T5"),
        pytest.param("stamps a renewal with the time of the last tick", 353, "T5", marks=pytest.mark.slow),
        pytest.param("confirms what a queue has refused", 188, "confirms", marks=pytest.mark.slow),
    ],
)
def test_a_bug_is_caught_from_outside(name: str, seed: int, rule: str) -> None:
    bug = next(bug for bugs in KINDS.values() for bug in bugs if bug.name == name)
    result = try_in_a_process(bug, [seed])
    assert result["found"] == CAUGHT, result
    assert str(result["says"]).startswith(f"{rule}: ")


def test_rows_of_a_page_are_replaced_and_added(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    rows = "| time | one | not caught, 4 seeds | - |\n| AMQP | two | x | y |\n"
    page.write_text(f"| kind | bug | outcome | why |\n|---|---|---|---|\n{rows}")
    bug = Bug("one", "", "", "", "", "")
    assert not is_settled(page, "time", bug)
    assert is_settled(page, "time", bug, only_new=True)
    assert not is_settled(page, "AMQP", bug, only_new=True)
    put_row(page, "| time | one | caught, long 7 | T5 |")
    put_row(page, "| time | three | not caught, 7 seeds | - |")
    assert page.read_text().splitlines()[2:] == [
        "| time | one | caught, long 7 | T5 |", "| time | three | not caught, 7 seeds | - |", "| AMQP | two | x | y |",
    ]  # fmt: skip
    assert is_settled(page, "time", bug)


def test_a_row_says_why() -> None:
    bug = KINDS["transport"][0]
    row = row_of("transport", bug, {"found": NOT_RUN}, [1])
    assert row == f"| transport | {bug.name} | not run | {OUTSIDE} |"
    row = row_of("transport", bug, {"found": ENDED, "says": "ValueError: 7"}, [1])
    assert row == f"| transport | {bug.name} | not judged | the run ends by itself: ValueError: 7 |"
    row = row_of("transport", bug, {"found": PASSED, "first": "seed 1: first judge, lost: one | two"}, [1])
    assert row.endswith(r" | not caught, 1 seeds; the first judge does | seed 1: first judge, lost: one \| two |")
