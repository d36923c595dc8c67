"""Connections, channels and consumers as operators see them over all nodes."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
from pamqp import commands

from mayfly.node.broker.client_socket import ClientSocket
from mayfly.node.broker.consumer_terms import KEPT_BYTES
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.clients import Clients
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.shard_sources import ShardSources
from mayfly.node.operating.views import client_views
from mayfly.node.operating.views.client_views import ClientPart, ClientViews
from mayfly.node.operating.views.idle import IDLE_AFTER_MS
from mayfly.node.operating.views.rates import Rates
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers
from tests.node.conftest import Client

ALL = ClientSelection()
QUORUM = {"x-queue-type": "quorum"}
SINGLE = {"x-single-active-consumer": True}


class Seen:
    """Three nodes, and what is shown at each."""

    def __init__(self) -> None:
        self.brokers = ThreeBrokers()
        self.views = {id: ClientViews(node.engine, node.broker) for id, node in self.brokers.nodes.items()}
        self.clients = {
            id: self._clients(node.engine, self.views[id]) for id, node in self.brokers.nodes.items()
        }
        self.patience_ms = 0
        self._number = 0

    def _clients(self, engine: Engine, views: ClientViews) -> Clients:
        questions = NodeQuestions(engine, self._pump, lambda: self.brokers.now_ms)
        return Clients(engine, views, ShardSources(engine, questions), questions, Rates(), lambda: 0)

    def _pump(self) -> None:
        self.brokers.settle()
        for _ in range(self.patience_ms // TICK_MS):
            self.brokers.step()

    def client(self, id: int) -> Client:
        """At that node, with an address of its own."""
        client = self.brokers.nodes[id].client()
        self._number += 1
        client.connection.socket = ClientSocket(("client", self._number), (f"node{id}", 5672), False, 0)
        return client

    def some(
        self, at: int, kind: Kind, selection: ClientSelection = ALL, start: int = 0, most: int = 1000
    ) -> tuple[int, list[dict[str, Any]]]:
        return asyncio.run(self.clients[at].some(kind, selection, start, most))

    def names(self, at: int, kind: Kind, selection: ClientSelection = ALL) -> list[str]:
        total, rows = self.some(at, kind, selection)
        assert total == len(rows)
        return [row["name"] for row in rows]

    def one(self, at: int, kind: Kind, name: str) -> dict[str, Any] | None:
        return asyncio.run(self.clients[at].one(kind, name))


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_channels_of_all_nodes_at_any(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of nodes, connections and numbers, however little an answer may have."""
    for id in (1, 2, 3):
        seen.client(id).open_channel(10)
        seen.client(id).open_channel(2)
    expected = [
        f"client:{2 * id - 1 + second} -> node{id}:5672 ({number})"
        for id in (1, 2, 3) for second in (0, 1) for number in ((1, 10), (1, 2))[second]
    ]  # fmt: skip
    for at in (1, 2, 3):
        assert seen.names(at, "channels") == expected
    monkeypatch.setattr(client_views, "_BYTES_AT_ONCE", 1)
    assert seen.names(2, "channels") == expected
    for start in range(13):
        total, rows = seen.some(2, "channels", ALL, start, 3)
        assert (total, [row["name"] for row in rows]) == (12, expected[start : start + 3])
    assert seen.some(2, "channels", ALL, 0, 0) == (12, [])


def test_which_are_meant(seen: Seen) -> None:
    seen.client(1)
    seen.client(2).open_channel(7)
    for selection, numbers in (
        (ClientSelection("guest", "/"), [1, 1, 7]), (ClientSelection("other"), []),
        (ClientSelection(vhost="other"), []),
        (ClientSelection(connection="client:2 -> node2:5672"), [1, 7]), (ClientSelection(connection="none"), []),
    ):  # fmt: skip
        assert [row["number"] for row in seen.some(3, "channels", selection)[1]] == numbers
    assert seen.names(3, "connections") == ["client:1 -> node1:5672", "client:2 -> node2:5672"]
    assert seen.names(3, "connections", ClientSelection("other")) == []


