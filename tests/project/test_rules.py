"""docs/rules.md is true: each rule has tests, they exist, and they say that they are about it."""

import ast
import functools
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DOCUMENT: Final = ROOT / "docs" / "rules.md"
FAMILIES: Final = {"T": 14, "L": 11, "D": 10, "C": 4, "Q": 4, "J": 1}
RULES: Final = [
    *[f"{family}{number}" for family, last in FAMILIES.items() for number in range(1, last + 1)],
    "S1", "S2", "S3", "S4", "S5", "S6", "J2", "J3", "J4", "J5", "X1", "X2", "X3", "R1", "R2", "R3", "R4", "R5",
]
# What a change of leader could break: a deadline, a lease, a dead letter on its way, a clock.
THROUGH_A_LEADER_CHANGE: Final = (
    "T4", "T5", "T6", "T7", "T14", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L10", "D6", "D7", "D8", "C1", "C2", "C3",
    "C4", "S1", "S3", "S5", "S6", "J1", "J2", "J3", "J4", "J5", "R1", "R2", "R3",
    "R4", "R5",
)  # fmt: skip
WITH_REAL_PROCESSES: Final = ("T5", "L5", "L6", "D6")
NONE: Final = "—"


class Row(NamedTuple):
    """One rule of the document."""

    text: str
    tests: tuple[str, ...]
    through_a_leader_change: tuple[str, ...]


def rows_of(document: str) -> dict[str, Row]:
    """The tables of rules with tests. Raises AssertionError for a row that can't be read or comes twice."""
    found: dict[str, Row] = {}
    for line in document.splitlines():
        match = re.match(r"\| ([TLDCQSXJR]\d+) \|", line)
        if match is None:
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        assert len(cells) == 4, f"four columns expected: {line}"
        assert cells[0] not in found, f"{cells[0]} is there twice"
        found[cells[0]] = Row(cells[1], names_in(cells[2]), names_in(cells[3]))
    return found


def names_in(cell: str) -> tuple[str, ...]:
    if cell == NONE:
        return ()
    parts = cell.split("<br>")
    for part in parts:
        assert re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", part), f"`path::test_name` expected: {part}"
    return tuple(part.strip("`") for part in parts)


def rules_named_in(text: str) -> set[str]:
    """Rule ids in a docstring: L5, "L2, L4", and ranges such as T3-T8 or L2-8."""
    found: set[str] = set()
    for family, first, last in re.findall(r"\b([TLDCQSXJR])(\d{1,2})(?:-(?:\1)?(\d{1,2}))?\b", text):
        found |= {f"{family}{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def rules_of_test(name: str, docstring: str) -> set[str]:
    """The rules that a test says it is about, by its name (test_l5_l6_...) or docstring."""
    in_name = re.findall(r"(?<=_)([tldcqxsjrTLDCQXSJR]\d{1,2})(?=_|$)", name)
    return {id.upper() for id in in_name} | rules_named_in(docstring)


@functools.cache
def rules_by_test(path: str) -> dict[str, set[str]]:
    """The tests of a file, and the rules each names; what its module's docstring names counts for all of them."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    of_all = rules_named_in(ast.get_docstring(tree) or "") if path.endswith("test_cluster_simulation.py") else set()
    return {
        node.name: rules_of_test(node.name, ast.get_docstring(node) or "") | of_all
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def faults_of(rows: dict[str, Row]) -> list[str]:
    """Everything that is wrong with the document."""
    faults = [f"{id} is not there" for id in RULES if id not in rows]
    faults += [f"{id}: no such rule" for id in rows if id not in RULES]
    for id, row in rows.items():
        if len(row.text) < 20:
            faults.append(f"{id} has no text")
        if not row.tests:
            faults.append(f"{id} has no test")
        if id in THROUGH_A_LEADER_CHANGE and not row.through_a_leader_change:
            faults.append(f"{id} must hold through a change of leader, and names no test for it")
        real = [name for name in row.through_a_leader_change if name.startswith("tests/integration/")]
        if id in WITH_REAL_PROCESSES and not real:
            faults.append(f"{id} must be shown with real processes that die, and names no such test")
        for name in (*row.tests, *row.through_a_leader_change):
            path, test = name.split("::")
            named = rules_by_test(path).get(test) if (ROOT / path).is_file() else None
            if named is None:
                faults.append(f"{id}: {name} does not exist")
            elif id not in named:
                faults.append(f"{id}: {name} does not name it")
    return faults


def test_every_rule_is_shown_by_tests_that_exist_and_name_it() -> None:
    faults = faults_of(rows_of(DOCUMENT.read_text(encoding="utf-8")))
    assert not faults, "\n".join(faults)


def test_rules_that_are_not_built_are_told_apart() -> None:
    """What is planned stands under a heading that says so, last, without ids and tests."""
    _, not_built = DOCUMENT.read_text(encoding="utf-8").split("## Not built")
    assert "nothing below is promised" in not_built
    assert not rows_of(not_built) and "tests/" not in not_built and "\n## " not in not_built


@pytest.mark.parametrize(
    "id, change, fault",
    [
        ("T9", lambda row: row._replace(tests=()), "T9 has no test"),
        ("T9", lambda row: row._replace(tests=("tests/node/shard/test_leases.py::test_gone",)), "does not exist"),
        ("T9", lambda row: row._replace(tests=("tests/node/shard/test_gone.py::test_gone",)), "does not exist"),
        (
            "T9",
            lambda row: row._replace(
                tests=("tests/node/shard/test_leases.py::test_l2_publishing_does_not_renew",)
            ),
            "does not name it",
        ),
        ("L7", lambda row: row._replace(through_a_leader_change=()), "L7 must hold through a change of leader"),
        (
            "L5",
            lambda row: row._replace(through_a_leader_change=row.through_a_leader_change[:1]),
            "L5 must be shown with real processes",
        ),
    ],
)
def test_what_is_wrong_with_the_document_is_found(id: str, change: object, fault: str) -> None:
    rows = rows_of(DOCUMENT.read_text(encoding="utf-8"))
    assert callable(change)
    rows[id] = change(rows[id])
    assert any(fault in each for each in faults_of(rows))
    del rows[id]
    assert faults_of(rows) == [f"{id} is not there"]


def test_ids_are_read_as_they_are_written() -> None:
    assert rules_named_in("RULES L2-L4, T13 and D6; C1. Not Y5, nor TL1") == {"L2", "L3", "L4", "T13", "D6", "C1"}
    assert rules_of_test("test_l5_l6_uses", "") == {"L5", "L6"}
    assert rules_of_test("test_C2_clock", "T5, without the slack") == {"C2", "T5"}
