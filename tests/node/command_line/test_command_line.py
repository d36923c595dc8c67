"""The `mayfly` command: help, versions, refusals, and the status of a cluster as tables and as JSON."""

import http.client
import http.server
import io
import json
import logging
import socket
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from mayfly.node.command_line import _OF_RABBITMQ, main, node_command
from mayfly.node.command_line.status_command import show_status
from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.node_url import NodeUrl
from mayfly.node.settings import setting_keys
from mayfly.node.settings.kinds import Address
from mayfly.node.settings.sources import option_of
from mayfly.node.shell import build
from mayfly.node.shell.build import compiled_modules, describe_version
from mayfly.node.version import VERSION

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


@pytest.mark.parametrize(
    ("note", "failed"),
    [("compiling failed: the C compiler did not do it (cc1: killed ...)", True), ("MAYFLY_PURE was set", False)],
)
def test_a_build_that_could_have_been_compiled_says_so(
    note: str, failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "uncompiled.txt"
    file.write_text(f"{note}\n")
    monkeypatch.setattr(build, "_NOTE", file)
    monkeypatch.setattr(build, "compiled_modules", tuple)
    assert describe_version() == f"{VERSION} (pure Python: {note})"
    monkeypatch.setattr(node_command, "_event_loop_runner", lambda: _closed)
    monkeypatch.setattr(node_command, "configure_logging", lambda *_: None)
    caplog.set_level(logging.INFO)
    result = run("node", "--data-dir", str(tmp_path / "data"))
    assert result.exit_code == 0, result.output
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [f"three times as slow as one that is compiled: {note}" in text for text in told].count(True) == failed
    # One that is compiled has nothing to explain, whatever an earlier build left.
    monkeypatch.setattr(build, "compiled_modules", lambda: ("mayfly.cluster.group.group",))
    assert describe_version() == f"{VERSION} (compiled: 1 modules)" and not build.failed_to_compile()


def _closed(serving: Coroutine[Any, Any, int]) -> int:
    """In the place of a loop: what was to be served is not."""
    serving.close()
    return 0


def test_help_lists_the_commands() -> None:
    output = run("--help").output
    for name in ("node", "up", "status", "policy", "demo"):
        assert f"\n  {name} " in output
        assert run(name, "--help").exit_code == 0


def test_unknown_commands_are_refused() -> None:
    assert "No such command 'nodes'" in run("nodes").output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("statu",), "Did you mean 'status'"), (("queue", "lst"), "Did you mean 'list'"),
        (("list_queues",), "Here it is 'mayfly queue list'"), (("cluster-status",), "Here it is 'mayfly status'"),
    ],
)  # fmt: skip
def test_unknown_commands_get_a_suggestion(words: tuple[str, ...], hint: str) -> None:
    result = run(*words)
    assert result.exit_code == 2 and f"No such command '{words[-1]}'. {hint}" in result.output


def test_what_rabbitmqs_commands_are_called_here_is_there() -> None:
    for ours in _OF_RABBITMQ.values():
        words = [word for word in ours.split() if not word.startswith("--")]
        assert run(*words, "--help").exit_code == 0, ours


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
    assert result.exit_code == exit_codes.REFUSED
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
        path_asked: str = "/status"

        def do_GET(self) -> None:
            assert self.path == self.path_asked
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


def test_ready_says_why_it_gets_no_page(status_server: http.server.HTTPServer) -> None:
    """Without a login other machines see no members."""
    handler: Any = status_server.RequestHandlerClass
    handler.answer, handler.code, handler.path_asked = b'{"error": "a login is needed"}', 401, "/cluster/members"
    where = f"127.0.0.1:{status_server.server_port}"
    result = run("ready", "--without", "node1", "--node", where)
    assert result.exit_code == 1
    assert f"{where}: a login is needed" in result.output


