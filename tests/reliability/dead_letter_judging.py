"""What a run of dead letters has to answer for (RULES D3, D4, D6, D7, T5), and its figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from simulation.node.checker import Violation
from simulation.node.history import CONFIRMED, RETURNED, Delivery, History, Publish
from tests.reliability.faults import Fault
from tests.reliability.figures import Lags, broken_line, faults_line, lag_table, lags_of

# Clients go by the monotonic clock, shards by the wall clock of the same machine, which may be slewed.
CLOCKS_DIFFER_BY_US: Final = 20_000


@dataclass(frozen=True, slots=True)
class Target:
    """A queue for dead letters. `consumed`: all the time; else only at the end."""

    queue: str
    consumed: bool


@dataclass(frozen=True, slots=True)
class Source:
    """A queue in which messages die: of its TTL, or, without one, each of its own expiration."""

    queue: str
    ttl_ms: int | None
    targets: tuple[Target, ...]

    def ttl_of(self, publish: Publish) -> int:
        """The time to live of a message, in ms."""
        ttl_ms = publish.ttl_ms if self.ttl_ms is None else self.ttl_ms
        assert ttl_ms is not None
        return ttl_ms


# ------------------------------------------------------------------------------------------------ one dead letter


def fault_of_death(properties: Any, redelivered: bool, publish: Publish, source: Source) -> str:
    """What is wrong with what a dead letter says of its death; empty if nothing is."""
    headers = dict(properties.headers or {})
    if redelivered:
        headers.pop("x-acquired-count", None)
        headers.pop("x-delivery-count", None)
    death: dict[str, object] = {
        "count": 1, "reason": "expired", "queue": source.queue, "exchange": "", "routing-keys": [source.queue],
    }  # fmt: skip
    if publish.ttl_ms is not None:
        death["original-expiration"] = str(publish.ttl_ms)
    rows = [dict(row) for row in headers.pop("x-death", [])]
    times = [row.pop("time", None) for row in rows]
    expected = {
        f"x-{which}-death-{key}": death[key] for which in ("first", "last") for key in ("reason", "queue", "exchange")
    }
    if rows != [death] or None in times:
        return f"x-death {rows}, died {times}"
    if headers != expected:
        return f"headers {headers}"
    if properties.expiration is not None:
        return f"expiration {properties.expiration!r} is still there"
    return ""


# ------------------------------------------------------------------------------------------------ all of them


def judge_dead_letters(history: History, sources: Sequence[Source]) -> list[Violation]:
    """Every broken promise: each confirmed message once in each of its targets, in order, intact, and not early.

    A message whose confirm was lost may be there or not, but not twice either. Clients do not publish again what was
    not confirmed, so each id stands for one publish.
    """
    arrivals: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        arrivals[delivery.queue].append(delivery)
    by_queue = {source.queue: source for source in sources}
    found = [
        Violation("returned", f"message {publish.message_id} to {publish.queues[0]} came back as unroutable")
        for publish in history.publishes.values()
        if publish.outcome == RETURNED
    ]
    for target in {target.queue: target for source in sources for target in source.targets}.values():
        came = arrivals[target.queue]
        found += _invented(history, by_queue, target, came)
        found += _twice(target, came)
        found += _order(history, target, came)
        found += _early(history, by_queue, came)
        ids = {delivery.message_id for delivery in came}
        found += [
            Violation("missing", f"message {publish.message_id} of {publish.queues[0]} is not in {target.queue}")
            for publish in history.publishes.values()
            if publish.outcome == CONFIRMED
            and publish.message_id not in ids
            and target in by_queue[publish.queues[0]].targets
        ]
    return found


def _invented(
    history: History, sources: Mapping[str, Source], target: Target, came: Sequence[Delivery]
) -> Iterator[Violation]:
    for delivery in came:
        publish = history.publishes.get(delivery.message_id)
        if publish is None or not delivery.intact or target not in sources[publish.queues[0]].targets:
            yield Violation("invented", f"{delivery} in {target.queue}, of {publish}")


def _twice(target: Target, came: Sequence[Delivery]) -> Iterator[Violation]:
    """A second delivery is one of the same message only if it is marked, and somebody held it whose node failed.

    On a calm cluster nothing is delivered again at all.
    """
    seen: set[int] = set()
    for delivery in came:
        if delivery.message_id in seen and not (target.consumed and delivery.redelivered):
            yield Violation("twice", f"message {delivery.message_id} came to {target.queue} again: {delivery}")
        seen.add(delivery.message_id)


def _order(history: History, target: Target, came: Sequence[Delivery]) -> Iterator[Violation]:
    """First deliveries to one consumer: of one source in the order in which the messages went into it.

    Messages die at the head of their queue, so in this order whatever their times to live are. Of one channel that is
    the order of publishing; and what was confirmed before another was published is before it.
    """
    last_of_stream: dict[tuple[str, int], int] = {}
    newest: dict[tuple[str, str], Publish] = {}
    for delivery in came:
        publish = history.publishes.get(delivery.message_id)
        if publish is None or delivery.redelivered:
            continue
        by_stream, by_source = (delivery.holder, publish.stream), (delivery.holder, publish.queues[0])
        if publish.sequence < last_of_stream.get(by_stream, 0):
            yield Violation(
                "order", f"{target.queue}: {publish} came after number {last_of_stream[by_stream]} of its channel"
            )
        last_of_stream[by_stream] = publish.sequence
        before = newest.get(by_source)
        if before is None or publish.invoked_us > before.invoked_us:
            newest[by_source] = publish
        elif publish.outcome == CONFIRMED and (publish.completed_us or 0) < before.invoked_us:
            yield Violation("order", f"{target.queue}: {publish} came after {before}")


def _early(history: History, sources: Mapping[str, Source], came: Sequence[Delivery]) -> Iterator[Violation]:
    for delivery in came:
        publish = history.publishes.get(delivery.message_id)
        if publish is None:
            continue
        due_us = publish.invoked_us + 1_000 * sources[publish.queues[0]].ttl_of(publish)
        if delivery.at_us < due_us - CLOCKS_DIFFER_BY_US:
            yield Violation("early", f"{delivery} was due at {due_us / 1e6:.6f}s at the earliest")


# ------------------------------------------------------------------------------------------------ figures


def lags(history: History, sources: Sequence[Source], faults: Sequence[Fault]) -> Lags:
    """Of all first deliveries to consumers that were there all the time.

    Sources with expirations of messages count for nothing here: there a message may have to wait for the one before.
    """
    timed = {source.queue: source for source in sources if source.ttl_ms is not None}
    moments: list[tuple[int, int]] = []
    for delivery in history.deliveries:
        publish = history.publishes.get(delivery.message_id)
        if publish is None or delivery.redelivered or publish.queues[0] not in timed:
            continue
        due_us = publish.invoked_us + 1_000 * timed[publish.queues[0]].ttl_of(publish)
        moments.append((due_us, delivery.at_us))
    return lags_of(moments, faults)


def dead_letter_table(
    history: History, sources: Sequence[Source], faults: Sequence[Fault], violations: Sequence[Violation]
) -> list[str]:
    """Markdown: what went where, and how late."""
    published = Counter(publish.queues[0] for publish in history.publishes.values())
    confirmed = Counter(p.queues[0] for p in history.publishes.values() if p.outcome == CONFIRMED)
    first = {(delivery.queue, delivery.message_id) for delivery in history.deliveries}
    came = Counter(
        history.publishes[message_id].queues[0] for _, message_id in first if message_id in history.publishes
    )
    lines = ["| sources | published | confirmed | targets of each | dead letters that came |", "|---|---|---|---|---|"]
    for name, chosen in (
        ("x-message-ttl; targets consumed all the time", [s for s in sources if s.ttl_ms is not None]),
        ("expirations; targets consumed at the end", [s for s in sources if s.ttl_ms is None]),
    ):
        queues = [source.queue for source in chosen]
        lines.append(
            f"| {len(queues)}: {name} | {sum(published[q] for q in queues)} | {sum(confirmed[q] for q in queues)} "
            f"| {len(chosen[0].targets)} | {sum(came[q] for q in queues)} |"
        )
    broken = [violation.rule for violation in violations]
    lines += ["", broken_line(("missing", "twice", "order", "early", "x-death"), broken), ""]
    lines += [faults_line(faults), ""]
    return lines + lag_table("publishing + TTL", lags(history, sources, faults))
