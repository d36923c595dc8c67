"""The judge of a run: histories in, broken promises out. Pure; it knows nothing of how nodes work."""

from __future__ import annotations

from simulation.node.checker.cancels import check_cancels
from simulation.node.checker.deadlines import check_decisions, check_due, check_early, check_late, check_retries
from simulation.node.checker.deliveries import check_duplicates, check_invented, check_order, check_refused
from simulation.node.checker.edges import check_edges
from simulation.node.checker.leases import check_leases, check_lingering
from simulation.node.checker.loss import check_answered, check_lost
from simulation.node.checker.recurring import check_recurring
from simulation.node.checker.scopes import check_scopes
from simulation.node.checker.streams import check_streams
from simulation.node.checker.tolerance import Tolerance
from simulation.node.checker.transactions import check_transactions
from simulation.node.history import History
from simulation.node.topology import RunTopology
from simulation.simulator import Violation

__all__ = [
    "Tolerance",
    "Violation",
    "check",
    "check_answered",
    "check_cancels",
    "check_decisions",
    "check_due",
    "check_duplicates",
    "check_early",
    "check_edges",
    "check_invented",
    "check_late",
    "check_leases",
    "check_lingering",
    "check_lost",
    "check_order",
    "check_recurring",
    "check_refused",
    "check_retries",
    "check_scopes",
    "check_streams",
    "check_transactions",
]


def check(history: History, topology: RunTopology, tolerance: Tolerance) -> list[Violation]:
    """Every broken promise of a finished run, in a fixed order; an empty list is what one wants to see."""
    return [
        *check_invented(history, topology),
        *check_duplicates(history),
        *check_order(history, topology),
        *check_refused(history, topology, tolerance),
        *check_lost(history, topology),
        *check_transactions(history),
        *check_streams(history, tolerance),
        *check_answered(history, tolerance),
        *check_decisions(history),
        *check_early(history, topology, tolerance),
        *check_due(history, topology, tolerance),
        *check_cancels(history, tolerance),
        *check_recurring(history, tolerance),
        *check_scopes(history, topology),
        *check_retries(history, topology),
        *check_late(history, topology, tolerance),
        *check_leases(history, topology, tolerance),
        *check_lingering(history, topology, tolerance),
    ]
