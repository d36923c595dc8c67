"""What clients did, in RabbitMQ's `message_stats`: of the cluster, a vhost, an exchange, a channel; octets of
connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.http.real_node import Node
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Three messages: two by the default exchange, one of them got and acknowledged, and one without a route."""
    node = Node(tmp_path_factory.mktemp("node"))
    node.channel.confirm_delivery()
    node.channel.queue_declare("q", durable=True)
    for key in ("q", "q"):
        node.channel.basic_publish("", key, b"m")
    node.channel.basic_publish("amq.direct", "nowhere", b"m")
    node.channel.basic_ack(node.channel.basic_get("q")[0].delivery_tag)
    wait_for(lambda: node.ask("GET", "/api/overview")[1]["message_stats"]["ack"] == 1, "the acknowledgement")
    yield node
    node.stop()


DID = {
    "publish": 3, "confirm": 3, "return_unroutable": 0, "drop_unroutable": 1, "deliver": 0, "deliver_no_ack": 0,
    "get": 1, "get_no_ack": 0, "get_empty": 0, "redeliver": 0, "ack": 1, "deliver_get": 1,
}  # fmt: skip


def counts(stats: dict[str, Any]) -> dict[str, int]:
    """Without rates."""
    return {name: value for name, value in stats.items() if not name.endswith("_details")}


def test_the_cluster_a_vhost_and_a_channel_tell_what_clients_did(node: Node) -> None:
    (channel,) = node.ask("GET", "/api/channels")[1]
    for row in (node.ask("GET", "/api/overview")[1], node.ask("GET", "/api/vhosts/%2F")[1], channel):
        assert counts(row["message_stats"]) == DID
    name = channel["name"].replace(" ", "%20").replace(">", "%3E")
    assert counts(node.ask("GET", f"/api/channels/{name}")[1]["message_stats"]) == DID
    assert "message_stats" not in node.ask("GET", "/api/overview?disable_stats=true")[1]


def test_exchanges_tell_what_clients_published_there(node: Node) -> None:
    rows = {row["name"]: counts(row["message_stats"]) for row in node.ask("GET", "/api/exchanges/%2F")[1]}
    assert [rows[name]["publish_in"] for name in ("", "amq.direct", "amq.topic")] == [2, 1, 0]
    assert counts(node.ask("GET", "/api/exchanges/%2F/amq.direct")[1]["message_stats"]) == {"publish_in": 1}
    assert "message_stats" not in node.ask("GET", "/api/exchanges/%2F/amq.direct?disable_stats=true")[1]


def test_rates_are_those_of_what_happens_between_requests(node: Node) -> None:
    def rates() -> list[float]:
        node.channel.basic_publish("", "q", b"m")
        pages = ("overview", "vhosts/%2F", "exchanges/%2F/amq.default")
        stats = [node.ask("GET", f"/api/{page}")[1]["message_stats"] for page in pages]
        stats.append(node.ask("GET", "/api/channels")[1][0]["message_stats"])
        return [each.get("publish_details", each.get("publish_in_details", {})).get("rate", 0) for each in stats]

    wait_for(lambda: all(rate > 0 for rate in rates()), "rates", every_s=0.2)
    stats = node.ask("GET", "/api/overview")[1]["message_stats"]
    assert stats["get_empty_details"] == {"rate": 0.0}, "known, and none"


def test_connections_tell_their_octets(node: Node) -> None:
    (before,) = node.ask("GET", "/api/connections")[1]
    node.channel.basic_publish("", "q", b"m" * 1000)
    (after,) = node.ask("GET", "/api/connections")[1]
    assert after["recv_oct"] - before["recv_oct"] > 1000
    assert 0 < after["send_oct"] - before["send_oct"] < 1000, "a confirm"
