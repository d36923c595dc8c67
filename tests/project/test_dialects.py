"""docs/dialects.md: each line of the comparison has tests, which exist and are about these rules."""

import re
from pathlib import Path
from typing import Final

from tests.project.test_rules import ROOT, names_in, rules_by_test

PAGE: Final = ROOT / "docs" / "dialects.md"
COLUMNS: Final = ["what", "RabbitMQ 3.10, 4.3", "LavinMQ", "OtterMQ", "here", "tests"]
LINES_AT_LEAST: Final = 30


def rows(text: str) -> list[list[str]]:
    """The cells of all tables' rows but headings and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]
    return [each for each in cells if each != COLUMNS]


def test_x1_each_line_of_the_comparison_has_tests() -> None:
    """RULES X1."""
    found = rows(PAGE.read_text(encoding="utf-8"))
    assert len(found) >= LINES_AT_LEAST
    about = set()
    for cells in found:
        assert len(cells) == len(COLUMNS), cells
        assert cells[4], cells
        named = names_in(cells[5])
        assert named, cells
        for name in named:
            path, test = name.split("::")
            rules = rules_by_test(path).get(test) if Path(ROOT / path).is_file() else None
            assert rules, f"{name} does not exist, or names no rule"
            about |= rules
    assert {"X1", "X3"} <= about


def test_each_test_of_a_dialect_is_in_the_comparison() -> None:
    """What is shown of one dialect alone is something that its documents say."""
    text = PAGE.read_text(encoding="utf-8")
    for path in ("tests/node/broker/test_dialects.py", "tests/node/shard/test_dialects.py"):
        for test in rules_by_test(path):
            if re.search(r"lavinmq|ottermq", test):
                assert f"`{path}::{test}`" in text, test
