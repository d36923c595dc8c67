"""What waits for its time, over HTTP and by `mayfly schedule`, on a node as in the product (RULES S4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pika
import pytest
from click.testing import CliRunner, Result

from mayfly.node.catalog import SetPermissions
from mayfly.node.command_line import main
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import wait_for

HOUR_MS = 3_600_000
PATH = "/api/mayfly/queues/%2F/mine%20q/scheduled"


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
def queue(node: Node) -> Iterator[str]:
    """A queue in which three wait, due in an hour, two and three, and one for a second one with the first's id."""
    node.channel.queue_declare("mine q", durable=True, arguments={"x-allow-schedule": True})
    for hours, message_id in ((2, "b"), (1, "a/1"), (3, "c"), (3, "a/1"), (4, "")):
        publish(node, hours * HOUR_MS, message_id)
    yield "mine q"
    node.channel.queue_delete("mine q")


def publish(node: Node, delay_ms: int, message_id: str) -> None:
    properties = pika.BasicProperties(message_id=message_id or None, headers={"x-delay": delay_ms})
    node.channel.basic_publish("", "mine q", b"body", properties)


def ids(node: Node, query: str = "", user: str = "guest") -> list[str]:
    status, content = node.ask("GET", PATH + query, user)
    assert status == 200, content
    return [row["message_id"] for row in content["messages"]]


def command(node: Node, *words: str) -> Result:
    login = {"MAYFLY_USER": "guest", "MAYFLY_PASSWORD": "guest"}
    return CliRunner().invoke(main, ["schedule", *words, "--node", node.address], env=login)


def test_s4_what_waits_is_listed_in_order_of_due_times(node: Node, queue: str) -> None:
    """S4: by time window and message id, page by page."""
    assert ids(node) == ["a/1", "b", "c", "a/1", ""]
    first = node.ask("GET", PATH + "?count=2")[1]
    (one, two) = first["messages"]
    assert one["routing_key"] == queue
    assert (one["exchange"], one["body_bytes"], one["retries"]) == ("", 4, 0)
    assert HOUR_MS - 60_000 < one["due_in_ms"] <= HOUR_MS
    assert two["due_ms"] - one["due_ms"] == pytest.approx(HOUR_MS, abs=60_000)
    assert ids(node, f"?count=2&after={first['next']}") == ["c", "a/1"]
    assert ids(node, f"?from_ms={two['due_ms']}&until_ms={two['due_ms'] + HOUR_MS // 2}") == ["b"]
    assert ids(node, f"?from_ms={two['due_ms'] + 1}") == ["c", "a/1", ""]
    assert ids(node, "?message_id=" + quote("a/1", safe="")) == ["a/1", "a/1"]
    assert ids(node, f"?message_id=c&until_ms={two['due_ms']}") == []


def test_s4_what_waits_is_cancelled_and_rescheduled(node: Node, queue: str) -> None:
    """S4: the answer says if nothing waits."""
    assert node.ask("DELETE", PATH + "/a%2F1") == (204, None)
    assert ids(node) == ["b", "c", ""]
    status, answer = node.ask("DELETE", PATH + "/a%2F1")
    assert status == 404
    assert answer["reason"].startswith("nothing waits under the id 'a/1' in queue 'mine q' in vhost '/': it has become")
    assert node.ask("PUT", PATH + "/b", "guest", {"delay_ms": 5 * HOUR_MS}) == (204, None)
    assert ids(node) == ["c", "", "b"]
    assert node.ask("PUT", PATH + "/c", "guest", {"deliver_at_ms": 5}) == (204, None)
    assert ids(node) == ["", "b"]
    method, _, body = node.channel.basic_get(queue, auto_ack=True)
    assert method is not None and body == b"body"
    assert node.ask("DELETE", PATH + "/c")[0] == 404
    assert node.ask("PUT", PATH + "/c", "guest", {"delay_ms": 1})[0] == 404


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("?count=0", "count"), ("?count=1001", "count"), ("?from_ms=-1", "from_ms"), ("?until_ms=soon", "until_ms"),
        ("?after=5", "after = '5'"), ("?after=1-2-x", "after"), ("?what=1", "what"),
        ("?message_id=" + "i" * 256, "message_id"),
    ],
)  # fmt: skip
def test_s4_a_listing_that_can_not_be_is_refused_by_name(node: Node, queue: str, query: str, named: str) -> None:
    """S4."""
    status, answer = node.ask("GET", PATH + query)
    assert status == 400
    assert named in answer["reason"]


