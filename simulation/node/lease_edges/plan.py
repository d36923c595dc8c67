"""What a seed decides: which use or fault meets the end of the leases, to the millisecond."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.randomness import stream
from simulation.node.nodes import NodeProfile

ATTACH = "attach"
GET = "get"
GET_EMPTY = "get of nothing"
REDECLARE = "redeclare"
PASSIVE = "passive declare"
PUBLISH = "publish"
CANCEL = "cancel"
CLOSE = "close"
DROP = "drop"
NODE_LOSS = "node loss"
NOTHING = "nothing"

USES = (ATTACH, GET, GET_EMPTY, REDECLARE, PASSIVE)
"""What renews a lease (RULES L2, L3)."""
RELEASES = (CANCEL, CLOSE, DROP, NODE_LOSS)
"""How the last consumer goes. It was there before the old lease would have ended."""
OTHERS = (PUBLISH, NOTHING)
"""What renews nothing."""

DEADLINE = "deadline"
DECISION = "decision"
"""What an edge is aimed at: the end of the period, or the leader's look at it that comes next."""

CRASH = "crash"
FREEZE = "freeze"
TRANSFER = "transfer"
CUT_OFF = "cut off"
OUTAGE = "outage"
CLOCK = "clock"

LEADER = "leader"
OTHER = "other"
ALL = "all"

HOUR_US = 3_600 * SECOND_US
NODES = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Edge:
    """What happens to one queue at the end of its lease."""

    queue: str
    kind: str
    aim: str
    delta_us: int
    by_leader: bool
    """Whether the client is at the node that leads the queue's shard."""

    def __str__(self) -> str:
        where = "the leader" if self.by_leader else "another node"
        return f"{self.queue}: {self.kind} at the {self.aim} {self.delta_us / 1e3:+.3f} ms through {where}"


@dataclass(frozen=True, slots=True)
class EdgeFault:
    """What goes wrong at the end of the leases, `delta_us` after the deadline of the first queue."""

    kind: str
    whom: str
    delta_us: int
    duration_us: int
    step_us: int = 0

    def __str__(self) -> str:
        step = f" stepped by {self.step_us / HOUR_US:+.0f} h" if self.step_us else ""
        lasts = f", for {self.duration_us / 1e3:.0f} ms" if self.duration_us else ""
        return f"{self.kind} of {self.whom}{step} at the deadline {self.delta_us / 1e3:+.3f} ms{lasts}"


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """All that a seed decides. Every queue has the same lease, renewed by one client in one go."""

    seed: int
    profile: NodeProfile
    expires_ms: int
    edges: tuple[Edge, ...]
    fault: EdgeFault | None
    clock_offsets_us: tuple[int, ...]
    clock_drifts_ppm: tuple[int, ...]

    @property
    def stops_all(self) -> bool:
        """Whether all processes are down at the same time."""
        return self.fault is not None and self.fault.whom == ALL and self.fault.duration_us > 0

    def describe(self) -> str:
        """The plan in a few lines, for a failing seed."""
        profile = self.profile
        lines = [
            f"seed {self.seed}: {profile.shards} shards, ticks of {profile.tick_ms} ms, expiry every "
            f"{profile.expiry_tick_ms} ms, leases of {self.expires_ms} ms; clocks off by {self.clock_offsets_us} us, "
            f"drifting {self.clock_drifts_ppm} ppm",
            *(f"  {edge}" for edge in self.edges),
            f"  fault: {self.fault or 'none'}",
        ]
        return "\n".join(lines)


def draw_plan(seed: int) -> EdgePlan:
    """The plan of a seed."""
    random = stream(seed, "lease edges")
    tick_ms = random.choice((10, 20, 50))
    expires_ms = random.choice((250, 400, 700))
    profile = NodeProfile(
        shards=random.choice((1, 1, 2)),
        tick_ms=tick_ms,
        heartbeat_ms=max(50, tick_ms),
        election_timeout_ms=300,
        session_timeout_ms=500,
        expiry_tick_ms=random.choice((tick_ms, tick_ms, 100, 250)),
        compact_entries=random.choice((5, 20_000)),
        entry_bytes=random.choice((300, 1 << 20)),
        session_window=random.choice((1, 4)),
    )
    fault = _draw_fault(random, expires_ms)
    drawn = [_draw_edge(random, f"edge{number}", fault) for number in range(5)]
    lost = [edge for edge in drawn if edge.kind == NODE_LOSS]
    # Two nodes at once are a majority, and with it goes what only memory knows of led time.
    drawn = [replace(edge, kind=DROP) if edge in lost[1:] else edge for edge in drawn]
    return EdgePlan(
        seed,
        profile,
        expires_ms,
        tuple(drawn),
        fault,
        tuple(random.randint(-50, 50) * MILLISECOND_US for _ in NODES),
        tuple(random.randint(-100, 100) for _ in NODES),
    )


def _draw_edge(random: Random, queue: str, fault: EdgeFault | None) -> Edge:
    kinds = (*USES, *USES, *RELEASES, *OTHERS)
    # A node that dies with its client is a fault of its own.
    kind = random.choice(kinds if fault is None else tuple(kind for kind in kinds if kind != NODE_LOSS))
    aim = random.choice((DEADLINE, DECISION))
    if aim == DEADLINE:
        delta_us = random.randint(-5, 5) * MILLISECOND_US
    else:
        # Between the leader's look and the commit of its decision lie a few hundred microseconds.
        delta_us = random.randint(-1_500, 1_500)
    return Edge(queue, kind, aim, delta_us, random.random() < 0.5)


def _draw_fault(random: Random, expires_ms: int) -> EdgeFault | None:
    kind = random.choice((None, None, None, CRASH, CRASH, FREEZE, TRANSFER, CUT_OFF, OUTAGE, CLOCK, CLOCK))
    if kind is None:
        return None
    delta_us = random.choice((-1, 0, 1)) * MILLISECOND_US + random.choice((0, 0, -300, 300))
    short_us = random.randint(100, 900) * MILLISECOND_US
    if kind == OUTAGE:
        before_us = random.choice((0, 0, 20, 100)) * MILLISECOND_US
        longer_us = int(expires_ms * random.uniform(1.1, 3.0)) * MILLISECOND_US
        return EdgeFault(kind, ALL, delta_us - before_us, longer_us)
    if kind == CLOCK:
        before_us = random.choice((0, 20, 150)) * MILLISECOND_US
        step_us = random.choice((-HOUR_US, HOUR_US))
        whom = random.choice((LEADER, OTHER, ALL))
        # Without a restart a process never learns of the step.
        return EdgeFault(kind, whom, delta_us - before_us, random.choice((0, short_us, short_us)), step_us)
    return EdgeFault(kind, LEADER, delta_us, 0 if kind == TRANSFER else short_us)
