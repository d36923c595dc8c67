"""What dead letters say of their deaths, and whether they died before their time.

RULES D2-D5, and T5 (with T3, T4, T9, L4) as far as the arrival of a dead letter shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.outsider.judging.fates import DELIVERY_LIMIT, EXPIRED, QUEUE_EXPIRED, REJECTED, ways_to_die
from simulation.outsider.judging.history import DeathRow, Handed, OutsiderPublish
from simulation.outsider.judging.view import Finding, View


def judge_deaths(view: View) -> Iterator[Finding]:
    """Each message with a history of deaths."""
    for handed in view.history.handed:
        publish = view.publishes.get(handed.message)
        if publish is None or not handed.deaths:
            continue
        for rule, text in _faults(view, handed, publish):
            yield Finding(rule, f"message {handed.message} in {handed.queue} at {handed.at_us} us: {text}")


def _faults(view: View, handed: Handed, publish: OutsiderPublish) -> Iterator[tuple[str, str]]:
    deaths = handed.deaths[::-1]
    """The oldest first."""
    names = [death.queue for death in deaths]
    if any(name not in view.queues for name in names):
        yield "D3", f"died in {names}: no such queues"
        return
    if names[0] not in view.routed(publish):
        yield "D3", f"died in {names[0]} first, was sent to {view.routed(publish)}"
    for place, death in enumerate(deaths):
        there = names[place + 1] if place + 1 < len(deaths) else handed.queue
        if there not in view.after_death(view.queues[death.queue], publish):
            yield "D1", f"died in {death.queue}, whose dead do not go to {there}"
        if death.reason not in ways_to_die(view, publish, view.queues[death.queue], not place):
            yield "D2", f"died in {death.queue} of {death.reason}"
        yield from _row(view, handed, publish, death, not place)
    if len(set(names)) < len(names) or handed.queue in names:
        yield "D5", f"came back to where it died: {names}, then {handed.queue}"
    first, last = (deaths[0].queue, deaths[0].reason), (deaths[-1].queue, deaths[-1].reason)
    if handed.first_death != first:
        yield "D4", f"first death {handed.first_death}, x-death says {first}"
    if handed.last_death != last:
        yield "D4", f"last death {handed.last_death}, x-death says {last}"
    if handed.expiration is not None:
        yield "D4", f"still has an expiration of {handed.expiration}"
    early_us = _not_before_us(view, publish, deaths) - view.clock_us
    if handed.at_us < early_us:
        yield "T5", f"dead by {[(death.queue, death.reason) for death in deaths]}, which takes until {early_us} us"


def _row(
    view: View, handed: Handed, publish: OutsiderPublish, death: DeathRow, is_first: bool
) -> Iterator[tuple[str, str]]:
    if death.count != 1:
        yield "D3", f"died {death.count} times in {death.queue}, which it can't have come back to"
    key = (publish.routing_key,) if is_first else death.routing_keys
    if death.routing_keys != key:
        yield "D3", f"died under the keys {death.routing_keys} in {death.queue}, sent under {key}"
    if is_first and death.exchange != publish.exchange:
        yield "D3", f"died under the exchange {death.exchange!r} in {death.queue}, sent to {publish.exchange!r}"
    expiration = publish.expiration if is_first else None
    if death.original_expiration != expiration:
        yield "D3", f"original expiration {death.original_expiration} in {death.queue}, sent {expiration}"
    epoch_ms = view.setting.epoch_ms
    earliest_ms = epoch_ms + (publish.sent_us - view.clock_us - view.behind_us) // 1_000
    if death.reason == EXPIRED:
        plan = view.queues[death.queue]
        earliest_ms += (view.ttl_ms(publish, plan, is_first) or 0) + view.delay_ms(publish, plan, is_first)
    latest_ms = epoch_ms + handed.at_us // 1_000 + view.setting.clock_ms
    if not earliest_ms // 1_000 <= death.time_s <= latest_ms // 1_000 + 1:
        yield "D3", f"died at {death.time_s} s in {death.queue}, which lies not in {earliest_ms}..{latest_ms} ms"


def _not_before_us(view: View, publish: OutsiderPublish, deaths: tuple[DeathRow, ...]) -> int:
    """When a message can have died all these deaths at the earliest."""
    at_us = publish.sent_us
    for place, death in enumerate(deaths):
        queue = view.queues[death.queue]
        if death.reason == EXPIRED:
            at_us += (view.ttl_ms(publish, queue, not place) or 0) * 1_000
            at_us += view.delay_ms(publish, queue, not place) * 1_000
        elif death.reason in (REJECTED, DELIVERY_LIMIT):
            given = view.handed.get((publish.message, queue.name), ())
            settles = [view.settles[each.number].sent_us for each in given if each.number in view.settles]
            if settles:
                at_us = max(at_us, min(settles))
        elif death.reason == QUEUE_EXPIRED:
            at_us = max(at_us, _lease_end_us(view, queue.name, publish))
    return at_us


def _lease_end_us(view: View, name: str, publish: OutsiderPublish) -> int:
    """RULES L4, L11: a period after the last use before the publish was sent, at least."""
    period_us = (view.queues[name].expires_ms or 0) * 1_000
    uses = [call.sent_us for call in view.answered(name) if (call.answered_us or 0) <= publish.sent_us]
    return max(uses, default=0) + period_us
