"""docs/architecture.md is true: its ways through the code are made of functions that exist and lead to each other, and
its rooms are the folders that there are."""

import ast
import functools
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.project.test_imports import FOLDERS

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "architecture.md"
WAYS: Final = {"A publish": 40, "Expiry": 15, "A dead letter": 20}
"""And how many hops each has at least."""
_HOP: Final = re.compile(r"^(\d+)\. `([\w/]+\.py):([\w.]+)`(.*)$", re.MULTILINE)
_NUMBERED: Final = re.compile(r"^\d+\. ", re.MULTILINE)
_CARRIER: Final = re.compile(r"\*by\* `(\w+)`, \w")


_SIDE_WAY: Final = re.compile(r"from hop (\d+) on:$", re.MULTILINE)


class Hop(NamedTuple):
    """One line of a list."""

    number: int
    path: str
    function: str
    text: str
    begins_at: int = 0
    """Where a side way begins: the earlier hop with the same function; 0 for a hop that follows the one before it."""

    @property
    def carrier(self) -> str | None:
        """What carries the data on, where the next function is not called; None where it is."""
        found = _CARRIER.search(self.text)
        return found[1] if found else None


def way(page: str, name: str) -> list[Hop]:
    text = page.partition(f"\n### {name}\n")[2]
    text = re.split(r"^##+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    hops = []
    end = 0
    for found in _HOP.finditer(text):
        side = _SIDE_WAY.search(text, end, found.start())
        hops.append(Hop(int(found[1]), found[2], found[3], found[4], int(side[1]) if side else 0))
        end = found.end()
    assert len(hops) == len(_NUMBERED.findall(text)), f"a hop of {name} has no file and function"
    return hops


@functools.cache
def functions(path: str) -> dict[str, frozenset[str]]:
    """Functions of a module by their qualified names, with the names that each mentions."""
    found: dict[str, frozenset[str]] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = frozenset(mentioned(node))

    visit(ast.parse((ROOT / path).read_text(encoding="utf-8")).body, "")
    return found


def mentioned(function: ast.AST) -> set[str]:
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}


def faults_of(hops: list[Hop]) -> list[str]:
    faults = []
    for place, hop in enumerate(hops):
        if hop.number != place + 1:
            faults.append(f"{hop.number} stands where {place + 1} should")
        known = functions(hop.path) if (ROOT / hop.path).is_file() else {}
        if hop.function not in known:
            faults.append(f"{hop.number}: there is no {hop.path}:{hop.function}")
            continue
        if place + 1 == len(hops):
            break
        following = hops[place + 1]
        if following.begins_at:
            if following.function != hops[following.begins_at - 1].function:
                faults.append(f"{following.number} is not hop {following.begins_at}")
            continue
        wanted = hop.carrier or following.function.rpartition(".")[2]
        if wanted not in known[hop.function]:
            faults.append(f"{hop.number}: {hop.function} does not mention {wanted}")
    return faults


@pytest.mark.parametrize("name", WAYS)
def test_every_hop_is_a_function_that_leads_to_the_next(name: str) -> None:
    hops = way(PAGE.read_text(encoding="utf-8"), name)
    assert len(hops) >= WAYS[name]
    faults = faults_of(hops)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("place", "change", "fault"),
    [
        (7, {"path": "node/broker/publishes.py"}, "there is no node/broker/publishes.py"),
        (7, {"function": "Publisher.publish_all"}, "there is no node/broker/publishing.py:Publisher.publish_all"),
        (6, {"function": "Channel.settle"}, "Channel.settle does not mention publish"),
        (14, {"text": " gathers it. *by* `_posted`, later"}, "SessionSender.add does not mention _posted"),
        (14, {"text": " gathers it."}, "SessionSender.add does not mention _pump"),
        (3, {"number": 5}, "5 stands where 4 should"),
        (51, {"begins_at": 38}, "52 is not hop 38"),
        (51, {"begins_at": 0}, "flush does not mention _apply_session_batch"),
    ],
)
def test_what_is_wrong_with_a_way_is_found(place: int, change: dict[str, Any], fault: str) -> None:
    hops = way(PAGE.read_text(encoding="utf-8"), "A publish")
    hops[place] = hops[place]._replace(**change)
    assert any(fault in each for each in faults_of(hops))


def test_a_hop_without_a_function_is_found() -> None:
    with pytest.raises(AssertionError, match="has no file and function"):
        way("\n### A way\n\n1. `node/x.py:f` does.\n2. And then it does.\n\n## Else\n", "A way")


def rooms(page: str) -> dict[str, tuple[str, list[str]]]:
    """Folder -> its kind, and the modules to start at."""
    text = page.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip().strip("`"): (row[1].strip(), re.findall(r"`([\w/.]+)`", row[3]) if len(row) > 3 else [])
            for row in rows}  # fmt: skip


def test_the_rooms_are_the_folders_with_their_kinds() -> None:
    listed = rooms(PAGE.read_text(encoding="utf-8"))
    assert {folder: kind for folder, (kind, _) in listed.items()} == {
        folder: row.kind for folder, row in FOLDERS.items() if folder not in ("cluster", "node")
    }
    missing = [
        f"{folder}: {module}"
        for folder, (_, modules) in listed.items()
        for module in modules
        if not (ROOT / folder / module).exists() and not (ROOT / module).exists()
    ]
    assert not missing
