"""An object is whole once it has been made: no field is only declared, to be filled by a call that comes later."""

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

LATER: Final = {("node/shell/listener.py", "self._transport")}
"""asyncio makes a protocol before its transport, and calls nothing of it before it gives it that."""


def only_declared(text: str) -> list[str]:
    return [
        ast.unparse(node.target)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Attribute)
    ]


def test_no_field_of_a_node_is_only_declared() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), field)
        for path in (ROOT / "node").rglob("*.py")
        for field in only_declared(path.read_text())
    }
    assert found == LATER


def test_the_finding_of_fields() -> None:
    text = "class A:\n    x: int\n    def __init__(self) -> None:\n        self.a: int\n        self.b: int = 0\n"
    assert only_declared(text) == ["self.a"]
