"""What the rules of time have logged and counted, for those who look after a cluster."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.node.readings import statistics_of


def totals(world: Any, name: str) -> int:
    return sum(getattr(statistics_of(local.shard), name) for local in world.cluster.shards.values())


def test_l10_an_expired_queue_is_logged_and_counted(
    world: Any, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """RULES L10: the reason, the last activity, what was in it; once for each queue, and not for one deleted."""
    with caplog.at_level(logging.INFO, "mayfly.node.duties.lost_queues"):
        client.declare("goes", arguments={"x-expires": 1000})
        client.declare("deleted", arguments={"x-expires": 1000})
        client.publish(1, "goes")
        world.advance(600)
        client.declare("goes", passive=True)
        used_ms = world.cluster.now_ms
        world.advance(200)
        client.publish(1, "goes")
        world.advance(2000)
    lines = [record.getMessage() for record in caplog.records if "reason expired" in record.getMessage()]
    assert len(lines) == 2
    (line,) = [line for line in lines if "'goes'" in line]
    used = datetime.fromtimestamp(used_ms / 1000, UTC).isoformat(timespec="milliseconds")
    assert f"last activity {used} (" in line and "vhost '/'" in line and "2 messages" in line
    assert sum(statistics_of(local.shard).gone_for["expired"] for local in world.cluster.shards.values()) == 2


def test_d5_a_cycle_is_counted_and_logged_once_per_queue(
    world: Any, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """RULES D5."""
    with caplog.at_level(logging.WARNING, "mayfly.node.duties.shard_duties"):
        for name in ("a", "b"):
            client.declare(name, arguments={
                "x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name,
            })  # fmt: skip
            for _ in range(3):
                client.publish(1, name)
        world.advance(1000)
    lines = [record.getMessage() for record in caplog.records if "circle" in record.getMessage()]
    assert sorted(line.split("'")[1] for line in lines) == ["a", "b"]
    assert totals(world, "dropped_cycle") == 6
