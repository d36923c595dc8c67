"""Messages that recur, as a client sees them, with fake time (RULES S6)."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from pamqp.commands import Basic

from mayfly.node.catalog import MoveQueue
from mayfly.node.duties.recurrences import DECIDED_PER_LOOK
from mayfly.node.recurrence import zones
from tests.node.broker.test_schedules import ALLOWED, bodies, cancel
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers
from tests.node.conftest import Client

MINUTE_MS = 60_000


def recur(client: Any, message_id: str, headers: dict[str, Any], queue: str = "q", **more: Any) -> None:
    client.publish(1, queue, message_id.encode(), message_id=message_id, headers=headers, **more)


def advance(world: Any, ms: int) -> None:
    """Time passes, in few ticks."""
    world.advance(ms, max(50, ms // 100))


def test_s6_every_so_long(world: Any, client: Any) -> None:
    client.declare("q", arguments=ALLOWED)
    recur(client, "a", {"x-schedule": "@every 1m30s"})
    for _ in range(3):
        advance(world, 89_000)
        assert bodies(client, "q") == []
        advance(world, 1_000)
        assert bodies(client, "q") == ["a"]


def test_s6_a_cron_expression_in_a_time_zone(world: Any, client: Any) -> None:
    """S6: 1970-01-01 00:16:40 UTC is 05:46:40 in India; the shard's clock is the clock on the wall."""
    client.declare("q", arguments=ALLOWED)
    recur(client, "utc", {"x-schedule": "20 * * * *"})
    recur(client, "india", {"x-schedule": "0 6 * * *", "x-schedule-time-zone": "Asia/Kolkata"})
    advance(world, 1_199_900 - world.cluster.now_ms)
    assert bodies(client, "q") == []
    advance(world, 500)
    assert bodies(client, "q") == ["utc"]
    advance(world, 10 * MINUTE_MS - 1000)
    assert bodies(client, "q") == []
    advance(world, 1000)
    assert bodies(client, "q") == ["india"]
    advance(world, 50 * MINUTE_MS)
    assert bodies(client, "q") == ["utc"]


def test_s6_it_is_cancelled_rescheduled_and_replaced_under_its_id(world: Any, client: Any) -> None:
    """S6, S4."""
    client.declare("q", arguments=ALLOWED)
    client.call(1, commands.Confirm.Select())
    recur(client, "a", {"x-schedule": "@every 10s"})
    recur(client, "b", {"x-schedule": "* * * * *"})
    client.take()
    assert cancel(client, "a", x_delay=1000) == ["Ack"]
    advance(world, 1250)
    assert bodies(client, "q") == ["a"]
    recur(client, "a", {"x-schedule": "@every 20s"})
    client.take()
    advance(world, 11_000)
    assert bodies(client, "q") == []
    advance(world, 9_500)
    assert bodies(client, "q") == ["b", "a"]
    assert cancel(client, "a") == ["Ack"]
    assert cancel(client, "b") == ["Ack"]
    assert cancel(client, "b") == ["Delivery", "Ack"]
    advance(world, 10 * MINUTE_MS)
    assert bodies(client, "q") == []


def test_s6_a_transaction_may_begin_it(world: Any, client: Any) -> None:
    client.declare("q", arguments=ALLOWED)
    client.call(1, commands.Tx.Select())
    recur(client, "a", {"x-schedule": "@every 5s"})
    advance(world, 10_000)
    client.call(1, commands.Tx.Commit())
    client.open_channel(2)
    advance(world, 5_250)
    assert client.get("q", channel=2).body == b"a"


def test_s6_without_the_opt_in_the_headers_mean_nothing(client: Any) -> None:
    client.declare("q")
    recur(client, "a", {"x-schedule": "every now and then"})
    client.publish(1, "q", b"b", headers={"x-schedule": 5, "x-schedule-time-zone": "Nowhere", "x-schedule-missed": 1})
    assert bodies(client, "q") == ["a", "b"]


