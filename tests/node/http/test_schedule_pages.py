"""What waits for its time, over HTTP and by `mayfly schedule`, on a node as in the product (RULES S4)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pika
import pytest
from click.testing import CliRunner, Result

from mayfly.node.catalog import SetPermissions
from mayfly.node.command_line import main, queue_command
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import wait_for

HOUR_MS = 3_600_000
PATH = "/api/mayfly/queues/%2F/mine%20q/scheduled"
LATER_PATH = "/api/mayfly/exchanges/%2F/mine%20later/scheduled"


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


@pytest.fixture
def exchange(node: Node) -> Iterator[str]:
    """A delayed exchange with a queue bound to it, for which two wait."""
    arguments = {"x-delayed-type": "topic"}
    node.channel.exchange_declare("mine later", "x-delayed-message", durable=True, arguments=arguments)
    node.channel.queue_declare("mine q", durable=True)
    node.channel.queue_bind("mine q", "mine later", "k.*")
    for hours, message_id in ((2, "b"), (1, "a/1")):
        publish(node, hours * HOUR_MS, message_id, "mine later", "k.1")
    yield "mine later"
    node.channel.exchange_delete("mine later")
    node.channel.queue_delete("mine q")


def publish(node: Node, delay_ms: int, message_id: str, exchange: str = "", key: str = "mine q") -> None:
    properties = pika.BasicProperties(message_id=message_id or None, headers={"x-delay": delay_ms})
    node.channel.basic_publish(exchange, key, b"body", properties)


def ids(node: Node, query: str = "", user: str = "guest", path: str = PATH) -> list[str]:
    status, content = node.ask("GET", path + query, user)
    assert status == 200, content
    return [row["message_id"] for row in content["messages"]]


def mayfly(node: Node, *words: str) -> Result:
    login = {"MAYFLY_USER": "guest", "MAYFLY_PASSWORD": "guest", "COLUMNS": "160"}
    return CliRunner().invoke(main, [*words, "--node", node.address], env=login)


def command(node: Node, *words: str) -> Result:
    return mayfly(node, "schedule", *words)


def shown(node: Node, *words: str) -> str:
    """What another command prints."""
    result = mayfly(node, *words)
    assert result.exit_code == 0, result.output
    return result.output


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


def test_s4_what_waits_under_an_id_is_listed_page_by_page(node: Node, queue: str) -> None:
    """S4: however many have the id, and whatever time they are due."""
    named = PATH + "?message_id=" + quote("a/1", safe="")
    first = node.ask("GET", named + "&count=1")[1]
    assert [row["message_id"] for row in first["messages"]] == ["a/1"]
    second = node.ask("GET", f"{named}&count=1&after={first['next']}")[1]
    assert [row["message_id"] for row in second["messages"]] == ["a/1"]
    assert second["messages"][0]["due_ms"] - first["messages"][0]["due_ms"] > HOUR_MS
    assert node.ask("GET", f"{named}&count=1&after={second['next']}")[1] == {"messages": []}
    late = node.ask("GET", f"{named}&count=1&from_ms={first['messages'][0]['due_ms'] + 1}")[1]
    assert late["messages"][0]["due_ms"] == second["messages"][0]["due_ms"]
    assert node.ask("GET", f"{named}&count=5&until_ms={late['messages'][0]['due_ms'] - 1}")[1].keys() == {"messages"}


def samples(node: Node, path: str, name: str) -> dict[str, float]:
    """Of one metric, by its labels as they are written."""
    found = [re.fullmatch(rf"{name}(\{{.*\}})? (\S+)", line) for line in node.text(path).splitlines()]
    return {each[1] or "": float(each[2]) for each in found if each}


def of_all(node: Node, name: str) -> float:
    """A metric of the node's shards together."""
    found = samples(node, "/metrics", name)
    assert found, name
    return sum(found.values())


def test_s2_a_queue_says_what_waits_in_it_and_when_the_first_is_due(node: Node, queue: str) -> None:
    """S2: over HTTP, by `mayfly queue show`, and in the metrics of queues and shards."""
    row = node.ask("GET", "/queues/%2F/mine%20q?fresh=true")[1]
    assert (row["scheduled"], row["scheduled_bytes"], row["ready"]) == (5, 20, 0)
    assert HOUR_MS - 60_000 < row["next_due_in_ms"] <= HOUR_MS
    assert row["next_due_ms"] == node.ask("GET", PATH + "?count=1")[1]["messages"][0]["due_ms"]
    (line,) = [each.split() for each in shown(node, "queue", "show", queue).splitlines() if "scheduled" in each.split()]
    assert line[:6] == ["scheduled", "5", "(20", "bytes),", "next", "in"] and len(line) > 6
    labels = f'{{queue="{queue}",vhost="/"}}'
    assert samples(node, "/metrics/per-queue", "mayfly_queue_scheduled")[labels] == 5
    seconds = samples(node, "/metrics/per-queue", "mayfly_queue_next_due_seconds")[labels]
    assert HOUR_MS / 1000 - 60 < seconds <= HOUR_MS / 1000
    assert (of_all(node, "mayfly_scheduled"), of_all(node, "mayfly_scheduled_bytes")) == (5, 20)