def test_status_of_nobody_is_refused() -> None:
    result = run("status", "--node", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "no answer from 127.0.0.1:1" in result.output
    assert "expected the HTTP address of a node" in run("status", "--node", "nonsense").output


@pytest.mark.parametrize("form", ["{}", "http://{}", "http://{}/", "HTTP://{}"])
def test_a_node_is_named_by_its_address_or_its_url(status_server: http.server.HTTPServer, form: str) -> None:
    result = run("status", "--json", "--node", form.format(f"127.0.0.1:{status_server.server_port}"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == STATUS


def test_urls_of_nodes() -> None:
    assert NodeUrl.parse("https://mq.example") == NodeUrl(Address("mq.example", 443), tls=True)
    assert NodeUrl.parse("http://[::1]:15672/") == NodeUrl(Address("::1", 15672))
    assert NodeUrl.parse("http://[::1]") == NodeUrl(Address("::1", 80))
    assert isinstance(NodeUrl.parse("https://h:1").connect(1), http.client.HTTPSConnection)
    assert str(NodeUrl.parse("https://h:1")) == "https://h:1"


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("localhost", "such as 127.0.0.1:15672 or http://127.0.0.1:15672"),
        ("127.0.0.1:x", "such as 127.0.0.1:15672 or http://127.0.0.1:15672"),
        ("amqp://127.0.0.1:5672", "not a URL of amqp: HTTP has a port of its own"),
        ("http://guest:guest@127.0.0.1:15672", "--user and --password"),
        ("http://127.0.0.1:15672/api", "a URL without a path, such as http://127.0.0.1:15672"),
        ("::1:15672", "in brackets"),
    ],
)
def test_what_is_no_address_of_a_node_is_refused_with_what_is(address: str, says: str) -> None:
    for words in (("status",), ("user", "list"), ("ready",)):
        result = run(*words, "--node", address)
        assert result.exit_code == 2
        assert says in " ".join(result.output.split()), result.output


def test_the_amqp_port_is_told_for_what_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_as_amqp() -> None:
            for _ in range(2):
                client, _ = server.accept()
                with client:
                    client.recv(4096)
                    client.sendall(b"AMQP\x00\x00\x09\x01")

        thread = threading.Thread(target=answer_as_amqp)
        thread.start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        for words in (("status",), ("user", "list")):
            result = run(*words, "--node", where)
            assert result.exit_code == 1
            assert f"{where} speaks AMQP: --node is the HTTP address, by default port 15672" in result.output
        thread.join()


def whole_status(groups: int) -> dict[str, Any]:
    """Of three nodes in a rack each, with figures as long as they get."""
    nodes = [
        {"id": id, "name": f"node{id}", "failure_domain": f"rack-{id}.example", "up": True, "clock_offset_ms": -17}
        for id in (1, 2, 3)
    ]
    shown = {"leader": 3, "leader_name": "node3", "term": 1234, "commit": 123456789, "applied": 123456789,
             "queues": 1234, "ready": 12345678, "unacknowledged": 123456, "expiry_lag_ms": 1234, "outbox": 12345,
             "voters": [1, 2, 3], "learners": []}  # fmt: skip
    return {"name": "node1", "nodes": nodes, "groups": [{"group": number, **shown} for number in range(groups)]}


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_each_node_and_group_has_a_line_of_the_status_however_narrow(width: int) -> None:
    text = io.StringIO()
    show_status(whole_status(17), Console(file=text, width=width))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    groups = [line for line in lines if "shard" in line or "catalog" in line]
    assert len(groups) == 17
    for line in groups:
        assert "node3" in line and "1234 " in line and "12345678" in line  # leader, queues, ready
    rows = [line.split()[:2] for line in lines]
    assert [row for row in rows if row[:1] and row[0] in "123"] == [["1", "node1"], ["2", "node2"], ["3", "node3"]]
    headings = next(line.split() for line in lines if line.split()[:1] == ["group"])
    left_out = " ".join(lines[-2:]) if width < 100 else ""
    for heading in ("term", "commit", "applied", "outbox", "voters"):
        assert (heading in headings) != (heading in left_out)
    assert ("Not shown" in text.getvalue()) == (width < 100)


def test_idle_shards_are_a_line_together() -> None:
    status = whole_status(9)
    nothing = {"ready": 0, "unacknowledged": 0, "outbox": 0, "expiry_lag_ms": 0, "queues": 2}
    for number in (1, 2, 3, 5, 6, 8):
        status["groups"][number] |= nothing
    status["groups"][8] |= {"leader": 0, "leader_name": None}
    shown = {}
    for all_shards in (False, True):
        text = io.StringIO()
        show_status(status, Console(file=text, width=80), all_shards)
        shown[all_shards] = text.getvalue()
        assert max(map(len, text.getvalue().splitlines())) <= 80
    folded = "Idle: shards 1-3, 5-6 with 10 queues, led by node3 5 (--all shows them)"
    assert folded in shown[False] and "Idle:" not in shown[True]
    for number in range(1, 9):
        assert (f"shard {number} " in shown[False]) == (number in (4, 7, 8))
        assert f"shard {number} " in shown[True]


def test_s2_the_status_shows_what_is_scheduled_where_something_is() -> None:
    """S2: of shards in which nothing else waits too; without it there are no such columns."""
    status = whole_status(6)
    for group in status["groups"][1:]:
        group |= {"ready": 0, "scheduled": 0, "next_due_in_ms": None, "unacknowledged": 0, "outbox": 0}
        group |= {"expiry_lag_ms": 0}
    status["queues"] = {"queues": 5, "ready": 0, "scheduled": 0}
    shown = []
    for scheduled in (0, 123_456):
        status["queues"]["scheduled"] = scheduled
        status["groups"][3] |= {"scheduled": scheduled, "next_due_in_ms": 7000 if scheduled else None}
        text = io.StringIO()
        show_status(status, Console(file=text, width=160))
        shown.append(text.getvalue())
    assert "scheduled" not in shown[0] and "due in ms" not in shown[0] and "shards 1-5" in shown[0]
    assert "shards 1-2, 4-5" in shown[1]
    (line,) = [line.split() for line in shown[1].splitlines() if "shard 3 " in line]
    assert line[line.index("123456") - 1 :][:3] == ["0", "123456", "7000"]
    assert "Totals: queues 5, ready 0, scheduled 123456" in shown[1]


def test_j4_the_status_has_copies_of_streams_those_furthest_behind_first() -> None:
    status = whole_status(3)
    assert "Copies of streams" not in status_text(status)
    status["groups"][1]["stream_copies"] = [
        {"vhost": "/", "stream": "s", "copy": "near", "lag": 0}, {"vhost": "/", "stream": "s", "copy": "far", "lag": 9},
    ]  # fmt: skip
    link = {"vhost": "v", "mirror": "elsewhere", "cluster": "east"}
    status["groups"][2]["upstreams"] = [
        {**link, "reading": True, "lag": 5}, {**link, "mirror": "cut off", "reading": False, "lag": None},
    ]  # fmt: skip
    rows = [line.split() for line in status_text(status).splitlines()]
    assert rows[rows.index(["Copies", "of", "streams", "led", "here"]) + 4 :][:4] == [
        ["v", "cut", "off", "cluster", "east,", "which", "cannot", "be", "read", "-"],
        ["/", "far", "s", "9"], ["v", "elsewhere", "cluster", "east", "5"], ["/", "near", "s", "0"],
    ]  # fmt: skip
    status["groups"][1]["stream_copies"] *= 20
    assert "Copies of streams led here, 20 of 42" in status_text(status)


def status_text(status: dict[str, Any]) -> str:
    text = io.StringIO()
    show_status(status, Console(file=text, width=120))
    return text.getvalue()


def test_a_status_without_anything_fits_too() -> None:
    text = io.StringIO()
    show_status({"name": "x", "waits": "2 of 3 founders are there"}, Console(file=text, width=20))
    assert "In no cluster yet" in text.getvalue()
