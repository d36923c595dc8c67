"""What arrives: only what was published, where it belongs, once, and in order."""

from __future__ import annotations

from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import (
    CONFIRMED,
    DELIVERY_LIMIT,
    EXPIRED,
    MAXLEN,
    REFUSED,
    REJECT,
    REJECTED,
    Delivery,
    History,
)
from simulation.node.topology import RunTopology
from simulation.simulator import Violation


def check_invented(history: History, topology: RunTopology) -> list[Violation]:
    """Each delivery is of a message that was published, unchanged, to where its path began; each step of the
    path follows a dead-letter route, for a reason that could have been (RULES D2, D3).
    """
    violations: list[Violation] = []
    rejected: set[tuple[int, tuple[str, ...]]] = set()
    for delivery in history.deliveries:
        if delivery.settled == REJECT:
            rejected.add((delivery.message_id, delivery.path))
    for delivery in history.deliveries:
        fault = _fault_of(delivery, history, topology, rejected)
        if fault:
            violations.append(Violation("invented", f"{_name(delivery)}: {fault}"))
    return violations


def _fault_of(
    delivery: Delivery, history: History, topology: RunTopology, rejected: set[tuple[int, tuple[str, ...]]]
) -> str:
    """Why this delivery can't be right; empty when it can."""
    publish = history.publishes.get(delivery.message_id)
    if publish is None:
        return "was never published"
    if not delivery.intact:
        return "its body or its properties are not those that were published"
    if delivery.at_us < publish.invoked_us:
        return "arrived before it was published"
    path = delivery.path
    if path[0] not in publish.queues:
        return f"was published to {publish.queues}"
    for step, death in enumerate(reversed(delivery.deaths)):
        if path[step + 1] not in topology.queues[death.queue].dead_letter_targets:
            return f"no dead-letter route leads from {death.queue} to {path[step + 1]}"
        if death.count != 1:
            return f"died {death.count} times in {death.queue}, which it can reach once"
        if death.reason == EXPIRED:
            ttls = (topology.queues[death.queue].message_ttl_ms, publish.ttl_ms if step == 0 else None)
            if ttls == (None, None):
                return f"expired in {death.queue}, where nothing has a TTL"
        elif death.reason == REJECTED:
            if (delivery.message_id, path[: step + 1]) not in rejected:
                return f"was rejected in {death.queue} by nobody"
        elif death.reason == MAXLEN:
            if not topology.queues[death.queue].drops:
                return f"was too much for {death.queue}, which drops nothing"
        elif death.reason == DELIVERY_LIMIT:
            if topology.queues[death.queue].delivery_limit is None:
                return f"came back too often to {death.queue}, which has no limit"
        else:
            return f"died in {death.queue} of {death.reason!r}"
    return ""


def check_refused(history: History, topology: RunTopology, tolerance: Tolerance) -> list[Violation]:
    """What is refused (nacked) in a calm cluster does not come from a queue that refuses, and comes from every other
    queue that it was routed to (RULES D2). In the chaos a nack may also mean that nobody knows.
    """
    settled_us = history.calm_us + tolerance.settle_ms * 1_000
    judged = {
        publish.message_id: publish
        for publish in history.publishes.values()
        if publish.outcome == REFUSED and publish.invoked_us >= settled_us
    }
    found = {(d.message_id, d.queue): d for d in history.deliveries if d.message_id in judged and not d.deaths}
    violations: list[Violation] = []
    for publish in judged.values():
        for queue in publish.queues:
            delivery = found.get((publish.message_id, queue))
            plan = topology.queues[queue]
            timed = plan.message_ttl_ms is not None or publish.ttl_ms is not None
            mortal = timed or plan.drops or plan.delivery_limit is not None
            if plan.refuses == (delivery is not None) and (plan.refuses or not mortal):
                text = "was refused and came all the same" if delivery else "was refused elsewhere and is missing"
                violations.append(Violation("refused", f"message {publish.message_id} of {queue} {text}"))
        if not any(topology.queues[queue].refuses for queue in publish.queues):
            violations.append(Violation("refused", f"message {publish.message_id}: no queue of it refuses anything"))
    return violations


