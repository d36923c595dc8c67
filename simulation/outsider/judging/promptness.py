"""In quiet: what is to happen by itself happens on time.

RULES T7 (with T6, D6), S3. Looked at are messages that were sent, and had time to die or to become due, while nothing
was done to the cluster, and that a consumer with room waited for.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.outsider.judging.history import CANCEL, CONFIRMED, CONSUME, OK, DeclaredQueue, OutsiderPublish
from simulation.outsider.judging.view import Finding, View


def judge_promptness(view: View) -> Iterator[Finding]:
    """Each message that was to show itself."""
    late_ms = view.setting.late_ms
    if late_ms is None:
        return
    last_ends: dict[str, int] = {}
    for publish in sorted(view.publishes.values(), key=lambda each: each.sent_us):
        for name in view.routed(publish):
            queue = view.queues[name]
            end_us = _ends_us(view, queue, publish)
            # What stands before it in line goes first (T6).
            last_ends[name] = end_us = max(end_us, last_ends.get(name, 0)) if not queue.allow_schedule else end_us
            if publish.outcome != CONFIRMED or end_us >= _NEVER_US:
                continue
            margin_us = (late_ms + view.setting.tick_ms) * 1_000 + view.clock_us
            yield from _is_shown(view, queue, publish, end_us + margin_us)


_NEVER_US = 1 << 62


def _ends_us(view: View, queue: DeclaredQueue, publish: OutsiderPublish) -> int:
    """When a message leaves its queue, or its schedule, at the latest."""
    answered_us = publish.answered_us
    if answered_us is None:
        return _NEVER_US
    if queue.allow_schedule:
        return answered_us + view.delay_ms(publish, queue, True) * 1_000
    ttl_ms = view.ttl_ms(publish, queue, True)
    return _NEVER_US if ttl_ms is None else answered_us + ttl_ms * 1_000


def _is_shown(view: View, queue: DeclaredQueue, publish: OutsiderPublish, until_us: int) -> Iterator[Finding]:
    if until_us > view.history.phases.drain_us or not view.is_quiet(publish.sent_us, until_us):
        return
    if view.has_moved(queue.name):
        return
    shown: tuple[str, ...]
    if queue.allow_schedule:
        shown, rule = (queue.name,), "S3"
    elif view.is_untouched(queue.name) and queue.max_length is None and queue.max_priority is None:
        shown, rule = view.after_death(queue, publish), "T7"
    else:
        return
    for target in shown:
        plan = view.queues[target]
        plain = plan.max_length is None and plan.expires_ms is None and (plan.ttl_ms is None or target == queue.name)
        if not plain or view.has_moved(target) or not _is_waited_for(view, target, publish.sent_us, until_us):
            continue
        came = [each.at_us for each in view.handed.get((publish.message, target), ())]
        if not came or min(came) > until_us:
            when = min(came) if came else "never"
            yield Finding(rule, f"message {publish.message} of {queue.name}: in {target} {when}, not by {until_us} us")


def _is_waited_for(view: View, queue: str, from_us: int, until_us: int) -> bool:
    """Whether somebody consumed without a limit all that time."""
    for call in view.calls.get(queue, ()):
        if call.kind == CONSUME and call.outcome == OK and not call.prefetch and (call.answered_us or 0) <= from_us:
            end = view.ends.get(call.connection)
            cancelled = any(
                other.kind == CANCEL and other.connection == call.connection and other.tag == call.tag
                for other in view.calls[queue]
            )
            # That the cluster lost a node's session in trouble, and says so, is nobody's fault.
            taken_away = any(
                (gone.connection, gone.tag) == (call.connection, call.tag)
                and not view.is_quiet(gone.at_us, gone.at_us)
                for gone in view.history.cancelled
            )
            if not cancelled and not taken_away and (end is None or end.at_us > until_us):
                return True
    return False
