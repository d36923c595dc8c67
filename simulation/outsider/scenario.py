"""What a seed of the outsider decides: nodes, clocks, faults, and what the clients do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from simulation.cluster import faults
from simulation.cluster.disk import DiskProfile
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.faults import Fault
from simulation.cluster.network import LinkProfile
from simulation.cluster.randomness import stream
from simulation.node.nodes import NodeProfile
from simulation.outsider.workload import HURRIED, Workload, draw_workload

CALM_US = 3_200_000
WORK_US = 7_400_000
DRAIN_US = 9_400_000
"""From the moment when all queues are there: faults end; clients stop; what is left is taken out."""
GAP_US = 280 * MILLISECOND_US
FAMILIES_IN_A_RUN = 6
SPREAD_MS = 50
KINDS = tuple(kind for kind in faults.KINDS if kind != faults.CLOCK_STEP)


LONG_STRETCHES = (400, 1_200, 2_400)
"""So many times as long is all that clients wait for in a run of long times: minutes to hours for each message."""
AGES_STRETCHES = (400_000, 1_200_000, 2_400_000)
"""The same in a run of ages: hours to weeks for each message."""
AGES_SLOWNESS = 2_000
"""So many times as long are heartbeats and everybody's patience then, or nothing but heartbeats would happen."""


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """An operator asks a node to have a queue move to another shard, at a time from when all queues are there."""

    at_us: int
    node: int
    queue: str
    shard: int


@dataclass(frozen=True, slots=True)
class OutsiderScenario:
    """Everything about a run that does not depend on what the cluster does."""

    seed: int
    nodes: tuple[int, ...]
    profile: NodeProfile
    links: LinkProfile
    disk: DiskProfile
    clock_offsets_us: tuple[int, ...]
    clock_ms: int
    late_ms: int | None
    plan: tuple[Fault, ...]
    workload: Workload
    loop_us: int
    stretch: int = 1
    """So many times as long are the phases of the run, times to live, leases and delays, but no call."""
    slowness: int = 1
    """So many times as long as others wait for answers, and for another try, clients and the shells of nodes."""
    settle_ms: int = 2_000
    """How long the cluster may take after trouble until it is quiet."""
    moves: tuple[MoveAsked, ...] = ()

    @property
    def behind_ms(self) -> int:
        """How far the clocks of shards may fall behind: by what slow links take, for each leader that goes on with what
        it heard meanwhile."""
        slowest = max((fault.amount for fault in self.plan if fault.kind == faults.SLOW_LINKS), default=0)
        others = sum(fault.kind not in (faults.SLOW_LINKS, faults.SLOW_DISK) for fault in self.plan)
        return slowest * (self.links.base_us + self.links.jitter_us) * others // 1_000

    def describe(self) -> str:
        """The scenario in a few lines, for a failing seed."""
        queues = " ".join(queue.name for queue in self.workload.queues)
        return (
            f"seed {self.seed}: {len(self.nodes)} nodes, {self.profile.shards} shards, clocks off by "
            f"{self.clock_offsets_us} us, times {self.stretch} times as long\nqueues: {queues}\n"
            f"faults:\n{faults.describe(self.plan)}"
        )


