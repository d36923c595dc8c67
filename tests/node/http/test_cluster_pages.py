"""Health checks, parameters and the smaller pages of RabbitMQ's management API, on a node as in the product."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pika
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mayfly.node.catalog import AddVhost, Catalog, DeclareQueue
from mayfly.node.duties.alarms import MEMORY
from mayfly.node.operating.health_checks import HealthChecks
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import BOUND_S, wait_for

OK = {"status": "ok"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.add_user("mine", "management", ".*")
    node.add_user("watch", "monitoring", None)
    yield node
    node.stop()


@pytest.mark.parametrize(
    "check",
    [
        *("alarms", "local-alarms", "virtual-hosts", "node-is-mirror-sync-critical", "node-is-quorum-critical"),
        *("metadata-store/initialized", "metadata-store/initialized/with-data", "certificate-expiration/4/weeks"),
        *("ready-to-serve-clients", "is-in-service"),
        "quorum-queues-without-elected-leaders/vhost/%2F/pattern/%5Eq/",
    ],
)
def test_health_checks_of_a_node_that_is_well(node: Node, check: str) -> None:
    assert node.ask("GET", f"/api/health/checks/{check}", "mine") == (200, OK)


@pytest.mark.parametrize("which", ["", "/pattern/%5Eq"])
def test_a_check_of_all_vhosts_is_for_who_sees_them(node: Node, which: str) -> None:
    """It names queues."""
    path = f"/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts{which}"
    assert node.ask("GET", path) == (200, OK)
    assert node.ask("GET", path, "mine")[0] == 401


def test_health_checks_of_listeners(node: Node) -> None:
    """The node tells of the ports that it was told to listen at: 0 here, any."""
    ports = node.ask("GET", "/api/health/checks/port-listener/1")[1]["ports"]
    port = ports[0]
    assert node.ask("GET", f"/api/health/checks/port-listener/{port}") == (200, {**OK, "port": port})
    failed = {"status": "failed", "reason": "No active listener", "missing": 1, "ports": ports}
    assert node.ask("GET", "/api/health/checks/port-listener/1") == (503, failed)
    assert node.ask("GET", "/api/health/checks/port-listener/x")[0] == 400
    assert node.ask("GET", "/api/health/checks/protocol-listener/amqp091")[0] == 200
    status, answer = node.ask("GET", "/api/health/checks/protocol-listener/mqtt")
    assert (status, answer["missing"]) == (503, "mqtt")
    assert node.ask("GET", "/api/health/checks/certificate-expiration/1/ages")[0] == 400
    assert node.ask("GET", "/api/health/checks/below-node-connection-limit")[1]["connections"] == 1


def test_an_alarm_fails_the_checks_of_alarms(node: Node) -> None:
    def is_failed(check: str) -> bool:
        # Each time anew: the node looks at its memory every second, and finds enough.
        node.run(_call(lambda: node.parts.engine.alarms.set(MEMORY, "low on memory")))
        status, answer = node.ask("GET", f"/api/health/checks/{check}")
        if (status, answer) == (200, OK):
            return False
        assert (status, answer["status"]) == (503, "failed")
        assert [each["resource"] for each in answer["alarms"]] == ["memory"]
        return True

    try:
        for check in ("alarms", "local-alarms"):
            wait_for(partial(is_failed, check), f"the check of {check} to fail")
    finally:
        node.run(_call(lambda: node.parts.engine.alarms.set(MEMORY, None)))


async def _call(what: Any) -> None:
    what()


def test_certificates_that_end_soon_fail_the_check(tmp_path: Path) -> None:
    file = tmp_path / "own.pem"
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=10))
    file.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    nothing = cast(Any, None)
    checks = HealthChecks(nothing, nothing, [file], now.timestamp)
    assert asyncio.run(checks.certificates("1", "weeks"))[0] == 200
    status, answer = asyncio.run(checks.certificates("2", "weeks"))
    assert (status, answer["reason"]) == (503, "Certificates expiring")
    assert answer["expired"][0]["certfile_expires_on"] == "2026-01-11T00:00:00Z"
    file.unlink()
    assert asyncio.run(checks.certificates("1", "days"))[0] == 503, "a file that is gone is none that is good"


def test_queues_in_shards_that_nobody_leads_fail_their_check() -> None:
    catalog = Catalog(2)
    for command in (
        AddVhost("v"), DeclareQueue("/", "q1", True), DeclareQueue("/", "q2", True), DeclareQueue("v", "q3", True),
        DeclareQueue("/", "passing", node_id=1),
    ):  # fmt: skip
        catalog.apply(command)
    leaders = {1: 1, 2: 1}
    engine: Any = SimpleNamespace(catalog=catalog, leader_of=lambda shard: leaders[shard])
    checks = HealthChecks(engine, cast(Any, None), [])

    def found(vhost: str | None, pattern: str = "") -> list[str] | None:
        status, answer = asyncio.run(checks.leaders(vhost, pattern))
        assert status == (503 if "queues" in answer else 200)
        return [each["name"] for each in answer["queues"]] if "queues" in answer else None

    assert found(None) is None
    leaders[1] = 0
    assert [queue.shard for queue in catalog.queues() if queue.replicated] == [1, 2, 1]
    assert (found(None), found("/"), found("v"), found("v", "1$"), found(None, "^q[13]")) == (
        ["q1", "q3"], ["q1"], ["q3"], None, ["q1", "q3"],
    )  # fmt: skip
    answer = asyncio.run(checks.leaders("v", ""))[1]
    assert answer["queues"] == [
        {"readable_name": "queue 'q3' in vhost 'v'", "name": "q3", "virtual_host": "v", "type": "classic"}
    ]
    assert asyncio.run(checks.leaders("none", ""))[0] == 404
    assert asyncio.run(checks.leaders(None, "("))[0] == 400


def test_limits_and_operator_policies_are_parameters(node: Node) -> None:
    limits, policy = "/api/parameters/vhost-limits/%2F/limits", "/api/parameters/operator_policy/%2F/cap"
    assert node.ask("PUT", limits, content={"value": {"max-queues": 100}}) == (201, None)
    assert node.ask("PUT", limits, content={"value": {"max-connections": 50}, "vhost": "/"}) == (204, None)
    shown = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-connections": 50}}
    assert node.ask("GET", limits) == (200, shown)
    wish = {"pattern": "^a", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
    assert node.ask("PUT", policy, content={"value": wish}) == (201, None)
    assert node.ask("GET", policy)[1]["value"] == wish
    assert len(node.ask("GET", "/api/parameters")[1]) == 2
    assert node.ask("GET", "/api/parameters/vhost-limits")[1] == [shown]
    assert node.ask("GET", "/api/parameters/shovel/%2F") == (200, [])
    status, answer = node.ask("PUT", "/api/parameters/shovel/%2F/s", content={"value": {}})
    assert (status, answer["reason"]) == (400, "Validation failed\n\ncomponent shovel not found\n")
    assert node.ask("PUT", limits, "mine", {"value": {}})[0] == 401
    for path in (limits, policy):
        assert node.ask("DELETE", path) == (204, None)
        assert node.ask("DELETE", path) == NOT_FOUND


def test_users_without_permissions_and_several_at_once(node: Node) -> None:
    for name in ("one", "two", "three"):
        node.add_user(name, "", None)
    assert sorted(node.names("/api/users/without-permissions")) == ["one", "three", "two", "watch"]
    assert node.ask("POST", "/api/users/bulk-delete", content={"users": ["one", "none", "two"]}) == (204, None)
    assert node.ask("POST", "/api/users/bulk-delete", content={"users": "three"})[0] == 400
    assert sorted(node.names("/api/users/without-permissions")) == ["three", "watch"]


def test_connections_of_a_user(node: Node) -> None:
    user = pika.PlainCredentials("mine", "mine")
    port = node.parts.listener.port
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, credentials=user))
    path = "/api/connections/username/mine"
    assert [row["user"] for row in node.ask("GET", path)[1]] == ["mine"]
    assert len(node.ask("GET", path, "mine")[1]) == 1
    assert node.ask("GET", "/api/connections/username/guest", "mine") == (200, [])
    assert node.ask("DELETE", path, "watch")[0] == 401
    assert node.ask("DELETE", path) == (204, None)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320"):
        connection.process_data_events(BOUND_S)
    assert node.ask("GET", path) == (200, [])


def test_vhosts_have_their_messages(node: Node) -> None:
    node.channel.queue_declare("counted", durable=True)
    node.channel.confirm_delivery()
    node.channel.basic_publish("", "counted", b"m")
    (row,) = node.ask("GET", "/api/vhosts")[1]
    assert {key: row[key] for key in ("messages", "messages_ready", "messages_unacknowledged")} == {
        "messages": 1, "messages_ready": 1, "messages_unacknowledged": 0
    }  # fmt: skip
    assert "messages" not in node.ask("GET", "/api/vhosts/%2F?disable_stats=true")[1]
    assert node.ask("GET", "/api/vhosts/none") == NOT_FOUND
    node.channel.queue_delete("counted")


def test_smaller_pages(node: Node) -> None:
    (row,) = node.ask("GET", "/api/nodes")[1]
    assert node.ask("GET", f"/api/nodes/{row['name']}/memory")[1]["memory"]["total"]["rss"] == pytest.approx(
        row["mem_used"], rel=0.5
    )
    assert node.ask("GET", "/api/nodes/none/memory") == NOT_FOUND
    assert node.ask("GET", "/api/cluster-name", "mine") == (200, {"name": "mayfly"})
    assert node.ask("GET", "/api/global-parameters/cluster_name") == (200, {"name": "cluster_name", "value": "mayfly"})
    assert node.names("/api/global-parameters") == ["cluster_name", "internal_cluster_id"]
    assert node.ask("GET", "/api/global-parameters/none") == NOT_FOUND
    assert {"fd_used", "fd_total", "sockets_used", "sockets_total"} <= row.keys()
    assert node.ask("GET", "/api/extensions") == (200, [{"javascript": "dispatcher.js"}])
    for path in ("deprecated-features", "deprecated-features/used"):
        assert node.ask("GET", f"/api/{path}") == (200, [])
    assert node.ask("GET", "/api/auth", "nobody at all") == (200, {"oauth_enabled": False})
    assert node.ask("POST", "/api/rebalance/queues") == (204, None)
    assert node.ask("PUT", "/api/feature-flags/quorum_queue/enable") == (204, None)
    assert node.ask("PUT", "/api/feature-flags/nonsense/enable")[0] == 400
    assert node.ask("POST", f"/api/vhosts/%2F/start/{row['name']}") == (204, None)
    attempts = {each["protocol"]: each for each in node.ask("GET", f"/api/auth/attempts/{row['name']}")[1]}
    assert attempts["amqp091"]["auth_attempts_succeeded"] >= 1
    assert attempts["http"]["auth_attempts_failed"] == 0
    assert node.ask("GET", f"/api/auth/attempts/{row['name']}/source") == (200, [])
    for path in ("", "/source"):
        assert node.ask("DELETE", f"/api/auth/attempts/{row['name']}{path}", "mine")[0] == 401
        assert node.ask("DELETE", f"/api/auth/attempts/{row['name']}{path}") == (204, None)
    attempts = {each["protocol"]: each for each in node.ask("GET", f"/api/auth/attempts/{row['name']}")[1]}
    assert attempts["amqp091"]["auth_attempts"] == 0
    assert node.ask("DELETE", "/api/auth/attempts/none") == NOT_FOUND


def test_definitions_of_a_vhost_go_into_another(node: Node) -> None:
    for vhost in ("from", "to"):
        assert node.ask("PUT", f"/api/vhosts/{vhost}") == (201, None)
    assert node.ask("PUT", "/api/queues/from/q", content={"durable": True, "arguments": {"x-expires": 60000}})[0] == 201
    assert node.ask("PUT", "/api/exchanges/from/x", content={"type": "direct", "durable": True})[0] == 201
    assert node.ask("POST", "/api/bindings/from/e/x/q/q", content={"routing_key": "k"})[0] == 201
    wish = {"pattern": "^q", "definition": {"max-length": 5}, "priority": 0, "apply-to": "queues"}
    assert node.ask("PUT", "/api/policies/from/p", content=wish)[0] == 201
    exported = node.ask("GET", "/api/definitions/from")[1]
    assert not {"users", "vhosts", "permissions"} & exported.keys()
    assert [each["name"] for each in exported["queues"]] == ["q"]
    assert "vhost" not in exported["queues"][0]
    assert node.ask("POST", "/api/definitions/to", content={**exported, "users": [{"name": "intruder"}]})[0] == 200
    assert node.ask("GET", "/api/definitions/to")[1] == exported
    assert node.ask("GET", "/api/users/intruder") == NOT_FOUND
    assert node.ask("GET", "/api/definitions/none")[0] == 404
    assert node.ask("GET", "/api/definitions/from", "mine")[0] == 401
    assert node.ask("POST", "/api/definitions/to", content={"queues": "x"})[0] == 400
    for vhost in ("from", "to"):
        assert node.ask("DELETE", f"/api/vhosts/{vhost}") == (204, None)
