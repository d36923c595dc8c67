"""What is cancelled stays so, and what waits can be cancelled (RULES S4)."""

from __future__ import annotations

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import CONFIRMED, RETURNED, Cancel, Delivery, History
from simulation.simulator import Violation


def check_cancels(history: History, tolerance: Tolerance) -> list[Violation]:
    """No message is delivered that a client was told is cancelled: the log has it wait or be ready, not both. And none
    was waiting that a client was told was not: what was confirmed before, and is delivered so late that it must have
    been waiting still when the answer came.
    """
    delivered: dict[tuple[int, str], list[Delivery]] = {}
    for delivery in history.deliveries:
        delivered.setdefault((delivery.message_id, delivery.queue), []).append(delivery)
    violations: list[Violation] = []
    done: set[tuple[int, str]] = set()
    for cancel in history.cancels:
        found = delivered.get((cancel.message_id, cancel.queue), [])
        name = f"message {cancel.message_id} of {cancel.queue}"
        if cancel.outcome == CONFIRMED:
            if (cancel.message_id, cancel.queue) in done:
                violations.append(Violation("S4 twice", f"{name} is cancelled twice"))
            done.add((cancel.message_id, cancel.queue))
        if found and cancel.outcome == CONFIRMED:
            violations.append(Violation("S4 cancelled", f"{name} came though it is cancelled"))
        elif found and cancel.outcome == RETURNED and _must_have_waited(history, cancel, tolerance):
            violations.append(Violation("S4 waiting", f"{name} came though nothing was waiting under its id"))
    return violations


def _must_have_waited(history: History, cancel: Cancel, tolerance: Tolerance) -> bool:
    publish = history.publishes.get(cancel.message_id)
    if publish is None or publish.outcome != CONFIRMED or publish.completed_us is None or not publish.exact:
        return False
    if tolerance.early_ms is None or cancel.completed_us is None or publish.completed_us > cancel.invoked_us:
        return False
    least_us = tolerance.shortest_us(publish.delay_ms) - tolerance.early_ms * 1_000
    return cancel.completed_us < publish.invoked_us + least_us
