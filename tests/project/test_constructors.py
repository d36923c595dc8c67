"""Calls that make objects can be read: constructors have few parameters (exceptions: docs/decisions/build.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MOST_PARAMETERS: Final = 8
RECORDS: Final = {
    "cluster/raft/config.py:Config",
    "cluster/raft/messages.py:RaftMessage",
    "cluster/raft/status.py:Status",
    "node/shard/message.py:Message",
    "node/shard/settings.py:ShardQueueSettings",
}
"""Compiled, and filled field by field."""


def with_many_parameters(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    arguments = method.args
                    count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
                    if count > MOST_PARAMETERS:
                        yield node.name


def test_constructors_have_few_parameters() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}:{name}"
        for top in ("cluster", "node")
        for path in (ROOT / top).rglob("*.py")
        for name in with_many_parameters(path.read_text(encoding="utf-8"))
    }
    assert found == RECORDS


def test_the_counting_of_parameters() -> None:
    text = "class A:\n    def __init__(self, a, b, c, d, e, f, g, h{}) -> None:\n        pass\n"
    assert list(with_many_parameters(text.format(""))) == []
    assert list(with_many_parameters(text.format(", *, i=0"))) == ["A"]
