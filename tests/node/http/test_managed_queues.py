"""Queues over RabbitMQ's management API: listed and deleted, on a node as in the product."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mayfly.node.catalog import AddVhost
from mayfly.node.http import browser_page, queue_lists
from mayfly.node.http.listing import MOST_ROWS
from mayfly.node.operating import queue_order
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.run(node.parts.cluster.command(AddVhost("other")))
    node.add_user("mine", "management", "^mine")
    node.add_user("watch", "monitoring", None)
    node.add_user("nobody", "policymaker", None)
    yield node
    node.stop()


def test_queues_are_listed_by_who_may_see_them(node: Node) -> None:
    node.channel.queue_declare("listed b", durable=True)
    node.channel.queue_declare("listed a", auto_delete=True)
    for path, user in (("/api/queues", "guest"), ("/api/queues/%2F", "mine"), ("/api/queues", "watch")):
        assert node.names(path, user) == ["listed a", "listed b"]
    rows = node.ask("GET", "/api/queues")[1]
    assert rows[1] == node.ask("GET", "/api/queues/%2F/listed%20b")[1]
    assert node.names("/api/queues", "nobody") == node.names("/api/queues/other") == []
    assert node.ask("GET", "/api/queues/%2F", "nobody")[0] == 401
    assert node.ask("GET", "/api/queues/none")[0] == 404
    for name in ("listed a", "listed b"):
        node.channel.queue_delete(name)


@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_is_deleted(node: Node, durable: bool) -> None:
    path = "/api/queues/%2F/mine%2Fto%20go"
    assert node.ask("DELETE", path) == NOT_FOUND
    node.channel.queue_declare("mine/to go", durable=durable)
    node.channel.basic_publish("", "mine/to go", b"m")
    node.channel.queue_declare("mine/to go", passive=True)
    assert node.ask("DELETE", path, "mine") == (204, None)
    assert node.ask("GET", path) == node.ask("DELETE", path) == NOT_FOUND
    assert node.channel.queue_declare("mine/to go", durable=durable).method.message_count == 0
    assert node.ask("DELETE", path) == (204, None)


def test_a_queue_is_not_deleted_against_its_conditions_or_by_who_may_not(node: Node) -> None:
    node.channel.queue_declare("kept", durable=True)
    path = "/api/queues/%2F/kept"
    node.channel.confirm_delivery()
    node.channel.basic_publish("", "kept", b"m")
    reason = "queue 'kept' in vhost '/' not empty"
    assert node.ask("DELETE", f"{path}?if-empty=true") == (400, {"error": "bad_request", "reason": reason})
    node.channel.basic_consume("kept", lambda *_: None)
    reason = "queue 'kept' in vhost '/' in use"
    assert node.ask("DELETE", f"{path}?if-unused=true") == (400, {"error": "bad_request", "reason": reason})
    assert node.ask("DELETE", path, "mine")[0] == 401
    assert node.ask("DELETE", path, "nobody")[0] == 401
    assert node.ask("DELETE", path, "watch")[0] == 401
    assert node.names("/api/queues") == ["kept"]
    assert node.ask("DELETE", path) == (204, None)


def test_an_exclusive_queue_belongs_to_its_connection(node: Node) -> None:
    node.channel.queue_declare("its own", exclusive=True)
    status, answer = node.ask("DELETE", "/api/queues/%2F/its%20own")
    assert (status, answer["error"]) == (400, "bad_request")
    assert "cannot obtain exclusive access to locked queue 'its own'" in answer["reason"]
    node.channel.queue_delete("its own")


def test_a_queue_tells_what_it_did_and_how_fast(node: Node) -> None:
    """KEDA scales by `message_stats.publish_details.rate`."""
    node.channel.queue_declare("busy", durable=True)
    node.channel.confirm_delivery()
    path = "/api/queues/%2F/busy"
    new = node.ask("GET", path)[1]["message_stats"]
    assert [new[name] for name in ("publish", "deliver_get", "ack")] == [0, 0, 0]
    for _ in range(3):
        node.channel.basic_publish("", "busy", b"m")
    tag = node.channel.basic_get("busy")[0].delivery_tag
    node.channel.basic_ack(tag)

    def stats() -> dict[str, Any]:
        shown: dict[str, Any] = node.ask("GET", path)[1]["message_stats"]
        return shown

    def has_rate() -> bool:
        return bool(stats().get("publish_details", {}).get("rate", 0) > 0 and stats()["ack"] == 1)

    wait_for(has_rate, "a rate", every_s=0.1)
    told = stats()
    assert [told[name] for name in ("publish", "deliver_get", "ack")] == [3, 1, 1]
    assert told["publish_details"]["rate"] > told["deliver_get_details"]["rate"] > 0
    totals = node.ask("GET", f"{path}?disable_stats=true&enable_queue_totals=true")[1]
    assert (totals["messages"], "message_stats" in totals, "message_bytes" in totals) == (2, False, False)
    assert "messages" not in node.ask("GET", f"{path}?disable_stats=true")[1]
    (row,) = node.ask("GET", "/api/queues?columns=name,message_stats.publish_details.rate&page=1&name=busy")[1]["items"]
    assert list(row["message_stats"]) == ["publish_details"]
    node.channel.queue_delete("busy")


def test_queues_are_listed_with_their_times_for_who_may_see_them(node: Node) -> None:
    """T6, L: what is shown is no use of a queue."""
    node.channel.queue_declare("timed", arguments={"x-expires": 3_600_000, "x-message-ttl": 600_000}, durable=True)
    node.channel.confirm_delivery()
    node.channel.basic_publish("", "timed", b"body")
    status, page = node.ask("GET", "/api/mayfly/queues?page=1&name=TIME&sort=ready&columns=name,ready,lease,type")
    (row,) = page["items"]
    lease = row.pop("lease")
    assert (status, row) == (200, {"name": "timed", "ready": 1, "type": "classic"}), page
    assert 0 < lease["remaining_ms"] <= lease["period_ms"] == 3_600_000
    status, one = node.ask("GET", "/api/mayfly/queues/%2F/timed")
    assert status == 200
    assert 0 < one["next_deadline_in_ms"] <= 600_000
    assert one["settings"]["message_ttl_ms"] == 600_000
    assert node.ask("GET", "/api/mayfly/queues/%2F/absent") == NOT_FOUND
    node.add_user("stranger", "management", None)
    assert node.ask("GET", "/api/mayfly/queues", "stranger") == (200, [])
    assert node.ask("GET", "/api/mayfly/queues/%2F/timed", "stranger")[0] == 401
    node.add_user("tagless", "none", ".*")
    assert node.ask("GET", "/api/mayfly/queues", "tagless")[0] == 401
    assert [row["name"] for row in node.ask("GET", "/api/mayfly/queues/%2F")[1] if row["name"] == "timed"] == ["timed"]
    node.channel.queue_delete("timed")


def test_a_queue_says_where_each_setting_comes_from(node: Node) -> None:
    """T3: the lower of several counts."""
    node.channel.queue_declare("sourced", arguments={"x-message-ttl": 5000, "x-max-length": 10}, durable=True)
    for kind, name, definition in (
        ("policies", "usual", {"message-ttl": 9000, "expires": 60_000, "max-length": 7}),
        ("operator-policies", "guard", {"expires": 30_000, "max-length": 8}),
    ):
        body = {"pattern": "^sourced$", "definition": definition, "apply-to": "queues"}
        assert node.ask("PUT", f"/api/{kind}/%2F/{name}", content=body)[0] == 201
    queue = node.ask("GET", "/api/mayfly/queues/%2F/sourced")[1]
    settings, sources = queue["settings"], queue["settings_from"]
    shown = ("message_ttl_ms", "expires_ms", "max_length", "overflow")
    assert {key: (settings[key], sources[key]) for key in shown} == {
        "message_ttl_ms": (5000, "argument"), "expires_ms": (30_000, "operator policy guard"),
        "max_length": (7, "policy usual"), "overflow": ("drop-head", "default"),
    }  # fmt: skip
    assert settings.keys() == sources.keys()
    for path in ("/api/policies/%2F/usual", "/api/operator-policies/%2F/guard"):
        assert node.ask("DELETE", path)[0] == 204
    assert node.ask("GET", "/api/mayfly/queues/%2F/sourced")[1]["settings_from"]["expires_ms"] == "default"
    node.channel.queue_delete("sourced")


SHOWN = Path(browser_page.__file__).parent / "page" / "views" / "queues.js"


def test_many_queues_are_sorted_by_every_column_of_the_page(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """And by what RabbitMQ's own page and tools ask for, as far as it is known here; and few of them, too."""
    columns = re.findall(r'label: "([^"]+)",(?: sort: "([^"]+)")?', SHOWN.read_text().split("function columns")[1])
    assert len(columns) == 12 and not [label for label, sort in columns if not sort]
    asked = [sort for _, sort in columns]
    asked += ["state", "type", "durable", "auto_delete", "exclusive", "enqueued", "delivered", "expired"]
    asked += [f"message_stats.{name}_details.rate" for name in ("publish", "deliver_get", "ack")]
    for name in ("every b", "every a"):
        node.channel.queue_declare(name, durable=True)
    for most in (MOST_ROWS, 1):
        monkeypatch.setattr(queue_lists, "MOST_ROWS", most)
        for column in asked:
            for path in ("/api/queues", "/api/mayfly/queues"):
                status, page = node.ask("GET", f"{path}?page=1&name=every&sort={column}")
                assert status == 200, (column, page)
                assert sorted(row["name"] for row in page["items"]) == ["every a", "every b"]
    for name in ("every a", "every b"):
        node.channel.queue_delete(name)


