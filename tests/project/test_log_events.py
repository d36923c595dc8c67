"""Every line that a node logs is an event with a name, and its values are fields with names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mayfly.node.shell.log_events import EVENTS, OF_PARTS, event_of

ROOT: Final = Path(__file__).resolve().parents[2]
_LOGGERS: Final = {"log", "logger", "_LOG", "_CONNECTION_LOG"}
_LEVELS: Final = {"debug", "info", "warning", "error", "exception"}
_VALUE: Final = re.compile(r"%[+.\d]*[sdgrf]")


def lines() -> Iterator[tuple[str, str, str, int]]:
    """Of each call that logs: where, the logger's name, the text, and how many values it has (-1: not known)."""
    for folder in ("node", "cluster"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            source = file.read_text()
            tree = ast.parse(source)
            named = re.search(r"^(?:log|logger|_LOG)\b.*getLogger\(\"([\w.]+)\"\)", source, re.MULTILINE)
            part = named[1] if named else "mayfly." + ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for call in ast.walk(tree):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr in _LEVELS
                    and isinstance(call.func.value, ast.Name)
                    and call.func.value.id in _LOGGERS
                ):
                    text, *values = call.args
                    count = -1 if any(isinstance(value, ast.Starred) for value in values) else len(values)
                    texts = [text.body, text.orelse] if isinstance(text, ast.IfExp) else [text]
                    for each in texts:
                        assert isinstance(each, ast.Constant), f"{file}:{call.lineno}: the text is to stand there"
                        yield f"{file}:{call.lineno}", part, str(each.value), count


def test_each_line_has_a_name_and_its_values_have() -> None:
    used = set()
    for where, part, text, count in lines():
        event = event_of(part, text)
        assert event is not None, f"{where}: {text!r} has no name in node/shell/log_events.py"
        assert len(event.fields) == len(_VALUE.findall(text)), f"{where}: {event}"
        assert count in (-1, len(event.fields)), f"{where}: {event}"
        used.add((part, text) if (part, text) in OF_PARTS else text)
    assert used == {*EVENTS, *OF_PARTS}, "names of lines that are no longer there"


def test_names_are_alike_and_fields_differ() -> None:
    for event in [*EVENTS.values(), *OF_PARTS.values()]:
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", event.name), event
        assert len(set(event.fields)) == len(event.fields), event
