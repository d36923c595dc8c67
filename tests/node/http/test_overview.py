"""`/api/overview` and `/api/nodes` as clients of RabbitMQ's management API poll them, on a node as in the product."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from mayfly.node.broker.access_counts import CHANNELS_OF_USER, CONNECTIONS_OF_USER, AccessCounts
from mayfly.node.catalog import AddVhost, Catalog, PutUser, SetLimit
from mayfly.node.operating.views.overview import feature_flags
from mayfly.node.version import RABBITMQ_VERSION, VERSION
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import wait_for

MONITORS = ("guest", "monitor")
OTHERS = ("manager", "maker")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Three messages in `/`, one of them held, and a queue in a vhost where only guest may go."""
    node = Node(tmp_path_factory.mktemp("node"))
    for name, tag, configure in (
        ("monitor", "monitoring", None), ("manager", "management", ""), ("maker", "policymaker", ""),
        ("nobody", "", ""), ("elsewhere", "management", None),
    ):  # fmt: skip
        node.add_user(name, tag, configure)
    node.run(node.parts.cluster.command(AddVhost("other")))
    node.channel.confirm_delivery()
    node.channel.queue_declare("q", durable=True)
    node.channel.queue_declare("transient", auto_delete=True)
    for name in ("q", "q", "transient"):
        node.channel.basic_publish("", name, b"m")
    assert node.channel.basic_get("q")[0] is not None
    node.channel.basic_consume("transient", lambda *_: None)
    yield node
    node.stop()


def ask(node: Node, path: str, user: str = "guest") -> Any:
    status, content = node.ask("GET", path, user)
    assert status == 200, (status, content)
    return content


@pytest.mark.parametrize("user", MONITORS)
def test_the_overview_of_who_may_see_all(node: Node, user: str) -> None:
    found = ask(node, "/api/overview", user)
    (own,) = ask(node, "/api/nodes", user)
    port = node.settings.amqp_address.port
    assert found["cluster_name"] == "mayfly"
    assert found["rabbitmq_version"] == found["management_version"] == RABBITMQ_VERSION, "clients go by it"
    assert (found["rates_mode"], found["disable_stats"], found["enable_queue_totals"]) == ("basic", False, False)
    assert not {"churn_rates", "statistics_db_event_queue"} & found.keys(), "they are not kept"
    assert node.parts.broker.settings.connection.server_properties()["version"] == RABBITMQ_VERSION
    assert (found["product_name"], found["product_version"]) == ("MayflyMQ", VERSION)
    assert found["node"] == own["name"]
    assert found["object_totals"] == {"queues": 2, "exchanges": 12, "consumers": 1, "connections": 1, "channels": 1}
    assert found["queue_totals"] == {"messages": 3, "messages_ready": 1, "messages_unacknowledged": 2}
    listeners = {(each["protocol"], each["ip_address"], each["port"]) for each in found["listeners"]}
    assert ("amqp", "127.0.0.1", port) in listeners
    assert {protocol for protocol, _, _ in listeners} == {"amqp", "http", "clustering"}
    assert {each["node"] for each in found["listeners"]} == {own["name"]}
    assert [each["name"] for each in found["exchange_types"]] == ["direct", "fanout", "headers", "topic"]


@pytest.mark.parametrize("user", OTHERS)
def test_others_see_what_is_in_their_vhosts(node: Node, user: str) -> None:
    found = ask(node, "/api/overview", user)
    assert found["object_totals"] == {"queues": 2, "exchanges": 6, "consumers": 1, "connections": 0, "channels": 0}
    assert found["queue_totals"] == {"messages": 3, "messages_ready": 1, "messages_unacknowledged": 2}
    assert not {"node", "listeners"} & found.keys()
    nothing = ask(node, "/api/overview", "elsewhere")
    assert set(nothing["object_totals"].values()) == set(nothing["queue_totals"].values()) == {0}


def test_of_the_own_connections_those_to_this_node_count_with_and_without_limits(node: Node) -> None:
    """Other nodes tell of users with limits: what is shown would change its meaning when a limit is set."""
    catalog, elsewhere = Catalog(1), AccessCounts()
    catalog.apply(PutUser("manager", ""))
    catalog.apply(SetLimit("user", "manager", "max-connections", 9))
    elsewhere.add(CONNECTIONS_OF_USER, "manager", 5)
    elsewhere.add(CHANNELS_OF_USER, "manager", 7)
    counts = node.parts.engine.access_counts
    counts.told(9, elsewhere.encoded(catalog))
    try:
        assert (counts.total(CONNECTIONS_OF_USER, "manager"), counts.total(CHANNELS_OF_USER, "manager")) == (5, 7)
        shown = ask(node, "/api/overview", "manager")["object_totals"]
        assert (shown["connections"], shown["channels"]) == (0, 0)
    finally:
        counts.forget(9)