def test_s6_queues_in_the_memory_of_a_node_do_it_too(world: Any, client: Any) -> None:
    client.declare("q", exclusive=True, durable=False, arguments=ALLOWED)
    recur(client, "a", {"x-schedule": "* * * * *"})
    advance(world, 2 * MINUTE_MS)
    assert bodies(client, "q") == ["a", "a"]


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"x-schedule": 5}, "x-schedule = 5 (byte): `@every 5m`, or a cron expression of five fields is expected"),
        ({"x-schedule": None}, "x-schedule = void (void): "),
        ({"x-schedule": "@every 500ms"}, "x-schedule = '@every 500ms': `@every` and a duration such as 1h30m"),
        ({"x-schedule": "@every 1500ms"}, "x-schedule = '@every 1500ms': `@every` and a duration"),
        ({"x-schedule": "@every 87601h"}, "x-schedule = '@every 87601h': `@every` and a duration"),
        ({"x-schedule": "@every -5m"}, "x-schedule = '@every -5m': "),
        ({"x-schedule": "@every"}, "x-schedule = '@every': "),
        ({"x-schedule": "@daily"}, "x-schedule = '@daily': "),
        ({"x-schedule": "* * * *"}, "x-schedule = '* * * *': 4 fields: five are expected"),
        ({"x-schedule": "0 25 * * *"}, "x-schedule = '0 25 * * *': hour = 25: 0-23 is expected"),
        ({"x-schedule": "0 0 30 2 *"}, "x-schedule = '0 0 30 2 *': it does not come within ten years"),
        ({"x-schedule": "* * * * *", "x-schedule-time-zone": "Europe/Nowhere"},
            "x-schedule-time-zone = 'Europe/Nowhere': the name of a zone in the IANA database is expected"),
        ({"x-schedule": "* * * * *", "x-schedule-time-zone": 1}, "x-schedule-time-zone = 1 (byte): "),
        ({"x-schedule": "@every 5m", "x-schedule-time-zone": "UTC"},
            "x-schedule = '@every 5m' takes no x-schedule-time-zone"),
        ({"x-schedule": "@every 5m", "x-schedule-missed": "all"}, "x-schedule-missed = 'all': none or one is expected"),
        ({"x-schedule": "@every 5m", "x-schedule-missed": True}, "x-schedule-missed = True (bool): none or one"),
        ({"x-schedule": "@every 5m", "x-delay": 5}, "x-schedule and x-delay are both there: a message takes one"),
        ({"x-schedule": "@every 5m", "x-deliver-at": 5}, "x-schedule and x-deliver-at are both there"),
        ({"x-schedule": "@every 5m", "x-schedule-cancel": "a"}, "x-schedule and x-schedule-cancel are both there"),
    ],
)  # fmt: skip
def test_s6_what_can_not_be_is_refused_and_nothing_is_stored(client: Any, headers: dict[str, Any], told: str) -> None:
    client.declare("q", arguments=ALLOWED)
    recur(client, "a", headers)
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert closed.reply_text.startswith(f"PRECONDITION_FAILED - invalid message: {told}")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.call(1, commands.Confirm.Select())
    assert cancel(client, "a") == ["Delivery", "Ack"]


def test_s6_without_a_message_id_it_is_refused(client: Any) -> None:
    client.declare("q", arguments=ALLOWED)
    client.publish(1, "q", b"a", headers={"x-schedule": "@every 5m"})
    (closed,) = client.take()
    assert "x-schedule = '@every 5m': a message-id is expected" in closed.reply_text


