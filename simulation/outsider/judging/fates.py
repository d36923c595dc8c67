"""Where each message ended: taken, left at the drain, dead with a copy wherever its queue sends its dead, or gone by a
rule that says so. Each at most once.

RULES D1, D5, D6; and confirms: what was confirmed has an end that the rules know.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.outsider.judging.history import REJECT, DeclaredQueue, OutsiderPublish
from simulation.outsider.judging.view import Finding, View

EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT, QUEUE_EXPIRED = (
    "expired", "rejected", "maxlen", "delivery_limit", "queue_expired"
)  # fmt: skip


def ways_to_die(view: View, publish: OutsiderPublish, queue: DeclaredQueue, is_first: bool) -> set[str]:
    """For what reasons a message may have died in a queue by the end of the history."""
    reasons: set[str] = set()
    ttl_ms = view.ttl_ms(publish, queue, is_first)
    if ttl_ms is not None:
        delay_ms = view.delay_ms(publish, queue, is_first)
        if publish.sent_us + (ttl_ms + delay_ms) * 1_000 - view.clock_us <= view.history.phases.end_us:
            reasons.add(EXPIRED)
    settles = [view.settles.get(each.number) for each in view.handed.get((publish.message, queue.name), ())]
    if any(settle is not None and settle.how == REJECT for settle in settles):
        reasons.add(REJECTED)
    if queue.max_length is not None and not queue.refuses:
        reasons.add(MAXLEN)
    if queue.delivery_limit is not None:
        reasons.add(DELIVERY_LIMIT)
    if queue.leaves_dead_letters:
        reasons.add(QUEUE_EXPIRED)
    return reasons


def judge_fates(view: View) -> Iterator[Finding]:
    """Each confirmed message along all its ways; and nobody alive where it died."""
    for publish in view.confirmed():
        for name in view.routed(publish):
            lost = _lost(view, publish, name, ())
            if lost:
                yield Finding("confirms", f"message {publish.message}, confirmed at {publish.answered_us} us: {lost}")
    for publish in view.publishes.values():
        for name in view.routed(publish):
            yield from _alive_and_dead(view, publish, name)


def _lost(view: View, publish: OutsiderPublish, name: str, path: tuple[str, ...]) -> str:
    """Why a message that came to a queue has no end; "" if it has one."""
    queue = view.queues[name]
    if view.is_over(publish.message, name):
        return ""
    if view.may_lose(queue) and not (queue.leaves_dead_letters and _knew_of_its_queue(view, publish)):
        return ""
    reasons = ways_to_die(view, publish, queue, not path)
    seen = "was seen" if (publish.message, name) in view.handed else "was never seen"
    if not reasons:
        return f"it {seen} in {name} and is gone"
    targets = view.after_death(queue, publish)
    for target in targets:
        if target in (*path, name) and REJECTED not in reasons:
            continue  # D5: dropped there.
        lost = _lost(view, publish, target, (*path, name))
        if lost:
            return f"it {seen} in {name}, and " + lost
    return ""


def _knew_of_its_queue(view: View, publish: OutsiderPublish) -> bool:
    """Whether its node must have known whether the queue was there: in trouble it may have confirmed what it sent to a
    queue that was gone."""
    return view.is_quiet(publish.sent_us, publish.answered_us or publish.sent_us)


def _alive_and_dead(view: View, publish: OutsiderPublish, name: str) -> Iterator[Finding]:
    """RULES D6, T10: not taken where it died, not dead while a client holds it."""
    pending, seen = [name], {name}
    while pending:
        here = pending.pop()
        queue = view.queues[here]
        targets = view.after_death(queue, publish)
        copies = [
            copy
            for target in targets
            for copy in view.handed.get((publish.message, target), ())
            if copy.deaths and copy.deaths[0].queue == here
        ]
        for handed in view.handed.get((publish.message, here), ()):
            settle = view.settles.get(handed.number)
            for copy in copies[:1]:
                what = f"message {publish.message}: in {copy.queue} at {copy.at_us} us, dead of {here}"
                if view.acknowledged(handed) and view.is_surely_settled(handed):
                    yield Finding("D6", f"{what}, where {handed.client} took it at {handed.at_us} us")
                elif handed.since_us > copy.at_us and not handed.tag:
                    yield Finding("D6", f"{what}, and got there by {handed.client} after {handed.since_us} us")
                end = view.ends.get(handed.connection)
                ends_us = view.history.phases.end_us if end is None else end.at_us
                held_us = min(ends_us, ends_us if settle is None else settle.sent_us)
                if handed.at_us < copy.at_us < held_us and view.is_quiet(handed.at_us, copy.at_us):
                    yield Finding("T10", f"{what}, while {handed.client} held it until {held_us} us")
        for target in targets:
            if target not in seen:
                seen.add(target)
                pending.append(target)
