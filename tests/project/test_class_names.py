"""A class of the product or of the simulators is the only one of its name: whoever reads the name knows which it is.
Names that begin with `_` are read in their module alone, and may be anywhere."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def shared_names(texts: dict[str, str]) -> dict[str, list[str]]:
    """Public class names that are defined more than once -> in which files."""
    places = defaultdict(list)
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_every_class_has_a_name_of_its_own() -> None:
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for top in ("cluster", "node", "simulation")
        for path in sorted((ROOT / top).rglob("*.py"))
    }
    assert len(texts) > 100
    assert shared_names(texts) == {}


def test_the_finding_of_shared_names() -> None:
    texts = {"a.py": "class A: ...\nclass _B: ...\n", "b.py": "class A: ...\nclass _B: ...\nclass C: ...\n"}
    assert shared_names(texts) == {"A": ["a.py", "b.py"]}