def test_s6_a_time_zone_that_the_leader_does_not_know_waits_for_one_that_does(
    world: Any, client: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: it is told once, and all else goes on."""
    client.declare("q", arguments=ALLOWED)
    zones.zone_named.cache_clear()
    recur(client, "a", {"x-schedule": "20 * * * *", "x-schedule-time-zone": "Asia/Tokyo"})
    monkeypatch.setattr("mayfly.node.recurrence.headers.zone_named", lambda name: None)
    advance(world, 3 * MINUTE_MS)
    recur(client, "b", {"x-schedule": "20 * * * *"})
    advance(world, MINUTE_MS)
    assert bodies(client, "q") == ["a", "b"]
    monkeypatch.setattr("mayfly.node.recurrence.headers.zone_named", zones.zone_named)
    advance(world, 60 * MINUTE_MS)
    assert bodies(client, "q") == ["b", "a"]
    told = [record for record in caplog.records if "next time" in record.message]
    assert len(told) == 1
    assert "Asia/Tokyo" in told[0].message


def test_s6_those_that_the_leader_can_not_decide_hold_up_no_others(
    world: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: more of them than it looks at in a moment."""
    client.declare("q", arguments=ALLOWED)
    for number in range(DECIDED_PER_LOOK + 5):
        recur(client, f"{number}", {"x-schedule": "20 * * * *", "x-schedule-time-zone": "Asia/Tokyo"})
    monkeypatch.setattr("mayfly.node.recurrence.headers.zone_named", lambda name: None)
    advance(world, 3 * MINUTE_MS)
    recur(client, "b", {"x-schedule": "* * * * *"})
    advance(world, 3 * MINUTE_MS)
    assert bodies(client, "q").count("b") >= 2


# ---------------------------------------------------------------------- three nodes


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers(shards=3)


def call(brokers: ThreeBrokers, client: Client, method: Any) -> Any:
    client.take(1)
    client.send(1, method)
    brokers.run_until(lambda: client.received)
    return client.take(1)[-1]


def pass_ms(brokers: ThreeBrokers, ms: int) -> None:
    for _ in range(ms // TICK_MS):
        brokers.step()


def count(brokers: ThreeBrokers, client: Client) -> int:
    found = 0
    while not isinstance(call(brokers, client, Basic.Get(queue="q", no_ack=True)), Basic.GetEmpty):
        found += 1
    return found


def begin(brokers: ThreeBrokers, schedule: str, node: int = 1) -> Client:
    client = brokers.nodes[node].client()
    arguments: Any = ALLOWED
    call(brokers, client, commands.Queue.Declare(queue="q", durable=True, arguments=arguments))
    recur(client, "a", {"x-schedule": schedule})
    pass_ms(brokers, 500)
    return client


def leader_of_q(brokers: ThreeBrokers) -> int:
    queue = next(iter(brokers.nodes.values())).engine.catalog.queue("/", "q")
    assert queue is not None
    found = [id for id in brokers.ids if brokers.nodes[id].engine.host.groups[queue.shard].leader == id]
    return next(id for id in found if id not in brokers.cut)


@pytest.mark.parametrize("schedule", ["@every 20s", "* * * * *"])
def test_s6_leaders_die_and_each_time_comes_once(brokers: ThreeBrokers, schedule: str) -> None:
    """S6, S3: the times in the second or so in between come late."""
    begin(brokers, schedule)
    start_ms = brokers.now_ms
    dead = leader_of_q(brokers)
    alive = brokers.nodes[next(id for id in brokers.ids if id != dead)].client()
    pass_ms(brokers, 19_000 if schedule.startswith("@") else 20_000 - start_ms % 20_000 - 100)
    brokers.cut.add(dead)
    pass_ms(brokers, 110_000)
    passed_ms = brokers.now_ms - start_ms
    expected = passed_ms // 20_000 if schedule.startswith("@") else brokers.now_ms // MINUTE_MS - start_ms // MINUTE_MS
    assert count(brokers, alive) == expected


@pytest.mark.parametrize("one", [False, True])
def test_s6_without_a_leader_times_are_missed(brokers: ThreeBrokers, one: bool) -> None:
    """S6: none comes for them, or one."""
    client = begin(brokers, "@every 3600s")
    headers = {"x-schedule": "@every 10s", **({"x-schedule-missed": "one"} if one else {})}
    recur(client, "b", headers)
    pass_ms(brokers, 15_000)
    queue = brokers.nodes[1].engine.catalog.queue("/", "q")
    assert queue is not None
    brokers.silent.add(queue.shard)
    pass_ms(brokers, 60_000)
    brokers.silent.clear()
    pass_ms(brokers, 3_000)
    assert count(brokers, brokers.nodes[2].client()) == (2 if one else 1)
    pass_ms(brokers, 6_000)
    assert count(brokers, brokers.nodes[2].client()) == 1


@pytest.mark.parametrize("schedule", ["@every 10s", "* * * * *"])
def test_s6_it_moves_with_its_queue_and_is_cancelled_there(brokers: ThreeBrokers, schedule: str) -> None:
    """S6, S4."""
    client = begin(brokers, schedule)
    start_ms = brokers.now_ms
    before = brokers.nodes[1].engine.catalog.queue("/", "q")
    assert before is not None
    answers: list[object] = []
    target = before.shard % 3 + 1
    brokers.nodes[2].engine.submit_catalog(MoveQueue("/", "q", target), answers.append)
    brokers.run_until(lambda: brokers.nodes[1].engine.catalog.queue("/", "q").shard == target)  # type: ignore[union-attr]
    pass_ms(brokers, 61_000)
    every_ms = 10_000 if schedule.startswith("@") else MINUTE_MS
    times = (brokers.now_ms - start_ms) // every_ms
    assert count(brokers, client) in (times, times + 1)
    client.publish(1, "q", b"", headers={"x-schedule-cancel": "a"})
    pass_ms(brokers, 500)
    count(brokers, client)
    pass_ms(brokers, 70_000)
    assert count(brokers, client) == 0
