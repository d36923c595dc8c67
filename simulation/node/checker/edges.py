"""Leases at their edges: what clients were told, held against when queues were there."""

from __future__ import annotations

from mayfly.node.duties.shard_leader import LEASES_RECORDED_EVERY_MS
from simulation.node.checker.leases import check_leases
from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import BROKEN, NOT_FOUND, OK, History, LeaseUse, Life
from simulation.node.lease_edges.plan import ATTACH, USES, EdgePlan
from simulation.node.topology import QueuePlan, RunTopology
from simulation.simulator import Violation

DRIFT_PPM = 200
TOLERANCE = Tolerance(drift_ppm=DRIFT_PPM, early_ms=None)


def check_edges(history: History, plan: EdgePlan) -> list[Violation]:
    """Every broken promise of a run at the edges, in a fixed order."""
    names = sorted({life.queue for life in history.lives.values()})
    topology = RunTopology.of([QueuePlan(name, expires_ms=plan.expires_ms) for name in names])
    return [
        *check_leases(history, topology, TOLERANCE),
        *check_charged(history, plan),
        *check_answers(history, plan),
        *check_consumers(history),
        *check_prompt(history, plan),
        *check_gone(history),
    ]


def check_charged(history: History, plan: EdgePlan) -> list[Violation]:
    """Time without a leader is not charged: between a use that was answered and the end of the queue lies a whole
    period with one (RULES L4, L7)."""
    shortest_us = TOLERANCE.shortest_us(plan.expires_ms)
    violations: list[Violation] = []
    for life in history.lives.values():
        if life.gone_us is None:
            continue
        last_us = max((use.invoked_us for use in _answered_by(life, history)), default=-1)
        if last_us < 0:
            continue
        leaderless_us = _without(history.leading, life.shard, last_us, life.gone_us)
        if life.gone_us - last_us - leaderless_us < shortest_us:
            violations.append(
                Violation(
                    "L7",
                    f"{_name(life)}: used {_ms(life.gone_us - last_us)} before, {_ms(leaderless_us)} of it without a "
                    f"leader, with a lease of {plan.expires_ms} ms",
                )
            )
    return violations


def check_answers(history: History, plan: EdgePlan) -> list[Violation]:
    """A use is answered, with ok only if the queue was there and stays for a whole period, with 404 only if there was
    a moment without it (RULES L4, L5, L10). What was told to be there can be published to."""
    shortest_us = TOLERANCE.shortest_us(plan.expires_ms)
    violations: list[Violation] = []
    for use in history.uses:
        lives = [life for life in history.lives.values() if life.queue == use.queue]
        if use.answer == OK:
            if not any(_stays(life, use, shortest_us) for life in lives):
                violations.append(Violation("L4", f"{_text(use)}, but it did not stay for a period: {_lives(lives)}"))
        elif use.answer == NOT_FOUND:
            if not any(life.gone_us is not None and life.gone_us <= use.completed_us for life in lives):
                violations.append(Violation("L10", f"{_text(use)}, but it was there all the time: {_lives(lives)}"))
        elif use.answer != BROKEN:
            violations.append(Violation("unanswered", _text(use)))
        elif history.fault_us[0] < 0:
            violations.append(Violation("unanswered", f"{_text(use)}, and nothing was wrong"))
    for sent in history.sent:
        in_time = sent.completed_us - sent.after.invoked_us < shortest_us
        if sent.returned and in_time:
            violations.append(Violation("L4", f"{_text(sent.after)}, but a message to it came back"))
        if sent.completed_us < 0 and history.fault_us[0] < 0:
            violations.append(Violation("unanswered", f"{_text(sent.after)}, but a message to it was not confirmed"))
    return violations


def check_consumers(history: History) -> list[Violation]:
    """A consumer whose consume-ok was sent keeps its queue, and gets what comes to it (RULES L5)."""
    violations = [
        Violation("L5", f"the consumer {name} of {queue} was cancelled at {at_us / 1e6:.6f}s")
        for at_us, queue, name in history.cancelled
    ]
    violations += [
        Violation("L5", f"{_text(sent.after)}, but a message to it did not come to the consumer")
        for sent in history.sent
        if sent.after.kind == ATTACH and sent.completed_us >= 0 and not sent.consumed and history.fault_us[0] < 0
    ]
    return violations


