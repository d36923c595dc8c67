"""docs/raft-paper.md and the tests agree: each names what the other has."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "docs" / "raft-paper.md"
FOLDER = ROOT / "tests" / "cluster"
OF_THE_PAPER = re.compile(r"test_(figure|section|thesis)_\d")
ROW = re.compile(r"\| ((?:figure |thesis )?\d+(?:\.\d+)*) \| .+ \| (test_\w+(?:, test_\w+)*) \|")


def existing_tests() -> list[str]:
    return [
        statement.name
        for path in sorted(FOLDER.rglob("test_*.py"))
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test_")
    ]


def rows() -> list[tuple[str, list[str]]]:
    """(how the names of tests of the row's section begin, the tests)."""
    found = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| where "):
            row = ROW.fullmatch(line)
            assert row, f"no row of where, rule and tests: {line}"
            where = row[1] if " " in row[1] else f"section {row[1]}"
            found.append(("test_" + re.sub(r"[ .]", "_", where) + "_", row[2].split(", ")))
    return found


def test_every_test_of_the_table_exists_once() -> None:
    existing = existing_tests()
    for _, names in rows():
        for name in names:
            assert existing.count(name) == 1, f"{name} is there {existing.count(name)} times"


def test_every_test_named_after_a_section_is_in_the_table_once() -> None:
    named = [name for _, names in rows() for name in names]
    for name in existing_tests():
        if OF_THE_PAPER.match(name):
            assert named.count(name) == 1, f"{name} is {named.count(name)} times in {TABLE}"


def test_a_test_named_after_a_section_stands_in_a_row_of_that_section() -> None:
    for prefix, names in rows():
        for name in names:
            if OF_THE_PAPER.match(name) and not name.startswith(prefix):
                # A row may name a test of the thesis for a rule of the paper that it treats in full.
                assert prefix.startswith("test_section_6_") and name.startswith("test_thesis_4_"), (prefix, name)


def test_every_section_has_rows() -> None:
    prefixes = {prefix for prefix, _ in rows()}
    sections = ("5.1", "5.2", "5.3", "5.4.1", "5.4.2", "5.5", "5.6", "6", "7", "8")
    thesis = ("3.10", "4.1", "4.2.1", "4.2.2", "4.2.3", "6.2", "6.4", "9.6")
    wanted = {f"section {number}" for number in sections} | {f"thesis {number}" for number in thesis} | {"figure 2"}
    assert {"test_" + re.sub(r"[ .]", "_", where) + "_" for where in wanted} <= prefixes
