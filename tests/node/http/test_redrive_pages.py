"""Redrives over HTTP and by `mayfly redrive`, on a node as in the product (RULES R1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pika
import pytest
from click.testing import CliRunner, Result

from mayfly.node.catalog import SetPermissions
from mayfly.node.command_line import main
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import wait_for

PATH = "/api/mayfly/queues/%2F/mine%20dead/redrive"
COUNT = 12
MANY = 1000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.add_user("mine", "management", "^mine")
    node.add_user("watch", "monitoring", None)
    node.add_user("reader", "management", "^$")
    node.run(node.parts.cluster.command(SetPermissions("reader", "/", "", "^$", ".*")))
    node.channel.confirm_delivery()
    yield node
    node.stop()


@pytest.fixture
def dead(node: Node) -> Iterator[str]:
    """A queue with dead letters of two queues: even numbers of one, odd ones of the other, some of them rejected."""
    channel = node.channel
    channel.queue_declare("mine dead", durable=True)
    for name in ("mine a", "mine b"):
        arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "mine dead"}
        channel.queue_declare(name, durable=True, arguments=arguments)
    for number in range(COUNT):
        name = "mine b" if number % 2 else "mine a"
        properties = pika.BasicProperties(headers={"number": number}, expiration=None if number % 3 else "0")
        channel.basic_publish("", name, b"%d" % number, properties)
        if number % 3:
            (method, _, _) = channel.basic_get(name)
            channel.basic_reject(method.delivery_tag, requeue=False)
        wait_for(partial(_holds, node, number + 1), "the next dead letter")
    yield "mine dead"
    for name in ("mine dead", "mine a", "mine b"):
        channel.queue_delete(name)


def _holds(node: Node, count: int) -> bool:
    found: int = node.channel.queue_declare("mine dead", passive=True).method.message_count
    return found == count


def bodies(node: Node, queue: str) -> list[int]:
    found: list[int] = []
    while True:
        (method, _, body) = node.channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(int(body))


def wait_until(node: Node, state: str) -> dict[str, Any]:
    wait_for(lambda: node.ask("GET", PATH)[1]["state"] == state, f"the state {state}")
    shown: dict[str, Any] = node.ask("GET", PATH)[1]
    return shown


def command(node: Node, *words: str) -> Result:
    login = {"MAYFLY_USER": "guest", "MAYFLY_PASSWORD": "guest"}
    return CliRunner().invoke(main, ["redrive", *words, "--node", node.address], env=login)


def test_r1_back_to_where_they_died(node: Node, dead: str) -> None:
    assert node.ask("GET", PATH) == (200, {"vhost": "/", "queue": dead, "state": "none"})
    status, ahead = node.ask("POST", PATH + "/preview", content={"count": 2})
    assert status == 200
    assert (ahead["moves"], ahead["stays"], ahead["no_route"], ahead["complete"]) == (COUNT, 0, 0, True)
    assert ahead["targets"] == [{"queue": "mine a", "messages": 6}, {"queue": "mine b", "messages": 6}]
    first = ahead["messages"][0]
    assert len(ahead["messages"]) == 2
    assert (first["payload"], first["reason"], first["from_queue"], first["routing_key"]) == (
        "0", "expired", "mine a", "mine a",
    )  # fmt: skip
    assert first["properties"]["headers"]["x-redrive-count"] == 1
    status, started = node.ask("POST", PATH, content={})
    assert status == 201
    shown = wait_until(node, "done")
    assert (shown["id"], shown["moved"], shown["stayed"], shown["rate"]) == (started["id"], COUNT, 0, 0)
    assert shown["waiting_at_start"] == COUNT
    assert bodies(node, "mine a") == list(range(0, COUNT, 2))
    assert bodies(node, "mine b") == list(range(1, COUNT, 2))
    assert bodies(node, dead) == []


def test_r1_the_preview_is_what_moves(node: Node, dead: str) -> None:
    for wish in (
        {"reason": "rejected", "from_queue": "mine b"}, {"headers": {"number": "3"}}, {"routing_key": "mine a"},
        {"target_exchange": "nobody bound here", "reason": "expired"},
    ):  # fmt: skip
        if "target_exchange" in wish:
            node.channel.exchange_declare("nobody bound here", "direct")
        ahead = node.ask("POST", PATH + "/preview", content=wish)[1]
        counted = node.ask("POST", PATH + "/preview", content={**wish, "count": 0, "within_ms": 60_000})[1]
        assert counted == {**ahead, "messages": []}
        assert node.ask("POST", PATH, content=wish)[0] == 201
        shown = wait_until(node, "done")
        assert (shown["moved"], shown["stayed"]) == (ahead["moves"], ahead["stays"])
    assert ahead["no_route"] > 0
    node.channel.exchange_delete("nobody bound here")


def make_long(node: Node, queue: str) -> None:
    """So many more letters that a slow redrive is under way for as long as a busy machine takes for anything."""
    channel = node.connection.channel()
    for _ in range(MANY):
        channel.basic_publish("", queue, b"-1")
    channel.close()
    wait_for(partial(_holds, node, COUNT + MANY), "all that was published")


def test_r1_paused_resumed_and_cancelled(node: Node, dead: str) -> None:
    make_long(node, dead)
    assert node.ask("POST", PATH, content={"rate": 1, "target_queue": "mine a"})[0] == 201
    assert node.ask("PUT", PATH, content={"state": "paused"})[0] == 200
    assert node.ask("GET", PATH)[1]["state"] == "paused"
    status, told = node.ask("POST", PATH, content={})
    assert (status, "is under way: cancel it first" in told["reason"]) == (400, True)
    assert node.ask("PUT", PATH, content={"state": "running", "rate": 2})[0] == 200
    shown = node.ask("GET", PATH)[1]
    assert (shown["state"], shown["rate"], shown["target_queue"]) == ("running", 2, "mine a")
    assert node.ask("GET", "/api/mayfly/redrives")[1]["redrives"][0]["queue"] == dead
    assert node.ask("DELETE", PATH)[0] == 200
    moved = wait_until(node, "cancelled")["moved"]
    assert moved < COUNT + MANY
    assert len(bodies(node, "mine a")) == moved
    assert node.ask("DELETE", PATH)[0] == 404
    assert node.ask("PUT", PATH, content={"state": "paused"})[0] == 404


def test_r1_what_can_not_be(node: Node, dead: str) -> None:
    node.channel.queue_declare("mine stream", durable=True, arguments={"x-queue-type": "stream"})
    node.channel.queue_declare(
        "mine mirror", durable=True, arguments={"x-queue-type": "stream", "x-mirror": "mine stream"}
    )
    node.channel.queue_declare("mine transient", exclusive=True)
    for path, content, status, text in (
        (PATH, {"target_queue": "nobody"}, 404, "target_queue: there is no queue 'nobody'"),
        (PATH, {"target_queue": "mine mirror"}, 400, "target_queue: queue 'mine mirror' in vhost '/' is read-only"),
        (PATH, {"target_queue": dead}, 400, "is the queue itself"),
        (PATH, {"target_exchange": "nobody"}, 404, "target_exchange: "),
        (PATH, {"target_exchange": "", "target_queue": "mine a"}, 400, "not to both"),
        (PATH, {"target_routing_key": "k"}, 400, "goes with a target_exchange"),
        (PATH, {"reason": "murder"}, 400, "one of expired, rejected"),
        (PATH, {"rate": -1}, 400, "rate"),
        (PATH, {"speed": 1}, 400, "speed"),
        (PATH, {"min_age_ms": "1"}, 400, "min_age_ms"),
        (PATH.replace("mine%20dead", "mine%20stream"), {}, 400, "is a stream"),
        (PATH.replace("mine%20dead", "mine%20transient"), {}, 400, "in the memory of one node"),
    ):
        for further in ("", "/preview"):
            answer, told = node.ask("POST", path + further, content=content)
            assert (answer, text in told["reason"]) == (status, True), told
    assert node.ask("POST", PATH.replace("mine%20dead", "nobody"), content={}) == NOT_FOUND
    assert node.ask("PUT", PATH, content={})[0] == 400
    assert node.ask("PUT", PATH, content={"state": "done"})[0] == 400
    assert node.ask("GET", PATH)[1]["state"] == "none"
    assert node.channel.queue_declare("mine mirror", passive=True).method.message_count == 0
    node.channel.queue_delete("mine mirror")
    node.channel.queue_delete("mine stream")


def test_r1_takes_reading_and_writing(node: Node, dead: str) -> None:
    assert node.ask("POST", PATH, "watch", {})[0] == 401
    assert node.ask("GET", PATH, "reader")[0] == 200
    assert node.ask("POST", PATH, "reader", {})[0] == 401, "it may not write to the default exchange"
    assert node.ask("POST", PATH, "mine", {})[0] == 201
    wait_until(node, "done")


def test_r1_by_command(node: Node, dead: str) -> None:
    ahead = command(node, "preview", dead, "--reason", "rejected", "--count", "1")
    assert ahead.exit_code == 0, ahead.output
    assert "8 messages would move" in ahead.output
    assert "4 would stay" in ahead.output
    asked = json.loads(command(node, "preview", dead, "--header", "number=3", "--json").output)
    assert asked["moves"] == 1
    make_long(node, dead)
    begun = command(node, "start", dead, "--rate", "1", "--to-queue", "mine b")
    assert "is being redriven" in begun.output
    for word, said in (("pause", "paused"), ("resume", "goes on"), ("rate", "5"), ("cancel", "cancelled")):
        done = command(node, word, dead, *(["5"] if word == "rate" else []))
        assert (done.exit_code, said in done.output) == (0, True), done.output
    listed = command(node, "list")
    assert "cancelled" in listed.output
    assert json.loads(command(node, "list", "--json").output)["redrives"][0]["rate"] == 5
    assert command(node, "pause", dead).exit_code == 1
    assert command(node, "start", dead, "--header", "nothing").exit_code == 2
