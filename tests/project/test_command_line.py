"""The `mayfly` command: help, versions, refusals, and the status of a cluster as tables and as JSON."""

import http.server
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from node.build import compiled_modules, describe_version
from node.command_line import main
from node.command_line.status_command import show_status
from node.settings import setting_keys
from node.settings.sources import option_of
from node.version import VERSION

STATUS: dict[str, Any] = {
    "name": "node1",
    "id": 1,
    "nodes": [
        {"id": 1, "name": "node1", "failure_domain": "rack 1", "up": True, "clock_offset_ms": 0},
        {"id": 2, "name": "node2", "up": False, "clock_offset_ms": None},
    ],
    "groups": [
        {"group": 0, "leader": 1, "leader_name": "node1", "term": 3, "commit": 10, "applied": 10,
         "role": "leader", "voters": [1, 2, 3], "learners": [4]},
        {"group": 1, "leader": 0, "leader_name": None, "term": 4, "commit": 7, "applied": 7,
         "role": "follower", "voters": [1, 2, 3], "learners": [],
         "queues": 2, "ready": 12345, "unacknowledged": 6, "expiry_lag_ms": 17, "outbox": 8},
    ],
    "queues": {"count": 2, "ready": 12345},
    "alarms": ["disk: 1 byte free"],
}  # fmt: skip


def run(*arguments: str, environment: dict[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def test_the_version_says_whether_it_is_compiled() -> None:
    result = run("--version")
    assert result.output == f"mayfly {describe_version()}\n"
    assert VERSION in result.output
    assert ("compiled:" in result.output) == bool(compiled_modules())


def test_help_lists_the_commands() -> None:
    output = run("--help").output
    for name in ("node", "up", "status", "policy", "demo"):
        assert f"\n  {name} " in output
        assert run(name, "--help").exit_code == 0


def test_unknown_commands_are_refused() -> None:
    assert "No such command 'nodes'" in run("nodes").output


def test_every_setting_is_an_option_of_the_node() -> None:
    output = run("node", "--help").output
    for key in setting_keys():
        assert f"\n  {option_of(key)}" in output


def test_an_unknown_option_gets_a_suggestion() -> None:
    result = run("node", "--amqp-adress", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "--amqp-address" in result.output


def test_bad_settings_end_the_node_with_every_problem(tmp_path: Path) -> None:
    file = tmp_path / "mayfly.toml"
    file.write_text("sharts = 3\n")
    result = run("node", "--config", str(file), "--tick-ms", "x", environment={"MAYFLY_CACHE": "1"})
    assert result.exit_code == 1
    assert 'unknown setting "sharts". Did you mean "shards"?' in result.output
    assert "tick_ms = 'x' (option --tick-ms): expected a whole number of milliseconds" in result.output
    assert 'unknown setting "MAYFLY_CACHE". Did you mean "MAYFLY_CACHE_BYTES"?' in result.output


def test_the_file_can_be_named_in_the_environment(tmp_path: Path) -> None:
    result = run("node", environment={"MAYFLY_CONFIG": str(tmp_path / "none.toml")})
    assert "none.toml: cannot be read: No such file" in result.output


@pytest.fixture
def status_server() -> Iterator[http.server.HTTPServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        answer: bytes = json.dumps(STATUS).encode()
        code: int = 200

        def do_GET(self) -> None:
            assert self.path == "/status"
            self.send_response(self.code)
            self.end_headers()
            self.wfile.write(self.answer)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_status_as_json_is_what_the_node_says(status_server: http.server.HTTPServer) -> None:
    result = run("status", "--json", "--node", f"127.0.0.1:{status_server.server_port}")
    assert result.exit_code == 0
    assert json.loads(result.output) == STATUS


def test_status_shows_nodes_shards_leaders_and_lag() -> None:
    text = io.StringIO()
    show_status(STATUS, Console(file=text, width=140))
    lines = [" ".join(line.split()) for line in text.getvalue().splitlines()]
    assert "1 node1 rack 1 yes 0" in lines
    assert "2 node2 - no -" in lines
    assert "catalog node1 3 10 10 - - - - - 1, 2, 3 (learners 4)" in lines
    assert "shard 1 none 4 7 7 2 12345 6 17 8 1, 2, 3" in lines
    assert "Totals: count 2, ready 12345" in lines
    assert "ALARM: disk: 1 byte free" in lines


def test_status_through_the_command(status_server: http.server.HTTPServer) -> None:
    result = run("status", "--node", f"127.0.0.1:{status_server.server_port}")
    assert result.exit_code == 0
    assert "shard 1" in result.output


@pytest.mark.parametrize(
    ("answer", "code", "expected"),
    [
        (b"<html>", 200, "does not answer as a MayflyMQ node"),
        (b"[]", 200, "does not answer as a MayflyMQ node"),
        (b'{"error": "the node could not answer"}', 500, "the node could not answer"),
    ],
)
def test_status_of_something_else_is_refused(
    status_server: http.server.HTTPServer, answer: bytes, code: int, expected: str
) -> None:
    handler: Any = status_server.RequestHandlerClass
    handler.answer, handler.code = answer, code
    result = run("status", "--node", f"127.0.0.1:{status_server.server_port}")
    assert result.exit_code == 1
    assert expected in result.output


def test_status_of_nobody_is_refused() -> None:
    result = run("status", "--node", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "no status from 127.0.0.1:1" in result.output
    assert "expected host:port" in run("status", "--node", "nonsense").output
