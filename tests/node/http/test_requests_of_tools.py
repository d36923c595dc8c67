"""Requests of tools that are no packages of Python, as they make them, and the fields that they read of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.http.real_node import Node
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.channel.confirm_delivery()
    for name in ("celery", "celery.two", "other"):
        node.channel.queue_declare(name, durable=True)
    for _ in range(3):
        node.channel.basic_publish("", "celery", b"m")
    yield node
    node.stop()


def read(node: Node, path: str) -> Any:
    status, content = node.ask("GET", path)
    assert status == 200, (path, content)
    return content


def test_flower(node: Node) -> None:
    """Its tab of the broker."""
    rows = {row["name"]: row for row in read(node, "/api/queues/%2F")}
    fields = ("messages", "messages_unacknowledged", "messages_ready", "consumers")
    assert [rows["celery"][field] for field in fields] == [3, 0, 3, 0]


def test_keda(node: Node) -> None:
    """QueueLength; MessageRate and ExpectedQueueConsumptionTime; a regular expression with pages."""
    queue = read(node, "/api/queues/%2F/celery")
    assert (queue["name"], queue["messages"], queue["messages_unacknowledged"]) == ("celery", 3, 0)

    def rate() -> float:
        node.channel.basic_publish("", "other", b"m")
        stats = read(node, "/api/queues/%2F/other")["message_stats"]
        return float(stats.get("publish_details", {}).get("rate", 0))

    wait_for(lambda: rate() > 0, "a rate", every_s=0.1)
    assert "deliver_get_details" in read(node, "/api/queues/%2F/other")["message_stats"]
    query = "page=1&use_regex=true&pagination=false&name=%5Ecelery&page_size=100"
    page = read(node, f"/api/queues/%2F?{query}")
    assert [item["name"] for item in page["items"]] == ["celery", "celery.two"]
    assert (page["filtered_count"], page["total_count"], page["page_count"]) == (2, 3, 1)


def test_the_exporter_of_kbudde(node: Node) -> None:
    """Without these it says that RabbitMQ is down."""
    overview = read(node, "/api/overview")
    assert overview["object_totals"].keys() >= {"channels", "connections", "consumers", "queues", "exchanges"}
    assert overview["queue_totals"].keys() == {"messages", "messages_ready", "messages_unacknowledged"}
    assert {"publish", "confirm", "ack", "deliver", "redeliver"} <= overview["message_stats"].keys()
    assert {"cluster_name", "rabbitmq_version", "node"} <= overview.keys()
    (member,) = read(node, "/api/nodes")
    assert {"name", "running", "uptime", "mem_used", "mem_limit", "mem_alarm", "disk_free"} <= member.keys()
    assert {"disk_free_alarm", "disk_free_limit", "partitions"} <= member.keys()
    assert read(node, "/api/aliveness-test/%2F") == {"status": "ok"}
    assert read(node, f"/api/nodes/{member['name']}/memory")["memory"]["total"]["rss"] > 0
    for path in ("queues?memory=true&pagination=false", "exchanges", "connections", "whoami"):
        read(node, f"/api/{path}")


def test_the_checks_of_nagios(node: Node) -> None:
    assert read(node, "/api/aliveness-test/%2f")["status"] == "ok"
    (member,) = read(node, "/api/nodes/")
    assert member["running"] is True
    assert read(node, f"/api/nodes/{member['name']}")["partitions"] == []
    assert {"mem_alarm", "disk_free_alarm", "mem_used", "mem_limit", "disk_free"} <= member.keys()
    assert read(node, "/api/overview/")["queue_totals"]["messages"] >= 3
    for kind in ("vhosts", "exchanges", "bindings", "queues", "channels", "connections"):
        assert len(read(node, f"/api/{kind}/")) > 0
    assert {"recv_oct", "send_oct", "state"} <= read(node, "/api/connections")[0].keys()
    queue = read(node, "/api/queues/%2F/celery")
    assert {"messages", "messages_ready", "messages_unacknowledged", "consumers"} <= queue.keys()


STEPS = [
    # Terraform: what it makes, reads back and takes away.
    ("PUT", "vhosts/tf", {"description": "d", "tags": [], "defaultqueuetype": "", "tracing": False}, 201),
    ("PUT", "users/tf", {"name": "tf", "password": "pw", "tags": "management"}, 201),
    ("GET", "users/tf", None, 200),
    ("PUT", "permissions/tf/tf", {"configure": ".*", "write": ".*", "read": ".*"}, 201),
    ("GET", "permissions/tf/tf", None, 200),
    ("PUT", "topic-permissions/tf/tf", {"exchange": "amq.topic", "write": ".*", "read": ".*"}, 201),
    ("GET", "topic-permissions/tf/tf", None, 200),
    ("PUT", "permissions/tf/guest", {"configure": ".*", "write": ".*", "read": ".*"}, 204),
    ("PUT", "exchanges/tf/x", {"type": "fanout", "durable": False, "auto_delete": True, "arguments": None}, 201),
    ("GET", "exchanges/tf/x", None, 200),
    ("PUT", "queues/tf/q", {"durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}}, 201),
    ("GET", "queues/tf/q", None, 200),
    ("POST", "bindings/tf/e/x/q/q", {"routing_key": "#", "arguments": {}, "properties_key": ""}, 201),
    ("GET", "bindings/tf", None, 200),
    ("PUT", "policies/tf/p", {"pattern": ".*", "apply-to": "all", "definition": {"expires": 1800000}}, 201),
    ("PUT", "operator-policies/tf/o", {"pattern": ".*", "apply-to": "queues", "definition": {"max-length": 5}}, 201),
    ("DELETE", "operator-policies/tf/o", None, 204),
    ("DELETE", "policies/tf/p", None, 204),
    ("DELETE", "bindings/tf/e/x/q/q/%2523", None, 204),
    ("DELETE", "queues/tf/q", None, 204),
    ("DELETE", "exchanges/tf/x", None, 404),  # It went with its last binding.
    # Vault: a user for a lease.
    ("PUT", "users/root-4a1", {"name": "root-4a1", "password": "secret-one", "tags": ""}, 201),
    ("PUT", "permissions/tf/root-4a1", {"configure": ".*", "write": ".*", "read": ".*"}, 201),
    ("DELETE", "users/root-4a1", None, 204),
    ("DELETE", "topic-permissions/tf/tf", None, 204),
    ("DELETE", "permissions/tf/tf", None, 204),
    ("DELETE", "users/tf", None, 204),
    ("DELETE", "vhosts/tf", None, 204),
]


def test_terraform_and_vault(node: Node) -> None:
    """And whoever else makes these requests, with rabbit-hole or without."""
    wrong = []
    for method, path, content, status in STEPS:
        found = node.ask(method, f"/api/{path}", content=content)
        if found[0] != status:
            wrong.append((method, path, found, status))
    assert not wrong
