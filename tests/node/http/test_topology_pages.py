"""Exchanges, queues, bindings and messages over RabbitMQ's management API, on a node as in the product: what users do
there is done as AMQP clients of theirs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from mayfly.node.catalog import AddVhost
from mayfly.node.http.api_routes import ROUTES
from mayfly.node.http.routes_document import as_markdown
from tests.node.http.real_node import NOT_FOUND, Node

GET = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
PUBLISH = {"properties": {}, "payload": "text", "payload_encoding": "string"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.run(node.parts.cluster.command(AddVhost("other")))
    node.add_user("mine", "management", "^mine")
    node.add_user("watch", "monitoring", None)
    yield node
    node.stop()


def test_an_exchange_is_declared_and_deleted(node: Node) -> None:
    path = "/api/exchanges/%2F/mine%20x"
    assert node.ask("GET", path) == NOT_FOUND
    wish = {"type": "topic", "durable": True, "auto_delete": "false", "vhost": "/", "name": "mine x", "arguments": {}}
    assert node.ask("PUT", path, "mine", wish) == (201, None)
    assert node.ask("PUT", path, "mine", wish) == (204, None)
    shown = {
        "name": "mine x", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False, "internal": False,
        "arguments": {},
    }  # fmt: skip
    assert node.ask("GET", f"{path}?disable_stats=true") == (200, shown)
    assert shown in node.ask("GET", "/api/exchanges?disable_stats=true")[1]
    status, answer = node.ask("PUT", path, "mine", {**wish, "type": "fanout"})
    assert (status, answer["error"]) == (400, "bad_request")
    assert answer["reason"].startswith("inequivalent arg 'type' for exchange 'mine x' in vhost '/'")
    assert node.ask("PUT", "/api/exchanges/%2F/theirs", "mine", wish)[0] == 401
    assert node.ask("PUT", path, "mine", {**wish, "durable": "maybe"})[0] == 400
    assert node.ask("PUT", path, "mine", {**wish, "arguments": {"x": None}})[0] == 400
    assert node.ask("DELETE", path, "watch")[0] == 401
    assert node.ask("DELETE", path, "mine") == (204, None)
    assert node.ask("DELETE", path, "mine") == NOT_FOUND


def test_s1_a_delayed_exchange_is_listed_with_what_waits_for_it(node: Node) -> None:
    path = "/api/exchanges/%2F/mine%20later"
    arguments = {"x-delayed-type": "fanout"}
    assert node.ask("PUT", path, "mine", {"type": "x-delayed-message"})[0] == 400
    assert node.ask("PUT", path, "mine", {"type": "x-delayed-message", "arguments": arguments}) == (201, None)
    node.channel.queue_declare("mine waits", durable=True)
    node.channel.queue_bind("mine waits", "mine later")
    wish = {**PUBLISH, "routing_key": "", "properties": {"headers": {"x-delay": 600_000}}}
    assert node.ask("POST", f"{path}/publish", "mine", wish) == (200, {"routed": True})
    shown = node.ask("GET", path)[1]
    assert (shown["type"], shown["arguments"]) == ("x-delayed-message", arguments)
    assert shown["messages_delayed"] == 1
    assert 400_000 < shown["next_due_in_ms"] <= 600_000
    (listed,) = [row for row in node.ask("GET", "/api/exchanges/%2F")[1] if "messages_delayed" in row]
    assert listed["name"] == "mine later"
    assert [row["name"] for row in node.ask("GET", "/api/queues/%2F")[1] if "later" in row["name"]] == []
    node.channel.exchange_delete("mine later")
    node.channel.queue_delete("mine waits")


def test_a_queue_is_declared_with_the_types_that_clients_of_rabbitmq_expect(node: Node) -> None:
    """A number is 64 bits long, whatever its value; the same queue by AMQP is the same queue."""
    path = "/api/queues/%2F/mine%20q"
    arguments = {"x-message-ttl": 60000, "x-dead-letter-exchange": "dlx", "x-queue-type": "quorum"}
    assert node.ask("PUT", path, "mine", {"durable": True, "arguments": arguments}) == (201, None)
    assert node.ask("PUT", path, "mine", {"durable": "true", "arguments": arguments}) == (204, None)
    node.channel.queue_declare("mine q", durable=True, arguments=arguments)
    assert node.ask("GET", path)[1]["arguments"] == arguments
    status, answer = node.ask("PUT", path, "mine", {"durable": True, "arguments": {"x-message-ttl": "never"}})
    assert (status, answer["error"]) == (400, "bad_request")
    assert "x-message-ttl" in answer["reason"]
    assert node.ask("POST", f"{path}/actions", "mine", {"action": "sync"})[0] == 400
    assert node.ask("DELETE", path, "mine") == (204, None)


def test_bindings_are_made_shown_and_undone(node: Node) -> None:
    node.channel.queue_declare("mine bound", durable=True)
    node.channel.exchange_declare("mine source", "headers", durable=True)
    path = "/api/bindings/%2F/e/mine%20source/q/mine%20bound"
    assert node.ask("POST", path, "mine", {"routing_key": "a.b c~d", "arguments": {}}) == (201, None)
    assert node.ask("POST", path, "mine", {"arguments": {"x-match": "any", "n": 1}}) == (201, None)
    assert node.ask("POST", path, "mine", {}) == (201, None)
    rows = node.ask("GET", path)[1]
    keys = {row["routing_key"]: row["properties_key"] for row in rows if not row["arguments"]}
    assert keys == {"": "~", "a.b c~d": "a.b+c%7Ed"}
    (hashed,) = [row["properties_key"] for row in rows if row["arguments"]]
    assert hashed.startswith("~")
    assert node.ask("GET", "/api/exchanges/%2F/mine%20source/bindings/source")[1] == rows
    of_queue = node.ask("GET", "/api/queues/%2F/mine%20bound/bindings")[1]
    assert [row for row in of_queue if row["source"]] == rows
    assert len(of_queue) == 4, "and the one from the default exchange"
    assert [row for row in node.ask("GET", "/api/bindings")[1] if row["source"]] == rows
    assert node.ask("DELETE", f"{path}/nonsense", "mine") == NOT_FOUND
    for key in ("~", "a.b%2Bc%257Ed", hashed):
        assert node.ask("GET", f"{path}/{key}")[0] == 200
        assert node.ask("DELETE", f"{path}/{key}", "mine") == (204, None)
    assert node.ask("GET", path) == (200, [])
    assert node.ask("POST", "/api/bindings/%2F/e/none/q/mine%20bound", "mine", {})[0] == 404
    assert node.ask("POST", "/api/bindings/%2F/e/mine%20source/x/mine%20bound", "mine", {})[0] == 400
    assert node.ask("GET", "/api/exchanges/%2F/none/bindings/destination") == NOT_FOUND
    to_exchange = "/api/bindings/%2F/e/amq.topic/e/mine%20source"
    assert node.ask("POST", to_exchange, content={"routing_key": "#"}) == (201, None)
    assert node.ask("GET", "/api/exchanges/%2F/mine%20source/bindings/destination")[1][0]["source"] == "amq.topic"
    node.channel.exchange_delete("mine source")
    node.channel.queue_delete("mine bound")


def test_messages_are_published_and_got(node: Node) -> None:
    node.channel.queue_declare("mine letters", durable=True)
    path, exchange = "/api/queues/%2F/mine%20letters", "/api/exchanges/%2F/amq.default/publish"
    properties = {"delivery_mode": 2, "headers": {"n": 1}, "timestamp": 1700000000, "type": "t", "expiration": "60000"}
    wish = {**PUBLISH, "routing_key": "mine letters", "properties": properties}
    assert node.ask("POST", exchange, "mine", wish) == (200, {"routed": True})
    assert node.ask("POST", exchange, "mine", {**wish, "routing_key": "nowhere"}) == (200, {"routed": False})
    octets = base64.b64encode(b"\xff\x00").decode()
    binary = {**PUBLISH, "routing_key": "mine letters", "payload": octets, "payload_encoding": "base64"}
    assert node.ask("POST", exchange, "mine", binary) == (200, {"routed": True})
    status, messages = node.ask("POST", f"{path}/get", "mine", GET)
    assert status == 200
    assert messages[0] == {
        "payload_bytes": 4, "redelivered": False, "exchange": "", "routing_key": "mine letters", "message_count": 1,
        "properties": properties, "payload": "text", "payload_encoding": "string",
    }  # fmt: skip
    assert [messages[1][key] for key in ("payload", "payload_encoding", "properties")] == [octets, "base64", {}]
    peeked = node.ask("POST", f"{path}/get", "mine", {**GET, "count": "1", "truncate": 2})[1]
    assert [peeked[0][key] for key in ("payload", "payload_bytes", "redelivered")] == ["te", 4, True]
    for mode, left in (("reject_requeue_true", 2), ("ack_requeue_false", 1), ("reject_requeue_false", 0)):
        assert len(node.ask("POST", f"{path}/get", "mine", {**GET, "count": 1, "ackmode": mode})[1]) == 1
        assert node.channel.queue_declare("mine letters", passive=True).method.message_count == left
    assert node.ask("POST", f"{path}/get", "mine", GET) == (200, [])
    node.channel.queue_delete("mine letters")


def test_large_messages_take_several_frames(node: Node) -> None:
    node.channel.queue_declare("mine large", durable=True)
    payload = "x" * 40_000
    wish = {**PUBLISH, "routing_key": "mine large", "payload": payload}
    assert node.ask("POST", "/api/exchanges/%2F/amq.default/publish", "mine", wish) == (200, {"routed": True})
    (message,) = node.ask("POST", "/api/queues/%2F/mine%20large/get", "mine", GET)[1]
    assert message["payload"] == payload
    node.channel.queue_delete("mine large")


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("exchanges/%2F/amq.default/publish", PUBLISH, "key_missing: routing_key is missing in the body"),
        ("exchanges/%2F/amq.default/publish", {**PUBLISH, "routing_key": "k", "payload_encoding": "x"}, "unsupported_"),
        ("exchanges/%2F/amq.default/publish", {**PUBLISH, "routing_key": "k", "payload": 5}, "payload takes a string"),
        ("queues/%2F/mine%20asked/get", {**GET, "encoding": "x"}, "Unsupported encoding. Please use auto or base64."),
        ("queues/%2F/mine%20asked/get", {**GET, "ackmode": "x"}, "ackmode is one of ack_requeue_true, "),
        ("queues/%2F/mine%20asked/get", {"ackmode": "ack_requeue_true", "encoding": "auto"}, "key_missing: count is"),
    ],
)
def test_bad_bodies_are_refused(node: Node, path: str, content: object, reason: str) -> None:
    node.channel.queue_declare("mine asked", durable=True)
    status, answer = node.ask("POST", f"/api/{path}", "mine", content)
    assert (status, answer["error"]) == (400, "bad_request")
    assert answer["reason"].startswith(reason)


def test_a_queue_is_purged(node: Node) -> None:
    node.channel.queue_declare("mine full", durable=True)
    node.channel.basic_publish("", "mine full", b"m")
    assert node.ask("DELETE", "/api/queues/%2F/mine%20full/contents", "watch")[0] == 401
    assert node.ask("DELETE", "/api/queues/%2F/mine%20full/contents", "mine") == (204, None)
    assert node.channel.queue_declare("mine full", passive=True).method.message_count == 0
    assert node.ask("DELETE", "/api/queues/%2F/none/contents")[0] == 404
    node.channel.queue_delete("mine full")


def test_the_aliveness_test_stores_and_gets_a_message(node: Node) -> None:
    assert node.ask("GET", "/api/aliveness-test/%2F") == (200, {"status": "ok"})
    assert node.ask("GET", "/api/aliveness-test/%2F", "watch")[0] == 401
    assert node.ask("GET", "/api/aliveness-test/none")[0] == 404


def test_who_acts_over_http_is_in_no_list_and_counts_for_no_limit(node: Node) -> None:
    assert node.ask("PUT", "/api/user-limits/mine/max-connections", content={"value": 0})[0] in (201, 204)
    node.channel.queue_declare("mine own", durable=True)
    wish = {**PUBLISH, "routing_key": "mine own"}
    assert node.ask("POST", "/api/exchanges/%2F/amq.default/publish", "mine", wish)[0] == 200
    assert [row["user"] for row in node.ask("GET", "/api/connections")[1]] == ["guest"]
    assert node.ask("GET", "/api/overview")[1]["object_totals"]["connections"] == 1
    assert not [each for each in node.parts.broker.connections.values() if each.socket.is_inner]
    node.ask("DELETE", "/api/user-limits/mine/max-connections")
    node.channel.queue_delete("mine own")


def test_the_documents_have_the_table_of_pages() -> None:
    """`python -m mayfly.node.http.routes_document > docs/operations/http-routes.md` makes it so again."""
    assert Path("docs/operations/http-routes.md").read_text() == as_markdown()


def test_each_page_of_the_table_is_there(node: Node) -> None:
    paths = {(route.method, route.path) for route in ROUTES}
    assert len(paths) == len(ROUTES)
    added = node.parts.http._application().router.routes()
    assert paths <= {(each.method, each.resource.canonical) for each in added if each.resource is not None}