def test_s6_a_queue_whose_next_message_is_not_decided_yet_is_shown(
    node: Node, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: by `mayfly queue show`, until the leader has said when it comes."""
    row = node.ask("GET", "/queues/%2F/mine%20q?fresh=true")[1] | {"next_due_ms": None, "next_due_in_ms": None}
    monkeypatch.setattr(queue_command, "get", lambda *asked: row)
    assert "5 (20 bytes), next not decided yet" in shown(node, "queue", "show", queue)


def test_s2_the_status_says_how_many_wait_and_when_the_first_is_due(node: Node, queue: str) -> None:
    """S2: in all, and by shard; `mayfly status` too."""
    status = node.ask("GET", "/status")[1]
    assert status["queues"]["scheduled"] == 5
    (group,) = [group for group in status["groups"] if group.get("scheduled")]
    assert group["scheduled"] == 5
    assert HOUR_MS - 60_000 < group["next_due_in_ms"] <= HOUR_MS
    others = [other for other in status["groups"] if other["group"] not in (0, group["group"])]
    assert [(other["scheduled"], other["next_due_in_ms"]) for other in others] == [(0, None)]
    assert "scheduled 5" in shown(node, "status")
    node.channel.queue_purge(queue)
    wait_for(lambda: node.ask("GET", "/status")[1]["queues"]["scheduled"] == 0, "nothing to be scheduled")
    assert "scheduled" not in shown(node, "status")


def test_s3_how_late_what_was_due_became_ready_is_measured(node: Node, queue: str) -> None:
    """S3."""
    before, seconds = of_all(node, "mayfly_due_lag_seconds_count"), of_all(node, "mayfly_due_lag_seconds_sum")
    publish(node, 1, "first")
    next(node.channel.consume(queue, auto_ack=True, inactivity_timeout=30))
    node.channel.cancel()
    assert of_all(node, "mayfly_due_lag_seconds_count") == before + 1
    assert 0 <= of_all(node, "mayfly_due_lag_seconds_sum") - seconds < 30
    buckets = samples(node, "/metrics", "mayfly_due_lag_seconds_bucket")
    assert sum(count for labels, count in buckets.items() if 'le="+Inf"' in labels) == before + 1


def test_s1_what_waits_for_a_delayed_exchange_and_what_has_no_route_then_is_counted(node: Node, exchange: str) -> None:
    """S1: in metrics."""
    labels = f'{{exchange="{exchange}",vhost="/"}}'
    assert samples(node, "/metrics", "mayfly_exchange_delayed")[labels] == 2
    before = of_all(node, "mayfly_dropped_due_total")
    publish(node, 1, "nowhere", exchange, "other")
    wait_for(lambda: of_all(node, "mayfly_dropped_due_total") == before + 1, "what has no route to be dropped")
    assert samples(node, "/metrics", "mayfly_exchange_delayed")[labels] == 2


def test_s2_a_moment_is_one_of_the_wall_clock(node: Node, queue: str) -> None:
    """S2: of the machine's, not of how long it runs."""
    at_ms = round(time.time() * 1000) + 6 * HOUR_MS
    properties = pika.BasicProperties(message_id="at", headers={"x-deliver-at": at_ms})
    node.channel.basic_publish("", queue, b"body", properties)
    (row,) = node.ask("GET", PATH + "?message_id=at")[1]["messages"]
    assert row["due_ms"] == at_ms
    assert row["due_in_ms"] == pytest.approx(6 * HOUR_MS, abs=60_000)


def test_s4_what_waits_is_cancelled_and_rescheduled(node: Node, queue: str) -> None:
    """S4: the answer says if nothing waits."""
    assert node.ask("DELETE", PATH + "/a%2F1") == (204, None)
    assert ids(node) == ["b", "c", ""]
    status, answer = node.ask("DELETE", PATH + "/a%2F1")
    assert status == 404
    assert answer["reason"].startswith("nothing waits under the id 'a/1' in queue 'mine q' in vhost '/': it has become")
    assert "nothing is kept that would tell which" in answer["reason"]
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


@pytest.mark.parametrize(
    ("due", "named"),
    [
        ({}, "delay_ms (from now) or deliver_at_ms (since 1970), one of them"),
        ({"delay_ms": 1, "deliver_at_ms": 1}, "{'delay_ms': 1, 'deliver_at_ms': 1}: an object is expected"),
        ({"delay_ms": -1}, "delay_ms = -1: an integer of ms is expected, from 0 to"),
        ({"delay_ms": "soon"}, "delay_ms = 'soon'"), ({"deliver_at_ms": True}, "deliver_at_ms = True"),
        ({"deliver_at_ms": 1.5}, "deliver_at_ms = 1.5"), ({"delay_ms": 1 << 49}, f"delay_ms = {1 << 49}"),
        ({"when": 5}, "{'when': 5}"), ([], "[]"), ("x" * 500, "'" + "x" * 99 + ":"),
    ],
)  # fmt: skip
def test_s4_a_time_that_is_none_is_refused(node: Node, queue: str, due: object, named: str) -> None:
    """S4: by name and value, and nothing is changed."""
    status, answer = node.ask("PUT", PATH + "/b", "guest", due)
    assert status == 400
    assert named in answer["reason"]
    assert ids(node) == ["a/1", "b", "c", "a/1", ""]


def test_s4_what_waits_for_a_delayed_exchange_is_listed_cancelled_and_rescheduled(node: Node, exchange: str) -> None:
    """S4: by the exchange for which it waits, whatever is bound to it."""
    (first, second) = node.ask("GET", LATER_PATH)[1]["messages"]
    assert (first["message_id"], first["exchange"], first["routing_key"]) == ("a/1", exchange, "k.1")
    assert second["due_in_ms"] - first["due_in_ms"] == pytest.approx(HOUR_MS, abs=60_000)
    assert ids(node, f"?from_ms={first['due_ms'] + 1}", path=LATER_PATH) == ["b"]
    node.channel.queue_unbind("mine q", exchange, "k.*")
    assert node.ask("PUT", LATER_PATH + "/a%2F1", "guest", {"delay_ms": 5 * HOUR_MS}) == (204, None)
    assert ids(node, path=LATER_PATH) == ["b", "a/1"]
    assert node.ask("DELETE", LATER_PATH + "/b") == (204, None)
    status, answer = node.ask("DELETE", LATER_PATH + "/b")
    assert status == 404
    assert answer["reason"].startswith("nothing waits under the id 'b' in exchange 'mine later' in vhost '/': it has")
    node.channel.queue_bind("mine q", exchange, "k.*")
    assert node.ask("PUT", LATER_PATH + "/a%2F1", "guest", {"deliver_at_ms": 5}) == (204, None)
    _, _, body = next(node.channel.consume("mine q", auto_ack=True, inactivity_timeout=30))
    node.channel.cancel()
    assert body == b"body"
    assert ids(node, path=LATER_PATH) == []


def test_s4_who_may_not_see_or_change_what_waits_for_an_exchange_is_refused(node: Node, exchange: str) -> None:
    """S4: to list takes reading from it, to change writing to it."""
    assert ids(node, "", "mine", LATER_PATH) == ["a/1", "b"]
    assert node.ask("GET", LATER_PATH, "watch")[0] == 401
    assert node.ask("DELETE", LATER_PATH + "/b", "mine")[0] == 401
    assert node.ask("DELETE", LATER_PATH.replace("mine", "no") + "/b") == NOT_FOUND
    for status, answer in (
        node.ask("GET", LATER_PATH.replace("mine%20later", "amq.topic")),
        node.ask("PUT", LATER_PATH.replace("mine%20later", "amq.topic") + "/b", "guest", {"delay_ms": 5}),
    ):
        assert status == 400
        assert "exchange 'amq.topic' in vhost '/' is not of the type x-delayed-message" in answer["reason"]
    assert ids(node, path=LATER_PATH) == ["a/1", "b"]


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


def test_s4_for_a_delayed_exchange_by_the_command_line(node: Node, exchange: str) -> None:
    """S4."""
    listed = command(node, "list", exchange, "--exchange", "--json")
    assert [row["message_id"] for row in json.loads(listed.output)["messages"]] == ["a/1", "b"]
    assert command(node, "cancel", exchange, "a/1", "--exchange").output == "'a/1' is cancelled\n"
    assert command(node, "cancel", exchange, "a/1", "--exchange").exit_code == 1
    assert command(node, "reschedule", exchange, "b", "--exchange", "--in", "10").output == "'b' is rescheduled\n"
    missing = command(node, "list", "none", "--exchange")
    assert (missing.exit_code, "exchange 'none'" in missing.output) == (1, True)
