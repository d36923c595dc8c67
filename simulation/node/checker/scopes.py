"""Queues in which messages expire wherever they are (RULES X2)."""

from __future__ import annotations

from simulation.node.history import CONFIRMED, Delivery, History, Publish
from simulation.node.topology import RunTopology
from simulation.simulator import Violation


def check_scopes(history: History, topology: RunTopology) -> list[Violation]:
    """What died in such a queue, from which nobody took anything, comes in order of deadlines.

    Of two messages the first has the earlier one by the shard's own clock if it was published before, on the same
    channel or confirmed before the other was sent, and has no more time to live.
    """
    violations: list[Violation] = []
    came: dict[tuple[str, tuple[str, ...]], list[Delivery]] = {}
    for delivery in history.deliveries:
        path = delivery.path
        publish = history.publishes.get(delivery.message_id)
        if publish is None or publish.ttl_ms is None or delivery.redelivered or len(path) < 2:
            continue
        source = path[0]
        if not topology.queues[source].expires_anywhere or source in history.touched or source in history.moved:
            continue
        before = came.setdefault((delivery.holder, path), [])
        for other in before:
            if _dies_before(publish, history.publishes[other.message_id]):
                text = f"message {delivery.message_id} of {source} died after message {other.message_id}"
                violations.append(Violation("X2 order", text))
        before.append(delivery)
    return violations


def _dies_before(one: Publish, other: Publish) -> bool:
    if one.ttl_ms is None or other.ttl_ms is None or one.ttl_ms > other.ttl_ms:
        return False
    if one.stream == other.stream:
        return one.sequence < other.sequence
    return one.outcome == CONFIRMED and (one.completed_us or 0) < other.invoked_us
