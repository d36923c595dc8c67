"""The outsider's judge fails on broken builds: what it has caught before it catches again (RULES T5, L4; confirms)."""

from pathlib import Path

import pytest

from tests.bugs.bug import Bug
from tests.bugs.outsider_table import (
    CAUGHT,
    ENDED,
    KINDS,
    NOT_RUN,
    OUTSIDE,
    is_settled,
    put_row,
    row_of,
    try_in_a_process,
)


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
