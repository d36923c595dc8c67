"""What goes wrong and when: a plan drawn from the seed before the run starts.

A plan is data. It is printed with a failing seed, it can be shortened by hand, and it does not depend on
what the cluster does. Every fault that lasts has its end in the plan; the plan as a whole ends with
`Calm`, after which nothing goes wrong any more and everything must converge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from simulation.cluster.events import MILLISECOND_US, SECOND_US

CRASH = "crash"
FREEZE = "freeze"
PARTITION = "partition"
ONE_WAY = "one-way"
RESET = "reset"
CLOCK_STEP = "clock-step"
SLOW_DISK = "slow-disk"
STUCK_DISK = "stuck-disk"
FULL_DISK = "full-disk"
TRANSFER = "transfer"
SLOW_LINKS = "slow-links"

KILL = "kill"
"""As CRASH, but the machine stays up, and with it what its processes take for the time. Not drawn: for plans made by
hand."""

DRAIN = "drain"
"""Told to stop: the node drains, ends when it has, and is away for the time. Not drawn with the others: see
`draw_drains`, and plans made by hand."""

FAILING_SYNC = "failing-sync"
ROT_ENTRY = "rot-entry"
ROT_SNAPSHOT = "rot-snapshot"
ROT_STATE = "rot-state"
WIPE = "wipe"

DISK_KINDS = (FAILING_SYNC, ROT_ENTRY, ROT_SNAPSHOT, ROT_STATE, WIPE)
"""Disks that do worse than to hang. `SimulatedCluster` knows them; they are drawn by whoever asks for them, and all but
the first need somebody who decides whether the others can spare the node (`SimulatedCluster.may_lose`)."""

KINDS = (
    CRASH,
    FREEZE,
    PARTITION,
    ONE_WAY,
    RESET,
    CLOCK_STEP,
    SLOW_DISK,
    STUCK_DISK,
    FULL_DISK,
    TRANSFER,
    SLOW_LINKS,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong at `at_us` on `nodes` for `duration_us`.

    The meaning of `nodes` and `amount` is the kind's: a partition separates `nodes` from all others; a
    clock step is of `amount` microseconds; slow disks and slow links are slower by the factor `amount`; a
    transfer asks for the leadership of the group numbered `amount` modulo the number of groups to go to
    the node.
    """

    at_us: int
    kind: str
    nodes: tuple[int, ...]
    duration_us: int = 0
    amount: int = 0

    def __str__(self) -> str:
        nodes = ",".join(map(str, self.nodes))
        text = f"{self.at_us / SECOND_US:8.3f}s {self.kind} {nodes}"
        if self.duration_us:
            text += f" for {self.duration_us / SECOND_US:.3f}s"
        if self.kind == CLOCK_STEP:
            text += f" by {self.amount / SECOND_US:+.3f}s"
        elif self.amount:
            text += f" ({self.amount})"
        return text


@dataclass(frozen=True, slots=True)
class Appetite:
    """How much goes wrong: which kinds may occur, with which weights, and how often."""

    kinds: tuple[str, ...]
    mean_gap_us: int
    longest_us: int = 4 * SECOND_US
    step_limit_us: int = 6 * 3600 * SECOND_US


def draw_appetite(random: Random, available: tuple[str, ...] = KINDS) -> Appetite:
    """A random mix of the available kinds, from one that hardly bites to one that bites all the time."""
    count = random.choice((0, 1, 1, 2, 2, 3, 4, 6, len(available)))
    kinds = tuple(sorted(random.sample(available, count), key=available.index))
    return Appetite(kinds, mean_gap_us=random.choice((400, 800, 1_500, 3_000)) * MILLISECOND_US)


def draw_plan(
    random: Random, appetite: Appetite, nodes: Sequence[int], start_us: int, end_us: int
) -> tuple[Fault, ...]:
    """Faults between `start_us` and `end_us`; those that last end by `end_us`."""
    faults: list[Fault] = []
    if not appetite.kinds:
        return ()
    # Clocks of one machine only may be wrong by hours: the rules promise no more (RULES C3 needs a majority).
    wanderer = random.choice(nodes)
    at_us = start_us
    while True:
        at_us += int(random.expovariate(1.0 / appetite.mean_gap_us))
        if at_us >= end_us:
            return tuple(faults)
        kind = random.choice(appetite.kinds)
        faults.extend(_draw_fault(random, kind, appetite, nodes, wanderer, at_us, end_us))


