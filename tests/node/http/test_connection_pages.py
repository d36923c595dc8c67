"""Connections over RabbitMQ's management API: listed, shown and closed, on a node as in the product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest

from mayfly.node.http import listing
from mayfly.node.operating.views import client_views
from mayfly.node.operating.views.json_values import json_value
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import BOUND_S, wait_for

FIELDS = {
    "name", "node", "type", "protocol", "user", "vhost", "state", "host", "port", "peer_host", "peer_port", "ssl",
    "auth_mechanism", "channels", "channel_max", "frame_max", "timeout", "connected_at", "client_properties",
    "recv_oct", "send_oct",
}  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    for name, tag in (("mine", "management"), ("maker", "policymaker"), ("watch", "monitoring"), ("nobody", "")):
        node.add_user(name, tag, ".*")
    yield node
    node.stop()


class Clients:
    """Connections of users, which end with the test."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.open: list[Any] = []

    def connect(self, user: str, **options: Any) -> Any:
        login = pika.PlainCredentials(user, user)
        port = self._node.parts.listener.port
        patience = {"socket_timeout": BOUND_S, "stack_timeout": 2 * BOUND_S}
        parameters = pika.ConnectionParameters("127.0.0.1", port, credentials=login, **patience, **options)
        client = pika.BlockingConnection(parameters)
        self.open.append(client)
        return client


@pytest.fixture
def clients(node: Node) -> Iterator[Clients]:
    clients = Clients(node)
    yield clients
    for client in clients.open:
        if client.is_open:
            client.close()


def name_of(client: Any) -> str:
    (host, port), (to_host, to_port) = addresses(client)
    return f"{host}:{port} -> {to_host}:{to_port}"


def addresses(client: Any) -> tuple[tuple[str, int], tuple[str, int]]:
    own_socket = client._impl._transport._sock
    return own_socket.getsockname(), own_socket.getpeername()


def path_of(name: str) -> str:
    return f"/api/connections/{quote(name, safe='')}"


def shown(node: Node, path: str = "/api/connections", user: str = "guest") -> Any:
    status, content = node.ask("GET", path, user)
    assert status == 200, content
    return content