def test_one_channel_by_name(seen: Seen) -> None:
    client = seen.client(2)
    client.declare("q")
    client.consume("q", "mine")
    row = seen.one(1, "channels", "client:1 -> node2:5672 (1)")
    assert row is not None
    (consumer,) = row.pop("consumer_details")
    assert (consumer["consumer_tag"], consumer["queue"]) == ("mine", {"name": "q", "vhost": "/"})
    assert [row] == seen.some(3, "channels")[1] and row["consumer_count"] == 1
    name = "client:1 -> node2:5672"
    for bad in ("", name, f"{name} (2)", f"{name} (01)", f"{name} (x)", f"{name} (1", f"{name} (1))", f"{name} (²)"):
        assert seen.one(1, "channels", bad) is None
    client.send(1, commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    assert seen.one(1, "channels", f"{name} (1)") is None
    assert seen.some(1, "channels") == (0, [])


def test_a_channel_is_closed_and_a_consumer_cancelled_from_any_node(seen: Seen) -> None:
    """Of a client that takes cancel notices."""
    client, deaf = seen.client(2), seen.brokers.nodes[2].client(capabilities={})
    deaf.connection.socket = ClientSocket(("client", 2), ("node2", 5672), False, 0)
    for each in (client, deaf):
        each.declare("q")
        each.consume("q", "mine")
    name, of_deaf = "client:1 -> node2:5672 (1)", "client:2 -> node2:5672 (1)"

    def cancelled(channel: str, tag: str) -> str:
        return asyncio.run(seen.clients[1].cancel_consumer(channel, tag))

    assert [cancelled(name, "none"), cancelled(f"{name}0", "mine"), cancelled(of_deaf, "mine")] == [
        "unknown", "unknown", "untold"
    ]  # fmt: skip
    assert client.take() == [] and seen.some(3, "consumers")[0] == 2
    assert cancelled(name, "mine") == "cancelled"
    seen.brokers.settle()
    (notice,) = client.take(1)
    assert isinstance(notice, commands.Basic.Cancel) and seen.some(3, "consumers")[0] == 1
    assert not asyncio.run(seen.clients[3].close_channel(f"{name}0", "why"))
    assert asyncio.run(seen.clients[3].close_channel(of_deaf, "why"))
    (close,) = deaf.take(1)
    assert (close.reply_code, close.reply_text) == (406, "PRECONDITION_FAILED - why")
    assert seen.names(1, "channels") == [name]


def test_a_channel_says_since_when_it_is_idle(seen: Seen) -> None:
    """To the tick, and at every node alike; while something happens on it nothing is said."""
    client = seen.client(2)
    client.declare("q")
    client.publish(1, "q", b"message")
    client.consume("q", "mine")
    seen.brokers.step()
    assert "idle_since" not in seen.some(1, "channels")[1][0]

    def idle_ms() -> int:
        for _ in range(1 + IDLE_AFTER_MS // TICK_MS):
            seen.brokers.step()
        (row,) = seen.some(1, "channels")[1]
        assert row["idle_since"].endswith("+00:00")
        return seen.brokers.now_ms - round(datetime.fromisoformat(row["idle_since"]).timestamp() * 1000)

    assert IDLE_AFTER_MS <= idle_ms() <= IDLE_AFTER_MS + 6 * TICK_MS
    client.take(1)
    seen.client(1).publish(1, "q", b"delivered there")
    seen.brokers.run_until(lambda: client.take(1))
    assert all("idle_since" not in row for row in seen.some(3, "channels")[1]), "a delivery is something, too"


def test_a_channel_that_was_refused_something_is_gone(seen: Seen) -> None:
    client = seen.client(1)
    assert isinstance(client.declare("absent", passive=True), commands.Channel.Close)
    assert seen.some(2, "channels") == (0, [])


def test_a_node_that_cannot_be_reached_shows_nothing(seen: Seen) -> None:
    for id in (1, 2, 3):
        seen.client(id)
    seen.brokers.cut = {2}
    seen.patience_ms = 2_500
    assert [row["node"] for row in seen.some(1, "channels")[1]] == ["node1", "node3"]


def test_what_a_channel_holds_and_waits_for(seen: Seen) -> None:
    client = seen.client(1)
    client.open_channel(2, confirms=True)
    client.open_channel(3)
    client.call(3, commands.Tx.Select())
    client.call(1, commands.Basic.Qos(prefetch_count=5))
    client.call(1, commands.Basic.Qos(prefetch_count=9, global_=True))
    client.declare("q", durable=False)
    for _ in range(3):
        client.publish(2, "q")
    for _ in range(2):
        client.get("q", 3, no_ack=False)
    client.get("q", 1, no_ack=False)
    client.declare("replicated")
    seen.brokers.running = False
    for _ in range(4):
        client.publish(2, "replicated")
        client.publish(3, "q")
    client.send(3, commands.Basic.Ack(1))
    name = client.connection.name
    (first, second, third), left = seen.views[1].rows("channels", ALL, [ClientPart(name, 0, 10)])
    assert left == []
    assert (first["prefetch_count"], first["global_prefetch_count"], first["messages_unacknowledged"]) == (9, 0, 1)
    assert (second["confirm"], second["messages_unconfirmed"], second["transactional"]) == (True, 4, False)
    assert (third["transactional"], third["confirm"], third["messages_uncommitted"]) == (True, False, 4)
    assert (third["acks_uncommitted"], third["messages_unacknowledged"]) == (1, 2)
    seen.brokers.running = True
    seen.brokers.settle()
    assert seen.views[1].rows("channels", ALL, [ClientPart(name, 1, 1)])[0][0]["messages_unconfirmed"] == 0


@pytest.mark.parametrize("durable", [True, False])
def test_who_is_the_single_active_consumer(seen: Seen, durable: bool) -> None:
    """Of a transient queue its home alone knows."""
    home, other = seen.client(1), seen.client(2)
    home.declare("single", durable=durable, arguments=SINGLE)
    home.consume("single", "first")
    home.consume("single", "second")
    other.consume("single", "third")
    elsewhere = (False, "waiting") if durable else (None, "unknown")
    found = {row["consumer_tag"]: (row["active"], row["activity_status"]) for row in seen.some(3, "consumers")[1]}
    assert found == {"first": (True, "single_active"), "second": (False, "waiting"), "third": elsewhere}
    home.call(1, commands.Basic.Cancel("first"))
    left = {row["consumer_tag"]: row["active"] for row in seen.some(3, "consumers")[1]}
    assert left == {"second": True, "third": elsewhere[0]}


def test_what_a_consumer_was_asked_for_with_is_shown_and_forgotten(seen: Seen) -> None:
    client = seen.client(1)
    client.declare("q", durable=False)
    client.consume("q", "a", exclusive=True, arguments={"x-priority": 3, "long": "x"}, no_ack=True)
    broker = seen.brokers.nodes[1].broker
    (row,) = seen.some(2, "consumers")[1]
    assert (row["exclusive"], row["arguments"], row["ack_required"]) == (True, {"x-priority": 3, "long": "x"}, False)
    client.call(1, commands.Basic.Cancel("a"))
    client.consume("q", "b", arguments={"long": "x" * KEPT_BYTES})
    (row,) = seen.some(2, "consumers")[1]
    assert (row["exclusive"], row["arguments"], row["active"]) == (False, {}, True)
    assert broker.consumers._terms == {}
    client.consume("q", "c", arguments={"is": "kept"})
    assert len(broker.consumers._terms) == 1
    client.lose()
    assert broker.consumers._terms == {} and seen.some(2, "consumers") == (0, [])


def test_questions_of_another_version_have_no_answer(seen: Seen) -> None:
    answer = seen.brokers.nodes[1].engine.questions.answer
    assert answer is not None
    for question in (b"", b"\x80", b"\x81\xa4type\xa7Unknown", b"nonsense"):
        answers: list[bytes] = []
        answer(question, answers.append)
        assert answers == [b""]
