"""The judge of what recurs objects to each kind of broken history, and to none that is merely unlucky (RULES S6)."""

from __future__ import annotations

from simulation.node.checker import Tolerance, check_recurring
from simulation.node.history import CONFIRMED, History, Occurrence, Recurring

SECOND = 1_000_000


def faults(*came_s: float, cancelled_s: float = -1, again: bool = False, calm_s: float = 30) -> list[str]:
    """What is wrong where a message that recurs each second, published at 1 s, comes at these times; the shard's clock
    is true time and 100 s more."""
    made = History(calm_us=int(calm_s * SECOND))
    recurring = Recurring(1, 1000, SECOND, 101_000, CONFIRMED, 1_010_000)
    if cancelled_s >= 0:
        recurring.cancelling_us = int(cancelled_s * SECOND)
        recurring.cancelled_us = recurring.cancelling_us + 10_000
        recurring.cancelled_ms = 100_000 + int(cancelled_s * 1000) + 10
    made.recurring[1] = recurring
    for at_s in came_s:
        made.occurrences.append(Occurrence(1, int(at_s * SECOND), 100_000 + int(at_s * 1000), again))
    return [violation.rule for violation in check_recurring(made, Tolerance(settle_ms=0))]


def test_s6_nothing_comes_early_or_twice() -> None:
    assert faults(2.01, 3.0, 4.2) == []
    assert faults(1.99) == ["S6 early or twice"]
    assert faults(2.01, 2.3) == ["S6 early or twice"]
    assert faults(2.01, 2.3, again=True) == []
    assert faults(3.01, 3.02) == []


def test_s6_what_is_cancelled_comes_no_more() -> None:
    """What had come by then may be given out later."""
    assert faults(2.1, 5.0, cancelled_s=3.1) == []
    assert faults(2.1, 3.1, 5.0, cancelled_s=3.5) == ["S6 cancelled"]
    assert faults(5.0, cancelled_s=1.5) == ["S6 cancelled"]


def test_s6_in_a_calm_cluster_it_comes() -> None:
    assert faults(cancelled_s=10, calm_s=5) == ["S6 late"]
    assert faults(6.5, cancelled_s=10, calm_s=5) == []
    assert faults(cancelled_s=6, calm_s=5) == []
    assert faults(cancelled_s=10, calm_s=9.5) == []


def test_s6_what_nobody_published_is_invented() -> None:
    made = History()
    made.occurrences.append(Occurrence(7, 1, 1, False))
    assert [violation.rule for violation in check_recurring(made, Tolerance())] == ["invented"]
