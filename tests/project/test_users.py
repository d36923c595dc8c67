"""Whose rights count says `User.who`. A name says nothing of a token's user: the catalog may have another one of that
name. Where names are enough is listed here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

SAY_A_NAME: Final = {
    "access.py": "whoami shows it",
    "clients.py": "connections are listed, shown and closed by their user's name",
}
TAKE_A_NAME: Final = {
    "client_selection.py:has": "of a connection's user, by name",
    "management.py:login": "as it is given to log in",
    "operator.py:monitor_tags": "as it is given to log in",
    "operator.py:tags": "as it is given to log in",
}


def that_say_a_name(texts: dict[str, str]) -> set[str]:
    return {name for name, text in texts.items() if re.search(r"\buser\.name\b", text)}


def that_take_a_name(texts: dict[str, str]) -> set[str]:
    return {f"{name}:{function}" for name, text in texts.items() for function in _taking(ast.parse(text))}


def _taking(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if any(each.arg == "user" and ast.unparse(each.annotation or node) == "str" for each in arguments):
                yield node.name


def texts_below(folder: str) -> dict[str, str]:
    found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py")}
    assert found
    return found


def test_pages_ask_for_rights_by_who_it_is_and_not_by_name() -> None:
    assert that_say_a_name(texts_below("node/http")) == set(SAY_A_NAME)
    assert that_take_a_name(texts_below("node/operating/ports")) == set(TAKE_A_NAME)


def test_the_finding_of_names() -> None:
    texts = {"a": "f(user.name)", "b": "f(user.who)", "c": "f(_user.names)"}
    assert that_say_a_name(texts) == {"a"}
    texts = {"a": "async def f(user: str): ...", "b": "def g(user: AnyUser): ...", "c": "def h(*, user: str): ..."}
    assert that_take_a_name(texts) == {"a:f", "c:h"}
