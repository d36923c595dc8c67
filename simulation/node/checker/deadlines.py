"""Message TTL: never early, never handed out late, and gone promptly."""

from __future__ import annotations

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import CONFIRMED, EXPIRED, REQUEUE, RETURNED, Cancel, Delivery, History, Publish
from simulation.node.topology import RunTopology
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


def check_early(history: History, topology: RunTopology, tolerance: Tolerance) -> list[Violation]:
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


def check_due(history: History, topology: RunTopology, tolerance: Tolerance) -> list[Violation]:
    """No message comes before it is due (RULES S1, S3), judged as `check_early` does; and what was published later on
    the same channel, and is due later or at the same time, does not overtake it (S2).
    """
    violations: list[Violation] = []
    changes: dict[tuple[int, str], list[Cancel]] = {}
    for cancel in history.cancels:
        if cancel.reschedules and cancel.outcome != RETURNED:
            changes.setdefault((cancel.message_id, cancel.queue), []).append(cancel)
    last: dict[tuple[str, str, int], list[Delivery]] = {}
    for delivery in history.deliveries:
        publish = history.publishes.get(delivery.message_id)
        plan = topology.queues[delivery.queue]
        if publish is None or delivery.deaths or not (plan.allow_schedule or plan.delayed_by):
            continue
        name = f"message {delivery.message_id} of {delivery.queue}"
        rescheduled = changes.get((delivery.message_id, delivery.queue))
        if rescheduled is not None:
            violations += _rescheduled_early(history, delivery, rescheduled, tolerance)
            continue
        passed_us = delivery.at_us - publish.invoked_us
        least_us = tolerance.shortest_us(publish.delay_ms) - (tolerance.early_ms or 0) * 1_000
        if publish.exact and tolerance.early_ms is not None and passed_us < least_us:
            text = f"{name} came {passed_us / 1e3:.3f} ms after it was published, with {publish.delay_ms} ms to wait"
            violations.append(Violation("S3 early", text))
        if delivery.queue in history.moved or plan.delayed_by in history.moved:
            continue
        if publish.clocks_ms and delivery.source_clock_ms >= 0:
            passed_ms = delivery.source_clock_ms - publish.clocks_ms[publish.queues.index(delivery.queue)]
            if passed_ms < publish.delay_ms:
                text = f"{name} came after {passed_ms} ms of shard time, not {publish.delay_ms} ms"
                violations.append(Violation("S3 early", text))
        if delivery.redelivered or not publish.exact or (plan.delayed_by and not publish.delay_ms):
            # What did not wait in an exchange has not come by the same way.
            continue
        before = last.setdefault((delivery.holder, delivery.queue, publish.stream), [])
        for other in before:
            overtaking = history.publishes[other.message_id]
            if overtaking.sequence > publish.sequence and overtaking.delay_ms >= publish.delay_ms:
                violations.append(Violation("S2 order", f"{name} came after message {other.message_id}"))
        before.append(delivery)
    return violations


def _rescheduled_early(
    history: History, delivery: Delivery, changes: list[Cancel], tolerance: Tolerance
) -> list[Violation]:
    """What was rescheduled for sure comes no sooner than the last of the changes says; which one that was is known
    where each began after the one before was answered. Then the latest counts, or one that is still in doubt."""
    done = [change for change in changes if change.outcome == CONFIRMED]
    if not done:
        return []
    latest = max(done, key=lambda change: change.invoked_us)
    possible = [
        change
        for change in changes
        if change is latest or change.outcome != CONFIRMED or (change.completed_us or 0) >= latest.invoked_us
    ]
    name = f"message {delivery.message_id} of {delivery.queue}"
    due_us = min(change.invoked_us + tolerance.shortest_us(change.delay_ms) for change in possible)
    if tolerance.early_ms is not None and delivery.at_us < due_us - tolerance.early_ms * 1_000:
        text = f"{name} came at {delivery.at_us / 1e3:.3f} ms, and was rescheduled to {due_us / 1e3:.3f} ms at least"
        return [Violation("S3 early", text)]
    due_ms = min(change.clock_ms + change.delay_ms if change.clock_ms >= 0 else -1 for change in possible)
    if delivery.queue not in history.moved and 0 <= delivery.source_clock_ms < due_ms:
        text = f"{name} came at {delivery.source_clock_ms} of shard time, and was rescheduled to {due_ms} at least"
        return [Violation("S3 early", text)]
    return []


def check_retries(history: History, topology: RunTopology) -> list[Violation]:
    """What a client gave back comes no sooner than its queue's retries do, on the clock of the shard (RULES S5).

    Where the node of that client lost its session later, the message may have come back before its client knew.
    """
    violations: list[Violation] = []
    given_back: dict[tuple[int, str], Delivery] = {}
    for delivery in history.deliveries:
        retry_ms = topology.queues[delivery.queue].retry_ms
        if retry_ms is None or delivery.queue in history.moved:
            continue
        copy = (delivery.message_id, delivery.queue)
        before = given_back.get(copy)
        given_back[copy] = delivery
        if before is None or before.settled != REQUEUE or before.settled_us is None:
            continue
        if before.settled_us > delivery.at_us or min(before.settled_clock_ms, delivery.source_clock_ms) < 0:
            continue
        passed_ms = delivery.source_clock_ms - before.settled_clock_ms
        lost = any(node == before.node and at_us >= before.left_us for at_us, node, _ in history.lost_sessions)
        if passed_ms < retry_ms and not lost:
            name = f"message {delivery.message_id} of {delivery.queue}"
            text = f"{name} came back after {passed_ms} ms, not {retry_ms} ms"
            violations.append(Violation("S5 early", text))
    return violations


def check_late(history: History, topology: RunTopology, tolerance: Tolerance) -> list[Violation]:
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


def _ttl_ms(publish: Publish, topology: RunTopology, queue: str, first: bool) -> int | None:
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
