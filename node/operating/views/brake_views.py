"""Brakes of queues as operators see them (RULES R5). Pure: reads the replica here."""

from typing import Any, NamedTuple

from mayfly.node.engine.engine import Engine
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.shard.queue import Queue


class BrakeRow(NamedTuple):
    """What has failed in a queue within its window, and for how long it has been on brake for it."""

    queue_id: int
    failed: int
    limit: int
    window_ms: int
    since_ms: int
    on_for_ms: int
    ends_in_ms: int


def brake_of(queue: Queue, time_ms: int) -> dict[str, Any] | None:
    """The brake of a queue at that time of its shard; None where it has none. While it is off, `failed` counts what the
    queue has last looked at: some of it may have left the window."""
    brake = queue.brake
    if brake is None:
        return None
    return {
        "on": brake.is_on, "failed": brake.count, "limit": brake.limit, "window_ms": brake.window_ms,
        "since_ms": brake.since_ms if brake.is_on else None,
        "on_for_ms": max(0, time_ms - brake.since_ms) if brake.is_on else None,
        "ends_in_ms": max(0, brake.ends_ms() - time_ms) if brake.is_on else None,
    }  # fmt: skip


def brakes_in(engine: Engine, shard_id: int, now_ms: int) -> list[BrakeRow] | None:
    """The queues that are on brake; None where this node has no replica of the shard."""
    shard = shard_here(engine, shard_id)
    if shard is None:
        return None
    time_ms = shard_now(engine, shard, now_ms).time_ms
    rows: list[BrakeRow] = []
    for queue in shard.braked():
        brake = queue.brake
        if brake is not None:
            on_for_ms, ends_in_ms = max(0, time_ms - brake.since_ms), max(0, brake.ends_ms() - time_ms)
            rows.append(
                BrakeRow(
                    queue.queue_id, brake.count, brake.limit, brake.window_ms, brake.since_ms, on_for_ms, ends_in_ms
                )
            )
    return rows
