"""Tools for RabbitMQ's management API, unchanged, each called for all that it can do; and the requests of those that
are not packages of Python, as they make them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.interop import management_tools
from tests.interop.management_tools import NO_SCRIPT, REFUSED, Count, rabbitmqadmin, script
from tests.interop.support import NO_PYTHON_CLIENTS
from tests.node.http.real_node import Node

RECORDED: Final = Path(__file__).parent / "rabbitmqadmin-3.10.8-requests.json"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    yield node
    node.stop()


@pytest.mark.parametrize(
    ("package", "tool"),
    [
        ("pyrabbit2", management_tools.pyrabbit2),
        ("rabbitmq_admin", management_tools.rabbitmq_admin),
        ("amqpstorm", management_tools.amqpstorm_management),
    ],
)
def test_a_tool_does_all_that_it_does_with_rabbitmq(node: Node, package: str, tool: Callable[[Node], Count]) -> None:
    pytest.importorskip(package, reason=NO_PYTHON_CLIENTS)
    count = tool(node)
    print(f"{package}: {count.passed} of {count.calls}")
    assert not count.failed
    assert count.calls > 40


@pytest.mark.slow
def test_rabbitmqadmin_does_all_that_it_does_with_rabbitmq(node: Node) -> None:
    path = script()
    if path is None:
        pytest.skip(NO_SCRIPT)
    count = rabbitmqadmin(path, node)
    print(f"rabbitmqadmin: {count.passed} of {count.calls}")
    assert count.failed.keys() == REFUSED


def test_the_requests_of_rabbitmqadmin_are_answered(node: Node) -> None:
    """As its commands make them (`management_tools.COMMANDS`), where there is no rabbitmqadmin."""
    node.connect()
    connection = node.ask("GET", "/api/connections")[1][0]["name"]
    recorded: list[list[Any]] = json.loads(RECORDED.read_text())
    exported: dict[str, Any] = {}
    answers = []
    for method, recorded_path, body, status in recorded:
        path = recorded_path.replace("CONNECTION", quote(connection, safe=""))
        content = exported[path] if body == "EXPORTED" else None if body is None else json.loads(body)
        found = node.ask(method, path, content=content)
        answers.append((method, path, found[0], status))
        exported[path] = found[1]
    wrong = [answer for answer in answers if answer[2] != answer[3]]
    assert not wrong
