"""An object is whole once it has been made: no field is only declared, or empty, to be filled by a call that comes
later."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

_BY_ASYNCIO: Final = "asyncio makes a protocol before its transport, and calls nothing of it before it gives it that"
LATER: Final = {
    ("node/shell/listener.py", "self._transport"): _BY_ASYNCIO,
    ("cluster/transport/peer_port.py", "self._transport"): _BY_ASYNCIO,
}
STARTERS: Final = frozenset({"start", "open", "listen", "connect"})
EMPTY: Final = {
    ("cluster/transport/peer_port.py", "self._folder"): "there is one while the port is open",
    ("node/broker/operation.py", "self._done"): "who is to be told, while the step is under way",
    ("node/broker/publishing.py", "self._done"): "who is to be told, while the run is under way",
}


def only_declared(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Attribute):
            yield ast.unparse(node.target)


def empty_until_started(text: str) -> Iterator[str]:
    """Fields that are None from the beginning, and are filled by a method that starts the object."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            functions = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            methods = {each.name: each for each in functions}
            filled = {field for name in STARTERS & set(methods) for field, _ in assigned(methods[name])}
            if "__init__" in methods:
                for field, value in assigned(methods["__init__"]):
                    if field in filled and isinstance(value, ast.Constant) and value.value is None:
                        yield field


def assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield ast.unparse(target), node.value


def product() -> Iterator[tuple[str, str]]:
    for top in ("cluster", "node"):
        for path in (ROOT / top).rglob("*.py"):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_no_field_is_only_declared() -> None:
    assert {(path, field) for path, text in product() for field in only_declared(text)} == set(LATER)


def test_no_field_is_empty_until_the_object_is_started() -> None:
    assert {(path, field) for path, text in product() for field in empty_until_started(text)} == set(EMPTY)


def test_the_finding_of_fields() -> None:
    text = "class A:\n    x: int\n    def __init__(self) -> None:\n        self.a: int\n        self.b: int = 0\n"
    assert list(only_declared(text)) == ["self.a"]
    text += "        self.c: str | None = None\n        self.d = None\n    def start(self):\n        self.c = f()\n"
    assert list(empty_until_started(text)) == ["self.c"]