def check_duplicates(history: History) -> list[Violation]:
    """Each message is at most once at the end of each path (RULES D6).

    A copy is told by its path. A second copy shows itself as a second delivery that claims to be the
    first, as a delivery to a holder that has the message already, or as a message that is alive where it
    is known to have died.
    """
    violations: list[Violation] = []
    fresh: set[tuple[int, tuple[str, ...]]] = set()
    holding: dict[tuple[str, int, tuple[str, ...]], Delivery] = {}
    held_at_end: set[tuple[int, tuple[str, ...]]] = set()
    for delivery in history.deliveries:
        copy = (delivery.message_id, delivery.path)
        if not delivery.redelivered:
            if copy in fresh:
                violations.append(Violation("duplicate", f"{_name(delivery)}: a second first delivery"))
            fresh.add(copy)
        before = holding.get((delivery.holder, *copy))
        held = before is not None and (before.settled_us is None or before.settled_us > delivery.at_us)
        if before is not None and held and not _came_back(history, before, delivery):
            violations.append(
                Violation("duplicate", f"{_name(delivery)}: {delivery.holder} holds it already")
            )
        holding[(delivery.holder, *copy)] = delivery
        if delivery.draining:
            held_at_end.add(copy)
    for delivery in history.deliveries:
        path = delivery.path
        violations.extend(
            Violation("duplicate", f"{_name(delivery)}: it is also alive in {path[length - 1]}")
            for length in range(1, len(path))
            if (delivery.message_id, path[:length]) in held_at_end
        )
    return violations


def _came_back(history: History, before: Delivery, delivery: Delivery) -> bool:
    """Whether a message may have come back to its queue between two deliveries to one holder: it says so, and the node
    of the holder lost its session with a shard of that queue after it sent the first and before it sent the second.
    What a get was answered may still be on its way to the client then, and is taken from the same queue once more."""
    shards = history.shards.get(delivery.queue, {})
    return delivery.redelivered and any(
        node == delivery.node and shard in shards and before.left_us <= at_us <= delivery.left_us
        for at_us, node, shard in history.lost_sessions
    )


def check_order(history: History, topology: RunTopology) -> list[Violation]:
    """First deliveries to one holder come in the order of publishing (FIFO), also by way of dead-letter
    queues (RULES D7) as long as nobody took messages from the queues they died in, which changes the
    order of death.

    What dies in order of deadlines is judged by `check_scopes`.

    Where a queue has priorities, so it is in each of them; what was to wait is judged by `check_due`. Published before
    means: earlier on the same channel, or confirmed before the other was sent by anyone.
    """
    violations: list[Violation] = []
    last_of_stream: dict[tuple[str, tuple[str, ...], int, int], Delivery] = {}
    latest_invoked: dict[tuple[str, tuple[str, ...], int], Delivery] = {}
    for delivery in history.deliveries:
        publish = history.publishes.get(delivery.message_id)
        path = delivery.path
        if (
            publish is None
            or delivery.redelivered
            or publish.delay_ms > 0
            or not publish.exact
            or any(queue in history.touched or topology.queues[queue].expires_anywhere for queue in path[:-1])
        ):
            continue
        if len(path) > 1 and publish.ttl_ms == 0:
            continue  # RULES T8: it dies in the step in which it comes, before those ahead of it
        view = (delivery.holder, path, publish.priority)
        before = last_of_stream.get((*view, publish.stream))
        if before is not None and history.publishes[before.message_id].sequence > publish.sequence:
            violations.append(
                Violation("D7" if len(path) > 1 else "order", f"{_name(delivery)} after {_name(before)}")
            )
        last_of_stream[(*view, publish.stream)] = delivery
        if any(queue in history.moved for queue in path):
            continue  # Who knows of a move and who does not yet publish in two shards.
        latest = latest_invoked.get(view)
        if latest is not None:
            invoked_us = history.publishes[latest.message_id].invoked_us
            if publish.outcome == CONFIRMED and (publish.completed_us or 0) < invoked_us:
                violations.append(
                    Violation(
                        "D7" if len(path) > 1 else "order",
                        f"{_name(delivery)}, confirmed before {_name(latest)} was published, came after it",
                    )
                )
        if latest is None or history.publishes[latest.message_id].invoked_us < publish.invoked_us:
            latest_invoked[view] = delivery
    return violations


def _name(delivery: Delivery) -> str:
    return f"message {delivery.message_id} in {' > '.join(delivery.path)} at {delivery.at_us / 1e6:.6f}s"
