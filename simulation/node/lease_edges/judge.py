"""The judge of a run at the edges: what clients were told, held against when queues were there. Pure."""

from __future__ import annotations

from mayfly.node.duties.shard_leader import LEASES_RECORDED_EVERY_MS
from simulation.node.checker import Tolerance, check_leases
from simulation.node.lease_edges.plan import ATTACH, USES, EdgePlan
from simulation.node.lease_edges.story import BROKEN, NOT_FOUND, OK, Life, Story, Use, changes, without
from simulation.node.topology import QueuePlan, Topology
from simulation.simulator import Violation

DRIFT_PPM = 200
TOLERANCE = Tolerance(drift_ppm=DRIFT_PPM, early_ms=None)


def judge(story: Story, plan: EdgePlan) -> list[Violation]:
    """Every broken promise; an empty list is what one wants to see."""
    names = sorted({life.queue for life in story.lives.values()})
    topology = Topology.of([QueuePlan(name, expires_ms=plan.expires_ms) for name in names])
    return [
        *check_leases(story.history, topology, TOLERANCE),
        *check_charged(story, plan),
        *check_answers(story, plan),
        *check_consumers(story),
        *check_prompt(story, plan),
        *check_gone(story),
    ]


def check_charged(story: Story, plan: EdgePlan) -> list[Violation]:
    """Time without a leader is not charged: between a use that was answered and the end of the queue lies a whole
    period with one (RULES L4, L7)."""
    shortest_us = TOLERANCE.shortest_us(plan.expires_ms)
    violations: list[Violation] = []
    for life in story.lives.values():
        if life.gone_us is None:
            continue
        last_us = max((use.invoked_us for use in _answered_by(life, story)), default=-1)
        if last_us < 0:
            continue
        leaderless_us = without(story.leading, life.shard, last_us, life.gone_us)
        if life.gone_us - last_us - leaderless_us < shortest_us:
            violations.append(
                Violation(
                    "L7",
                    f"{_name(life)}: used {_ms(life.gone_us - last_us)} before, {_ms(leaderless_us)} of it without a "
                    f"leader, with a lease of {plan.expires_ms} ms",
                )
            )
    return violations


def check_answers(story: Story, plan: EdgePlan) -> list[Violation]:
    """A use is answered, with ok only if the queue was there and stays for a whole period, with 404 only if there was
    a moment without it (RULES L4, L5, L10). What was told to be there can be published to."""
    shortest_us = TOLERANCE.shortest_us(plan.expires_ms)
    violations: list[Violation] = []
    for use in story.uses:
        lives = [life for life in story.lives.values() if life.queue == use.queue]
        if use.answer == OK:
            if not any(_stays(life, use, shortest_us) for life in lives):
                violations.append(Violation("L4", f"{_text(use)}, but it did not stay for a period: {_lives(lives)}"))
        elif use.answer == NOT_FOUND:
            if not any(life.gone_us is not None and life.gone_us <= use.completed_us for life in lives):
                violations.append(Violation("L10", f"{_text(use)}, but it was there all the time: {_lives(lives)}"))
        elif use.answer != BROKEN:
            violations.append(Violation("unanswered", _text(use)))
        elif story.fault_us[0] < 0:
            violations.append(Violation("unanswered", f"{_text(use)}, and nothing was wrong"))
    for sent in story.sent:
        in_time = sent.completed_us - sent.after.invoked_us < shortest_us
        if sent.returned and in_time:
            violations.append(Violation("L4", f"{_text(sent.after)}, but a message to it came back"))
        if sent.completed_us < 0 and story.fault_us[0] < 0:
            violations.append(Violation("unanswered", f"{_text(sent.after)}, but a message to it was not confirmed"))
    return violations


def check_consumers(story: Story) -> list[Violation]:
    """A consumer whose consume-ok was sent keeps its queue, and gets what comes to it (RULES L5)."""
    violations = [
        Violation("L5", f"the consumer {name} of {queue} was cancelled at {at_us / 1e6:.6f}s")
        for at_us, queue, name in story.cancelled
    ]
    violations += [
        Violation("L5", f"{_text(sent.after)}, but a message to it did not come to the consumer")
        for sent in story.sent
        if sent.after.kind == ATTACH and sent.completed_us >= 0 and not sent.consumed and story.fault_us[0] < 0
    ]
    return violations


