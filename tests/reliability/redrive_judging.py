"""What a run of redrives has to answer for (RULES R1, D6, D7), and its figures."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from simulation.node.checker import Violation
from tests.reliability.faults import Fault
from tests.reliability.figures import broken_line, faults_line

RATE_WITHIN: Final = 0.05
SETTLED_US: Final = 1_000_000
"""So long after all is whole the rate counts: what it makes up for is over by then."""
LEAST_STRETCH_US: Final = 500_000
_EXAMPLES: Final = 5
RULES: Final = ("lost", "twice", "order", "elsewhere", "stays", "headers", "counted", "preview", "rate")


@dataclass(frozen=True, slots=True)
class Sample:
    """So many were said to have moved at that moment of the clients' clock."""

    at_us: int
    moved: int


@dataclass(slots=True)
class Redriven:
    """What was to move, what was said of it, and what has come of it. Messages are numbers: number `n` died in the
    work queue `queues[n % len(queues)]`."""

    queues: Sequence[str]
    total: int
    """Messages that died, numbered from 0."""
    stays_each: int
    """Each so manyth of a queue, from the first on, is not picked, and stays."""
    rate: int = 0
    """Messages a second that were asked for; 0: not judged."""
    came: dict[str, array[int]] = field(default_factory=dict)
    """What was in each work queue in the end, in order."""
    left: array[int] = field(default_factory=lambda: array("Q"))
    """What was in the dead-letter queue in the end, in order."""
    unmarked: int = 0
    """Of those that came so many without their x-death, or without the mark of a redrive."""
    preview: Mapping[str, Any] = field(default_factory=dict)
    """As it was answered before the start."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    """As it was answered at the end."""
    enqueued: dict[tuple[int, str], int] = field(default_factory=dict)
    """How many messages each node has put into each work queue, those that died there included."""

    def stays(self, number: int) -> bool:
        """Whether the redrive has to leave it where it is."""
        return number // len(self.queues) % self.stays_each == 0

    def wanted(self, place: int, staying: bool = False) -> list[int]:
        """What has to come to the work queue at this place, or to stay of what died there, in order."""
        return [number for number in range(place, self.total, len(self.queues)) if self.stays(number) == staying]

    @property
    def moving(self) -> int:
        """How many have to move."""
        return sum(not self.stays(number) for number in range(self.total))


# ------------------------------------------------------------------------------------------------ judging


def judge_redrive(run: Redriven) -> list[Violation]:
    """Every broken promise, one for each rule and queue: each that is picked moved once, in the order of its queue, the
    others stayed; the preview and the progress have said so."""
    found: list[Violation] = []
    for place, queue in enumerate(run.queues):
        came = run.came.get(queue, array("Q"))
        found += _compared(f"of {queue}", run.wanted(place), came)
    for place, queue in enumerate(run.queues):
        here = [number for number in run.left if number % len(run.queues) == place]
        if here != run.wanted(place, staying=True):
            found.append(Violation("stays", f"{len(here)} of {queue} are left: {_differs(run, place, here)}"))
    if run.unmarked:
        found.append(Violation("headers", f"{run.unmarked} came without x-death or without the mark of the redrive"))
    found += _counted(run)
    found += _as_said(run)
    return found


def _compared(what: str, wanted: Sequence[int], came: Sequence[int]) -> Iterator[Violation]:
    times = Counter(came)
    expected = set(wanted)
    lost = [number for number in wanted if number not in times]
    twice = [number for number, count in times.items() if count > 1]
    elsewhere = [number for number in times if number not in expected]
    for rule, numbers in (("lost", lost), ("twice", twice), ("elsewhere", elsewhere)):
        if numbers:
            yield Violation(rule, f"{len(numbers)} {what}, such as {numbers[:_EXAMPLES]}")
    late = [(one, other) for one, other in pairwise(came) if other < one]
    if late:
        yield Violation("order", f"{len(late)} times {what} one came before the one ahead of it: {late[:_EXAMPLES]}")


def _differs(run: Redriven, place: int, here: Sequence[int]) -> str:
    wanted = run.wanted(place, staying=True)
    missing, more = sorted({*wanted} - {*here}), sorted({*here} - {*wanted})
    return f"missing {missing[:_EXAMPLES]}, too many {more[:_EXAMPLES]}, {len(wanted)} were to stay"


def _counted(run: Redriven) -> Iterator[Violation]:
    """A second copy could not hide: each node has put into each queue what died there, and what came back."""
    for place, queue in enumerate(run.queues):
        died = len(range(place, run.total, len(run.queues)))
        for (node, name), count in run.enqueued.items():
            if name == queue and count != died + len(run.came.get(queue, ())):
                came = len(run.came.get(queue, ()))
                yield Violation("counted", f"node {node} has put {count} into {queue}: {died} died, {came} came back")


def _as_said(run: Redriven) -> Iterator[Violation]:
    ahead, after = run.preview, run.progress
    moved = sum(map(len, run.came.values()))
    said = (ahead.get("moves"), ahead.get("stays"), ahead.get("complete"))
    if said != (moved, len(run.left), True):
        yield Violation("preview", f"(moves, stays, complete) = {said}, and {moved} moved, {len(run.left)} stayed")
    targets = {row["queue"]: row["messages"] for row in ahead.get("targets", ())}
    if targets != {queue: len(came) for queue, came in run.came.items() if came}:
        yield Violation("preview", f"{targets} are not where they went")
    if (after.get("state"), after.get("moved"), after.get("stayed")) != ("done", moved, len(run.left)):
        yield Violation("counted", f"the redrive says {after}, and {moved} moved, {len(run.left)} stayed")


def judge_rate(rate: int, figures: Rate) -> list[Violation]:
    """Over all calm stretches together it is what was asked for, within RATE_WITHIN."""
    if not figures.calm_us:
        return [Violation("rate", "there was no calm stretch in which to measure it")]
    if abs(figures.calm_per_second / rate - 1) > RATE_WITHIN:
        return [Violation("rate", f"{figures.calm_per_second:.1f} a second, asked for were {rate}")]
    return []


# ------------------------------------------------------------------------------------------------ figures


@dataclass(frozen=True, slots=True)
class Rate:
    """How quickly a redrive went: while all was well, and as a whole."""

    calm_moved: int
    calm_us: int
    stretches: int
    whole_moved: int
    whole_us: int

    @property
    def calm_per_second(self) -> float:
        """Over all calm stretches."""
        return self.calm_moved * 1e6 / self.calm_us if self.calm_us else 0.0

    @property
    def whole_per_second(self) -> float:
        """From its first sample to its last, faults included."""
        return self.whole_moved * 1e6 / self.whole_us if self.whole_us else 0.0


def rate_of(samples: Sequence[Sample], faults: Sequence[Fault]) -> Rate:
    """By the samples of a redrive that runs. A calm stretch begins a second after all was whole, and ends when somebody
    asks who leads what, for the next fault: to tell that of a long queue takes its node a quarter of a second. It
    counts from its first sample to its last."""
    last_us = samples[-1].at_us + 1 if samples else 0
    begins = [0, *(fault.whole_us + SETTLED_US if fault.whole_us else last_us for fault in faults)]
    ends = [*(fault.sought_us or fault.at_us for fault in faults), last_us]
    moved = lasted_us = stretches = 0
    for begin_us, end_us in zip(begins, ends, strict=True):
        inside = [sample for sample in samples if begin_us <= sample.at_us < end_us]
        if inside and inside[-1].at_us - inside[0].at_us >= LEAST_STRETCH_US:
            moved += inside[-1].moved - inside[0].moved
            lasted_us += inside[-1].at_us - inside[0].at_us
            stretches += 1
    whole = (samples[-1].moved - samples[0].moved, samples[-1].at_us - samples[0].at_us) if samples else (0, 0)
    return Rate(moved, lasted_us, stretches, *whole)


def redrive_table(
    run: Redriven, source: str, faults: Sequence[Fault], figures: Rate, violations: Sequence[Violation]
) -> list[str]:
    """Markdown: what moved, how quickly, and under which faults."""
    moved = sum(map(len, run.came.values()))
    of_source = sum(source in fault.led for fault in faults)
    of_targets = sum(any(queue in fault.led for queue in run.queues) for fault in faults)
    return [
        "| | messages |", "|---|---|",
        f"| dead, in one queue, of {len(run.queues)} queues | {run.total} |",
        f"| the preview says move, stay | {run.preview.get('moves')}, {run.preview.get('stays')} |",
        f"| moved, stayed | {moved}, {len(run.left)} |",
        f"| asked for, a second | {run.rate} |",
        f"| while all was well, a second ({figures.stretches} stretches, {figures.calm_us / 1e6:.1f} s) "
        f"| {figures.calm_per_second:.1f} ({(figures.calm_per_second / run.rate - 1) * 100:+.1f} %) |",
        f"| as a whole, faults included, a second ({figures.whole_us / 1e6:.1f} s) | {figures.whole_per_second:.1f} |",
        "",
        broken_line(RULES, [violation.rule for violation in violations]),
        "",
        f"{faults_line(faults)[:-1]}; {of_source} of them at the leader of the dead-letter queue, {of_targets} at "
        "one of a queue to which they go back.",
    ]
