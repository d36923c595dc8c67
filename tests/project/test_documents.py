"""The documents hold together: links lead to files and headings that exist, paths that are named are there, every
decision has its parts, and the README is short."""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LINK: Final = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)
NAMED_PATH: Final = re.compile(
    r"(?<![\w./-])((?:bench|cluster|deploy|docs|helm|node|proto|requirements|simulation|tests)/[\w./*-]*\w)(?![\w/*{])"
)
DECISION_PARTS: Final = ("Decision:", "Why:", "Price:", "Not chosen:")
MOST_LINES_OF_README: Final = 150
NAMES_OTHER_PROJECTS: Final = "interop.md"
"""The page with paths of other projects' tests."""


def pages() -> list[Path]:
    """Every Markdown page."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def prose(text: str) -> str:
    """Without code that is shown."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(line for line in text.split("\n") if not line.startswith("    "))


def anchor(heading: str) -> str:
    """A heading's name in links, as GitHub makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    found: set[str] = set()
    for heading in HEADING.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        name, number = anchor(heading), 0
        while (name if not number else f"{name}-{number}") in found:
            number += 1
        found.add(name if not number else f"{name}-{number}")
    return found


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(re.sub(r"`[^`]*`", "", prose(text))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, name = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if path and not place.exists():
            yield f"{target}: there is no such file"
        elif name and name not in anchors(text if place == page else place.read_text(encoding="utf-8")):
            yield f"{target}: there is no such heading"


def missing_paths(text: str) -> Iterator[str]:
    """Of this repository, named without its root, as `node/shard/shard.py` or `tests/cluster/store/test_*.py`; a module
    may stand without its ending."""
    for path in NAMED_PATH.findall(re.sub(r"https?:\S+", "", text)):
        module, _, name = path.rpartition(".")
        if not (any(ROOT.glob(path)) or any(ROOT.glob(f"{path}.py")) or (name and (ROOT / f"{module}.py").exists())):
            yield path


def faults_of_decisions(text: str) -> Iterator[str]:
    for number, part in enumerate(re.split(r"^## ", text, flags=re.MULTILINE)[1:], 1):
        if not part.startswith(f"{number}. "):
            yield f"{number} is expected at: {part.splitlines()[0]}"
        said = re.findall(r"^- \*\*([^*]+)\*\*", part, re.MULTILINE)
        if tuple(said[:4]) != DECISION_PARTS:
            yield f"{number} has {said}"


def test_links_lead_to_files_and_headings_that_exist() -> None:
    faults = [
        f"{page.relative_to(ROOT)}: {fault}"
        for page in pages()
        for fault in broken_links(page, page.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join(faults)


def test_what_is_wrong_with_links_is_found() -> None:
    page = ROOT / "docs" / "page.md"
    text = "# A page\n\n## What it *is*, `here`\n\n[1](rules.md) [2](#what-it-is-here) [3](../README.md#limits)\n"
    assert not list(broken_links(page, text))
    wrong = "[1](rule.md) [2](#what-it-was) [3](../README.md#limit) [4](https://x.y/z)\n\n    [5](shown)\n"
    assert len(list(broken_links(page, wrong))) == 3


def test_paths_that_documents_name_are_there() -> None:
    faults = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in pages()
        if page.name != NAMES_OTHER_PROJECTS
        for path in missing_paths(page.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join(faults)


@functools.cache
def defined() -> dict[str, set[str]]:
    """Class or module -> the names that it defines, inner ones too. A class counts with all of its name."""
    found: dict[str, set[str]] = {}
    for top in ("bench", "cluster", "node", "simulation", "tests"):
        for path in (ROOT / top).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found[path.relative_to(ROOT).as_posix()] = names_within(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, set()).update(names_within(node))
    return found


def names_within(place: ast.AST) -> set[str]:
    """Functions, classes, variables and fields, wherever they stand in it."""
    names: set[str] = set()
    for node in ast.walk(place):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def missing_names(text: str) -> Iterator[str]:
    """Of code: `Class.attribute` and `folder/file.py:function`, in backticks."""
    for holder, name in re.findall(r"`([A-Z]\w+)\.(\w+)(?:\(\))?`", text):
        if name not in defined().get(holder, ()):
            yield f"{holder}.{name}"
    for path, names in re.findall(r"`([\w/]+\.py):([\w.]+)`", text):
        if not defined().get(path, set()).issuperset(names.split(".")):
            yield f"{path}:{names}"


def test_names_of_code_that_documents_name_are_there() -> None:
    faults = [
        f"{page.relative_to(ROOT)}: {fault}"
        for page in pages()
        for fault in missing_names(page.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join(faults)


def test_missing_names_are_found() -> None:
    there = "`HostOutput.write_waits`, `Host.pump()`, `cluster/host/host.py:Host.pump`, `node/numbers.py:is_transient`"
    assert not list(missing_names(there))
    assert list(missing_names("`HostOutput.waits`, `Hosts.pump`, `cluster/host/host.py:Host.pumps`")) == [
        "HostOutput.waits",
        "Hosts.pump",
        "cluster/host/host.py:Host.pumps",
    ]


MOST_WORDS: Final = 35


def test_each_word_has_one_meaning() -> None:
    page = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    words = [word for word, _ in rows if word != "word" and not word.startswith("-")]
    assert 20 <= len(words) <= MOST_WORDS
    assert len(words) == len(set(words))


def missing_tests(text: str) -> Iterator[str]:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        if not re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE):
            yield f"{path}::{name}"


def test_tests_that_documents_name_are_there() -> None:
    faults = [fault for page in pages() for fault in missing_tests(page.read_text(encoding="utf-8"))]
    assert not faults, "\n".join(faults)
    assert list(missing_tests("`tests/project/test_documents.py::test_that_is_not`")) == [
        "tests/project/test_documents.py::test_that_is_not"
    ]


def test_every_port_and_every_secret_has_a_test_and_so_has_what_is_assumed_and_defended() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    defended = text.split("## What is defended, against whom\n")[1].split("\n## ")[0]
    rows = [line for line in defended.splitlines() if line.startswith("| ")][1:]
    assert rows
    assert [row for row in rows if "`tests/" not in row] == []
    for heading in ("Ports", "Secrets", "What is assumed"):
        part = text.split(f"## {heading}\n")[1].split("\n## ")[0]
        rows = [line for line in part.splitlines() if line.startswith("| ")][1:]
        assert rows
        assert [row for row in rows if "::test_" not in row] == []


def test_missing_paths_are_found() -> None:
    there = "`node/shard/shard.py`, `node/shard`, tests/project/test_*.py, `cluster/host/placement`, /tmp/tests/x"
    assert not list(missing_paths(there))
    assert list(missing_paths("`node/shard/shards.py` tests/projects/test_*.py")) == [
        "node/shard/shards.py",
        "tests/projects/test_*.py",
    ]


def test_pages_that_code_names_are_there() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    faults = [
        f"{name}: {page}"
        for name in listed.split("\0")
        if name.endswith((".py", ".toml", ".yaml", ".service", ".proto", ".txt", ".json", "Makefile", "Dockerfile"))
        and (ROOT / name).is_file()
        and (ROOT / name) != Path(__file__).resolve()
        for page in re.findall(r"(?<!/)\bdocs/[\w/-]+\.md", (ROOT / name).read_text(encoding="utf-8"))
        if not (ROOT / page).exists()
    ]
    assert not faults, "\n".join(faults)


def test_every_decision_is_numbered_and_has_its_parts() -> None:
    of_subjects = [page for page in (ROOT / "docs" / "decisions").glob("*.md") if page.name != "README.md"]
    assert len(of_subjects) >= 8
    faults = [
        f"{page.name}: {fault}"
        for page in of_subjects
        for fault in faults_of_decisions(page.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join(faults)
    for page in of_subjects:
        assert f"]({page.name})" in (page.parent / "README.md").read_text(encoding="utf-8")


def test_a_decision_without_a_part_is_found() -> None:
    parts = "".join(f"- **{part}** x\n" for part in DECISION_PARTS)
    assert not list(faults_of_decisions(f"# P\n\n## 1. A\n\n{parts}\n## 2. B\n\n{parts}- **Measured:** y\n"))
    assert len(list(faults_of_decisions(f"## 1. A\n{parts}\n## 3. B\n{parts}"))) == 1
    assert len(list(faults_of_decisions("## 1. A\n- **Decision:** x\n- **Why:** y\n"))) == 1


def test_every_page_is_in_its_index() -> None:
    for folder in ("docs", "docs/operations", "docs/measurements"):
        index = (ROOT / folder / "README.md").read_text(encoding="utf-8")
        for page in (ROOT / folder).glob("*.md"):
            assert page.name == "README.md" or f"]({page.name})" in index, f"{folder}/README.md has no {page.name}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < MOST_LINES_OF_README