@pytest.mark.parametrize("most", [MOST_ROWS, 1])
def test_queues_are_sorted_by_how_fast_they_grow(node: Node, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_lists, "MOST_ROWS", most)
    monkeypatch.setattr(queue_order, "FRESH_MS", 0)
    monkeypatch.setattr(queue_order, "REST", 0)
    for name in ("fast b", "fast a"):
        node.channel.queue_declare(name, arguments={"x-message-ttl": 0}, durable=True)
    orders: dict[str, list[str]] = {}

    def grows() -> bool:
        node.channel.basic_publish("", "fast a", b"m")
        for column in ("rates.enqueued", "rates.expired", "name"):
            page = node.ask("GET", f"/api/mayfly/queues?page=1&name=fast&sort={column}&sort_reverse=true")[1]
            orders[column] = [row["name"] for row in page["items"]]
        (row,) = node.ask("GET", "/api/mayfly/queues?page=1&name=fast%20a")[1]["items"]
        is_known = min(row["rates"].get(name, 0) for name in ("enqueued", "expired")) > 0
        return is_known and orders["rates.enqueued"] == orders["rates.expired"] == ["fast a", "fast b"]

    wait_for(grows, "it is known which is faster", every_s=0.1)
    assert orders["name"] == ["fast b", "fast a"]
    for name in ("fast a", "fast b"):
        node.channel.queue_delete(name)