def check_prompt(story: Story, plan: EdgePlan) -> list[Violation]:
    """A queue is gone soon after a period with a leader has passed since anything that may have renewed its lease
    (RULES L2, L6)."""
    profile = plan.profile
    violations: list[Violation] = []
    for life in story.lives.values():
        last_us = _last_possible_use_us(life, story, plan)
        gone_us = story.ended_us if life.gone_us is None else life.gone_us
        shard = life.shard
        # A leader continues the led clock from the last heartbeat it got.
        lost_us = changes(story.established, shard, last_us, gone_us) * (profile.heartbeat_ms + profile.tick_ms) * 1_000
        if plan.stops_all:
            # Only the log remembers how long there was a leader.
            recorded_us = (LEASES_RECORDED_EVERY_MS + profile.expiry_tick_ms + 2 * profile.tick_ms) * 1_000
            lost_us += min(recorded_us, max(0, story.fault_us[0] - last_us))
        unled_us = without(story.established, shard, last_us, gone_us)
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


def check_gone(story: Story) -> list[Violation]:
    """In the end nothing is left of any queue, and clients are told so (RULES L10)."""
    violations = [Violation("L10", what) for what in story.left_behind]
    for question, answer in story.final.items():
        if answer != "gone":
            violations.append(Violation("L10", f"{question}: {answer}"))
    return violations


def _answered_by(life: Life, story: Story) -> list[Use]:
    """The uses that this incarnation must have answered: those that were over before it went."""
    gone_us = story.ended_us if life.gone_us is None else life.gone_us
    return [
        use
        for use in story.uses
        if use.queue == life.queue and use.answer == OK and life.born_us <= use.completed_us <= gone_us
    ]


def _stays(life: Life, use: Use, shortest_us: int) -> bool:
    born_in_time = life.born_us <= use.completed_us
    return born_in_time and (life.gone_us is None or life.gone_us - use.invoked_us >= shortest_us)


def _last_possible_use_us(life: Life, story: Story, plan: EdgePlan) -> int:
    """The last moment at which anything may have renewed the lease of this incarnation."""
    last_us = life.born_us
    session_us = (plan.profile.session_timeout_ms + 500) * 1_000
    # What was sent through a node that was down or cut off may be applied when it is back; a node that is gone for
    # good, or for long, takes its consumers with it when its session is over.
    late_us = story.fault_us[1] + session_us if story.fault_us[0] >= 0 else 0
    for use in story.uses:
        if use.queue == life.queue and use.kind in USES and (life.gone_us is None or use.invoked_us <= life.gone_us):
            last_us = max(last_us, use.completed_us)
            if use.answer == BROKEN:
                last_us = max(last_us, late_us)
    for attachment in story.history.attachments:
        if attachment.queue == life.queue and (life.gone_us is None or attachment.attached_us <= life.gone_us):
            released_us = story.ended_us if attachment.released_us is None else attachment.released_us
            # It is detached when the cancel, the end of the connection or of the node's session is applied.
            last_us = max(last_us, released_us + 10_000)
            if story.fault_us[0] >= 0:
                last_us = max(last_us, released_us + session_us, late_us)
    return last_us


def _name(life: Life) -> str:
    gone = "is still there" if life.gone_us is None else f"was gone at {life.gone_us / 1e6:.6f}s ({life.reason})"
    return f"{life.queue} (id {life.queue_id}) {gone}"


def _lives(lives: list[Life]) -> str:
    return "; ".join(f"from {life.born_us / 1e6:.6f}s, {_name(life)}" for life in lives)


def _text(use: Use) -> str:
    return (
        f"{use.kind} of {use.queue} at {use.invoked_us / 1e6:.6f}s was answered {use.answer or 'nothing'} at "
        f"{use.completed_us / 1e6:.6f}s"
    )


def _ms(microseconds: int) -> str:
    return f"{microseconds / 1e3:.3f} ms"
