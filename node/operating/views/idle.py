"""Since when something has done nothing, as RabbitMQ's management API tells it. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from mayfly.node.shard.shard import Shard

IDLE_AFTER_MS: Final = 1_000
"""What has done nothing for so long is idle: RabbitMQ lets a process rest after about as long."""


def idle_field(active_ms: int, now_ms: int) -> dict[str, str]:
    """`idle_since` of what was active last then, in ms since 1970; nothing while it is not idle, or where that is not
    known (0)."""
    if active_ms <= 0 or now_ms - active_ms < IDLE_AFTER_MS:
        return {}
    return {"idle_since": datetime.fromtimestamp(active_ms / 1000, UTC).isoformat(timespec="milliseconds")}


def active_at(shard: Shard, queues: Iterable[int]) -> dict[int, int]:
    """By queue id, the shard time at which something was done with a queue last; without those of which this replica
    does not know. A use of it, as a declare is, counts (RULES L2)."""
    found = {}
    for id in queues:
        queue = shard.queue(id)
        if queue is not None and queue.active_ms > 0:
            found[id] = max(queue.active_ms, queue.lease.last_activity_ms)
    return found
