"""What was confirmed is found again, and what was asked in a calm cluster is answered."""

from __future__ import annotations

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import ACK, CONFIRMED, DECLARE, REJECT, RETURNED, Delivery, History, Publish
from simulation.node.topology import RunTopology
from simulation.simulator import Violation


class _Findings:
    """Where each message was seen, by its path."""

    def __init__(self, history: History) -> None:
        self.seen: dict[tuple[int, tuple[str, ...]], list[Delivery]] = {}
        for delivery in history.deliveries:
            self.seen.setdefault((delivery.message_id, delivery.path), []).append(delivery)
        self._gone_us: dict[str, list[int]] = {}
        self._declared_us: dict[str, list[int]] = {}
        for removal in history.removals:
            self._gone_us.setdefault(removal.queue, []).append(removal.completed_us or history.ended_us)
        for disappearance in history.disappearances:
            self._gone_us.setdefault(disappearance.queue, []).append(disappearance.at_us)
        for renewal in history.renewals:
            if renewal.kind == DECLARE:
                self._declared_us.setdefault(renewal.queue, []).append(renewal.completed_us)

    def gone_since(self, queue: str, since_us: int) -> bool:
        """Whether the queue was emptied or deleted after that, or had been deleted before and not been declared
        again: what is sent to it then is confirmed and goes nowhere."""
        gone_us = max(self._gone_us.get(queue, [-1]))
        if gone_us >= since_us:
            return True
        declared = self._declared_us.get(queue, [])
        return gone_us >= 0 and not any(gone_us <= declared_us <= since_us for declared_us in declared)


def check_lost(history: History, topology: RunTopology) -> list[Violation]:
    """Each confirmed message is, for each queue it was routed to, acknowledged, still there at the end, or
    dead with a copy at the end of every dead-letter route (RULES D6); or its queue was deleted or purged
    after it came, or a client has cancelled it there, or may have (S4). A message may die only of a TTL that
    has run out, of a reject, or in a queue with a limit.
    """
    findings = _Findings(history)
    violations: list[Violation] = []
    cancelled = {
        (cancel.message_id, cancel.queue)
        for cancel in history.cancels
        if cancel.outcome != RETURNED and not cancel.reschedules
    }
    for publish in history.publishes.values():
        if publish.outcome != CONFIRMED:
            continue
        for queue in publish.queues:
            if (publish.message_id, queue) in cancelled:
                continue
            missing = _missing(publish, (queue,), publish.invoked_us, findings, history, topology)
            if missing:
                violations.append(
                    Violation(
                        "lost",
                        f"message {publish.message_id}, published at {publish.invoked_us / 1e6:.6f}s "
                        f"(ttl {publish.ttl_ms}), confirmed at {(publish.completed_us or 0) / 1e6:.6f}s, "
                        f"is missing at {' > '.join(missing)}",
                    )
                )
    return violations


def _missing(
    publish: Publish,
    path: tuple[str, ...],
    since_us: int,
    findings: _Findings,
    history: History,
    topology: RunTopology,
) -> tuple[str, ...]:
    """The path at whose end the message ought to be and is not; empty when all is well."""
    queue = topology.queues[path[-1]]
    deliveries = findings.seen.get((publish.message_id, path), ())
    if any(delivery.draining or delivery.settled == ACK for delivery in deliveries):
        return ()
    if findings.gone_since(queue.name, since_us):
        return ()
    ttls = [
        ttl
        for ttl in (queue.message_ttl_ms, publish.ttl_ms if len(path) == 1 else None)
        if ttl is not None
    ]
    expired_us = since_us + min(ttls) * 1_000 if ttls else history.ended_us + 1
    rejected = any(delivery.settled == REJECT for delivery in deliveries)
    limited = queue.drops or queue.delivery_limit is not None
    if not rejected and not limited and expired_us > history.ended_us:
        return path
    for target in queue.dead_letter_targets:
        if target not in path:
            # Since when it can be in the target is not known better than from the publish on.
            missing = _missing(publish, (*path, target), since_us, findings, history, topology)
            if missing:
                return missing
    return ()


def check_answered(history: History, tolerance: Tolerance) -> list[Violation]:
    """After the last fault and some time to recover every client gets its answers."""
    settled_us = history.calm_us + tolerance.settle_ms * 1_000
    return [
        Violation("unanswered", f"{name} at node {node} waited in vain from {began_us / 1e6:.6f}s on")
        for began_us, name, node in history.given_up
        if began_us >= settled_us
    ]
