"""What is cancelled stays so, and what waits can be cancelled (RULES S4)."""

from __future__ import annotations

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import CONFIRMED, RETURNED, Cancel, Delivery, History
from simulation.simulator import Violation


def check_cancels(history: History, tolerance: Tolerance) -> list[Violation]:
    """No message is delivered that a client was told is cancelled: the log has it wait or be ready, not both; nor has
    such a one been rescheduled later. And none was waiting that a client was told was not: what was confirmed before,
    and is delivered so late that it must have been waiting still when the answer came.
    """
    delivered: dict[tuple[int, str], list[Delivery]] = {}
    for delivery in history.deliveries:
        delivered.setdefault((delivery.message_id, delivery.queue), []).append(delivery)
    violations: list[Violation] = []
    done: dict[tuple[int, str], int] = {}
    for cancel in history.cancels:
        found = delivered.get((cancel.message_id, cancel.queue), [])
        name = f"message {cancel.message_id} of {cancel.queue}"
        done_us = done.get((cancel.message_id, cancel.queue))
        if cancel.outcome == CONFIRMED and cancel.reschedules:
            if done_us is not None and done_us < cancel.invoked_us:
                violations.append(Violation("S4 cancelled", f"{name} is rescheduled though it is cancelled"))
        elif cancel.outcome == CONFIRMED:
            if done_us is not None:
                violations.append(Violation("S4 twice", f"{name} is cancelled twice"))
            done[cancel.message_id, cancel.queue] = cancel.completed_us or 0
        if found and cancel.outcome == CONFIRMED and not cancel.reschedules:
            violations.append(Violation("S4 cancelled", f"{name} came though it is cancelled"))
        elif found and cancel.outcome == RETURNED:
            waited_us = _had_to_wait_us(history, cancel, tolerance)
            if waited_us > 0:
                text = f"{name} came though nothing was waiting under its id"
                violations.append(Violation("S4 waiting", f"{text}, {waited_us // 1_000} ms before it was due"))
    return violations


def _had_to_wait_us(history: History, cancel: Cancel, tolerance: Tolerance) -> int:
    """How long a message had to wait still when it was answered that none was waiting; 0: it may not have waited."""
    publish = history.publishes.get(cancel.message_id)
    if publish is None or publish.outcome != CONFIRMED or publish.completed_us is None or not publish.exact:
        return 0
    if any(
        other.reschedules and other.outcome != RETURNED and other.message_id == cancel.message_id
        for other in history.cancels
    ):
        return 0  # It may have been due sooner.
    if tolerance.early_ms is None or cancel.completed_us is None or publish.completed_us > cancel.invoked_us:
        return 0
    least_us = tolerance.shortest_us(publish.delay_ms) - tolerance.early_ms * 1_000
    return max(0, publish.invoked_us + least_us - cancel.completed_us)
