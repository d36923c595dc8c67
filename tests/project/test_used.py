"""The product has no function, method or class that only tests use: what nothing in it names is listed here, with a
reason. Names are compared, not objects: one that has a namesake in use is not found."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

UNUSED: Final = {
    "cluster/transport/framing.py:gathered_bytes": "what a reader holds of a frame: tests bound it",
    "node/command_line/__init__.py:get_command": "click calls it",
    "node/command_line/__init__.py:list_commands": "click calls it",
    "node/duties/catalog_spread.py:is_slow": "the simulator's probe asks whom a change need not wait for",
    "node/duties/quiet.py:has_told": "the simulator's probe asks whom a change need not wait for",
    "node/shard/commands.py:encode_prefetch": "shards obey this command, and no node gives it: tests do",
}
PLAIN: Final = {"property", "staticmethod", "classmethod", "dataclass"}


def defined(tree: ast.AST) -> Iterator[str]:
    """Functions, methods and classes, but for those that a decorator registers and those that Python calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorators = {ast.unparse(each).split("(")[0] for each in node.decorator_list}
            if decorators <= PLAIN and not node.name.startswith("__"):
                yield node.name


def named(tree: ast.AST) -> Iterator[str]:
    """What is mentioned: by name, as an attribute, and in text (`__slots__`, `getattr`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unused(texts: dict[str, str]) -> set[str]:
    trees = {path: ast.parse(text) for path, text in texts.items()}
    mentioned = Counter(name for tree in trees.values() for name in named(tree))
    return {f"{path}:{name}" for path, tree in trees.items() for name in defined(tree) if not mentioned[name]}


def test_everything_in_the_product_is_used_by_it() -> None:
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for top in ("cluster", "node")
        for path in (ROOT / top).rglob("*.py")
    }
    assert unused(texts) == set(UNUSED)


def test_the_finding_of_what_is_unused() -> None:
    text = "def a():\n    return b()\ndef b(): ...\nclass C:\n    def d(self): ...\n"
    text += "    @e.command()\n    def f(self): ...\n"
    assert unused({"x.py": text}) == {"x.py:a", "x.py:C", "x.py:d"}
