"""Log lines as JSON, and how much parts of a process log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from mayfly.node.shell.log_lines import JsonLines, levels, set_level


def line(part: str, text: str, *values: object, log_as: str = "", **more: Any) -> dict[str, Any]:
    record = logging.LogRecord(part, logging.WARNING, "", 0, text, values, more.pop("exc_info", None))
    record.created = 1_800_000_000.25
    for name, value in more.items():
        setattr(record, name, value)
    written = JsonLines(log_as).format(record)
    assert "\n" not in written
    found: dict[str, Any] = json.loads(written)
    return found


def test_a_line_has_its_event_and_its_fields_by_name() -> None:
    assert line("mayfly.x", "lost node %d at %s: %s", 3, "h:1", ValueError("two\nlines")) == {
        "time": "2027-01-15T08:00:00.250Z", "level": "warning", "part": "mayfly.x", "event": "peers.lost",
        "text": "lost node 3 at h:1: two\nlines", "fields": {"node": 3, "address": "h:1", "reason": "two\nlines"},
    }  # fmt: skip
    assert line("mayfly.processes", "no process is left", log_as="p2")["process"] == "p2"


def test_what_is_not_ours_is_told_all_the_same() -> None:
    assert line("aiohttp.web", "100 %")["event"] == "other"
    assert line("aiohttp.web", "%(a)s of %(b)s", {"a": 1, "b": 2})["text"] == "1 of 2"
    assert line("mayfly.node", "group 1 is led by node 2", event="raft")["event"] == "raft"
    try:
        raise KeyError("k")
    except KeyError as error:
        told = line("mayfly.node", "defect in the engine", exc_info=(KeyError, error, error.__traceback__))
    assert told["event"] == "node.defect" and "KeyError" in told["trace"]


@pytest.fixture
def unchanged() -> Iterator[None]:
    yield
    for part in ("mayfly.cluster.transport", "aiohttp"):
        logging.getLogger(part).setLevel(logging.NOTSET)


@pytest.mark.usefixtures("unchanged")
def test_a_part_gets_a_level_of_its_own() -> None:
    set_level("mayfly.cluster.transport", "debug")
    set_level("aiohttp", "error")
    assert levels()["mayfly.cluster.transport"] == "debug" and levels()["aiohttp"] == "error"
    assert logging.getLogger("mayfly.cluster.transport.outgoing").isEnabledFor(logging.DEBUG)
    set_level("mayfly.cluster.transport", "")
    assert "mayfly.cluster.transport" not in levels()
    for part, level in (("mayflies", "debug"), ("", "debug"), ("mayfly", "loud")):
        with pytest.raises(ValueError, match="one of"):
            set_level(part, level)