def test_a_connection_is_shown_as_rabbitmq_shows_it(node: Node, clients: Clients) -> None:
    client = clients.connect("mine", heartbeat=77, frame_max=8192, client_properties={"connection_name": "me"})
    client.channel()
    row = shown(node, path_of(name_of(client)))
    assert row.keys() == FIELDS
    (own,) = shown(node, "/api/nodes")
    host, port = addresses(client)[0]
    expected = {
        "node": own["name"], "type": "network", "protocol": "AMQP 0-9-1", "user": "mine", "vhost": "/",
        "state": "running", "host": "127.0.0.1", "port": node.parts.listener.port, "peer_host": host,
        "peer_port": port, "ssl": False, "auth_mechanism": "PLAIN", "channels": 1, "frame_max": 8192, "timeout": 77,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert row["client_properties"]["connection_name"] == "me"
    assert row["client_properties"]["capabilities"]["basic.nack"] is True
    assert row["connected_at"] > 1_600_000_000_000
    same = ("name", "user", "connected_at", "client_properties")
    assert [row[key] for key in same] in [[each[key] for key in same] for each in shown(node)]


def test_who_sees_which(node: Node, clients: Clients) -> None:
    """Administrators and monitors all, others their own; to close others' takes an administrator."""
    names = {user: name_of(clients.connect(user)) for user in ("mine", "maker")}
    own = name_of(node.connection)
    for user, expected in (
        ("guest", {own, *names.values()}), ("watch", {own, *names.values()}), ("mine", {names["mine"]}),
        ("maker", {names["maker"]}),
    ):  # fmt: skip
        assert {row["name"] for row in shown(node, user=user)} == expected
    assert shown(node, path_of(names["mine"]), "mine")["user"] == "mine"
    status, content = node.ask("GET", path_of(names["maker"]), "mine")
    assert (status, content["reason"]) == (401, "User not authorised to access object")
    for method in ("GET", "DELETE"):
        assert node.ask(method, path_of(names["mine"]), "maker")[0] == 401
        assert node.ask(method, path_of(names["mine"]), "nobody")[0] == 401
    assert node.ask("DELETE", path_of(names["mine"]), "watch")[0] == 401
    assert node.ask("GET", path_of(names["mine"]), "watch")[0] == 200
    assert node.ask("GET", "/api/connections", "nobody")[0] == 401
    assert node.ask("GET", "/api/connections", "unknown")[0] == 401


def test_a_connection_is_closed(node: Node, clients: Clients) -> None:
    """With 320 and RabbitMQ's words; by its own user as well."""
    for user in ("guest", "mine"):
        client = clients.connect("mine")
        path = path_of(name_of(client))
        assert node.ask("DELETE", path, user) == (204, None)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            client.channel()
        assert closed.value.reply_code == 320
        assert closed.value.reply_text == "CONNECTION_FORCED - Closed via management plugin"
        assert node.ask("GET", path) == node.ask("DELETE", path) == NOT_FOUND


def channel_path(client: Any, number: int = 1) -> str:
    return f"/api/mayfly/channels/{quote(f'{name_of(client)} ({number})', safe='')}"


def test_a_channel_is_closed(node: Node, clients: Clients) -> None:
    """By its own user or an administrator, and its connection goes on."""
    client = clients.connect("mine")
    for user in ("guest", "mine"):
        channel = client.channel(1)
        assert node.ask("DELETE", channel_path(client), "maker")[0] == 401
        assert node.ask("DELETE", channel_path(client), "watch")[0] == 401
        assert node.ask("DELETE", channel_path(client), user) == (204, None)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.queue_declare("closed", passive=True)
        assert closed.value.reply_code == 406
        assert closed.value.reply_text == "PRECONDITION_FAILED - Closed via management plugin"
        assert node.ask("DELETE", channel_path(client), user) == NOT_FOUND
    assert client.is_open
    assert node.ask("DELETE", "/api/mayfly/channels/none") == NOT_FOUND
    assert node.ask("DELETE", path_of(name_of(client)).replace("connections", "channels"))[0] == 405


def test_a_consumer_is_cancelled(node: Node, clients: Clients) -> None:
    """Whatever its tag; its client hears of it."""
    client = clients.connect("mine")
    channel = client.channel(1)
    channel.queue_declare("cancelled", exclusive=True)
    tags: list[str] = []
    channel.add_on_cancel_callback(lambda method: tags.append(method.method.consumer_tag))
    for tag in ("a/b", "ü %2F"):
        channel.basic_consume("cancelled", lambda *_: None, consumer_tag=tag)
        path = f"{channel_path(client)}/consumers/{quote(tag, safe='')}"
        assert node.ask("DELETE", path, "maker")[0] == 401
        assert node.ask("DELETE", path, "mine") == (204, None)
        wait_for(lambda: client.process_data_events(0.05) or tags, "the notice")
        assert tags.pop() == tag and tags == []
        assert node.ask("DELETE", path) == NOT_FOUND
    assert channel.is_open


def test_a_consumer_whose_client_would_not_hear_of_it_is_not_cancelled(
    node: Node, clients: Clients
) -> None:
    client = clients.connect("mine", client_properties={"capabilities": {"consumer_cancel_notify": False}})
    channel = client.channel(1)
    channel.queue_declare("kept", exclusive=True)
    channel.basic_consume("kept", lambda *_: None, consumer_tag="tag")
    status, content = node.ask("DELETE", f"{channel_path(client)}/consumers/tag")
    assert (status, content["reason"]) == (
        400, "its client takes no cancel notices, and would wait for ever: close its channel"
    )  # fmt: skip
    assert shown(node, "/api/consumers", "mine")[0]["consumer_tag"] == "tag"


def test_what_is_no_connection(node: Node) -> None:
    for name in ("none", "127.0.0.1:1 -> 127.0.0.1:2", "ü", "%FF", "a" * 1000):
        assert node.ask("GET", path_of(name)) == node.ask("DELETE", path_of(name)) == NOT_FOUND


def test_pages(node: Node, clients: Clients) -> None:
    for _ in range(4):
        clients.connect("mine")
    rows = shown(node, user="mine")
    assert [row["name"] for row in rows] == sorted(row["name"] for row in rows) and len(rows) == 4
    found = []
    for page, count in ((1, 3), (2, 1)):
        answer = shown(node, f"/api/connections?page={page}&page_size=3", "mine")
        found += answer.pop("items")
        assert answer == {
            "filtered_count": 4, "item_count": count, "page": page, "page_count": 2, "page_size": 3, "total_count": 4,
        }  # fmt: skip
    assert found == rows
    assert shown(node, "/api/connections?page=1", "mine")["page_size"] == 100
    assert shown(node, "/api/connections?page=1", "maker")["items"] == []
    assert node.ask("GET", "/api/connections?page=3&page_size=3", "mine")[0] == 400, "out of range, as in RabbitMQ"
    for query in ("page=0", "page=x", "page=-1", "page=1&page_size=501", "page=1&page_size=0", "page=1&page_size="):
        status, content = node.ask("GET", f"/api/connections?{query}")
        assert status == 400 and "agination parameters" in content["reason"]


def test_without_pages_there_is_a_bound(node: Node, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_ROWS", 2)
    for _ in range(3):
        clients.connect("mine")
    status, content = node.ask("GET", "/api/connections", "mine")
    assert (status, content["error"]) == (400, "bad_request")
    assert content["reason"] == "there are 3 connections: ask for pages, with ?page=1&page_size=500"
    for query in ("sort=host", "name=m", "sort_reverse=true"):
        status, content = node.ask("GET", f"/api/connections?page=1&{query}", "mine")
        told = "there are 3 connections: ask for pages, without name, sort and sort_reverse"
        assert (status, content["reason"]) == (400, told)
    assert len(shown(node, "/api/connections?page=1&page_size=3", "mine")["items"]) == 3


def test_many_are_asked_for_bit_by_bit(node: Node, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """All come, however little an answer may have."""
    monkeypatch.setattr(client_views, "_BYTES_AT_ONCE", 1)
    names = sorted(name_of(clients.connect("mine")) for _ in range(3))
    assert [row["name"] for row in shown(node, user="mine")] == names


def test_properties_that_no_json_has(node: Node, clients: Clients) -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    nested: Any = {}
    for _ in range(20):
        nested = {"in": nested}
    odd = {
        "when": datetime(2026, 1, 1, tzinfo=UTC), "octets": b"\xff\x00", "decimal": Decimal("1.5"), "none": None,
        "list": [1, {"a": True}], "nested": nested, "large": 2**62,
    }  # fmt: skip
    row = shown(node, path_of(name_of(clients.connect("mine", client_properties=odd))))
    properties = row["client_properties"]
    assert properties["when"] == 1_767_225_600 and properties["list"] == [1, {"a": True}]
    assert (properties["decimal"], properties["none"], properties["large"]) == ("1.5", None, 2**62)
    assert "in" in properties["nested"]
    odd = {"float": 1.5, "infinite": float("inf"), "no text \udcff": "\udcff"}  # which pika does not send
    assert json_value(odd) == {"float": 1.5, "infinite": "inf", "no text ?": "?"}