def test_nodes(node: Node) -> None:
    (own,) = ask(node, "/api/nodes")
    assert own["running"] is True
    assert (own["type"], own["partitions"]) == ("disc", [])
    assert (own["mem_alarm"], own["disk_free_alarm"]) == (False, False)
    assert own["os_pid"] == str(os.getpid())
    assert own["mem_used"] > 0 and own["mem_limit"] >= 0 and own["uptime"] >= 0 and own["processors"] >= 1
    assert own["disk_free"] > 0 and own["disk_free_limit"] > 0

    def threads_of_this_process() -> bool:
        # Those of other tests end meanwhile.
        return bool(ask(node, "/api/nodes")[0]["proc_used"] == len(os.listdir("/proc/self/task")))

    wait_for(threads_of_this_process, "its threads are those of this process")
    assert own["proc_total"] > own["proc_used"] and own["run_queue"] >= 0
    assert (own["rates_mode"], own["enabled_plugins"], own["being_drained"]) == ("basic", [], False)
    assert ask(node, f"/api/nodes/{own['name']}").keys() == own.keys()
    assert node.ask("GET", "/api/nodes/nowhere") == NOT_FOUND


def test_the_parts_of_memory_come_to_its_total(node: Node) -> None:
    """Clients with types want every part as a number; what is not told apart is not counted twice."""
    (own,) = ask(node, "/api/nodes")
    memory = ask(node, f"/api/nodes/{own['name']}/memory")["memory"]
    total, strategy = memory.pop("total"), memory.pop("strategy")
    assert (strategy, total.keys()) == ("rss", {"rss", "erlang", "allocated"})
    assert sum(memory.values()) == total["rss"] == memory["other_system"] > 0


@pytest.mark.parametrize("path", ["/api/nodes", "/api/nodes/nowhere"])
@pytest.mark.parametrize("user", OTHERS)
def test_nodes_are_for_monitors(node: Node, path: str, user: str) -> None:
    assert node.ask("GET", path, user)[0] == 401


@pytest.mark.parametrize("path", ["/api/overview", "/api/nodes", "/api/nodes/nowhere"])
@pytest.mark.parametrize("user", ["nobody", "unknown"])
def test_without_a_login_or_a_tag_nothing_is_shown(node: Node, path: str, user: str) -> None:
    status, content = node.ask("GET", path, user)
    assert (status, content["error"]) == (401, "not_authorised")


def test_q4_flags_and_limits_go_with_the_version(node: Node) -> None:
    names = [flag["name"] for flag in ask(node, "/api/feature-flags")]
    built = [
        "detailed_queues_endpoint", "maintenance_mode_status", "quorum_queue", "stream_queue", "user_limits",
        "virtual_host_metadata",
    ]  # fmt: skip
    assert names == [*built, "rabbitmq_4.0.0", "rabbitmq_4.1.0", "rabbitmq_4.2.0", "rabbitmq_4.3.0"]
    assert [flag["name"] for flag in feature_flags("3.13.7")] == built
    for name, arguments, limit in (
        ("limited", {}, 20), ("three", {"x-delivery-limit": 3}, 3), ("any", {"x-delivery-limit": -1}, "unlimited"),
    ):  # fmt: skip
        node.channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})
        assert ask(node, f"/api/queues/%2F/{name}?columns=delivery_limit") == {"delivery_limit": limit}
        node.channel.queue_delete(name)
    assert "delivery_limit" not in ask(node, "/api/queues/%2F/q"), "a classic queue has none"


def test_what_is_not_known_of_a_node_is_left_out(node: Node) -> None:
    """Zero would be read as a disk that is full, and as a memory limit that is exceeded."""

    async def shown() -> set[str]:
        # In one step of the node's loop, which looks at all this every second.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node.parts.memory, "limit_bytes", 0)
            patch.setattr(node.parts.memory, "used_bytes", 0)
            patch.setattr(node.parts.watch, "free_bytes", None)
            return set(node.parts.view.resources())

    assert {"mem_limit", "mem_used", "disk_free", "disk_free_limit"} & node.run(shown()) == {"disk_free_limit"}
