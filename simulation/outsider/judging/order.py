"""In which order messages come: as they were sent, as they died, as they were due.

Held against each other are messages that one client sent one after the other, the next when the one before had its
answer, and that came to one consumer, or to one client's gets, for the first time.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.outsider.judging.fates import EXPIRED
from simulation.outsider.judging.history import CONFIRMED, Handed, OutsiderPublish
from simulation.outsider.judging.view import Finding, View


def judge_order(view: View) -> Iterator[Finding]:
    """Receiver by receiver."""
    receivers: dict[tuple[int, str, str], list[Handed]] = {}
    for handed in sorted(view.history.handed, key=lambda each: (each.at_us, each.number)):
        if not handed.redelivered and handed.message in view.publishes:
            receivers.setdefault((handed.connection, handed.tag, handed.queue), []).append(handed)
    for (_, _, queue), came in receivers.items():
        if view.queues[queue].allow_schedule:
            yield from _by_due_time(view, queue, came)
        else:
            yield from _by_sender(view, queue, came)
    yield from _dropped_first(view)


def _by_sender(view: View, queue: str, came: list[Handed]) -> Iterator[Finding]:
    """RULES D7 for what died of its age in queues that nobody else looked into; else the order of publishing."""
    latest: dict[tuple[object, ...], OutsiderPublish] = {}
    for handed in came:
        publish = view.publishes[handed.message]
        if not _keeps_order(view, handed, publish):
            continue
        path = tuple((death.queue, death.reason) for death in handed.deaths)
        ranked = view.queues[queue].max_priority is not None
        line = (publish.client, publish.exchange, publish.routing_key, path, publish.priority if ranked else None)
        before = latest.get(line)
        if before is not None and before.sent_us > publish.sent_us:
            rule = "D7" if path else "order"
            yield Finding(
                rule, f"{queue}: message {publish.message} comes to {handed.client} behind {before.message}, sent later"
            )
        if before is None or before.sent_us < publish.sent_us:
            latest[line] = publish


def _keeps_order(view: View, handed: Handed, publish: OutsiderPublish) -> bool:
    """Whether a message had to stay in its place on its way."""
    if publish.outcome != CONFIRMED:
        return False
    for death in handed.deaths:
        if view.has_moved(death.queue) and view.queues[handed.queue].refuses:
            # What its old shard has for a full queue may wait there for longer than its new one does.
            return False
        plan = view.queues.get(death.queue)
        if plan is None or death.reason != EXPIRED or not view.is_untouched(death.queue):
            return False
        if plan.max_priority is not None or plan.allow_schedule or plan.max_length is not None:
            return False
    return True


def _by_due_time(view: View, queue: str, came: list[Handed]) -> Iterator[Finding]:
    """RULES S2: of what waited, what was surely due before comes before. What need not wait is ready at once, a tick
    before others that are due as well (S3)."""
    plan = view.queues[queue]
    latest: OutsiderPublish | None = None
    for handed in came:
        publish = view.publishes[handed.message]
        if handed.deaths or publish.outcome != CONFIRMED or not view.delay_ms(publish, plan, True):
            continue
        due_until_us = (publish.answered_us or 0) + view.delay_ms(publish, plan, True) * 1_000
        if latest is not None:
            due_from_us = latest.sent_us + view.delay_ms(latest, plan, True) * 1_000
            if due_until_us + view.clock_us < due_from_us - view.clock_us:
                what = f"message {publish.message} comes to {handed.client} behind {latest.message}, due later"
                yield Finding("S2", f"{queue}: {what}")
        if latest is None or _due_us(view, queue, publish) > _due_us(view, queue, latest):
            latest = publish


def _due_us(view: View, queue: str, publish: OutsiderPublish) -> int:
    return publish.sent_us + view.delay_ms(publish, view.queues[queue], True) * 1_000


def _dropped_first(view: View) -> Iterator[Finding]:
    """Of a queue that drops the oldest: at the drain it has no more than it may, and nothing older than it dropped."""
    for queue in view.queues.values():
        if queue.max_length is None or queue.refuses or not view.is_untouched(queue.name):
            continue
        left = [each for (_, name), all_handed in view.handed.items() if name == queue.name for each in all_handed]
        if len(left) > queue.max_length:
            yield Finding("D9", f"{queue.name}: {len(left)} messages at the drain, {queue.max_length} at most expected")
        kept = [view.publishes[each.message] for each in left if each.message in view.publishes and not each.deaths]
        oldest_us = min((each.answered_us or 0 for each in kept if each.outcome == CONFIRMED), default=None)
        if oldest_us is None:
            continue
        for (message, _), all_handed in view.handed.items():
            dead = [each for each in all_handed if each.deaths and each.deaths[0].queue == queue.name]
            dropped = dead and dead[0].deaths[0].reason == "maxlen" and len(dead[0].deaths) == 1
            if dropped and message in view.publishes and view.publishes[message].sent_us > oldest_us:
                yield Finding("D2", f"{queue.name}: dropped message {message}, and kept an older one")
