"""Requests of tools that are no packages of Python, as they make them, and the fields that they read of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.node.http.real_node import Node
from tests.waiting import BOUND_S, wait_for


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


def test_how_long_keda_expects_a_queue_to_be_consumed(node: Node) -> None:
    """Its ExpectedQueueConsumptionTime, from both rates: (publish - deliver) / deliver + messages / deliver."""
    node.channel.queue_declare("consumed", durable=True)
    times: list[float] = []
    expected: list[float] = []

    def is_told() -> bool:
        for _ in range(3):
            node.channel.basic_publish("", "consumed", b"m")
        node.channel.basic_get("consumed", auto_ack=True)
        queue = read(node, "/api/queues/%2F/consumed")
        stats = queue["message_stats"]
        publish, deliver = (stats.get(f"{name}_details", {}).get("rate", 0) for name in ("publish", "deliver_get"))
        if publish and deliver:
            times.append(publish / deliver)
            expected.append((publish - deliver) / deliver + queue["messages"] / deliver)
        # The first rates may have begun in the middle of this.
        return bool(expected) and 1.5 <= times[-1] <= 6

    wait_for(is_told, "both rates, as three come for each that goes", every_s=0.1)
    assert expected[-1] > 0
    node.channel.queue_delete("consumed")


def test_since_when_something_is_idle(node: Node) -> None:
    """Queues and channels, once they have rested."""
    node.channel.queue_declare("rests", durable=True)
    for path in ("/api/queues/%2F/rests", "/api/channels"):
        rows: list[Any] = []

        def is_idle(path: str = path, rows: list[Any] = rows) -> bool:
            found = read(node, path)
            rows[:] = [found] if isinstance(found, dict) else found
            return bool(rows) and all("idle_since" in row for row in rows)

        wait_for(is_idle, f"rest of {path}", every_s=0.1)
        assert all(datetime.fromisoformat(row["idle_since"]) < datetime.now(UTC) for row in rows)
    node.channel.queue_delete("rests")


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


def test_who_has_no_login_is_told_the_realm_of_rabbitmq(node: Node) -> None:
    """The checks of Nagios give their password to that realm alone."""
    with pytest.raises(HTTPError) as refused:
        urlopen(f"http://{node.address}/api/policies", timeout=BOUND_S)
    assert refused.value.code == 401
    assert refused.value.headers["WWW-Authenticate"] == 'Basic realm="RabbitMQ Management"'


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


OPERATOR_STEPS = [
    # The topology operator: what it puts, by rabbit-hole, with each change of a resource, and takes away with it.
    ("PUT", "vhosts/top", {"description": "", "tags": ["t"], "defaultqueuetype": "quorum", "tracing": False}, 201),
    ("PUT", "vhosts/top", {"description": "", "tags": ["t"], "defaultqueuetype": "quorum", "tracing": False}, 204),
    ("GET", "vhosts/top", None, 200),
    ("PUT", "vhost-limits/top/max-queues", {"value": 100}, 204),
    ("GET", "vhost-limits/top", None, 200),
    ("DELETE", "vhost-limits/top/max-queues", None, 204),
    (
        "PUT", "users/app",
        {
            "name": "app", "tags": "management", "password_hash": "YWJjZCUocPu+lAjLXU4Se7RFyins8lJaz+A5gv/b19IpfqUF",
            "hashing_algorithm": "rabbit_password_hashing_sha512", "password": "pw",
        },
        201,
    ),
    ("PUT", "user-limits/app/max-channels", {"value": 10}, 204),
    ("DELETE", "user-limits/app/max-channels", None, 204),
    ("PUT", "permissions/top/app", {"configure": "^app", "write": ".*", "read": ""}, 201),
    ("PUT", "permissions/top/guest", {"configure": ".*", "write": ".*", "read": ".*"}, 204),
    ("PUT", "topic-permissions/top/app", {"exchange": "amq.topic", "write": "^a", "read": "^b"}, 201),
    ("PUT", "exchanges/top/x", {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "y"}}, 201),
    ("PUT", "queues/top/q", {"type": "", "durable": True, "arguments": {"x-delivery-limit": 5}}, 201),
    ("PUT", "queues/top/q", {"type": "", "durable": True, "arguments": {"x-delivery-limit": 5}}, 204),
    ("GET", "queues/top/q", None, 200),
    ("POST", "bindings/top/e/x/q/q", {"routing_key": "k", "arguments": {"a": "b"}}, 201),
    ("GET", "bindings/top/e/x/q/q", None, 200),
    ("PUT", "policies/top/p", {"vhost": "top", "pattern": "^q", "definition": {"max-length": 5}}, 201),
    ("PUT", "operator-policies/top/o", {"pattern": "^q", "apply-to": "queues", "definition": {"max-length": 9}}, 201),
    ("PUT", "global-parameters/cluster_tags", {"value": {"zone": "a"}}, 201),
    ("DELETE", "global-parameters/cluster_tags", None, 204),
    ("PUT", "parameters/shovel/top/s", {"value": {"src-queue": "q"}}, 400),  # There are no shovels.
    ("DELETE", "operator-policies/top/o", None, 204),
    ("DELETE", "policies/top/p", None, 204),
    ("DELETE", "queues/top/q?if-unused=true&if-empty=true", None, 204),
    ("DELETE", "exchanges/top/x", None, 204),
    ("DELETE", "topic-permissions/top/app/amq.topic", None, 204),
    ("DELETE", "permissions/top/app", None, 204),
    ("DELETE", "users/app", None, 204),
    ("DELETE", "vhosts/top", None, 204),
    ("DELETE", "vhosts/top", None, 404),
]


def test_the_topology_operator(node: Node) -> None:
    wrong = []
    for method, path, content, status in OPERATOR_STEPS:
        found = node.ask(method, f"/api/{path}", content=content)
        if found[0] != status:
            wrong.append((method, path, found, status))
        if (method, path) == ("GET", "queues/top/q"):
            assert found[1]["type"] == "quorum", "as the vhost has it"
        if path == "bindings/top/e/x/q/q" and method == "GET":
            # One with arguments it finds by these, and deletes by its key.
            (key,) = [row["properties_key"] for row in found[1] if row["arguments"] == {"a": "b"}]
            assert node.ask("DELETE", f"/api/bindings/top/e/x/q/q/{key}")[0] == 204
    assert not wrong


def test_the_check_of_the_datadog_agent(node: Node) -> None:
    """Without a page that it asks for the whole check is critical; of these fields it makes its metrics."""
    overview = read(node, "/api/overview")
    assert overview["rabbitmq_version"] and overview["cluster_name"]
    assert {"connections", "channels", "queues", "consumers"} <= overview["object_totals"].keys()
    did = {"ack", "confirm", "deliver_get", "publish", "return_unroutable", "redeliver"}
    assert did <= overview["message_stats"].keys()
    for exchange in read(node, "/api/exchanges"):
        assert {"name", "vhost", "message_stats"} <= exchange.keys()
    for queue in read(node, "/api/queues"):
        numbers = ("consumers", "messages", "messages_ready", "messages_unacknowledged")
        assert all(float(queue[field]) >= 0 for field in numbers)
        assert {"publish", "deliver_get", "ack"} <= queue["message_stats"].keys()
        assert {"node", "name", "vhost", "policy"} <= queue.keys()
        assert len(read(node, f"/api/queues/%2F/{queue['name']}/bindings")) >= 1
    (member,) = read(node, "/api/nodes")
    gauges = ("fd_used", "disk_free", "mem_used", "mem_limit", "run_queue", "sockets_used", "running", "mem_alarm")
    assert all(float(member[field]) >= 0 for field in (*gauges, "disk_free_alarm"))
    assert len(member["partitions"]) == 0
    assert {"vhost", "state"} <= read(node, "/api/connections")[0].keys()
    assert read(node, "/api/vhosts/%2F/connections")[0]["vhost"] == "/"
    for vhost in read(node, "/api/vhosts"):
        assert read(node, f"/api/aliveness-test/{vhost['name'].replace('/', '%2F')}") == {"status": "ok"}


def test_what_nservicebus_asks_before_it_starts(node: Node) -> None:
    """A version from 3.10.0 on, the flag of streams, and no delivery limit: by a policy, from 4.0 on."""
    version = tuple(int(part) for part in read(node, "/api/overview")["rabbitmq_version"].split("."))
    assert version >= (4, 0, 0)
    flags = {flag["name"]: flag["state"] for flag in read(node, "/api/feature-flags")}
    assert flags["stream_queue"] == "enabled"
    node.channel.queue_declare("nsb", durable=True, arguments={"x-queue-type": "quorum"})
    queue = read(node, "/api/queues/%2F/nsb")
    assert (queue["delivery_limit"], queue["effective_policy_definition"]) == (20, {})
    assert not queue.get("policy") and queue["arguments"] == {"x-queue-type": "quorum"}
    wish = {
        "name": "nsb.nsb.delivery-limit", "vhost": "/", "pattern": "nsb", "apply-to": "quorum_queues",
        "definition": {"delivery-limit": -1}, "priority": 100,
    }  # fmt: skip
    assert node.ask("PUT", "/api/policies/%2F/nsb.nsb.delivery-limit", content=wish)[0] == 201
    assert read(node, "/api/queues/%2F/nsb")["delivery_limit"] == "unlimited"
    # Its tools: lists by pages.
    page = read(node, "/api/queues/%2F?page=1&page_size=500")
    assert "nsb" in [item["name"] for item in page["items"]] and page["page_count"] == 1
    assert [row["destination"] for row in read(node, "/api/queues/%2F/nsb/bindings")] == ["nsb"]
    node.channel.queue_delete("nsb")


NUMBER, TEXT, YES_OR_NO, ITEMS, TABLE = int, str, bool, list, dict
TYPED: list[tuple[str, dict[str, type]]] = [
    # What rabbitmqadmin v2 cannot do without, by page: an answer that lacks one, or has null there, it does not read.
    ("nodes", {
        "name": TEXT, "uptime": NUMBER, "run_queue": NUMBER, "processors": NUMBER, "os_pid": TEXT, "fd_total": NUMBER,
        "proc_total": NUMBER, "mem_limit": NUMBER, "mem_alarm": YES_OR_NO, "disk_free_limit": NUMBER,
        "disk_free_alarm": YES_OR_NO, "rates_mode": TEXT, "enabled_plugins": ITEMS, "being_drained": YES_OR_NO,
    }),
    ("users", {"name": TEXT, "tags": ITEMS, "password_hash": TEXT}),
    ("vhosts", {"name": TEXT, "tags": ITEMS, "description": TEXT, "default_queue_type": TEXT, "metadata": TABLE}),
    ("connections", {
        "name": TEXT, "node": TEXT, "protocol": TEXT, "user": TEXT, "connected_at": NUMBER, "client_properties": TABLE,
    }),
    ("channels", {
        "number": NUMBER, "name": TEXT, "connection_details": TABLE, "vhost": TEXT, "state": TEXT, "confirm": YES_OR_NO,
        "consumer_count": NUMBER, "prefetch_count": NUMBER, "messages_unacknowledged": NUMBER,
        "messages_unconfirmed": NUMBER,
    }),
    ("consumers", {
        "consumer_tag": TEXT, "active": YES_OR_NO, "ack_required": YES_OR_NO, "prefetch_count": NUMBER,
        "exclusive": YES_OR_NO, "arguments": TABLE, "consumer_timeout": NUMBER, "queue": TABLE,
        "channel_details": TABLE,
    }),
    ("queues", {
        "name": TEXT, "vhost": TEXT, "type": TEXT, "durable": YES_OR_NO, "auto_delete": YES_OR_NO,
        "exclusive": YES_OR_NO, "arguments": TABLE, "node": TEXT, "state": TEXT, "messages": NUMBER,
        "message_bytes": NUMBER, "consumers": NUMBER,
    }),
    ("queues/detailed", {"name": TEXT, "vhost": TEXT, "type": TEXT, "arguments": TABLE}),
    ("exchanges", {
        "name": TEXT, "vhost": TEXT, "type": TEXT, "durable": YES_OR_NO, "auto_delete": YES_OR_NO, "arguments": TABLE,
    }),
    ("bindings", {
        "vhost": TEXT, "source": TEXT, "destination": TEXT, "destination_type": TEXT, "routing_key": TEXT,
        "arguments": TABLE,
    }),
    ("policies", {
        "name": TEXT, "vhost": TEXT, "pattern": TEXT, "apply-to": TEXT, "priority": NUMBER, "definition": TABLE,
    }),
    ("permissions", {"user": TEXT, "vhost": TEXT, "configure": TEXT, "write": TEXT, "read": TEXT}),
    ("vhost-limits", {"vhost": TEXT, "value": TABLE}),
    ("parameters", {"name": TEXT, "vhost": TEXT, "component": TEXT, "value": TABLE}),
    ("global-parameters", {"name": TEXT}),
    ("feature-flags", {
        "name": TEXT, "state": TEXT, "desc": TEXT, "doc_url": TEXT, "stability": TEXT, "provided_by": TEXT,
    }),
]  # fmt: skip


def test_rabbitmqadmin_v2_reads_every_list(node: Node) -> None:
    """It is strict: fields that it knows are there, and of their types. What it asks for is by the same paths."""
    for path, content in (
        ("policies/%2F/typed", {"pattern": "^typed", "definition": {"max-length": 5}, "priority": 3}),
        ("vhost-limits/%2F/max-queues", {"value": 1000}),
    ):  # fmt: skip
        assert node.ask("PUT", f"/api/{path}", content=content)[0] in (201, 204)
    tag = node.channel.basic_consume("celery.two", lambda *_: None)
    try:
        for path, fields in TYPED:
            rows = read(node, f"/api/{path}")
            assert rows, path
            for row in rows:
                found = {name: row.get(name) for name in fields}
                wrong = {
                    name: value for name, value in found.items()
                    if type(value) is not fields[name] or (isinstance(value, NUMBER) and not 0 <= value < 2**63)
                }  # fmt: skip
                assert not wrong, (path, wrong)
    finally:
        node.channel.basic_cancel(tag)
        for path in ("policies/%2F/typed", "vhost-limits/%2F/max-queues"):
            assert node.ask("DELETE", f"/api/{path}")[0] == 204


def test_rabbitmqadmin_v2_reads_what_is_about_one_thing(node: Node) -> None:
    (member,) = read(node, "/api/nodes")
    memory = read(node, f"/api/nodes/{member['name']}/memory")["memory"]
    assert memory.pop("strategy") == "rss"
    totals = memory.pop("total")
    assert all(type(value) is int for value in (*memory.values(), *totals.values())) and len(memory) == 25
    assert read(node, "/api/cluster-name")["name"] and read(node, "/api/whoami")["tags"] == ["administrator"]
    attempts = read(node, f"/api/auth/attempts/{member['name']}")
    assert all(type(row["auth_attempts_failed"]) is int for row in attempts)
    definitions = read(node, "/api/definitions")
    sections = ("users", "vhosts", "permissions", "parameters", "policies", "queues", "exchanges", "bindings")
    assert all(isinstance(definitions[section], list) for section in sections)
    for path in (
        "health/checks/alarms", "health/checks/local-alarms", "health/checks/node-is-quorum-critical",
        "deprecated-features/used", "auth/attempts/" + member["name"] + "/source",
        "auth/hash_password/pw", "vhosts/%2F/deletion/protection", "vhosts/%2F/permissions", "users/guest/permissions",
        "user-limits", "operator-policies", "topic-permissions", "parameters/federation-upstream/%2F",
    ):  # fmt: skip
        read(node, f"/api/{path}")


def test_terraform_and_vault(node: Node) -> None:
    """And whoever else makes these requests, with rabbit-hole or without."""
    wrong = []
    for method, path, content, status in STEPS:
        found = node.ask(method, f"/api/{path}", content=content)
        if found[0] != status:
            wrong.append((method, path, found, status))
    assert not wrong