def draw_scenario(seed: int) -> OutsiderScenario:
    """The scenario of a seed."""
    random = stream(seed, "outsider")
    nodes = tuple(range(1, random.choice((1, 3, 3, 3, 3, 5)) + 1))
    steps = len(nodes) >= 3 and random.random() < 0.2
    appetite = faults.draw_appetite(random, (*KINDS, *((faults.CLOCK_STEP,) if steps else ())))
    # In every third seed nothing goes wrong: what is promised of a quiet cluster is judged all the time there.
    wrong = random.random() < 0.7
    appetite = replace(appetite, mean_gap_us=appetite.mean_gap_us // 2, longest_us=5 * SECOND_US // 2)
    plan = faults.draw_plan(random, appetite, nodes, SECOND_US // 4, CALM_US) if wrong else ()
    # In every second seed the clocks agree, and nothing may be early or late by more than that.
    spread_ms = random.choice((0, SPREAD_MS))
    offsets = tuple(random.randint(-spread_ms, spread_ms) * MILLISECOND_US for _ in nodes)
    stepped = any(fault.kind == faults.CLOCK_STEP for fault in plan)
    clock_ms = 2 * spread_ms + 20
    return OutsiderScenario(
        seed=seed,
        nodes=nodes,
        profile=NodeProfile(
            shards=random.choice((1, 2, 3)),
            session_timeout_ms=random.choice((1_500, 3_000)),
            compact_entries=random.choice((15, 60, 20_000)),
            session_window=random.choice((1, 4)),
            expiry_tick_ms=random.choice((50, 250)),
        ),
        links=LinkProfile(base_us=random.choice((50, 1_000)), jitter_us=random.choice((50, 1_000))),
        disk=DiskProfile(base_us=random.choice((100, 2_000)), jitter_us=random.choice((100, 2_000))),
        clock_offsets_us=offsets,
        clock_ms=clock_ms + 2_500 if stepped else clock_ms,
        late_ms=None if stepped else 700,
        plan=plan,
        workload=draw_workload(stream(seed, "outsider's clients"), len(nodes), WORK_US, GAP_US, FAMILIES_IN_A_RUN),
        loop_us=random.choice((200, 2_000)),
    )


def draw_moving(seed: int) -> OutsiderScenario:
    """The scenario of a seed in which queues move to other shards all the while, the same ones again and again, and
    leaders hand over."""
    scenario = draw_scenario(seed)
    random = stream(seed, "outsider's operator")
    profile = replace(scenario.profile, shards=2)
    clients = stream(seed, "outsider's clients")
    workload = draw_workload(clients, len(scenario.nodes), WORK_US, GAP_US, FAMILIES_IN_A_RUN, hurries=True)
    names = [queue.name for queue in scenario.workload.queues]
    some = [*random.sample(names, min(len(names), random.choice((1, 2, 4)))), *HURRIED]
    gap_us = random.choice((40, 100, 300)) * MILLISECOND_US
    moves: list[MoveAsked] = []
    at_us = SECOND_US // 4
    while at_us < WORK_US:
        node, shard = random.choice(scenario.nodes), random.randint(1, profile.shards)
        moves.append(MoveAsked(at_us, node, random.choice(some), shard))
        at_us += round(random.expovariate(1 / gap_us)) + 1
    plan = scenario.plan
    if len(scenario.nodes) > 1:
        moments = sorted(random.randrange(SECOND_US // 4, CALM_US) for _ in range(random.choice((0, 6, 30))))
        plan = tuple(sorted((*plan, *_handovers(random, moments, scenario.nodes)), key=lambda fault: fault.at_us))
    return replace(scenario, profile=profile, plan=plan, workload=workload, moves=tuple(moves))


def _handovers(random: Random, moments: list[int], nodes: tuple[int, ...]) -> list[Fault]:
    """Leaders change: nobody outside is to see that, whatever else is done or not."""
    return [Fault(at_us, faults.TRANSFER, (random.choice(nodes),), 0, random.randrange(1 << 16)) for at_us in moments]


def draw_long(seed: int) -> OutsiderScenario:
    """The scenario of a seed in which messages and leases live for minutes to hours, and outages last as long.

    The nodes look at the time as seldom as their settings allow, for between two events of such a run nothing happens
    but that: an hour of it costs little.
    """
    return _draw_stretched(seed, "long times", LONG_STRETCHES, 1)


def draw_ages(seed: int) -> OutsiderScenario:
    """The same of hours to weeks, in runs of months, through outages of days and weeks.

    No real node has such settings: heartbeats are half an hour apart or an hour, and all else that nodes are told is in
    that proportion. What is tried is durations and dates of that size, not how much happens in such a time.
    """
    return _draw_stretched(seed, "ages", AGES_STRETCHES, AGES_SLOWNESS)


def _draw_stretched(seed: int, name: str, stretches: tuple[int, ...], slowness: int) -> OutsiderScenario:
    scenario = draw_scenario(seed)
    random = stream(seed, name)
    stretch = random.choice(stretches)
    heartbeat_ms = random.choice((800, 2_000)) * slowness
    profile = replace(
        scenario.profile,
        shards=random.choice((1, 2)),
        tick_ms=400 * slowness,
        heartbeat_ms=heartbeat_ms,
        election_timeout_ms=5 * heartbeat_ms,
        session_timeout_ms=12 * heartbeat_ms,
        expiry_tick_ms=random.choice((400, 1_000)) * slowness,
    )
    links = scenario.links
    nodes = scenario.nodes[:3]
    calm_us = CALM_US * stretch
    plan: tuple[Fault, ...] = ()
    if random.random() < 0.7:
        appetite = faults.draw_appetite(random, KINDS if len(nodes) < 3 else (*KINDS, faults.CLOCK_STEP))
        appetite = replace(
            appetite,
            mean_gap_us=random.choice((900, 1_800)) * stretch * MILLISECOND_US,
            longest_us=random.choice((20 * SECOND_US * slowness, SECOND_US * stretch)),
            step_limit_us=appetite.step_limit_us * slowness,
        )
        plan = faults.draw_plan(random, appetite, nodes, SECOND_US * stretch // 4, calm_us)
    if len(nodes) > 1:
        moments = sorted(random.randrange(SECOND_US, WORK_US * stretch) for _ in range(random.choice((0, 3, 9))))
        plan = tuple(sorted((*plan, *_handovers(random, moments, nodes)), key=lambda fault: fault.at_us))
    stepped = any(fault.kind == faults.CLOCK_STEP for fault in plan)
    settle_ms = 4 * profile.election_timeout_ms
    clock_ms = 2 * SPREAD_MS + 20 + profile.tick_ms
    return replace(
        scenario,
        nodes=nodes,
        profile=profile,
        links=replace(
            links, backoff_low_us=links.backoff_low_us * slowness, backoff_high_us=links.backoff_high_us * slowness
        ),
        clock_offsets_us=scenario.clock_offsets_us[: len(nodes)],
        clock_ms=clock_ms + 2_500 if stepped else clock_ms,
        late_ms=None if stepped else 700 + 4 * profile.election_timeout_ms,
        plan=plan,
        workload=draw_workload(
            stream(seed, "outsider's clients"), len(nodes), WORK_US * stretch, GAP_US * stretch, FAMILIES_IN_A_RUN,
            stretch,
        ),
        stretch=stretch,
        slowness=slowness,
        settle_ms=settle_ms,
    )
