"""What a run with faults has to answer for: the simulator's checker, and two checks that need real clients' notes."""

from collections.abc import Mapping, Sequence
from typing import Final

from simulation.node.checker import Tolerance, Violation, check
from simulation.node.history import RETURNED, History
from simulation.node.topology import QueuePlan, RunTopology

# How soon after the last fault a client has to be answered: no measure of speed, machines may be busy.
ANSWERED_WITHIN_MS: Final = 30_000


def judge(history: History, queues: Sequence[str], proven: Mapping[int, int]) -> list[Violation]:
    """Every broken promise. `proven`: messages whose acknowledgement is known to have been applied, and since when.

    The checker's part: each confirmed message was acknowledged or is still there; no second first delivery, nobody
    gets what they hold already; first deliveries to a consumer come in the order of publishing; nothing comes that was
    not published, or comes changed; some time after the last fault every client is answered.
    """
    topology = RunTopology.of([QueuePlan(queue) for queue in queues])
    return [
        *check(history, topology, Tolerance(settle_ms=ANSWERED_WITHIN_MS)),
        *_returned(history),
        *_taken_back(history, proven),
    ]


def _returned(history: History) -> list[Violation]:
    """No queue is ever missing."""
    return [
        Violation("returned", f"message {publish.message_id} to {publish.queues[0]} came back as unroutable")
        for publish in history.publishes.values()
        if publish.outcome == RETURNED
    ]


def _taken_back(history: History, proven: Mapping[int, int]) -> list[Violation]:
    """What was acknowledged, and the acknowledgement applied, goes to no consumer that was not there before."""
    invoked_us = {attachment.holder: attachment.invoked_us for attachment in history.attachments}
    return [
        Violation(
            "acknowledged",
            f"message {delivery.message_id} came to {delivery.holder} at {delivery.at_us / 1e6:.6f}s, "
            f"its acknowledgement was applied before {proven[delivery.message_id] / 1e6:.6f}s",
        )
        for delivery in history.deliveries
        if delivery.message_id in proven and invoked_us[delivery.holder] > proven[delivery.message_id]
    ]
