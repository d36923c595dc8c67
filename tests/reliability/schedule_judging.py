"""What a run of schedules and retries has to answer for (RULES S1 to S5, Q1), and its figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from simulation.node.checker import Tolerance, Violation, check_cancels
from simulation.node.history import ACK, CONFIRMED, REFUSED, REQUEUE, RETURNED, Delivery, History, Publish
from tests.reliability.faults import Fault
from tests.reliability.figures import Lags, broken_line, faults_line, lag_table, lags_of

# Clients go by the monotonic clock, shards by the wall clock of the same machine, which may be slewed.
CLOCKS_DIFFER_BY_US: Final = 20_000
GIVEN_BACK: Final = "given back"
"""By `basic.nack`, which is no failed delivery; `REQUEUE` is `basic.reject`."""
RULES_NAMED: Final = ("lost", "early", "twice", "S4 cancelled", "S4 waiting", "retry early", "attempts", "x-delay")


@dataclass(frozen=True, slots=True)
class Retry:
    """How long messages of a queue wait that come back (RULES S5), in ms."""

    min_ms: int
    max_ms: int
    multiplier: int = 0
    """0: the minimum more each time."""
    jitter: int = 0
    only_failed: bool = False
    """Whether what was given back with `basic.nack` does not wait."""

    @property
    def counts_all(self) -> bool:
        """Whether every attempt makes it longer, and not the failed ones alone."""
        return bool(self.multiplier)

    def arguments(self) -> dict[str, object]:
        """Of queue.declare."""
        found: dict[str, object] = {"x-delayed-retry-min": self.min_ms, "x-delayed-retry-max": self.max_ms}
        if self.multiplier:
            found["x-delayed-retry-multiplier"] = self.multiplier
        else:
            found["x-delayed-retry-type"] = "failed" if self.only_failed else "all"
        if self.jitter:
            found["x-delayed-retry-jitter"] = self.jitter
        return found

    def least_ms(self, acquired: int, failed: int, is_failed: bool) -> int:
        """How long a message waits at least that has come back so often; `is_failed`: this time because of a failed
        delivery."""
        if self.only_failed and not is_failed:
            return 0
        number = max(1, acquired if self.counts_all else failed)
        grown_ms = self.min_ms * self.multiplier ** (number - 1) if self.multiplier else self.min_ms * number
        return min(grown_ms, self.max_ms)

    def least_in_all_ms(self, acquired: int, failed: int) -> int:
        """The same of all its waits together, however often which came after which."""
        if self.counts_all:
            return sum(self.least_ms(number, 0, True) for number in range(1, acquired + 1))
        others_ms = (acquired - failed) * self.least_ms(0, 0, False)
        return others_ms + sum(self.least_ms(number, number, True) for number in range(1, failed + 1))


@dataclass(frozen=True, slots=True)
class Place:
    """A queue whose messages wait for their time: there, or for a delayed exchange; and for their retries, maybe."""

    queue: str
    exchange: str = ""
    retry: Retry | None = None


@dataclass(slots=True)
class Attempt(Delivery):
    """A delivery, and what it says of those before it."""

    acquired: int = 0
    """`x-acquired-count`: how often the message came back before."""
    failed: int = 0
    """`x-delivery-count`: how often because its delivery failed."""
    applied_us: int = -1
    """Since when it is known that what the client answered was applied; -1: not known."""


def counts_of(properties: Any) -> tuple[int, int]:
    """What a delivery says of how often the message came back before, and how often because a delivery failed."""
    headers = properties.headers or {}
    return int(headers.get("x-acquired-count", 0)), int(headers.get("x-delivery-count", 0))


def fault_of_delay(properties: Any, publish: Publish, place: Place) -> str:
    """What is wrong with what a message says of its wait; empty if nothing is. Behind a delayed exchange `x-delay` is
    negated (S1)."""
    if not place.exchange or not publish.delay_ms:
        return ""
    said = (properties.headers or {}).get("x-delay")
    return "" if said == -publish.delay_ms else f"x-delay is {said} where it waited {publish.delay_ms} ms"


# ------------------------------------------------------------------------------------------------ all of them


@dataclass(frozen=True, slots=True)
class ClockFaults:
    """How wrong the clocks of nodes were made. Waits are over by them, as nobody has better ones."""

    fast: float = 0.0
    """The share of a wait by which it may be shorter, as a clock went faster."""
    differ_us: int = 0
    """By how much two nodes' clocks differed at the most: one may lead after the other."""

    def tolerance(self) -> Tolerance:
        """For what the checker of simulated runs judges as well."""
        early_ms = -(-(self.differ_us + CLOCKS_DIFFER_BY_US) // 1_000)
        return Tolerance(drift_ppm=round(1_000_000 * self.fast), early_ms=early_ms)


NO_CLOCK_FAULTS: Final = ClockFaults()


def judge_schedules(
    history: History, places: Sequence[Place], clocks: ClockFaults = NO_CLOCK_FAULTS
) -> list[Violation]:
    """Every broken promise. What is confirmed and not cancelled was acknowledged, and so is not lost; nothing comes
    before it is due, or after its cancel was answered; no attempt comes twice, none after an acknowledgement that is
    known to have been applied, and each says how often the message came back; a retry waits as long as it has to.

    A message whose confirm or cancel was lost may come or not, but not twice either. Clients do not publish again what
    was not confirmed, so each id stands for one publish.
    """
    by_queue = {place.queue: place for place in places}
    attempts: dict[int, list[Attempt]] = defaultdict(list)
    found: list[Violation] = []
    for delivery in history.deliveries:
        publish = history.publishes.get(delivery.message_id)
        if publish is None or not delivery.intact or publish.queues[0] != delivery.queue:
            found.append(Violation("invented", f"{delivery}, of {publish}"))
        elif isinstance(delivery, Attempt):
            attempts[delivery.message_id].append(delivery)
    found += _lost(history, attempts)
    for message_id, came in attempts.items():
        # In the order of the log: a node that was cut off or frozen gives its client late what it had for it.
        came.sort(key=lambda attempt: attempt.acquired)
        publish = history.publishes[message_id]
        retry = by_queue[publish.queues[0]].retry
        found += _twice(publish, came)
        found += _early(publish, came, retry, clocks)
        found += _attempts(publish, came)
        if retry is not None:
            found += _retries(publish, came, retry, clocks)
    return found + check_cancels(history, clocks.tolerance())


def _lost(history: History, attempts: dict[int, list[Attempt]]) -> Iterator[Violation]:
    """What a client was told is cancelled, or may be, need not come; nor what was refused."""
    cancelled = {cancel.message_id for cancel in history.cancels if cancel.outcome != RETURNED}
    for publish in history.publishes.values():
        if publish.outcome == RETURNED:
            yield Violation("returned", f"{publish} came back as unroutable")
        if publish.outcome != CONFIRMED or publish.message_id in cancelled:
            continue
        came = attempts.get(publish.message_id, [])
        if not any(attempt.settled == ACK for attempt in came):
            yield Violation("lost", f"{publish} was never acknowledged, it came {len(came)} times")


def _twice(publish: Publish, came: Sequence[Attempt]) -> Iterator[Violation]:
    """Each attempt once, and none when it is over."""
    over = next((attempt for attempt in came if attempt.settled == ACK and attempt.applied_us >= 0), None)
    for before, attempt in zip([None, *came], came, strict=False):
        if before is not None and before.acquired == attempt.acquired:
            yield Violation("twice", f"message {publish.message_id} came to {before} and as well to {attempt}")
        elif attempt.redelivered != (attempt.acquired > 0):
            yield Violation("twice", f"message {publish.message_id} came as number {attempt.acquired}: {attempt}")
        if over is not None and attempt.acquired > over.acquired:
            yield Violation("twice", f"message {publish.message_id} is off its queue with {over}, then came {attempt}")


def _early(
    publish: Publish, came: Sequence[Attempt], retry: Retry | None, clocks: ClockFaults
) -> Iterator[Violation]:
    """Not before it was due, nor before all its waits since then are over."""
    for attempt in came:
        waits_ms = publish.delay_ms + (retry.least_in_all_ms(attempt.acquired, attempt.failed) if retry else 0)
        least_us = 1_000 * waits_ms * (1 - clocks.fast) - clocks.differ_us - CLOCKS_DIFFER_BY_US
        if attempt.at_us < publish.invoked_us + least_us:
            yield Violation("early", f"{attempt} of {publish}, which had to wait {waits_ms} ms until then")


def _attempts(publish: Publish, came: Sequence[Attempt]) -> Iterator[Violation]:
    """No attempt may be counted that was none, or forgotten: each return is one more, and one more failed delivery or
    not. Which of both is known where the client's answer is known to have been applied."""
    name = f"message {publish.message_id}"
    acquired = failed = 0
    last: Attempt | None = None
    for attempt in came:
        if not failed <= attempt.failed <= failed + attempt.acquired - acquired:
            yield Violation("attempts", f"{name}: after {acquired} returns, {failed} failed, came {attempt}")
        if last is not None and last.applied_us >= 0 and last.settled in (REQUEUE, GIVEN_BACK):
            expected = failed + (last.settled == REQUEUE)
            if attempt.acquired == acquired + 1 and attempt.failed != expected:
                yield Violation("attempts", f"{name}: after {last} came {attempt}, {expected} have failed")
        acquired, failed, last = attempt.acquired, attempt.failed, attempt


def _retries(
    publish: Publish, came: Sequence[Attempt], retry: Retry, clocks: ClockFaults
) -> Iterator[Violation]:
    """From an answer that is known to have been applied until the next attempt."""
    for attempt, after in pairwise(came):
        if attempt.applied_us < 0 or attempt.settled_us is None or attempt.settled not in (REQUEUE, GIVEN_BACK):
            continue
        if after.acquired == attempt.acquired:
            continue
        is_failed = attempt.settled == REQUEUE
        least_ms = retry.least_ms(attempt.acquired + 1, attempt.failed + is_failed, is_failed)
        waited_ms = (after.at_us - attempt.settled_us + clocks.differ_us + CLOCKS_DIFFER_BY_US) / 1_000
        if waited_ms < least_ms * (1 - clocks.fast):
            yield Violation(
                "retry early", f"message {publish.message_id} had to wait {least_ms} ms from {attempt} to {after}"
            )


# ------------------------------------------------------------------------------------------------ figures


def lags(history: History, faults: Sequence[Fault]) -> Lags:
    """Of all first deliveries of messages that had to wait."""
    moments: list[tuple[int, int]] = []
    for delivery in history.deliveries:
        publish = history.publishes.get(delivery.message_id)
        if publish is not None and publish.delay_ms and not delivery.redelivered:
            moments.append((publish.invoked_us + 1_000 * publish.delay_ms, delivery.at_us))
    return lags_of(moments, faults)


def schedule_table(
    history: History, places: Sequence[Place], faults: Sequence[Fault], violations: Sequence[Violation]
) -> list[str]:
    """Markdown: what waited where, what became of cancels and retries, and how late messages were."""
    published = Counter(publish.queues[0] for publish in history.publishes.values())
    confirmed = Counter(each.queues[0] for each in history.publishes.values() if each.outcome == CONFIRMED)
    lines = [
        "| queues | published | confirmed | cancelled | asked too late | not decided, or no answer | attempts "
        "| of them retries | most for one message |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, chosen in (
        ("in their queue", [place for place in places if not place.exchange and place.retry is None]),
        ("for a delayed exchange", [place for place in places if place.exchange]),
        ("in their queue, then for each retry", [place for place in places if place.retry is not None]),
    ):
        queues = {place.queue for place in chosen}
        outcomes = Counter(cancel.outcome for cancel in history.cancels if cancel.queue in queues)
        others = outcomes.total() - outcomes[CONFIRMED] - outcomes[RETURNED]
        came = [each for each in history.deliveries if isinstance(each, Attempt) and each.queue in queues]
        lines.append(
            f"| {len(queues)}: {name} | {sum(published[queue] for queue in queues)} "
            f"| {sum(confirmed[queue] for queue in queues)} | {outcomes[CONFIRMED]} | {outcomes[RETURNED]} | {others} "
            f"| {len(came)} | {sum(each.acquired > 0 for each in came)} "
            f"| {1 + max((each.acquired for each in came), default=0)} |"
        )
    refused = sum(publish.outcome == REFUSED for publish in history.publishes.values())
    known = sum(isinstance(each, Attempt) and each.applied_us >= 0 for each in history.deliveries)
    lines += ["", f"Refused (nack): {refused}. Answers of consumers known to have been applied: {known}.", ""]
    lines += [broken_line(RULES_NAMED, (violation.rule for violation in violations)), "", faults_line(faults), ""]
    return lines + lag_table("the due time", lags(history, faults))
