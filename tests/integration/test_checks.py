"""`mayfly check` against real nodes, well and lost, which log as JSON."""

import json
from pathlib import Path

import pytest

from tests.integration.nodes import Nodes
from tests.integration.operators import run_mayfly
from tests.waiting import wait_for

pytestmark = [pytest.mark.processes]

FINE = {"debug", "info", "warning"}


def checked(nodes: Nodes) -> tuple[int, dict[str, str]]:
    """The exit code, and what is said of each check."""
    done = run_mayfly(nodes, 1, "check", "ports", "quorum")
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    return done.returncode, dict(lines)


def test_a_lost_majority_is_told_and_each_line_of_a_log_is_json(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3, {"log_format": "json"})
    try:
        nodes.serve()
        nodes.until_well()
        assert checked(nodes) == (0, {"ports": "ok", "quorum": "ok"})
        nodes.kill(2, 3)

        def is_told() -> bool:
            code, said = checked(nodes)
            return code == 1 and said["quorum"].startswith("groups ")

        wait_for(is_told, "groups without a quorum", every_s=0.1)
    finally:
        # Not `close`, which looks for faults in lines of text.
        nodes.stop()
        nodes.release_ports()
    for id in nodes.ids:
        lines = [json.loads(line) for line in nodes.log_text(id).splitlines()]
        assert lines
        for line in lines:
            assert line.keys() >= {"time", "level", "part", "event", "text"}, line
            assert line["level"] in FINE, line
        assert {line["event"] for line in lines} - {"other"}