@pytest.mark.parametrize("path", ["/api/queues", "/api/mayfly/queues"])
def test_many_queues_are_sorted_by_what_they_hold(node: Node, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page is cut out of an order that the node keeps; who sees another vhost alone gets nothing of it."""
    monkeypatch.setattr(queue_lists, "MOST_ROWS", 1)
    monkeypatch.setattr(queue_order, "FRESH_MS", 0)
    monkeypatch.setattr(queue_order, "REST", 0)
    node.channel.confirm_delivery()
    for number, name in enumerate(("many b", "many c", "many a")):
        node.channel.queue_declare(name, durable=True)
        for _ in range(number):
            node.channel.basic_publish("", name, b"m")

    def names(query: str, user: str = "guest") -> list[str]:
        return [row["name"] for row in node.ask("GET", f"{path}?page=1&name=many&{query}", user)[1]["items"]]

    ready = "messages_ready" if path == "/api/queues" else "ready"
    for expected, query in (
        (["many b", "many c", "many a"], f"sort={ready}"),
        (["many a", "many c"], f"sort={ready}&sort_reverse=true&page_size=2"),
        (["many a", "many b", "many c"], "sort=name"),
        (["many a", "many b", "many c"], ""),
    ):
        wait_for(partial(lambda query, expected: names(query) == expected, query, expected), f"{expected} by '{query}'")
    page = node.ask("GET", f"{path}?page=2&page_size=2&name=many")[1]
    assert (page["filtered_count"], page["page_count"], page["item_count"]) == (3, 2, 1)
    assert names("sort=name", "nobody") == []
    assert [row["name"] for row in node.ask("GET", path)[1]] == ["many a", "many b", "many c"]
    status, answer = node.ask("GET", f"{path}?page=1&sort=memory")
    assert (status, answer["reason"]) == (400, "more than 10000 are not sorted by 'memory'")
    for name in ("many a", "many b", "many c"):
        node.channel.queue_delete(name)