@pytest.mark.parametrize("due", [{}, {"delay_ms": 1, "deliver_at_ms": 1}, {"delay_ms": -1}, {"when": 5}, [], "x"])
def test_s4_a_time_that_is_none_is_refused(node: Node, queue: str, due: object) -> None:
    """S4: and nothing is changed."""
    status, answer = node.ask("PUT", PATH + "/b", "guest", due)
    assert status == 400
    assert answer["reason"]
    assert ids(node) == ["a/1", "b", "c", "a/1", ""]


def test_s4_who_may_not_is_refused(node: Node, queue: str) -> None:
    """S4: to list takes reading, to change writing to the default exchange."""
    assert ids(node, "", "mine") == ["a/1", "b", "c", "a/1", ""]
    assert node.ask("GET", PATH, "watch")[0] == 401
    assert node.ask("DELETE", PATH + "/b", "watch")[0] == 401
    assert node.ask("DELETE", PATH + "/b", "mine")[0] == 401
    assert node.ask("GET", PATH.replace("mine", "no")) == NOT_FOUND
    assert node.ask("DELETE", PATH.replace("mine", "no") + "/b") == NOT_FOUND
    node.channel.queue_declare("mine plain")
    status, answer = node.ask("DELETE", PATH.replace("mine%20q", "mine%20plain") + "/b")
    assert (status, "does not allow schedules" in answer["reason"]) == (400, True)
    assert ids(node) == ["a/1", "b", "c", "a/1", ""]


def test_s4_by_the_command_line(node: Node, queue: str) -> None:
    """S4: exit code 1 and the reason where nothing waits."""
    listed = command(node, "list", queue, "--count", "2")
    assert listed.exit_code == 0, listed.output
    assert "a/1" in listed.output and "--after" in listed.output
    assert len(json.loads(command(node, "list", queue, "--json", "--id", "a/1").output)["messages"]) == 2
    assert command(node, "cancel", queue, "a/1").output == "'a/1' is cancelled\n"
    again = command(node, "cancel", queue, "a/1")
    assert again.exit_code == 1
    assert "nothing waits under the id 'a/1'" in again.output
    assert command(node, "reschedule", queue, "b", "--in", "10").output == "'b' is rescheduled\n"
    assert command(node, "reschedule", queue, "b").exit_code == 2
    assert command(node, "list", "none").exit_code == 1


def test_s6_what_recurs_is_listed_with_its_schedule_and_when_it_comes_next(node: Node, queue: str) -> None:
    """S6, S4: over HTTP and by the command; cancelled like all that waits."""
    headers = {"x-schedule": "0 9 * * MON-FRI", "x-schedule-time-zone": "Europe/Berlin"}
    for message_id, said in (("daily", headers), ("often", {"x-schedule": "@every 1000h"})):
        properties = pika.BasicProperties(message_id=message_id, headers=said)
        node.channel.basic_publish("", queue, b"body", properties)

    def rows() -> dict[str, dict[str, Any]]:
        status, content = node.ask("GET", PATH)
        assert status == 200
        return {row["message_id"]: row for row in content["messages"] if row["schedule"]}

    wait_for(lambda: rows()["daily"]["due_ms"] is not None, "the leader's decision")
    daily, often = rows()["daily"], rows()["often"]
    assert (daily["schedule"], daily["time_zone"]) == ("0 9 * * MON-FRI", "Europe/Berlin")
    assert datetime.fromtimestamp(daily["due_ms"] / 1000, ZoneInfo("Europe/Berlin")).strftime("%H:%M:%S") == "09:00:00"
    assert (often["schedule"], often["time_zone"]) == ("@every 1000h", "")
    assert 999 * HOUR_MS < often["due_in_ms"] <= 1000 * HOUR_MS
    assert ids(node, "?message_id=daily") == ["daily"]
    listed = command(node, "list", queue).output
    assert "0 9 * * MON-FRI" in listed
    assert "Europe/Berlin" in listed
    assert command(node, "cancel", queue, "daily").exit_code == 0
    assert list(rows()) == ["often"]
