"""Message TTL: never early, never handed out late, and gone promptly."""

from __future__ import annotations

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import CONFIRMED, EXPIRED, Delivery, History, Publish
from simulation.node.topology import Topology
from simulation.simulator import Violation


def check_decisions(history: History) -> list[Violation]:
    """No message is handed out once its deadline has passed on the shard clock (RULES T5); at the deadline
    itself only one that came in the same step may be (T8), which the shard clock can't tell apart.
    """
    return [
        Violation(
            "T5",
            f"node {decision.node}, shard {decision.shard} handed out at {decision.time_ms} a message "
            f"with the deadline {decision.deadline_ms}",
        )
        for decision in history.decisions
        if 0 <= decision.deadline_ms < decision.time_ms
    ]


def check_early(history: History, topology: Topology, tolerance: Tolerance) -> list[Violation]:
    """No message is dead of its TTL before that has passed (RULES T5), judged twice: on the clock of the
    shard it died in, exactly; and in true time, as far as clocks may jump.
    """
    violations: list[Violation] = []
    for delivery in history.deliveries:
        publish = history.publishes.get(delivery.message_id)
        if publish is None or not delivery.deaths:
            continue
        total_ms = 0
        for step, death in enumerate(reversed(delivery.deaths)):
            ttl_ms = _ttl_ms(publish, topology, death.queue, first=step == 0)
            if death.reason == EXPIRED and ttl_ms is not None:
                total_ms += ttl_ms
        name = f"message {delivery.message_id} in {' > '.join(delivery.path)}"
        if tolerance.early_ms is not None:
            least_us = tolerance.shortest_us(total_ms) - tolerance.early_ms * 1_000
            if delivery.at_us - publish.invoked_us < least_us:
                violations.append(
                    Violation(
                        "T5 early",
                        f"{name} was dead {(delivery.at_us - publish.invoked_us) / 1e3:.3f} ms after it was "
                        f"published, with {total_ms} ms to live",
                    )
                )
        passed_ms = None if delivery.path[0] in history.moved else _shard_time_passed_ms(publish, delivery)
        if passed_ms is not None and delivery.deaths[0].reason == EXPIRED and passed_ms < total_ms:
            violations.append(
                Violation(
                    "T5 early", f"{name} was dead after {passed_ms} ms of shard time, not {total_ms} ms"
                )
            )
    return violations


def check_late(history: History, topology: Topology, tolerance: Tolerance) -> list[Violation]:
    """In a calm cluster nothing is delivered noticeably after its time in true time either, and what has
    expired is in its dead-letter queue promptly (RULES T7): judged on messages that were published after
    the calm.
    """
    violations: list[Violation] = []
    settled_us = history.calm_us + tolerance.settle_ms * 1_000
    for delivery in history.deliveries:
        publish = history.publishes.get(delivery.message_id)
        if (
            publish is None
            or publish.invoked_us < settled_us
            or publish.outcome != CONFIRMED
            or publish.completed_us is None
            or delivery.deaths
        ):
            continue
        ttl_ms = _ttl_ms(publish, topology, delivery.queue, first=True)
        if (
            ttl_ms is not None
            and delivery.at_us - publish.completed_us > (ttl_ms + tolerance.late_ms) * 1_000
        ):
            violations.append(
                Violation(
                    "T5 late",
                    f"message {delivery.message_id} came from {delivery.queue} "
                    f"{(delivery.at_us - publish.completed_us) / 1e3:.3f} ms after its confirm, with "
                    f"{ttl_ms} ms to live",
                )
            )
    return violations


def _ttl_ms(publish: Publish, topology: Topology, queue: str, first: bool) -> int | None:
    """The lower of the queue's TTL and the message's own, which counts only where it was published (T3)."""
    queue_ttl_ms = topology.queues[queue].message_ttl_ms
    own_ttl_ms = publish.ttl_ms if first else None
    if queue_ttl_ms is None or own_ttl_ms is None:
        return queue_ttl_ms if own_ttl_ms is None else own_ttl_ms
    return min(queue_ttl_ms, own_ttl_ms)


def _shard_time_passed_ms(publish: Publish, delivery: Delivery) -> int | None:
    """At most so much shard time passed between the enqueue and the death; None where it can't be known."""
    if delivery.source_clock_ms < 0 or len(delivery.deaths) != 1 or not publish.clocks_ms:
        return None
    source = delivery.path[0]
    if source not in publish.queues:
        return None
    return delivery.source_clock_ms - publish.clocks_ms[publish.queues.index(source)]
