"""What recurs comes when it is due, once each time, and no more once it is cancelled (RULES S6)."""

from __future__ import annotations

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import CONFIRMED, History, Occurrence, Recurring
from simulation.simulator import Violation


def check_recurring(history: History, tolerance: Tolerance) -> list[Violation]:
    """On the clock of their shard no more messages have come than there were times; no more come altogether than there
    were times until the answer that it is cancelled; in a calm cluster some do, and none that was replaced."""
    violations: list[Violation] = []
    came: dict[int, list[Occurrence]] = {message_id: [] for message_id in history.recurring}
    for occurrence in history.occurrences:
        if occurrence.message_id not in came:
            violations.append(Violation("invented", f"what came as {occurrence.message_id} was never published"))
        else:
            came[occurrence.message_id].append(occurrence)
    for message_id, recurring in history.recurring.items():
        violations += _too_many(recurring, came[message_id])
        violations += _too_few(recurring, came[message_id], history.calm_us, tolerance)
        violations += _replaced(recurring, came[message_id], history.calm_us, tolerance)
    return violations


def _too_many(recurring: Recurring, came: list[Occurrence]) -> list[Violation]:
    """What comes again counts once: the first time."""
    name = f"message {recurring.message_id}, every {recurring.every_ms} ms,"
    if recurring.clock_ms < 0:
        return []
    first = [each for each in came if not each.redelivered]
    for count, occurrence in enumerate(first, 1):
        times = (occurrence.clock_ms - recurring.clock_ms) // recurring.every_ms
        if occurrence.clock_ms >= 0 and count > times:
            return [Violation("S6 early or twice", f"{name} came {count} times when there were {times}")]
    if recurring.cancelled_ms >= 0 and 0 <= recurring.completed_us <= recurring.cancelling_us:
        times = (recurring.cancelled_ms - recurring.clock_ms) // recurring.every_ms
        if len(first) > times:
            text = f"{name} came {len(first)} times, {times} of them before it was cancelled"
            return [Violation("S6 cancelled", text)]
    return []


def _replaced(
    recurring: Recurring, came: list[Occurrence], calm_us: int, tolerance: Tolerance
) -> list[Violation]:
    """Judged in a calm cluster: what had come of it before another one took its place may be given out until then."""
    from_us = max(calm_us + (tolerance.settle_ms + tolerance.late_ms) * 1_000, recurring.replaced_us)
    if recurring.replaced_us < 0 or not any(each.at_us >= from_us and not each.redelivered for each in came):
        return []
    text = f"message {recurring.message_id}, every {recurring.every_ms} ms, came though another one has taken its place"
    return [Violation("S6 replaced", text)]


def _too_few(
    recurring: Recurring, came: list[Occurrence], calm_us: int, tolerance: Tolerance
) -> list[Violation]:
    """Judged where it recurs for long enough in a calm cluster."""
    from_us = max(calm_us + tolerance.settle_ms * 1_000, recurring.completed_us)
    until_us = from_us + (recurring.every_ms + tolerance.late_ms) * 1_000
    if recurring.outcome != CONFIRMED or not 0 <= until_us <= recurring.cancelling_us:
        return []
    if any(from_us <= each.at_us <= until_us for each in came):
        return []
    text = f"message {recurring.message_id}, every {recurring.every_ms} ms, did not come in a calm cluster"
    return [Violation("S6 late", text)]
