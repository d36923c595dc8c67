"""Journals over HTTP and by `mayfly journal`, on a node as in the product (RULES R4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from click.testing import CliRunner, Result

from mayfly.node.catalog import SetPermissions
from mayfly.node.command_line import main
from tests.node.http.real_node import Node
from tests.waiting import wait_for

PATH = "/api/mayfly/queues/%2F/mine%20j/stream/journal"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.add_user("mine", "management", "^mine")
    node.add_user("other", "management", "^other")
    for name in ("mine", "other"):
        node.run(node.parts.cluster.command(SetPermissions(name, "/", "", "", f"^{name}")))
    node.channel.confirm_delivery()
    yield node
    node.stop()


@pytest.fixture
def has_keys() -> bool:
    return False


@pytest.fixture
def journal(node: Node, has_keys: bool) -> Iterator[str]:
    """A journal in which is noted what has left two queues: five messages of the one, then one of the other and that
    queue; and something that is no record."""
    arguments: dict[str, Any] = {"x-queue-type": "stream", "x-stream-key-index": has_keys}
    channel = node.channel
    channel.queue_declare("mine j", durable=True, arguments=arguments)
    channel.queue_declare("mine q", durable=True, arguments={"x-journal": "mine j"})
    for number in range(5):
        headers = {"traceparent": TRACE}
        properties = pika.BasicProperties(expiration="0", message_id=f"m{number}", headers=headers)
        channel.basic_publish("", "mine q", b"abc", properties)
    channel.basic_publish("", "mine j", b"no record")
    wait_for(lambda: len(node.ask("GET", PATH)[1]["records"]) == 5, "five records")
    arguments = {"x-journal": "mine j", "x-dead-letter-exchange": "amq.fanout"}
    channel.queue_declare("brief", durable=True, arguments=arguments)
    channel.basic_publish("", "brief", b"12", pika.BasicProperties(message_id="b"))
    # By a policy, and not from the beginning: the queue is not to go before it has its message.
    body = {"pattern": "^brief$", "definition": {"expires": 50}, "apply-to": "queues"}
    assert node.ask("PUT", "/api/policies/%2F/brief", content=body)[0] == 201
    wait_for(lambda: len(node.ask("GET", PATH)[1]["records"]) == 7, "those of the other queue")
    assert node.ask("DELETE", "/api/policies/%2F/brief")[0] == 204
    yield "mine j"
    channel.queue_delete("mine q")
    channel.queue_delete("mine j")


def command(node: Node, *words: str) -> Result:
    login = {"MAYFLY_USER": "guest", "MAYFLY_PASSWORD": "guest"}
    return CliRunner().invoke(main, ["journal", *words, "--node", node.address], env=login)


def ids(found: dict[str, Any]) -> list[Any]:
    return [each["message_id"] for each in found["records"]]


def test_r4_what_is_noted_the_newest_first(node: Node, journal: str) -> None:
    status, found = node.ask("GET", PATH, "mine")
    assert (status, ids(found), found["before"]) == (200, ["b", None, "m4", "m3", "m2", "m1", "m0"], None)
    of_queue, first = found["records"][1], found["records"][-1]
    assert 0 <= first.pop("went_ms") - first.pop("due_ms") < 60_000
    assert first.pop("enqueued_ms") > 0
    assert first == {
        "offset": 0, "what": "message", "reason": "expired", "queue": "mine q", "to": "nowhere", "exchange": "",
        "routing_key": "mine q", "body_bytes": 3, "message_id": "m0", "traceparent": TRACE,
        "dead_letter_exchange": None, "dead_letter_routing_key": None, "last_used_ms": None, "messages": None,
    }
    assert (of_queue["what"], of_queue["queue"], of_queue["messages"]) == ("queue", "brief", 1)
    assert of_queue["last_used_ms"] + 50 <= of_queue["due_ms"] <= of_queue["went_ms"]
    node.channel.queue_declare("idle", durable=True, arguments={"x-journal": journal, "x-expires": 50})
    wait_for(lambda: len(node.ask("GET", PATH)[1]["records"]) == 8, "that of a queue which had nothing")
    idle = node.ask("GET", PATH)[1]["records"][0]
    assert (idle["queue"], idle["messages"]) == ("idle", 0)
    assert idle["last_used_ms"] + 50 == idle["due_ms"] <= idle["went_ms"]


@pytest.mark.parametrize("has_keys", [False, True])
def test_r4_of_one_queue_and_in_pages(node: Node, journal: str) -> None:
    found = node.ask("GET", PATH + "?queue=brief")[1]
    assert ids(found) == ["b", None]
    pages, before = [], ""
    while True:
        found = node.ask("GET", f"{PATH}?queue=mine%20q&limit=2{before}")[1]
        pages.append(ids(found))
        if found["before"] is None:
            break
        before = f"&before={found['before']}"
    assert [page for page in pages if page] == [["m4", "m3"], ["m2", "m1"], ["m0"]]
    assert ids(node.ask("GET", PATH + "?queue=nobody")[1]) == []
    assert ids(node.ask("GET", PATH + "?before=0")[1]) == []


def test_r4_by_the_command_the_newest_last(node: Node, journal: str) -> None:
    shown = json.loads(command(node, journal, "--json", "--last", "3").output)
    assert [each["message_id"] for each in shown] == ["m4", None, "b"]
    shown = json.loads(command(node, journal, "--json", "--queue", "mine q").output)
    assert [each["message_id"] for each in shown] == ["m0", "m1", "m2", "m3", "m4"]
    table = command(node, journal).output
    assert "the queue, with 1 messages" in table
    assert "nowhere" in table
    assert command(node, "nobody").exit_code == 1


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("limit=0", "limit = '0': a number from 1 to 100 is expected"),
        ("limit=101", "limit = '101': a number from 1 to 100 is expected"),
        ("before=x", "before = 'x': a number from 0"),
        ("before=1&before=2", "before = '1', '2': one number is expected"),
        ("queue=a&queue=b", "the name of one queue"),
        (f"queue={'x' * 256}", "the name of one queue, of at most 255 octets"),
    ],
)
def test_r4_bad_questions(node: Node, query: str, text: str) -> None:
    status, told = node.ask("GET", f"{PATH}?{query}")
    assert status == 400
    assert text in told["reason"]


def test_r4_who_may_not_read_it_and_what_is_no_stream(node: Node, journal: str) -> None:
    assert node.ask("GET", PATH, "other")[0] == 401
    status, told = node.ask("GET", "/api/mayfly/queues/%2F/mine%20q/stream/journal")
    assert (status, "queue 'mine q' in vhost '/' is no stream" in told["reason"]) == (400, True)
    assert node.ask("GET", "/api/mayfly/queues/%2F/nobody/stream/journal")[0] == 404


@pytest.mark.parametrize(
    ("journal_of", "text"),
    [
        ("nobody", "policy 'noted' in vhost '/' can't have 'nobody' as its journal: there is no such queue"),
        ("mine q", "policy 'noted' in vhost '/' can't have 'mine q' as its journal: it is no stream (x-queue-type)"),
        ("", "journal takes a string of at most 255 octets, the name of a stream"),
    ],
)
def test_r4_policies_with_what_is_no_journal_are_refused(node: Node, journal: str, journal_of: str, text: str) -> None:
    body = {"pattern": "^noted", "definition": {"journal": journal_of}, "apply-to": "queues"}
    status, told = node.ask("PUT", "/api/policies/%2F/noted", content=body)
    assert status == 400
    assert text in told["reason"]


def test_r4_a_policy_and_a_file_of_definitions(node: Node, journal: str) -> None:
    """In the file a queue may stand before its journal, and policies come before both."""
    body = {"pattern": "^noted", "definition": {"journal": journal}, "apply-to": "queues"}
    assert node.ask("PUT", "/api/policies/%2F/noted", content=body)[0] == 201
    shown = node.ask("GET", "/api/policies/%2F/noted")[1]
    assert shown["definition"] == {"journal": journal}
    assert node.ask("DELETE", "/api/policies/%2F/noted")[0] == 204
    kept = {"vhost": "/", "durable": True, "auto_delete": False}
    queues = [
        {"name": "later q", "arguments": {"x-journal": "later j"}, **kept},
        {"name": "later j", "arguments": {"x-queue-type": "stream"}, **kept},
    ]
    policy = {"name": "later", "vhost": "/", "pattern": "^later", "apply-to": "queues", "priority": 0}
    policies = [{**policy, "definition": {"journal": "later j"}}]
    status, told = node.ask("POST", "/api/definitions", content={"queues": queues, "policies": policies})
    assert status in (200, 201, 204), told
    node.channel.queue_delete("later q")
    node.channel.queue_delete("later j")
    assert node.ask("DELETE", "/api/policies/%2F/later")[0] == 204
