"""The queue of a delayed exchange in its shard: what is due goes into the outbox, not to consumers (RULES S1, S3)."""

from __future__ import annotations

from typing import Final

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.outbox import DUE
from mayfly.node.shard.shard import Shard
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver, content_header
from tests.node.shard.moving_shards import MovingShards

Q: Final = 7
TARGET: Final = 8
KEY: Final = b"\x02q7\x01k"
SETTINGS: Final = {"delays": True, "allow_schedule": True, "dead_letter_exchange": f"q{Q}"}
"""The queue of a delayed exchange has its name."""


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    made.create(Q, **SETTINGS)
    made.create(TARGET)
    return made


def publish(driver: Driver, body: str, after_ms: int, ttl_ms: int = -1) -> None:
    parts: list[bytes] = []
    due = (commands.AFTER, after_ms)
    octets = body.encode()
    commands.encode_publish_later(parts, [Q], ttl_ms, KEY, content_header(octets, ttl_ms), octets, due)
    driver.run(*parts)


def unrouted(shard: Shard) -> list[tuple[int, str]]:
    return [(death.message.offset, death.reason) for death in shard.unrouted(100)]


def bodies(driver: Driver) -> list[str]:
    return [driver.body(death.message) for death in driver.shard.unrouted(100)]


def route(driver: Driver, sequence: int, body: str) -> None:
    content = commands.LetterContent(KEY, content_header(body.encode()), body.encode())
    decision = commands.RouteDecision(sequence, commands.ROUTED, [TARGET], (), content)
    driver.lead(commands.encode_route([decision]))


def test_s1_s3_what_is_due_leaves_in_order_and_nothing_before(driver: Driver) -> None:
    for body, after_ms in (("c", 200), ("a", 100), ("b", 100)):
        publish(driver, body, after_ms)
    driver.pass_ms(99)
    driver.tick()
    assert bodies(driver) == []
    driver.pass_ms(1)
    driver.tick()
    assert bodies(driver) == ["a", "b"]
    driver.pass_ms(100)
    driver.tick()
    assert bodies(driver) == ["a", "b", "c"]
    statistics = statistics_of(driver.shard)
    assert (statistics.dead_lettered, statistics.expired, statistics.scheduled) == (0, 0, 0)


def test_s3_a_ttl_counts_from_the_moment_at_which_it_is_routed(driver: Driver) -> None:
    publish(driver, "m", 100, ttl_ms=50)
    driver.pass_ms(120)
    driver.tick()
    driver.pass_ms(1000)
    route(driver, 1, "m")
    driver.pass_ms(49)
    driver.tick()
    assert driver.ready(TARGET) == 1
    driver.pass_ms(2)
    driver.tick()
    assert driver.ready(TARGET) == 0


def test_a_snapshot_has_what_is_due_and_what_was_dropped(driver: Driver) -> None:
    for body in "ab":
        publish(driver, body, 100)
    publish(driver, "c", 5000)
    driver.pass_ms(100)
    driver.tick()
    driver.lead(commands.encode_route([commands.RouteDecision(1, commands.DROPPED_UNROUTABLE)]))
    restored = Shard(3, 2)
    restored.restore(driver.shard.snapshot())
    assert restored.snapshot() == driver.shard.snapshot()
    assert unrouted(restored) == unrouted(driver.shard) and restored.unrouted(1)[0].reason == DUE
    assert statistics_of(restored).dropped_due == 1
    assert statistics_of(restored).dropped_unroutable == 0
    assert sorted(restored.live_entries()) == sorted(driver.shard.live_entries())


def test_deleting_the_queue_releases_what_waits(driver: Driver) -> None:
    publish(driver, "m", 100)
    driver.lead(commands.encode_drop_queue(Q))
    assert not driver.shard.live_entries()
    driver.pass_ms(200)
    driver.tick()
    assert bodies(driver) == []


def test_s1_what_is_due_waits_for_what_has_not_arrived() -> None:
    """The queue is in its new shard, and most of what was in it is not."""
    shards = MovingShards()
    shards.create(Q, 1, **SETTINGS)
    for number in range(10):
        shards.publish_later(1, Q, f"m{number}", after_ms=1000 + number)
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    source, target = shards.shards[1].shard, shards.shards[2].shard
    for _ in range(5):
        for lane in list(source.filled_lanes()):
            for place, command in shards.transfers(1, lane):
                shards.lead(place, command)
    arrived = target.queue(Q)
    assert arrived is not None and 0 < arrived.scheduled_count() < 10
    shards.now_ms += 5000
    shards.tick(2)
    assert target.unrouted(1) == []
    # Somebody who looks at the queue changes nothing in that.
    shards.publish_later(2, Q, "behind", after_ms=1)
    assert target.unrouted(1) == []
    assert not target.due_messages(shards.now_ms - 700_000), "nor is the leader asked for it all the time"
    shards.finish_moves()
    for _ in range(10):
        shards.tick(2)
    found = [shards.shards[2].content(death.message).body for death in target.unrouted(100)]
    assert found == [b"m%d" % number for number in range(10)]
    shards.now_ms += 1
    shards.tick(2)
    assert shards.shards[2].body(target.unrouted(100)[-1].message) == "behind"
