"""What a seed decides about a cluster that forms: who is started when, who never comes, and when something happens."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.cluster.events import SECOND_US
from simulation.cluster.randomness import State, stream
from simulation.node.nodes import NodeProfile

CALM_US = 25 * SECOND_US
PROFILE = NodeProfile(shards=1, tick_ms=100, heartbeat_ms=200, election_timeout_ms=1_000)


@dataclass(frozen=True, slots=True)
class OutagePlan:
    """An outage with the loss of a disk: the numbers of the founders in the order of their parts (see `outage`)."""

    founders: tuple[int, ...]
    rest: State = field(repr=False)
    """The stream behind what was drawn; the outage goes on with it."""


@dataclass(frozen=True, slots=True)
class FormingScenario:
    """What a seed says. Places are named by their numbers, from 1; the founders are the first of them."""

    seed: int
    founders: int
    joiners: int
    absent: tuple[int, ...]
    """Founders that never come."""
    outage: OutagePlan | None
    starts_us: tuple[tuple[int, int], ...]
    """(place, when it is started); with an outage it is the outage's matter."""
    strikes_us: tuple[int, ...]
    """When something happens; what and to whom follows from what is there by then."""
    rest: State = field(repr=False)
    """The stream behind what was drawn; the run goes on with it."""

    def describe(self) -> str:
        """The scenario in a few lines, for a failing seed."""
        absent = f", of whom {list(self.absent)} never come" if self.absent else ""
        outage = "" if self.outage is None else f"; an outage, for founders {list(self.outage.founders)} in this order"
        starts = ", ".join(f"{place} at {_seconds(at_us)}" for place, at_us in self.starts_us)
        strikes = ", ".join(map(_seconds, sorted(self.strikes_us)))
        return "\n".join([
            f"seed {self.seed}: {self.founders} founders{absent}; {self.joiners} that join",
            f"starts: {starts or 'by the outage'}",
            f"faults: {f'at {strikes}' if strikes else 'none'}{outage}",
        ])  # fmt: skip


def draw_scenario(seed: int) -> FormingScenario:
    """The scenario of a seed."""
    random = stream(seed, "forming")
    founders = random.choice((1, 2, 3, 3, 3, 3, 5))
    joiners = random.choice((0, 0, 1, 2))
    spread_us = random.choice((0, 1_000, SECOND_US, 10 * SECOND_US, CALM_US))
    numbers = range(1, founders + 1)
    absent: list[int] = []
    spare = (min(founders, PROFILE.replication_factor) - 1) // 2  # each group has no more voters
    if spare and random.random() < 0.3:
        absent = random.sample(numbers, random.randint(1, spare))
    outage = None
    accident = stream(seed, "outage")
    if founders == 3 and not absent and accident.random() < 0.25:
        outage = OutagePlan(tuple(accident.sample(numbers, 3)), accident.getstate())
    starts_us: list[tuple[int, int]] = []
    if outage is None:
        places = range(1, founders + joiners + 1)
        starts_us = [(place, random.randint(0, spread_us)) for place in places if place not in absent]
    strikes_us = [random.randint(0, CALM_US) for _ in range(random.choice((0, 3, 8, 16)))]
    return FormingScenario(
        seed, founders, joiners, tuple(absent), outage, tuple(starts_us), tuple(strikes_us), random.getstate()
    )


def _seconds(time_us: int) -> str:
    return f"{time_us / SECOND_US:.3f}s"
