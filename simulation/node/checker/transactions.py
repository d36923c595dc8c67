"""Transactions: all or nothing, in each queue."""

from __future__ import annotations

from simulation.node.history import CONFIRMED, ROLLED_BACK, History
from simulation.simulator import Violation


def check_transactions(history: History) -> list[Violation]:
    """What was rolled back is nowhere. What a transaction gave to a queue is there, all of it, exactly if what it took
    from there is gone: each message of such a queue is in the end either there or was taken, by one transaction.
    """
    seen = {delivery.message_id for delivery in history.deliveries}
    left = {delivery.message_id for delivery in history.deliveries if delivery.draining}
    counted = seen | {publish.message_id for publish in history.publishes.values() if publish.outcome == CONFIRMED}
    violations = [
        Violation("transaction", f"message {publish.message_id} was rolled back and came")
        for publish in history.publishes.values()
        if publish.outcome == ROLLED_BACK and publish.message_id in seen
    ]
    takers: dict[int, list[int]] = {}
    for exchange in history.exchanges:
        if exchange.taken is not None and exchange.given in counted:
            takers.setdefault(exchange.taken, []).append(exchange.given)
        further = [number for number in exchange.further if number in counted]
        if further and len(further) < len(exchange.further):
            violations.append(Violation("transaction", f"of {exchange.further} only {further} are there"))
    for exchange in history.exchanges:
        if exchange.queue in history.moved:
            continue  # What is taken in one shard and given in another is not done as one.
        taken_for = takers.get(exchange.given, [])
        if exchange.given in counted and len(taken_for) + (exchange.given in left) != 1:
            where = "left" if exchange.given in left else "gone"
            text = f"message {exchange.given} of {exchange.queue} is {where} and was taken for {taken_for}"
            violations.append(Violation("transaction", text))
    return violations
