"""What came to clients: is it what was sent, once at a time, never early and never late."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.outsider.judging.history import ACK, CONFIRMED, FAIL, GET, REFUSED, REQUEUE, Handed, OutsiderPublish
from simulation.outsider.judging.view import Finding, View


def judge_deliveries(view: View) -> Iterator[Finding]:
    """Message by message."""
    for handed in view.history.handed:
        publish = view.publishes.get(handed.message)
        if publish is None:
            yield Finding("once", f"{_text(handed)}: nobody sent this")
            continue
        yield from _is_as_sent(view, handed, publish)
        yield from _in_time(view, handed, publish)
    for (_, queue), all_handed in view.handed.items():
        yield from _once(view, queue, all_handed)
        yield from _retries(view, queue, all_handed)
    yield from _missed(view)


def _is_as_sent(view: View, handed: Handed, publish: OutsiderPublish) -> Iterator[Finding]:
    """RULES T11, T2: unchanged, where it was sent, and nothing of what was refused."""
    if not handed.deaths:
        if handed.expiration != publish.expiration:
            yield Finding("T11", f"{_text(handed)}: expiration {handed.expiration!r}, sent {publish.expiration!r}")
        if handed.queue not in view.routed(publish):
            yield Finding("once", f"{_text(handed)}: was sent to {view.routed(publish)}, and has not died")
    if publish.outcome == REFUSED and len(view.routed(publish)) == 1:
        yield Finding("confirms", f"{_text(handed)}: its publish was refused")
    if publish.code == 406:
        yield Finding("T2", f"{_text(handed)}: its publish was refused with 406")


def _in_time(view: View, handed: Handed, publish: OutsiderPublish) -> Iterator[Finding]:
    """RULES T5, T8: not decided after the deadline. S3: not before it is due."""
    queue = view.queues.get(handed.queue)
    if queue is None or handed.deaths:
        return
    delay_ms = view.delay_ms(publish, queue, True)
    due_us = publish.sent_us + delay_ms * 1_000 - view.clock_us
    if delay_ms and handed.at_us < due_us:
        yield Finding("S3", f"{_text(handed)}: not due before {due_us}")
    ttl_ms = view.ttl_ms(publish, queue, True)
    if ttl_ms is None or publish.answered_us is None or publish.outcome != CONFIRMED:
        return
    if ttl_ms == 0 and not handed.tag and not delay_ms:
        yield Finding("T8", f"{_text(handed)}: its time to live was 0, and a get has it")
    late_us = publish.answered_us + (delay_ms + ttl_ms) * 1_000 + view.clock_us + view.behind_us
    if handed.since_us > late_us:
        what = f"its deadline had passed by {late_us}, it was given after {handed.since_us}"
        yield Finding("T5", f"{_text(handed)}: {what}")


def _once(view: View, queue: str, all_handed: list[Handed]) -> Iterator[Finding]:
    """One first delivery, nobody else's while somebody holds it, and none after it was taken."""
    firsts = [each for each in all_handed if not each.redelivered]
    if len(firsts) > 1:
        yield Finding("once", f"{_text(firsts[1])}: is a first delivery, as was that at {firsts[0].at_us}")
    for place, one in enumerate(all_handed):
        settle = view.settles.get(one.number)
        end = view.ends.get(one.connection)
        ends_us = view.history.phases.end_us if end is None else end.at_us
        held_until_us = min(ends_us, ends_us if settle is None else settle.sent_us)
        for other in all_handed[place + 1 :]:
            if other.at_us < held_until_us and view.is_quiet(one.at_us, other.at_us):
                yield Finding("once", f"{_text(other)}: {one.client} held it from {one.at_us} to {held_until_us}")
            taken = settle is not None and settle.how == ACK and view.is_surely_settled(one)
            if taken and settle is not None and other.since_us > settle.sent_us + 1_000_000:
                yield Finding("once", f"{_text(other)}: {one.client} had taken it at {settle.sent_us}")
    limit = view.queues[queue].delivery_limit if queue in view.queues else None
    if limit is not None:
        failed = [each for each in all_handed if _failed(view, each)]
        if len(failed) > limit + 1:
            yield Finding("D2", f"{_text(failed[-1])}: failed {len(failed)} times, {limit} allowed")


def _failed(view: View, handed: Handed) -> bool:
    settle = view.settles.get(handed.number)
    return settle is not None and settle.how == FAIL and view.is_surely_settled(handed)


def _retries(view: View, queue: str, all_handed: list[Handed]) -> Iterator[Finding]:
    """RULES S5, as RabbitMQ 4.3 has it: what was given back waits at least its time, by that time more for each
    failure, up to the most."""
    plan = view.queues.get(queue)
    if plan is None or plan.retry_min_ms is None:
        return
    times = 0
    for one in all_handed:
        settle = view.settles.get(one.number)
        if settle is None or settle.how not in (REQUEUE, FAIL) or not view.is_surely_settled(one):
            continue
        times += settle.how == FAIL
        again = [each for each in all_handed if each.at_us > settle.sent_us]
        wait_ms = max(1, times) * plan.retry_min_ms
        wait_ms = wait_ms if plan.retry_max_ms is None else min(wait_ms, plan.retry_max_ms)
        early_us = settle.sent_us + wait_ms * 1_000 - view.clock_us
        if again and again[0].at_us < early_us:
            yield Finding("S5", f"{_text(again[0])}: given back at {settle.sent_us}, not due before {early_us}")


def _missed(view: View) -> Iterator[Finding]:
    """RULES T5: a get that finds nothing though a message that nobody has had is there, and its deadline is to come."""
    firsts: dict[str, list[OutsiderPublish]] = {}
    for publish in view.confirmed():
        if not publish.exchange and publish.answered_us is not None:
            firsts.setdefault(publish.routing_key, []).append(publish)
    for name, plan in view.queues.items():
        if view.may_lose(plan) or view.has_moved(name) or plan.max_length is not None or plan.allow_schedule:
            continue
        seen = {message: each[0].at_us for (message, queue), each in view.handed.items() if queue == name}
        for get in view.found_empty(name):
            for publish in firsts.get(name, ()):
                ttl_ms = view.ttl_ms(publish, plan, True)
                answered_us, asked_us = publish.answered_us or 0, get.answered_us or 0
                if answered_us >= get.sent_us or _may_be_held(view, name, get.sent_us, asked_us):
                    continue
                lives = ttl_ms is None or publish.sent_us + ttl_ms * 1_000 - view.clock_us > asked_us
                if lives and seen.get(publish.message, asked_us + 1) > asked_us:
                    what = f"a get of {get.sent_us}..{asked_us} finds nothing"
                    yield Finding("T5", f"{name}: {what}, message {publish.message} is there")


def _may_be_held(view: View, queue: str, from_us: int, to_us: int) -> bool:
    """Whether somebody may have been given messages of which nobody knows: consumers, and gets without an answer."""
    for call in view.calls.get(queue, ()):
        if call.kind == "consume" and call.sent_us <= to_us:
            return True
        unknown = call.kind == GET and (call.answered_us is None or call.answered_us > from_us)
        if unknown and call.sent_us <= to_us and not (call.sent_us == from_us and call.answered_us == to_us):
            return True
    return False


def _text(handed: Handed) -> str:
    return f"message {handed.message} in {handed.queue} at {handed.at_us} us ({handed.client})"
