"""Streams over HTTP and by `mayfly stream`, on a node as in the product (RULES J3, J5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from click.testing import CliRunner, Result

from mayfly.node.catalog import SetPermissions
from mayfly.node.command_line import main
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import wait_for

PATH = "/api/mayfly/queues/%2F/mine%20s/stream"
ARGUMENTS: dict[str, Any] = {"x-queue-type": "stream", "x-allow-msg-ttl": True, "x-delete-marker-ttl": "1h"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.add_user("mine", "management", "^mine")
    node.add_user("watch", "monitoring", None)
    node.run(node.parts.cluster.command(SetPermissions("mine", "/", "", "", "^mine")))
    node.channel.confirm_delivery()
    yield node
    node.stop()


@pytest.fixture
def stream(node: Node) -> Iterator[str]:
    """A stream with three messages of one key and one of another, which lives two hours."""
    node.channel.queue_declare("mine s", durable=True, arguments=ARGUMENTS)
    node.channel.queue_bind("mine s", "amq.topic", "#")
    for key, body in (("a/b", "one"), ("a/b", "two"), ("c", "three"), ("a/b", "four")):
        headers = {"x-ttl": "2h"} if key == "c" else {}
        node.channel.basic_publish("amq.topic", key, body.encode(), pika.BasicProperties(headers=headers))
    yield "mine s"
    node.channel.queue_delete("mine s")


def command(node: Node, *words: str) -> Result:
    login = {"MAYFLY_USER": "guest", "MAYFLY_PASSWORD": "guest"}
    return CliRunner().invoke(main, ["stream", *words, "--node", node.address], env=login)


def test_j5_what_a_stream_has(node: Node, stream: str) -> None:
    status, shown = node.ask("GET", PATH)
    assert status == 200
    assert 7_100_000 < shown.pop("next_expiry_in_ms") <= 7_200_000
    assert shown == {
        "first_offset": 0, "next_offset": 4, "messages": 4, "message_bytes": 15, "keys": 2, "expiring": 1, "expired": 0,
        "removed_by_size": 0, "markers": 0, "consumer_count": 0, "consumers": [], "consumer_tags": [],
        "origins": [], "copies": [], "upstream": None,
    }
    assert json.loads(command(node, "show", stream, "--json").output)["next_offset"] == 4
    assert "next offset: 4" in command(node, "show", stream).output


def test_j1_where_consumers_are(node: Node, stream: str) -> None:
    """Each has its own place; those that are furthest behind come first."""
    channels = [node.connection.channel() for _ in range(3)]
    for channel, tag, prefetch, start in zip(
        channels, ("slow", "new", "new"), (2, 5, 1), ("first", "next", "last"), strict=True
    ):
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(stream, print, consumer_tag=tag, arguments={"x-stream-offset": start})

    def found() -> list[tuple[Any, ...]]:
        shown = node.ask("GET", PATH, "mine")[1]
        assert len(shown["consumers"]) == shown["consumer_count"]
        names = ("consumer_tag", "next_offset", "lag", "unacknowledged")
        return [tuple(each[name] for name in names) for each in shown["consumers"]]

    wait_for(lambda: found() == [("slow", 2, 2, 2), ("new", 4, 0, 0), ("new", 4, 0, 1)], "three consumers")
    first = node.ask("GET", PATH)[1]["consumers"][0]
    assert first["channel"].endswith(f" ({channels[0].channel_number})")
    assert first["node"] == "node1"
    said = command(node, "show", stream).output
    assert f"consumer slow on {first['node']}: next offset 2, 2 behind, 2 unacknowledged" in said
    assert "consumer count: 3" in said
    assert node.ask("GET", PATH)[1]["consumer_tags"] == [
        {"consumer_tag": "slow", "consumers": 1, "next_offset": 2, "lag": 2},
        {"consumer_tag": "new", "consumers": 2, "next_offset": 4, "lag": 0},
    ]
    assert "consumer tag new: 2 of these, next offset 4, 0 behind" in said
    channels[0].close()
    channels[2].close()
    wait_for(lambda: found() == [("new", 4, 0, 0)], "one consumer")
    channels[1].close()


def test_j1_j2_j3_metrics_of_streams(node: Node, stream: str) -> None:
    """Of each by itself, and of a shard's together."""
    page = node.text("/metrics/per-queue?queue=mine%20s")
    labels = f'{{queue="{stream}",vhost="/"}}'
    for name, value in (("first_offset", 0), ("next_offset", 4)):
        assert f"mayfly_queue_{name}{labels} {value}.0" in page.splitlines()
    assert f"mayfly_queue_consumer_lag{labels}" not in page, "nobody reads it"
    channel = node.connection.channel()
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(stream, print, arguments={"x-stream-offset": "first"})
    wait_for(
        lambda: f"mayfly_queue_consumer_lag{labels} 3.0" in node.text("/metrics/per-queue?queue=mine%20s"), "its place"
    )
    channel.close()
    assert node.ask("DELETE", PATH + "/messages/0")[0] == 204
    wait_for(lambda: f"mayfly_queue_first_offset{labels} 1.0" in node.text("/metrics/per-queue"), "the next offset")
    node.channel.queue_declare("mine q", durable=True)
    assert 'mayfly_queue_next_offset{queue="mine q"' not in node.text("/metrics/per-queue")
    node.channel.queue_delete("mine q")
    assert node.ask("DELETE", PATH + "/keys?key=a%2Fb")[0] == 200
    lines = node.text("/metrics").splitlines()
    for name, value in (("expiring", 2), ("keys", 2), ("markers", 1)):
        # The message with a TTL, and the marker of the key that was purged.
        rows = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"mayfly_stream_{name}{{")]
        assert sum(rows) == value, name


