"""Brakes over HTTP and by `mayfly brake`, on a node as in the product (RULES R5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mayfly.node.catalog import SetPermissions
from mayfly.node.command_line import main
from tests.node.http.real_node import NOT_FOUND, Node
from tests.waiting import wait_for

QUEUE = "/api/mayfly/queues/%2F/mine%20q"
RELEASE = QUEUE + "/brake/release"
LIST = "/api/mayfly/brakes"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.add_user("mine", "management", "^mine")
    node.add_user("stranger", "management", None)
    node.add_user("writer", "management", "^$")
    node.run(node.parts.cluster.command(SetPermissions("writer", "/", "", ".*", "^$")))
    node.channel.confirm_delivery()
    yield node
    node.stop()


@pytest.fixture
def is_durable() -> bool:
    return True


@pytest.fixture
def braked(node: Node, is_durable: bool) -> Iterator[str]:
    """A queue that was put on brake for an hour by the second of its messages, and has three more."""
    arguments: dict[str, Any] = {"x-dead-letter-brake-rate": Decimal("0.0003"), "x-dead-letter-brake-window": 3_600_000}
    node.channel.queue_declare("mine q", durable=is_durable, arguments=arguments)
    for number in range(5):
        node.channel.basic_publish("", "mine q", b"%d" % number)
    for _ in range(2):
        (method, _, _) = node.channel.basic_get("mine q")
        node.channel.basic_reject(method.delivery_tag, requeue=False)
    wait_for(lambda: node.ask("GET", QUEUE)[1].get("braked"), "the brake")
    yield "mine q"
    node.channel.queue_delete("mine q")


def command(node: Node, *words: str) -> Result:
    login = {"MAYFLY_USER": "guest", "MAYFLY_PASSWORD": "guest"}
    return CliRunner().invoke(main, [*words, "--node", node.address], env=login)


def brakes(node: Node, user: str = "guest", path: str = LIST) -> list[dict[str, Any]]:
    status, found = node.ask("GET", path, user)
    assert (status, found["unknown_shards"]) == (200, [])
    rows: list[dict[str, Any]] = found["brakes"]
    return rows


def test_r5_what_is_on_brake_is_listed_and_shown(node: Node, braked: str) -> None:
    (row,) = brakes(node)
    assert 0 < row["on_for_ms"] < 60_000
    assert 3_500_000 < row["ends_in_ms"] <= 3_600_000
    assert row["since_ms"] > 0
    assert {name: row[name] for name in ("vhost", "queue", "failed", "limit", "window_ms")} == {
        "vhost": "/", "queue": braked, "failed": 2, "limit": 1, "window_ms": 3_600_000,
    }  # fmt: skip
    assert [each["queue"] for each in brakes(node, path=LIST + "/%2F")] == [braked]
    shown = node.ask("GET", QUEUE)[1]
    assert shown["brake"]["on"] is True
    assert (shown["brake"]["failed"], shown["brake"]["limit"]) == (2, 1)
    assert shown["ready"] == 3
    assert node.channel.basic_get(braked)[0] is None
    assert node.ask("POST", "/api/queues/%2F/mine%20q/get", content={
        "count": 1, "ackmode": "ack_requeue_false", "encoding": "auto",
    }) == (200, [])  # fmt: skip


def test_r5_metrics_and_checks_tell_of_it(node: Node, braked: str) -> None:
    text = node.text("/metrics")
    shards = [line for line in text.splitlines() if line.startswith("mayfly_queues_braked{")]
    assert sum(float(line.split()[-1]) for line in shards) == 1.0
    assert f'mayfly_brake_on{{queue="{braked}",vhost="/"}} 1.0' in text
    assert f'mayfly_queue_braked{{queue="{braked}",vhost="/"}} 1.0' in node.text("/metrics/per-queue")
    checked = command(node, "check", "dead-letters")
    assert (checked.exit_code, "1 queues on brake" in checked.output) == (1, True)
    assert sum(group.get("braked", 0) for group in node.ask("GET", "/status")[1]["groups"]) == 1


@pytest.mark.parametrize("is_durable", [True, False])
def test_r5_it_is_released_and_not_twice(node: Node, braked: str) -> None:
    assert node.ask("POST", RELEASE, "mine", {}) == (200, {"vhost": "/", "queue": braked})
    assert brakes(node) == []
    assert node.channel.basic_get(braked, auto_ack=True)[2] == b"2"
    assert node.ask("GET", QUEUE)[1]["brake"] == {
        "on": False, "failed": 0, "limit": 1, "window_ms": 3_600_000, "since_ms": None, "on_for_ms": None,
        "ends_in_ms": None,
    }  # fmt: skip
    status, told = node.ask("POST", RELEASE, "mine", {})
    assert (status, told["reason"]) == (409, f"queue '{braked}' in vhost '/' is not on brake")


def test_r5_who_may_not_read_the_queue_may_not_release_it(node: Node, braked: str) -> None:
    assert node.ask("POST", RELEASE, "writer", {})[0] == 401
    assert node.ask("POST", RELEASE, "stranger", {})[0] in (401, 403)
    assert brakes(node, "stranger") == []
    assert len(brakes(node)) == 1


def test_r5_what_has_no_brake_can_not_be_released(node: Node) -> None:
    assert node.ask("POST", RELEASE, content={}) == NOT_FOUND
    node.channel.queue_declare("plain")
    status, told = node.ask("POST", "/api/mayfly/queues/%2F/plain/brake/release", content={})
    assert (status, told["reason"].startswith("queue 'plain' in vhost '/' has no brake")) == (409, True)


def test_r5_by_the_command(node: Node, braked: str) -> None:
    assert json.loads(command(node, "brake", "list", "--json").output)["brakes"][0]["queue"] == braked
    assert braked in command(node, "brake", "list").output
    released = command(node, "brake", "release", braked)
    assert (released.exit_code, released.output.strip()) == (0, f"'{braked}' delivers again")
    again = command(node, "brake", "release", braked)
    assert again.exit_code != 0
    assert "is not on brake" in again.output
    assert brakes(node) == []
