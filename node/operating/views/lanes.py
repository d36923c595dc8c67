"""Dead letters on their way to other queues, for operators: how many, how old, and what they wait for (RULES D8)."""

from collections.abc import Iterator
from typing import Any

from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import is_transient, node_of
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.shard.outbox import Lane
from mayfly.node.shard.shard import Shard


def lane_steps(engine: Engine, shard: Shard, now_ms: int) -> Iterator[dict[str, Any]]:
    """The lanes of one shard in which something waits, one for each step; the shard may be changed between them.

    Ages are on the shard's clock, and those of the decision that put a dead letter in its lane, not of its death.
    """
    time_ms = shard_now(engine, shard, now_ms).time_ms
    for lane in list(shard.lanes()):
        if not lane.items:
            continue
        target = engine.catalog.queue_by_id(lane.target_queue)
        yield {
            "shard": shard.shard_id,
            "target_shard": lane.target_shard,
            "vhost": "" if target is None else target.vhost,
            "queue": "" if target is None else target.name,
            "messages": len(lane.items),
            "oldest_age_ms": max(0, time_ms - lane.items[0].enqueued_ms),
            "waits_for": _waits_for(engine, shard, lane, now_ms),
        }


def _waits_for(engine: Engine, shard: Shard, lane: Lane, now_ms: int) -> str:
    """ "own leader", "leader" (of the target's shard), "node" (the one on which a transient target lives), "queue" (the
    target is gone: the lane is about to be closed), "room" in a full target; "" when nothing is known to be in the way.
    """
    if not is_transient(shard.shard_id) and not engine.leader_of(shard.shard_id):
        return "own leader"
    if engine.catalog.queue_by_id(lane.target_queue) is None:
        return "queue"
    if not is_transient(lane.target_shard):
        if not engine.leader_of(lane.target_shard):
            return "leader"
    elif not engine.host.liveness.heard_within(
        node_of(lane.target_shard), now_ms, engine.host.settings.election_timeout_ms
    ):
        return "node"
    room = engine.room(lane.target_shard, lane.target_queue, shard.shard_id, lane.items[0].body_length)
    return "room" if room.messages == 0 or lane.items[0].body_length > room.body_bytes else ""
