"""What queues can be put in order by, however many there are. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from mayfly.node.catalog import QueueRecord
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.operating.views.shard_clocks import ShardNow
from mayfly.node.shard.counts import COUNTS
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.shard import Shard

Key = Callable[[Queue, ShardNow], float]

UNKNOWN: Final = float("-inf")
"""Of a queue that has no such thing, or of which nothing is known: it is before all others."""


def _deadline(queue: Queue, now: ShardNow) -> float:
    deadline_ms = queue.next_deadline_ms()
    return UNKNOWN if deadline_ms < 0 else deadline_ms - now.time_ms


def _oldest(queue: Queue, now: ShardNow) -> float:
    """Of the heads of its lines, the expired ones too: to look behind these takes time."""
    oldest_ms = queue.oldest_head_ms()
    return UNKNOWN if oldest_ms < 0 else now.time_ms - oldest_ms


def _lease(queue: Queue, now: ShardNow) -> float:
    if queue.expires_ms < 0 or queue.lease.suspended_by > 0:
        return UNKNOWN
    return max(0, queue.lease.started_ms + queue.expires_ms - now.led_ms)


def _count(name: str) -> Key:
    return lambda queue, _: getattr(queue, name)


_HOLDS: Final[dict[str, Key]] = {
    "ready": lambda queue, _: queue.ready_count(),
    "ready_bytes": lambda queue, _: queue.ready_bytes,
    "scheduled": lambda queue, _: queue.scheduled_count(),
    "unacknowledged": lambda queue, _: queue.held_count,
    "unacknowledged_bytes": lambda queue, _: queue.held_bytes,
    "consumers": lambda queue, _: queue.consumers.count,
}
COLUMNS: Final[dict[str, Key]] = {
    **_HOLDS,
    **{name: _count(name) for name in COUNTS},
    "next_deadline_in_ms": _deadline,
    "lease.remaining_ms": _lease,
    "oldest_ready_age_ms": _oldest,
    # As RabbitMQ calls them.
    "messages": lambda queue, _: queue.ready_count() + queue.held_count,
    "messages_ready": _HOLDS["ready"],
    "messages_unacknowledged": _HOLDS["unacknowledged"],
    "message_bytes": lambda queue, _: queue.ready_bytes + queue.held_bytes,
    "message_bytes_ready": _HOLDS["ready_bytes"],
    "message_bytes_unacknowledged": _HOLDS["unacknowledged_bytes"],
    "message_stats.publish": _count("enqueued"),
    "message_stats.deliver_get": _count("delivered"),
    "message_stats.ack": _count("acknowledged"),
}
RATED: Final = ("enqueued", "delivered", "acknowledged", "expired")
"""Counts whose growth nodes know without being asked (`sampled_rates`), in their order."""
RATES: Final[dict[str, int]] = {
    **{f"rates.{name}": place for place, name in enumerate(RATED)},
    # As RabbitMQ calls them.
    "message_stats.publish_details.rate": RATED.index("enqueued"),
    "message_stats.deliver_get_details.rate": RATED.index("delivered"),
    "message_stats.ack_details.rate": RATED.index("acknowledged"),
}
"""The place in `RATED` of what the column says."""
NAMES: Final[dict[str, Callable[[QueueRecord], str]]] = {
    "": lambda record: f"{record.vhost}\0{record.name}",
    "vhost": lambda record: f"{record.vhost}\0{record.name}",
    "name": lambda record: f"{record.name}\0{record.vhost}",
    "type": lambda record: f"{queue_type(record.arguments)}\0{record.vhost}\0{record.name}",
    "durable": lambda record: f"{record.durable}\0{record.vhost}\0{record.name}",
    "auto_delete": lambda record: f"{record.auto_delete}\0{record.vhost}\0{record.name}",
    "exclusive": lambda record: f"{record.exclusive}\0{record.vhost}\0{record.name}",
    # Each is running.
    "state": lambda record: f"{record.vhost}\0{record.name}",
}
"""What the catalog alone tells; "" is how they are listed where nothing is said."""


def is_column(name: str) -> bool:
    """Whether queues can be put in order by it."""
    return name in NAMES or name in COLUMNS or name in RATES


def column_of(shard: Shard, key: Key, queues: Sequence[int], now: ShardNow) -> list[float]:
    """Of these queues of a shard, in their order."""
    found = [shard.queue(id) for id in queues]
    return [UNKNOWN if queue is None else key(queue, now) for queue in found]
