"""The figures of a run: how long clients waited, and how much went through."""

from __future__ import annotations

import bisect
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from simulation.node.history import ACK, CONFIRMED, REFUSED, History
from tests.reliability.faults import KILL, KINDS, Fault


@dataclass(slots=True)
class Waits:
    """What the faults of one kind meant to clients, in milliseconds."""

    faults: int = 0
    of_leaders: int = 0
    """Faults whose victims led queues in use."""
    survivors_ms: list[float] = field(default_factory=list)
    """One for each such fault and publisher of such a queue at a node that is no victim: its longest pause."""
    own_ms: list[float] = field(default_factory=list)
    """One for each fault and publisher at a victim: its longest pause, moving to another node included."""
    whole_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PublisherNotes:
    """What one publisher saw."""

    home: int
    queue: str
    confirms: Sequence[tuple[int, int]]
    """When, and from which node, in the order of time."""
    moves: Sequence[tuple[int, int]]
    """When it connected, and to which node; 0 when it left of its own will."""

    def node_at(self, at_us: int) -> int:
        """The node it was connected to, or had been last; 0: it was on its way."""
        place = bisect.bisect_right(self.moves, at_us, key=lambda move: move[0])
        return self.moves[place - 1][1] if place else 0


def longest_pause_ms(confirms: Sequence[tuple[int, int]], from_us: int, to_us: int, ended_us: int) -> float:
    """The longest time without a confirm that begins in the span, or before it and ends after its begin.

    What lies before the span is not counted. With no confirm after the span's last one, it lasts until `ended_us`.
    """
    first = bisect.bisect_right(confirms, from_us, key=lambda confirm: confirm[0])
    last = bisect.bisect_left(confirms, to_us, key=lambda confirm: confirm[0])
    moments = [from_us, *(at_us for at_us, _ in confirms[first : last + 1])]
    if last >= len(confirms):
        moments.append(ended_us)
    return max(later - earlier for earlier, later in pairwise(moments)) / 1_000


def waits_by_kind(
    faults: Sequence[Fault], publishers: Sequence[PublisherNotes], stopped_us: int
) -> dict[str, Waits]:
    """Pauses after each fault until its victims come back, by kind of fault. `stopped_us`: the end of publishing.

    Of the survivors' clients those count that were where they belong: the others were about to move by themselves.
    """
    found: dict[str, Waits] = {}
    for fault in faults:
        waits = found.setdefault(fault.kind, Waits())
        waits.faults += 1
        waits.of_leaders += bool(fault.led)
        if fault.whole_us:
            waits.whole_ms.append((fault.whole_us - fault.healed_us) / 1_000)
        # A run that has failed may have ended in the midst of a fault.
        for notes in publishers if fault.healed_us else ():
            node = notes.node_at(fault.at_us)
            survives = node not in fault.victims and node == notes.home and notes.queue in fault.led
            if survives or node in fault.victims:
                pause_ms = longest_pause_ms(notes.confirms, fault.at_us, fault.healed_us, stopped_us)
                (waits.survivors_ms if survives else waits.own_ms).append(pause_ms)
    return found


def notes_of(
    homes: Mapping[str, tuple[int, str]],
    confirms: Mapping[str, Sequence[tuple[int, int]]],
    moves: Mapping[str, Sequence[tuple[int, int]]],
) -> list[PublisherNotes]:
    """What the publishers saw, by the notes of `Clients`."""
    return [PublisherNotes(home, queue, confirms[name], moves[name]) for name, (home, queue) in homes.items()]


def counts(history: History) -> dict[str, int]:
    """How much went through."""
    publishes = history.publishes.values()
    acknowledged = {delivery.message_id for delivery in history.deliveries if delivery.settled == ACK}
    return {
        "published": len(publishes),
        "confirmed": sum(publish.outcome == CONFIRMED for publish in publishes),
        "refused (nack)": sum(publish.outcome == REFUSED for publish in publishes),
        "consumed and acknowledged": len(acknowledged),
        "delivered again, marked as redelivered": sum(delivery.redelivered for delivery in history.deliveries),
        "taken in the final drain": sum(delivery.draining for delivery in history.deliveries),
    }


