"""How much is in a queue, as RabbitMQ's management API tells it. Pure: of the replicas here."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from mayfly.node.engine.engine import Engine
from mayfly.node.operating.views.queue_columns import RATED
from mayfly.node.operating.views.sampled_rates import ALWAYS_CHANGED
from mayfly.node.shard.shard import Shard


class QueueViewCounts(NamedTuple):
    """Of one queue: messages, bytes of bodies, consumers."""

    ready: int
    ready_bytes: int
    unacknowledged: int
    unacknowledged_bytes: int
    consumers: int


class QueueActivity(NamedTuple):
    """Of one queue since it was made: what came in, from clients and as dead letters; what was delivered to consumers
    and got, each time counted; what was acknowledged."""

    enqueued: int
    delivered: int
    acknowledged: int


def rated_counts(shard: Shard, queue_id: int) -> tuple[int, ...] | None:
    """What `RATED` counts; None of a queue that the shard does not have."""
    queue = shard.queue(queue_id)
    return None if queue is None else tuple([getattr(queue, name) for name in RATED])


class Behind(NamedTuple):
    """Of one queue that has left a shard: what waits there to follow it, and what its consumers hold there."""

    messages: int
    held: int


def shard_here(engine: Engine, shard_id: int) -> Shard | None:
    """The replica or the memory that this node has of a shard; None if it has none."""
    own = engine.transient.local.shard
    return own if shard_id == own.shard_id else engine.shards.get(shard_id)


def counts_of(shard: Shard, queues: Iterable[int]) -> dict[int, QueueViewCounts]:
    """By queue id; those that the shard does not have yet, or any more, are left out."""
    found = {}
    for id in queues:
        it = shard.queue_statistics(id)
        if it is not None:
            found[id] = QueueViewCounts(
                it.ready, it.ready_bytes, it.unacknowledged, it.unacknowledged_bytes, it.consumers
            )
    return found


def activity_of(shard: Shard, queues: Iterable[int]) -> dict[int, QueueActivity]:
    """By queue id, as in `counts_of`."""
    found = {}
    for id in queues:
        it = shard.queue_statistics(id)
        if it is not None:
            found[id] = QueueActivity(it.enqueued, it.delivered, it.acknowledged)
    return found


class SampledShard:
    """A shard as `sampled_rates` looks at it."""

    def __init__(self, shard: Shard, mark: int) -> None:
        self._shard = shard
        self.mark = mark

    def queue_ids(self) -> Collection[int]:
        """See `Sampled.queue_ids`."""
        return self._shard.queue_ids()

    def counts(self, queue_id: int) -> tuple[int, ...] | None:
        """See `Sampled.counts`."""
        return rated_counts(self._shard, queue_id)


def sampled_shards(engine: Engine) -> dict[int, SampledShard]:
    """All that this node has: replicas, whose mark is what of their log is applied, and what is in its memory alone."""
    groups = engine.host.groups
    shards = {
        id: SampledShard(shard, groups[id].applied) for id, shard in engine.shards.items() if id in groups
    }
    own = engine.transient.local.shard
    return shards | {own.shard_id: SampledShard(own, ALWAYS_CHANGED)}


def left_behind(shard: Shard, queues: Iterable[int]) -> dict[int, Behind]:
    """By queue id, of those that have left the shard."""
    found = {}
    for id in queues:
        queue, lane = shard.queue(id), shard.lane(id)
        if queue is not None and queue.has_left:
            found[id] = Behind(queue.waiting_count() + (0 if lane is None else len(lane.items)), queue.held_count)
    return found