def test_j5_the_latest_message_of_a_key(node: Node, stream: str) -> None:
    status, found = node.ask("GET", PATH + "/latest?key=a%2Fb")
    assert (status, found["offset"], found["payload"], found["routing_key"]) == (200, 3, "four", "a/b")
    assert (found["marker"], found["ttl_ms"], found["expires_ms"]) == (None, None, None)
    status, found = node.ask("GET", PATH + "/latest?key=c")
    assert (found["ttl_ms"], found["expires_ms"] - found["published_ms"]) == (7_200_000, 7_200_000)
    assert found["properties"]["headers"] == {"x-ttl": "2h"}
    status, told = node.ask("GET", PATH + "/latest?key=nobody")
    assert (status, "has no message with the routing key 'nobody'" in told["reason"]) == (404, True)
    assert node.ask("GET", PATH + "/latest")[0] == 400
    assert "payload: four" in command(node, "latest", stream, "a/b").output
    assert command(node, "latest", stream, "nobody").exit_code == 1


def test_j3_a_message_is_deleted_by_its_offset(node: Node, stream: str) -> None:
    assert node.ask("DELETE", PATH + "/messages/2")[0] == 204
    found = node.ask("GET", PATH + "/latest?key=c")[1]
    assert (found["offset"], found["marker"], found["payload"]) == (4, "Remove", "")
    assert found["properties"]["headers"] == {
        "Nats-Marker-Reason": "Remove", "x-marker-reason": "Remove", "Nats-TTL": "1h0m0s", "x-ttl": "1h0m0s",
    }
    assert node.ask("DELETE", PATH + "/messages/2")[0] == 404
    for offset in ("x", "-1", "1" * 30, "0" * 20 + "3", str(1 << 63)):
        assert node.ask("DELETE", f"{PATH}/messages/{offset}")[0] == 400
    assert command(node, "delete-message", stream, "0").output == "the message at offset 0 is deleted\n"
    assert command(node, "delete-message", stream, "0").exit_code == 1
    assert node.ask("GET", PATH)[1]["markers"] == 1


def test_j3_a_key_is_purged(node: Node, stream: str) -> None:
    assert node.ask("DELETE", PATH + "/keys")[0] == 400
    assert node.ask("DELETE", PATH + "/keys?key=a%2Fb") == (200, {"purged": 3})
    assert node.ask("GET", PATH + "/latest?key=a%2Fb")[1]["marker"] == "Purge"
    assert node.ask("DELETE", PATH + "/keys?key=nobody") == (200, {"purged": 0})
    assert command(node, "purge-key", stream, "c").output == "1 messages with the key 'c' are deleted\n"


def test_j3_j5_rights(node: Node, stream: str) -> None:
    """To see takes reading, to remove configuring."""
    assert node.ask("GET", PATH, "mine")[0] == 200
    assert node.ask("GET", PATH + "/latest?key=c", "mine")[0] == 200
    assert node.ask("DELETE", PATH + "/messages/0", "mine")[0] == 401
    assert node.ask("DELETE", PATH + "/keys?key=c", "mine")[0] == 401
    assert node.ask("GET", PATH)[1]["messages"] == 4


def test_j5_streams_without_keys_and_queues(node: Node) -> None:
    node.channel.queue_declare("mine s", durable=True, arguments={"x-queue-type": "stream"})
    assert node.ask("GET", PATH)[1]["keys"] is None
    for method, path in (("GET", "/latest?key=c"), ("DELETE", "/keys?key=c")):
        status, told = node.ask(method, PATH + path)
        assert (status, "no index of routing keys" in told["reason"]) == (400, True)
    node.channel.queue_delete("mine s")
    assert node.ask("GET", PATH) == NOT_FOUND
    node.channel.queue_declare("mine s", durable=True)
    assert "is no stream" in node.ask("GET", PATH)[1]["reason"]
    node.channel.queue_delete("mine s")


def test_j4_how_far_copies_are(node: Node, stream: str) -> None:
    """Of streams that the user may read; metrics have it, too."""
    for name, arguments in (("mine m", {"x-mirror": stream}), ("other", {"x-sources": [stream]})):
        node.channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", **arguments})
    done = {"copied_to": 4, "lag": 0}

    def all_is_there() -> bool:
        copies: list[dict[str, Any]] = node.ask("GET", PATH)[1]["copies"]
        return copies == [{"name": "mine m", **done}, {"name": "other", **done}]

    wait_for(all_is_there, "both copies")
    assert node.ask("GET", PATH, "mine")[1]["copies"] == [{"name": "mine m", **done}]
    found = node.ask("GET", "/api/mayfly/queues/%2F/mine%20m/stream")[1]
    assert (found["origins"], found["next_offset"], found["messages"]) == ([{"name": stream, **done}], 4, 4)
    assert f"copies {stream}: 0 behind" in command(node, "show", "mine m").output
    assert "copied by mine m: 0 behind" in command(node, "show", stream).output
    lags = [line for line in node.text("/metrics").splitlines() if line.startswith("mayfly_stream_copy_lag{")]
    assert sorted(line.rsplit(" ", 1)[1] for line in lags) == ["0.0", "0.0"]
    rows = [row for group in node.ask("GET", "/status")[1]["groups"] for row in group.get("stream_copies", ())]
    assert sorted(rows, key=lambda row: str(row["copy"])) == [
        {"vhost": "/", "stream": stream, "copy": name, "lag": 0} for name in ("mine m", "other")
    ]
    node.channel.queue_delete(stream)
    found = node.ask("GET", "/api/mayfly/queues/%2F/mine%20m/stream")[1]
    assert (found["origins"], found["messages"]) == ([{"name": stream, "copied_to": None, "lag": None}], 4)
    for name in ("mine m", "other"):
        node.channel.queue_delete(name)