def served_from_afar(
    replicas_of: Mapping[str, Sequence[int]],
    publishers: Sequence[PublisherNotes],
    history: History,
    places: Mapping[str, int],
) -> tuple[int, int]:
    """How many confirms, and how many deliveries, clients had from nodes without a replica of the queue's shard.
    `places`: holder -> node."""
    confirms = sum(node not in replicas_of[each.queue] for each in publishers for _, node in each.confirms)
    deliveries = sum(places[each.holder] not in replicas_of[each.queue] for each in history.deliveries)
    return confirms, deliveries


def nodes_killed(faults: Sequence[Fault]) -> int:
    """How many processes got SIGKILL."""
    return sum(len(fault.victims) for fault in faults if KINDS[fault.kind][0] == KILL)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table(found: Mapping[str, Waits]) -> list[str]:
    """Markdown."""
    lines = [
        "| fault | times (of a leader) | clients of other nodes: median / p90 / max ms (n) "
        "| clients of the node itself: median / p90 / max ms (n) | whole again: median / max ms |",
        "|---|---|---|---|---|",
    ]
    for kind, waits in found.items():
        whole = f"{statistics.median(waits.whole_ms):.0f} / {max(waits.whole_ms):.0f}" if waits.whole_ms else "-"
        lines.append(
            f"| {kind} | {waits.faults} ({waits.of_leaders}) | {_spread(waits.survivors_ms)} "
            f"| {_spread(waits.own_ms)} | {whole} |"
        )
    return lines


@dataclass(slots=True)
class Lags:
    """From when messages were due to their arrival at the consumer, in ms."""

    quiet_ms: list[float] = field(default_factory=list)
    """Of messages that were due while no node was at fault."""
    faulty_ms: list[float] = field(default_factory=list)
    """Of the others."""


def lags_of(moments: Iterable[tuple[int, int]], faults: Sequence[Fault]) -> Lags:
    """Of messages that were due and came at these moments."""
    found = Lags()
    for due_us, came_us in moments:
        at_fault = any(fault.at_us <= due_us and (due_us <= fault.whole_us or not fault.whole_us) for fault in faults)
        (found.faulty_ms if at_fault else found.quiet_ms).append((came_us - due_us) / 1_000)
    return found


def lag_table(since: str, found: Lags) -> list[str]:
    """Markdown. `since`: what lags are counted from."""
    lines = [
        f"| from {since} to the consumer, ms | median | p90 | p99 | max | messages |",
        "|---|---|---|---|---|---|",
    ]
    for name, values in (
        ("due while all was well", found.quiet_ms),
        ("due in a fault, or before all was whole after it", found.faulty_ms),
    ):
        if values:
            spread = " | ".join(f"{percentile(values, share):.0f}" for share in (0.9, 0.99))
            lines.append(
                f"| {name} | {statistics.median(values):.0f} | {spread} | {max(values):.0f} | {len(values)} |"
            )
    return lines


def faults_line(faults: Sequence[Fault]) -> str:
    """How many there were of each kind."""
    kinds = Counter(fault.kind for fault in faults)
    return "Faults: " + ", ".join(f"{kind} {times}" for kind, times in kinds.most_common()) + "."


def broken_line(rules: Sequence[str], broken: Iterable[str]) -> str:
    """How often each of the rules was broken, and any other. `broken`: the rule of each promise that was."""
    times = Counter(broken)
    others = sum(times.values()) - sum(times[rule] for rule in rules)
    return ", ".join(f"{rule}: {times[rule]}" for rule in rules) + f", other faults: {others}."


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return (
        f"{statistics.median(values):.0f} / {percentile(values, 0.9):.0f} / {max(values):.0f} ({len(values)})"
    )
