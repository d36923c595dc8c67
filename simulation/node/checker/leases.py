"""Queue TTL: no queue goes before its time, or while it is used, and each goes soon after."""

from __future__ import annotations

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import Disappearance, History
from simulation.node.topology import QueuePlan, RunTopology
from simulation.simulator import Violation


def check_leases(history: History, topology: RunTopology, tolerance: Tolerance) -> list[Violation]:
    """No queue is deleted while a consumer is attached, nor before a whole period has passed since the last
    renewal or the last consumer's end (RULES L2-L8). Measured in true time: no wall clock matters."""
    violations: list[Violation] = []
    for gone in history.disappearances:
        plan = topology.queues[gone.queue]
        if _deleted_by_client(history, gone):
            continue
        if plan.expires_ms is None:
            violations.append(Violation("L4", f"{_name(gone)}: it has no lease and nobody deleted it"))
            continue
        violations.extend(_judge(history, plan, gone, tolerance.shortest_us(plan.expires_ms)))
    return violations


def _deleted_by_client(history: History, gone: Disappearance) -> bool:
    return any(
        removal.queue == gone.queue and not removal.purge and removal.invoked_us <= gone.at_us
        for removal in history.removals
    )


def _judge(history: History, plan: QueuePlan, gone: Disappearance, shortest_us: int) -> list[Violation]:
    violations: list[Violation] = []
    for renewal in history.renewals:
        # What was answered after the deletion may have met a queue that was declared anew since.
        if renewal.queue != plan.name or renewal.completed_us > gone.at_us:
            continue
        if gone.at_us - renewal.invoked_us < shortest_us:
            violations.append(
                Violation(
                    "L4",
                    f"{_name(gone)}: {renewal.kind} at {renewal.invoked_us / 1e6:.6f}s had renewed its lease "
                    f"of {plan.expires_ms} ms",
                )
            )
    for attachment in history.attachments:
        if attachment.queue != plan.name or attachment.attached_us > gone.at_us:
            continue
        if attachment.released_us is None or attachment.released_us > gone.at_us:
            violations.append(Violation("L3", f"{_name(gone)}: {attachment.holder} was attached"))
        elif gone.at_us - attachment.released_us < shortest_us:
            violations.append(
                Violation(
                    "L3",
                    f"{_name(gone)}: {attachment.holder} was attached until "
                    f"{attachment.released_us / 1e6:.6f}s, its lease is {plan.expires_ms} ms",
                )
            )
    return violations


def check_lingering(history: History, topology: RunTopology, tolerance: Tolerance) -> list[Violation]:
    """A queue whose lease ran out well before the end of the run is gone by then (RULES L4, L6)."""
    violations: list[Violation] = []
    for name in history.present_at_end:
        if name in topology.apart:
            continue
        if name not in topology.queues:
            violations.append(Violation("transient", f"{name} is still there, its connection is not"))
            continue
        expires_ms = topology.queues[name].expires_ms
        if expires_ms is None:
            continue
        last_use_us = history.calm_us + tolerance.settle_ms * 1_000
        in_use = False
        for renewal in history.renewals:
            if renewal.queue == name:
                last_use_us = max(last_use_us, renewal.completed_us)
        for attachment in history.attachments:
            if attachment.queue == name:
                in_use = in_use or attachment.released_us is None or attachment.in_doubt
                last_use_us = max(last_use_us, attachment.latest_release_us or attachment.released_us or 0)
        longest_us = (
            expires_ms * 1_000 + expires_ms * tolerance.drift_ppm // 1_000 + tolerance.late_ms * 1_000
        )
        if not in_use and history.ended_us - last_use_us > longest_us:
            violations.append(
                Violation(
                    "L4 late",
                    f"{name} is there {(history.ended_us - last_use_us) / 1e6:.3f}s after its last use, "
                    f"with a lease of {expires_ms} ms",
                )
            )
    return violations


def _name(gone: Disappearance) -> str:
    return f"queue {gone.queue} (id {gone.queue_id}) was gone at {gone.at_us / 1e6:.6f}s ({gone.reason})"