def draw_drains(random: Random, nodes: Sequence[int], start_us: int, end_us: int) -> tuple[Fault, ...]:
    """Nodes that are told to stop now and then; none in two seeds of three."""
    times = sorted(random.randint(start_us, end_us) for _ in range(random.choice((0, 0, random.randint(1, 4)))))
    return tuple(
        Fault(at_us, DRAIN, (random.choice(nodes),), random.choice((100, 1_500, 4_000)) * MILLISECOND_US)
        for at_us in times
    )


def _draw_fault(
    random: Random,
    kind: str,
    appetite: Appetite,
    nodes: Sequence[int],
    wanderer: int,
    at_us: int,
    end_us: int,
) -> list[Fault]:
    """One fault, or the few that belong together."""
    node = random.choice(nodes)
    longest = min(appetite.longest_us, end_us - at_us)
    duration = random.choice((longest // 20, longest // 6, longest // 2, longest))
    duration = max(1, random.randint(duration // 2, duration))
    if kind == CRASH:
        roll = random.random()
        size = 1 if roll < 0.6 else len(nodes) if roll > 0.8 else max(1, len(nodes) // 2)
        victims = tuple(sorted(random.sample(list(nodes), size)))
        return [Fault(at_us, CRASH, victims, duration)]
    if kind == CLOCK_STEP:
        step = random.randint(-appetite.step_limit_us, appetite.step_limit_us)
        faults = [Fault(at_us, CLOCK_STEP, (wanderer,), 0, step)]
        if random.random() < 0.6:
            faults.append(Fault(at_us + 1, CRASH, (wanderer,), duration))
        return faults
    if kind in (PARTITION, ONE_WAY):
        size = random.randint(1, max(1, len(nodes) // 2))
        side = tuple(sorted(random.sample(list(nodes), size)))
        return [Fault(at_us, kind, side, duration, random.randint(0, 1))]
    if kind in (SLOW_DISK, SLOW_LINKS):
        factor = random.choice((5, 20, 100)) if kind == SLOW_DISK else random.choice((10, 50, 200))
        victims = (node,) if random.random() < 0.8 else tuple(nodes)
        return [Fault(at_us, kind, victims, duration, factor)]
    if kind in DISK_KINDS:
        return _draw_disk_fault(random, kind, nodes, node, at_us, duration)
    if kind == RESET:
        return [Fault(at_us, RESET, tuple(sorted(random.sample(list(nodes), min(2, len(nodes))))))]
    if kind == TRANSFER:
        return [Fault(at_us, TRANSFER, (node,), 0, random.randint(0, 1 << 16))]
    return [Fault(at_us, kind, (node,), duration)]


def _draw_disk_fault(
    random: Random, kind: str, nodes: Sequence[int], node: int, at_us: int, duration: int
) -> list[Fault]:
    """A disk that does worse than to hang: alone, or when it is most needed.

    That is when one other node was cut off before, so that it lacks what this one has helped to commit, and the
    rest are gone: the two together are then a majority that must not come to anything.
    """
    drawn = [Fault(at_us, kind, (node,))]
    if kind in (ROT_ENTRY, ROT_SNAPSHOT) and random.random() < 0.5:
        # What rots is found by the next start, or by whoever reads it first.
        drawn.append(Fault(at_us + 1, CRASH, (node,), duration // 4 + 1))
    others = [other for other in nodes if other != node]
    if kind != FAILING_SYNC and len(nodes) >= 3 and random.random() < 0.6:
        behind = random.choice(others)
        cut_us = max(0, at_us - random.randint(300, 1_500) * MILLISECOND_US)
        drawn.insert(0, Fault(cut_us, PARTITION, (behind,), at_us - cut_us + 2, random.randint(0, 1)))
        rest = tuple(other for other in others if other != behind)
        drawn.append(Fault(at_us + 1, CRASH, rest, duration))
    return drawn


def describe(plan: Sequence[Fault]) -> str:
    """The plan as lines of text."""
    return "\n".join(f"  {fault}" for fault in plan) or "  (no faults)"


FaultAction = Callable[[Fault], None]
