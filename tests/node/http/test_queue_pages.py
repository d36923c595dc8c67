"""The pages about queues and `mayfly queue`: over HTTP, with a node of an in-process cluster behind them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result
from pamqp import commands

from mayfly.node.command_line import main
from mayfly.node.command_line.queue_command import COLUMNS
from mayfly.node.duties.lost_queues import LINES_AT_ONCE, LostQueues
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.views.queue_views import LOOKED_AT
from mayfly.node.shard.tombstone import DELETED, EXPIRED, Tombstone
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.http.served import Served, http_server
from tests.node.http.some_node import SomeNode
from tests.node.operating.seeing import Seeing
from tests.node.readings import statistics_of
from tests.waiting import BOUND_S


class ViewNode(SomeNode):
    """Shows what a node of the cluster has. `behind`: no leader answers."""

    def __init__(self, brokers: ThreeBrokers, id: int) -> None:
        super().__init__()
        self._seeing = Seeing(brokers, id)
        self.behind = False
        self.looks = 0

    async def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
        self.looks += 1
        return await self._seeing.queues.one(vhost, name)

    async def queues(self, selection: QueueSelection) -> tuple[list[dict[str, Any]], int]:
        self.looks += 1
        return await self._seeing.queues.some(selection)

    async def freshness(self, vhost: str | None = None, name: str | None = None) -> dict[str, Any]:
        self.asked.append((vhost, name))
        return {"current": False, "reason": "no leader answered"} if self.behind else {"current": True}


@pytest.fixture(scope="module")
def brokers() -> ThreeBrokers:
    """Queue `a b` has a live message, an expired one behind it and one held; `leased` is on a lease; `t` is
    transient, on node 1."""
    brokers = ThreeBrokers()
    client = brokers.nodes[1].client()
    arguments: Any = {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "k", "x-max-length": 50}
    client.send(1, commands.Queue.Declare(queue="a b", durable=True, arguments=arguments))
    client.send(1, commands.Queue.Declare(queue="leased", durable=True, arguments={"x-expires": 3_600_000}))
    client.send(1, commands.Queue.Declare(queue="t", exclusive=True))
    brokers.run_until(lambda: len(client.received) == 3)
    for expiration in ("", "7200000", "600"):
        client.publish(1, "a b", b"12345", **({"expiration": expiration} if expiration else {}))
    client.send(1, commands.Basic.Get(queue="a b"))
    until_ms = brokers.now_ms + 5000
    brokers.run_until(lambda: brokers.now_ms >= until_ms)
    return brokers


@pytest.fixture
def view_node(brokers: ThreeBrokers) -> ViewNode:
    return ViewNode(brokers, 2)


@pytest.fixture
def address(view_node: ViewNode) -> Iterator[str]:
    with Served(lambda: http_server(view_node)) as address:
        yield address


def page(address: str, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{address}{path}", timeout=BOUND_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def mayfly(address: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["queue", *arguments, "--node", address])


def test_a_page_about_a_queue_waits_for_news_only_when_asked_to(view_node: ViewNode, address: str) -> None:
    status, text = page(address, "/queues/%2F/a%20b")
    shown = json.loads(text)
    assert status == 200 and "current" not in shown and view_node.asked == []
    assert (shown["ready"], shown["ready_live"], shown["unacknowledged"]) == (2, 1, 1)
    status, text = page(address, "/queues/%2F/a%20b?fresh=true")
    assert status == 200 and json.loads(text)["current"] is True and view_node.asked == [("/", "a b")]
    view_node.behind = True
    answer = json.loads(page(address, "/queues/%2F/none?fresh=true")[1])
    assert answer == {"error": "this node knows no queue 'none' in vhost '/' (no leader answered)"}


def test_queues_by_page(address: str) -> None:
    shown = json.loads(page(address, "/queues")[1])
    assert [row["name"] for row in shown["queues"]] == ["a b", "leased", "t"] and shown["left_out"] == 0
    shown = json.loads(page(address, "/queues?limit=1&name=e&vhost=%2F&fresh=true")[1])
    assert [row["name"] for row in shown["queues"]] == ["leased"]
    assert shown["left_out"] == 0 and shown["current"] is True
    assert json.loads(page(address, "/queues?limit=2")[1])["left_out"] == 1


def leader_of(brokers: ThreeBrokers, name: str) -> int:
    record = brokers.nodes[1].engine.catalog.queue("/", name)
    assert record is not None
    return brokers.nodes[1].engine.leader_of(record.shard)


def test_metrics_of_queues_are_on_a_page_of_their_own(brokers: ThreeBrokers) -> None:
    """Of each queue at one node: that which leads its shard, or has it in its memory."""
    shown = {}
    for id in brokers.ids:
        with Served(lambda id=id: http_server(ViewNode(brokers, id))) as address:  # type: ignore[misc]
            lines = page(address, "/metrics/per-queue")[1].splitlines()
            shown[id] = {name for name in ("a b", "leased", "t") if any(f'queue="{name}"' in line for line in lines)}
            left_out = page(address, "/metrics/per-queue?limit=1")[1]
            assert f"mayfly_queues_left_out {max(0, len(shown[id]) - 1)}.0" in left_out
    leaders = {"a b": leader_of(brokers, "a b"), "leased": leader_of(brokers, "leased"), "t": 1}
    assert shown == {id: {name for name, leader in leaders.items() if leader == id} for id in brokers.ids}


def test_what_is_on_the_page_of_metrics(brokers: ThreeBrokers) -> None:
    with Served(lambda: http_server(ViewNode(brokers, leader_of(brokers, "a b")))) as address:
        assert 'mayfly_queue_ready_live{queue="a b",vhost="/"} 1.0' in page(address, "/metrics/per-queue")[1]
    with Served(lambda: http_server(ViewNode(brokers, leader_of(brokers, "leased")))) as address:
        text = page(address, "/metrics/per-queue")[1]
        assert 'mayfly_queue_lease_remaining_seconds{queue="leased",vhost="/"}' in text
        text = page(address, "/metrics/per-queue?queue=leased&queue=none&limit=1")[1]
        assert 'queue="leased"' in text and 'queue="a b"' not in text
        assert "mayfly_queue_ready{" not in page(address, "/metrics")[1]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/queues?limit=0", "limit is '0', it should be a number from 1 to 5000"),
        ("/queues?limit=5001", "limit is '5001'"),
        ("/queues?limit=many", "limit is 'many'"),
        ("/queues?limit=%D9%A1", "it should be a number from 1 to 5000"),
        ("/queues?fresh=yes", "fresh is 'yes', it should be true or false"),
        ("/queues?queue=q", "'queue' is not known here, only fresh, limit, name, vhost"),
        ("/queues/%2F/q?limit=3", "'limit' is not known here, only fresh"),
        ("/metrics/per-queue?limit=-1", "limit is '-1'"),
        ("/metrics/per-queue?name=q", "'name' is not known here, only limit, queue, vhost"),
    ],
)
def test_a_bad_query_is_told(address: str, path: str, text: str) -> None:
    status, answer = page(address, path)
    assert status == 400 and text in json.loads(answer)["error"]


def test_a_long_queue_is_counted_before_the_page_is_sent() -> None:
    """In slices, between which the node does other work."""
    brokers = ThreeBrokers()
    client = brokers.nodes[1].client()
    client.send(1, commands.Queue.Declare(queue="long", exclusive=True))
    brokers.run_until(lambda: client.received)
    shard = brokers.nodes[1].engine.transient.local.shard
    (queue_id,) = shard.queue_ids()
    client.publish(1, "long")
    client.publish(1, "long", expiration="1")
    brokers.run_until(lambda: statistics_of(shard).ready == 2)
    queue = shard.queue(queue_id)
    assert queue is not None
    queue.ready.items += queue.ready.items[1:2] * (2 * LOOKED_AT)
    queue.ready.timed += 2 * LOOKED_AT
    brokers.now_ms += 5000
    node = ViewNode(brokers, 1)
    with Served(lambda: http_server(node)) as address:
        shown = json.loads(page(address, "/queues/%2F/long")[1])
        assert node.looks == 3
        assert (shown["ready"], shown["ready_live"], shown["exact"]) == (2 * LOOKED_AT + 2, 1, True)
        node.looks = 0
        text = page(address, "/metrics/per-queue?queue=long")[1]
        assert 'mayfly_queue_ready_live{queue="long",vhost="/"} 1.0' in text
        assert node.looks == 1


def test_show_says_it_all(view_node: ViewNode, address: str) -> None:
    result = mayfly(address, "show", "a b")
    assert result.exit_code == 0 and "not current" not in result.output
    stripped = [line.strip() for line in result.output.splitlines() if line.strip()]
    lines = {line[:22].strip(): line[22:].strip() for line in stripped}
    assert lines["ready"] == "2 (10 bytes)"
    assert lines["ready and live"] == "1"
    assert lines["unacknowledged"] == "1 (5 bytes)"
    assert lines["next deadline"].startswith("in 1 h 59 min")
    assert lines["lease"] == "none"
    assert lines["last use"].endswith("ago, basic.get")
    assert lines["dead-letter target"] == "exchange 'dlx', key 'k'"
    assert lines["limits"] == "length 50"
    assert lines["policy"] == lines["operator policy"] == "none"
    assert "3 enqueued, 1 delivered, 0 acknowledged, 0 expired" in lines["since its creation"]
    leased = mayfly(address, "show", "leased", "--vhost", "/").output
    assert "59 min 5" in leased and "left of 1 h 0 min" in leased
    assert "ask that one" in mayfly(address, "show", "t").output
    view_node.behind = True
    assert "not current: no leader answered" in mayfly(address, "show", "a b").output
    assert json.loads(mayfly(address, "show", "t", "--json").stdout)["name"] == "t"


def test_list_has_the_columns_asked_for(address: str) -> None:
    result = mayfly(address, "list", "--columns", "name, ready,ready_live,enqueued,lease")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines() if line.strip()]
    assert ["a", "b", "2", "1", "3", "none"] in rows
    assert ["t", "-", "-", "-", "-"] in rows
    usual = mayfly(address, "list", "--name", "a", "--limit", "1").output
    assert "a b" in usual and "leased" not in usual and "1 more queues" in usual
    everything = mayfly(address, "list", "--columns", ",".join(COLUMNS))
    assert everything.exit_code == 0
    page = json.loads(mayfly(address, "list", "--json", "--vhost", "/").stdout)
    assert [row["name"] for row in page["queues"]] == ["a b", "leased", "t"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (("show", "none"), 1, "this node knows no queue 'none' in vhost '/'"),
        (("show", "a b", "--vhost", "other"), 1, "this node knows no queue 'a b' in vhost 'other'"),
        (("list", "--columns", "name,size"), 2, "there is no column 'size'; there are vhost, name"),
        (("list", "--limit", "0"), 2, "0 is not in the range 1<=x<=5000"),
        (("show",), 2, "Missing argument 'NAME'"),
    ],
)
def test_bad_values_on_the_command_line(address: str, arguments: tuple[str, ...], exit_code: int, text: str) -> None:
    result = mayfly(address, *arguments)
    assert result.exit_code == exit_code and text in result.output


def test_nobody_there() -> None:
    result = mayfly("127.0.0.1:1", "show", "q")
    assert result.exit_code == 1 and "no answer from 127.0.0.1:1" in result.output


def test_l10_many_queues_that_expire_together_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """RULES L10; each is told of once, and a name that came from a client stays on its line."""

    def gone(id: int, reason: str = EXPIRED) -> Tombstone:
        return Tombstone(reason, 90_500, 30_500, 2, "/", f"q\n{id}", "basic.get")

    deleted = {id: gone(id) for id in range(LINES_AT_ONCE + 5)}
    deleted[-1] = gone(-1, DELETED)
    told = LostQueues()
    with caplog.at_level(logging.INFO):
        told.tell(deleted)
        told.tell(deleted)
        deleted[7000] = gone(7000)
        told.tell(deleted)
    lines = caplog.messages
    assert len(lines) == LINES_AT_ONCE + 2
    assert lines[0] == (
        "queue 'q\\n0' in vhost '/' is gone, reason expired; last activity 1970-01-01T00:00:30.500+00:00 "
        "(basic.get), 60000 ms before; 2 messages went with it"
    )
    assert lines[-2:] == ["5 more queues are gone, reason expired", lines[0].replace("\\n0", "\\n7000")]
