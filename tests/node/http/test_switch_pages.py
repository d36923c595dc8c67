"""What is switched off, by `mayfly switch` and as the status shows it, on a node as in the product (RULES X3)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mayfly.node.command_line import main
from tests.node.http.real_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.stop()


def mayfly(node: Node, *words: str) -> Result:
    login = {"MAYFLY_USER": "guest", "MAYFLY_PASSWORD": "guest", "COLUMNS": "160"}
    return CliRunner().invoke(main, [*words, "--node", node.address], env=login)


def shown(node: Node, *words: str) -> str:
    result = mayfly(node, *words)
    assert result.exit_code == 0, result.output
    return result.output


def test_x3_the_command_switches_off_and_on_and_the_status_says_what_is_off(node: Node) -> None:
    """X3: in the whole cluster and in a vhost; a client is refused in words that say what is off."""
    assert shown(node, "switch", "list") == "everything is on\n"
    assert "Switched off" not in shown(node, "status")
    assert shown(node, "switch", "off", "message-ttl") == "message-ttl is off in the cluster\n"
    assert shown(node, "switch", "off", "dead-lettering", "--vhost", "/") == "dead-lettering is off in vhost '/'\n"
    off = [{"vhost": None, "feature": "message-ttl"}, {"vhost": "/", "feature": "dead-lettering"}]
    assert node.ask("GET", "/status")[1]["switched_off"] == off
    assert json.loads(shown(node, "switch", "list", "--json")) == off
    listed = shown(node, "switch", "list").splitlines()
    assert listed == ["message-ttl is off in the cluster", "dead-lettering is off in vhost '/'"]
    status = shown(node, "status")
    assert "Switched off in the cluster: message-ttl" in status
    assert "Switched off in vhost '/': dead-lettering" in status
    declared = {"durable": True, "arguments": {"x-message-ttl": 5}}
    status_code, answer = node.ask("PUT", "/api/queues/%2F/q", content=declared)
    assert (status_code, "message TTL" in answer["reason"] or "message-ttl" in answer["reason"]) == (400, True)
    assert shown(node, "switch", "on", "message-ttl") == "message-ttl is on in the cluster\n"
    assert shown(node, "switch", "on", "dead-lettering", "--vhost", "/") == "dead-lettering is on in vhost '/'\n"
    assert node.ask("GET", "/status")[1]["switched_off"] == []
    assert shown(node, "switch", "list") == "everything is on\n"
    assert node.ask("PUT", "/api/queues/%2F/q", content=declared)[0] == 201


def test_x3_what_can_not_be_switched_is_refused_and_nothing_is_changed(node: Node) -> None:
    """X3."""
    refused = mayfly(node, "switch", "off", "message-ttl", "--vhost", "none")
    assert (refused.exit_code, "none" in refused.output) == (1, True)
    assert mayfly(node, "switch", "off", "queues").exit_code == 2
    wrong = CliRunner().invoke(
        main, ["switch", "off", "message-ttl", "--node", node.address],
        env={"MAYFLY_USER": "guest", "MAYFLY_PASSWORD": "wrong"},
    )  # fmt: skip
    assert wrong.exit_code == 1
    assert node.ask("GET", "/status")[1]["switched_off"] == []