def check_prompt(history: History, plan: EdgePlan) -> list[Violation]:
    """A queue is gone soon after a period with a leader has passed since anything that may have renewed its lease
    (RULES L2, L6)."""
    profile = plan.profile
    violations: list[Violation] = []
    for life in history.lives.values():
        last_us = _last_possible_use_us(life, history, plan)
        gone_us = history.ended_us if life.gone_us is None else life.gone_us
        shard = life.shard
        # A leader continues the led clock from the last heartbeat it got.
        elections = _changes(history.established, shard, last_us, gone_us)
        lost_us = elections * (profile.heartbeat_ms + profile.tick_ms) * 1_000
        if plan.stops_all:
            # Only the log remembers how long there was a leader.
            recorded_us = (LEASES_RECORDED_EVERY_MS + profile.expiry_tick_ms + 2 * profile.tick_ms) * 1_000
            lost_us += min(recorded_us, max(0, history.fault_us[0] - last_us))
        unled_us = _without(history.established, shard, last_us, gone_us)
        slack_us = (profile.expiry_tick_ms + 2 * profile.tick_ms + 30) * 1_000
        longest_us = plan.expires_ms * 1_001 + lost_us + unled_us + slack_us
        if gone_us - last_us > longest_us:
            violations.append(
                Violation(
                    "L6",
                    f"{_name(life)}: {_ms(gone_us - last_us)} after its last use, {_ms(unled_us)} of it without a "
                    f"leader, with a lease of {plan.expires_ms} ms",
                )
            )
    return violations


def check_gone(history: History) -> list[Violation]:
    """In the end nothing is left of any queue, and clients are told so (RULES L10)."""
    violations = [Violation("L10", what) for what in history.left_behind]
    for question, answer in history.final.items():
        if answer != "gone":
            violations.append(Violation("L10", f"{question}: {answer}"))
    return violations


def _answered_by(life: Life, history: History) -> list[LeaseUse]:
    """The uses that this incarnation must have answered: those that were over before it went."""
    gone_us = history.ended_us if life.gone_us is None else life.gone_us
    return [
        use
        for use in history.uses
        if use.queue == life.queue and use.answer == OK and life.born_us <= use.completed_us <= gone_us
    ]


def _stays(life: Life, use: LeaseUse, shortest_us: int) -> bool:
    born_in_time = life.born_us <= use.completed_us
    return born_in_time and (life.gone_us is None or life.gone_us - use.invoked_us >= shortest_us)


def _last_possible_use_us(life: Life, history: History, plan: EdgePlan) -> int:
    """The last moment at which anything may have renewed the lease of this incarnation."""
    last_us = life.born_us
    session_us = (plan.profile.session_timeout_ms + 500) * 1_000
    # What was sent through a node that was down or cut off may be applied when it is back; a node that is gone for
    # good, or for long, takes its consumers with it when its session is over.
    late_us = history.fault_us[1] + session_us if history.fault_us[0] >= 0 else 0
    for use in history.uses:
        if use.queue == life.queue and use.kind in USES and (life.gone_us is None or use.invoked_us <= life.gone_us):
            last_us = max(last_us, use.completed_us)
            if use.answer == BROKEN:
                last_us = max(last_us, late_us)
    for attachment in history.attachments:
        if attachment.queue == life.queue and (life.gone_us is None or attachment.attached_us <= life.gone_us):
            released_us = history.ended_us if attachment.released_us is None else attachment.released_us
            # It is detached when the cancel, the end of the connection or of the node's session is applied.
            last_us = max(last_us, released_us + 10_000)
            if history.fault_us[0] >= 0:
                last_us = max(last_us, released_us + session_us, late_us)
    return last_us


def _name(life: Life) -> str:
    gone = "is still there" if life.gone_us is None else f"was gone at {life.gone_us / 1e6:.6f}s ({life.reason})"
    return f"{life.queue} (id {life.queue_id}) {gone}"


def _lives(lives: list[Life]) -> str:
    return "; ".join(f"from {life.born_us / 1e6:.6f}s, {_name(life)}" for life in lives)


def _text(use: LeaseUse) -> str:
    return (
        f"{use.kind} of {use.queue} at {use.invoked_us / 1e6:.6f}s was answered {use.answer or 'nothing'} at "
        f"{use.completed_us / 1e6:.6f}s"
    )


def _ms(microseconds: int) -> str:
    return f"{microseconds / 1e3:.3f} ms"


def _without(events: list[tuple[int, int, int, bool]], shard: int, start_us: int, end_us: int) -> int:
    """For how long in between no node was known to lead the shard."""
    leading: set[int] = set()
    total = 0
    at_us = start_us
    for when_us, of_shard, node, begins in events:
        if of_shard != shard:
            continue
        if when_us >= end_us:
            break
        if when_us > at_us:
            total += 0 if leading else when_us - at_us
            at_us = when_us
        if begins:
            leading.add(node)
        else:
            leading.discard(node)
    return total + (0 if leading else max(0, end_us - at_us))


def _changes(events: list[tuple[int, int, int, bool]], shard: int, start_us: int, end_us: int) -> int:
    """How often in between a node began to lead the shard."""
    return sum(1 for at_us, of, _, begins in events if of == shard and begins and start_us <= at_us <= end_us)
