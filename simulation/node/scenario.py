"""What a seed decides before a run begins: settings, queues, clients, clocks, faults and the course of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from mayfly.cluster.group.pieces import PIECE_BYTES
from mayfly.cluster.versions import LEVEL_BRAKES, LEVEL_FEEDS, LEVEL_REDRIVES, LEVEL_SCHEDULES
from mayfly.node.limits import CONSUMER_WINDOW_BYTES, LARGE_BODY_BYTES
from simulation.cluster import faults
from simulation.cluster.disk import DiskProfile
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.faults import Fault
from simulation.cluster.membership_change import ADD, REMOVE, MembershipChange
from simulation.cluster.network import LinkProfile
from simulation.cluster.randomness import stream
from simulation.node.checker import Tolerance
from simulation.node.membership import draw_changes, draw_growth
from simulation.node.moves import DELAYING, Move, Placing, draw_moves, draw_placings
from simulation.node.nodes import NodeProfile
from simulation.node.recurring import RECURRENT
from simulation.node.topology import ExchangePlan, QueuePlan, RunTopology

BUSY = ("busy.one", "busy.two", "busy.three")
SETUP_LIMIT_US = 16 * SECOND_US
CUT_WITHIN_US = 5 * MILLISECOND_US
"""Messages go in pieces where a write takes no longer than this: a few at a time on a slower disk are overload."""
SLOW_DISK_US = 2 * MILLISECOND_US
LARGE_WHERE_SLOW_BYTES = 1_000
"""Where queues move and a write takes so long, no smaller message goes in pieces."""
SPARED = (faults.FAILING_SYNC,)
"""What disks may do that takes no data away: all that clusters of one or two nodes can bear."""
TTLS_MS = (50, 300, 800, 1_500)
WINDOWS_BYTES = (1, 2_000, 20_000, CONSUMER_WINDOW_BYTES)
"""Of one message at a time, some, and as many as there are."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The phases of a run, in microseconds from the moment when all queues are there.

    Faults happen from `chaos` to `calm`; clients work on until `quiet`; from `drain` on everything that is left is
    taken out; at `end` the run is judged.
    """

    chaos: int = SECOND_US // 4
    calm: int = 5_250_000
    quiet: int = 8_250_000
    drain: int = 11_750_000
    end: int = 14_250_000


WIDE_TIMELINE = Timeline(calm=3_250_000, quiet=5_750_000, drain=7_750_000, end=9_000_000)
TOLD_ANEW = (faults.CRASH, faults.PARTITION, faults.ONE_WAY, faults.RESET, faults.TRANSFER, faults.FREEZE)
"""What makes a node that is told by another ask for the rest."""


@dataclass(frozen=True, slots=True)
class NodeScenario:
    """Everything about a run that does not depend on what the cluster does."""

    seed: int
    nodes: tuple[int, ...]
    node_profile: NodeProfile
    links: LinkProfile
    topology: RunTopology
    timeline: Timeline
    plan: tuple[Fault, ...]
    absent: int
    """A node that is down from the calm until the drain, so that the others must do without it; 0 for none."""
    clock_offsets_us: tuple[int, ...]
    clock_drifts_ppm: tuple[int, ...]
    disk: DiskProfile
    tolerance: Tolerance
    publishers: int
    leaseholders: int
    gap_us: int
    loop_us: int
    limits: bool = False
    """Whether there are queues with limits, and clients for them."""
    transactions: bool = False
    """Whether there are queues for transactions and priorities, and clients for them."""
    schedules: bool = False
    """Whether there is a queue that allows schedules, one whose retries wait, one in which messages expire anywhere,
    and clients for them."""
    recurring: bool = False
    """Whether there is a queue in which messages recur, and clients for it."""
    reluctant: bool = False
    """Whether there is a queue whose consumer does not read most of the time."""
    busy: bool = False
    """Whether there are queues that have more to do than all others, and clients for them."""
    streams: bool = False
    """Whether there is a stream, and clients for it."""
    redrives: bool = False
    """Whether there is a dead-letter queue that is redriven."""
    brakes: bool = False
    """Whether there is a queue with a brake whose consumer fails."""
    changes: tuple[MembershipChange, ...] = ()
    moves: tuple[Move, ...] = ()
    placings: tuple[Placing, ...] = ()
    growth: tuple[MembershipChange, ...] = ()
    """When shards are added."""

    def describe(self) -> str:
        """The scenario in a few lines, for a failing seed."""
        profile = self.node_profile
        lines = [
            f"seed {self.seed}: {len(self.nodes)} nodes, {profile.shards} shards, session timeout "
            f"{profile.session_timeout_ms} ms, compaction after {profile.compact_entries} entries, entries of "
            f"{profile.entry_bytes} bytes, cache of {profile.cache_bytes} bytes",
            f"links: {self.links.base_us} us + {self.links.jitter_us} us, loss {self.links.frame_loss}; "
            f"disks: {self.disk.base_us} us + {self.disk.jitter_us} us",
            f"clocks off by {self.clock_offsets_us} us, drifting by {self.clock_drifts_ppm} ppm",
            "faults (from the moment when all queues are there):",
            faults.describe(self.plan),
            "members: " + (", ".join(f"{it.kind} at {it.at_us / SECOND_US:.3f}s" for it in self.changes) or "as ever"),
            *([f"{len(self.moves)} moves of queues"] if self.moves else []),
            *([f"{len(self.placings)} moves of replicas, {profile.replication_factor} of a shard"]
              if self.placings else []),
            "shards are added: " + (", ".join(f"at {it.at_us / SECOND_US:.3f}s" for it in self.growth) or "never"),
            f"then calm{f', without node {self.absent}' if self.absent else ''}",
        ]
        return "\n".join(lines)


def draw_scenario(seed: int) -> NodeScenario:
    """The scenario of a seed."""
    scenario = _draw_scenario(seed)
    scheduling = scenario.node_profile.level >= LEVEL_SCHEDULES and stream(seed, "schedules").random() < 0.6
    recurring = scheduling and stream(seed, "recurring").random() < 0.5
    return replace(with_schedules(scenario), recurring=recurring) if scheduling else scenario


def _draw_scenario(seed: int) -> NodeScenario:
    random = stream(seed, "scenario")
    nodes = tuple(range(1, random.choice((1, 3, 3, 3, 3, 3, 3, 4, 5)) + 1))
    timeline = Timeline()
    drawn = faults.draw_appetite(random, (*faults.KINDS, *(faults.DISK_KINDS if len(nodes) >= 3 else SPARED)))
    appetite = replace(drawn, mean_gap_us=drawn.mean_gap_us // 2, longest_us=3 * SECOND_US)
    plan = faults.draw_plan(random, appetite, nodes, timeline.chaos, timeline.calm)
    offsets = tuple(random.randint(-50, 50) * MILLISECOND_US for _ in nodes)
    drifts = tuple(random.randint(-100, 100) for _ in nodes)
    stepped = faults.CLOCK_STEP in appetite.kinds
    # Whoever has lost data, and who stays away, could together be a majority.
    takes_data = any(fault.kind in faults.DISK_KINDS and fault.kind not in SPARED for fault in plan)
    links = LinkProfile(
        base_us=random.choice((50, 150, 5_000)),
        jitter_us=random.choice((50, 150, 2_000)),
        spike_probability=random.choice((0.0, 0.0, 0.002)),
        frame_loss=random.choice((0.0, 0.0, 0.0, 0.01)),
    )
    early_ms = None if stepped else (max(offsets) - min(offsets)) // MILLISECOND_US + 500
    profile = replace(_draw_profile(random), rests=_rests(seed))
    # One small batch at a time on a slow disk is not chaos but overload.
    slowest = 30_000 if profile.session_window > 1 and profile.entry_bytes > 1 << 16 else 2_000
    scenario = NodeScenario(
        seed=seed,
        nodes=nodes,
        node_profile=replace(profile, window_bytes=stream(seed, "windows").choice(WINDOWS_BYTES)),
        links=links,
        topology=_draw_topology(random),
        timeline=timeline,
        plan=plan,
        absent=random.choice((0, 0, *nodes)) if len(nodes) >= 3 and not takes_data else 0,
        clock_offsets_us=offsets,
        clock_drifts_ppm=drifts,
        disk=DiskProfile(
            base_us=random.choice((100, 300, min(5_000, slowest), slowest)),
            jitter_us=random.choice((100, 2_000)),
        ),
        tolerance=Tolerance(drift_ppm=200, early_ms=early_ms, late_ms=1_500, settle_ms=2_000),
        publishers=random.choice((1, 2, 3)),
        leaseholders=random.choice((0, 1, 2)),
        gap_us=random.choice((70, 150, 300)) * MILLISECOND_US,
        loop_us=random.choice((200, 2_000, 5_000)),
    )
    scenario = replace(scenario, growth=draw_growth(seed, timeline.chaos, timeline.calm))
    scenario = with_limits(scenario) if stream(seed, "limits").random() < 0.5 else scenario
    scenario = with_transactions(scenario) if stream(seed, "transactions").random() < 0.5 else scenario
    scenario = with_reluctant(scenario) if stream(seed, "reluctant").random() < 0.3 else scenario
    scenario = replace(scenario, streams=stream(seed, "streams").random() < 0.5)
    cutting = stream(seed, "pieces")
    # One at a time, and in turn with what all readers of streams settle, pieces are overload, and so are those of
    # transactions, which wait for each other and for large publishes.
    too_many = profile.session_window == 1 and (scenario.streams or scenario.transactions)
    if cutting.random() < 0.5 and scenario.disk.base_us <= CUT_WITHIN_US and not too_many:
        large_body_bytes, piece_bytes = cutting.choice((100, 1_000)), cutting.choice((700, 1_000, 2_000))
        if profile.session_window == 1:
            # Many of them are overload too.
            large_body_bytes, piece_bytes = 1_000, 2_000
        cut = replace(scenario.node_profile, large_body_bytes=large_body_bytes, piece_bytes=piece_bytes)
        scenario = replace(scenario, node_profile=cut)
    placing = stream(seed, "placing")
    if placing.random() < 0.4 and not takes_data and not scenario.absent:
        # Few copies: nothing may be lost for good then, and one clock may be all that a group has.
        few = replace(scenario.node_profile, replication_factor=placing.choice((1, 2)))
        if not stepped:
            return replace(scenario, node_profile=few)
    if placing.random() >= 0.5:
        # Every node has a replica of every group.
        scenario = replace(scenario, node_profile=replace(scenario.node_profile, level=LEVEL_FEEDS - 1), streams=False)
    # Whom an operator takes out, and who stays away, could together be a majority.
    return scenario if scenario.absent else replace(scenario, changes=draw_changes(seed, timeline.chaos, timeline.calm))


def draw_moving(seed: int) -> NodeScenario:
    """The scenario of a seed, in which queues move to other shards all the time."""
    scenario = draw_scenario(seed)
    profile, timeline = scenario.node_profile, scenario.timeline
    if profile.shards == 1:
        profile = replace(profile, shards=2)
    moves = draw_moves(seed, _movable(scenario), profile.shards, timeline.chaos, timeline.calm)
    if scenario.recurring:
        more = draw_moves(seed, (RECURRENT,), profile.shards, timeline.chaos, timeline.calm)
        moves = tuple(sorted((*moves, *more), key=lambda move: move.at_us))
    # A queue that moves takes all its messages along. If each goes in pieces, that is overload where disks are slow,
    # and if one goes at a time.
    if profile.session_window == 1:
        profile = replace(profile, large_body_bytes=LARGE_BODY_BYTES, piece_bytes=PIECE_BYTES)
    elif profile.large_body_bytes < LARGE_WHERE_SLOW_BYTES and scenario.disk.base_us >= SLOW_DISK_US:
        profile = replace(profile, large_body_bytes=LARGE_WHERE_SLOW_BYTES, piece_bytes=2 * LARGE_WHERE_SLOW_BYTES)
    return replace(scenario, node_profile=profile, moves=moves)


def _movable(scenario: NodeScenario) -> tuple[str, ...]:
    delaying = {name for name, exchange in scenario.topology.exchanges.items() if exchange.delays}
    return tuple(sorted({*scenario.topology.queues, *delaying} - {"removed"}))


def draw_redriving(seed: int) -> NodeScenario:
    """The scenario of a seed, in which a dead-letter queue is redriven besides, and leaders change most of the time."""
    scenario = draw_scenario(seed)
    random, timeline = stream(seed, "redriving"), scenario.timeline
    profile = replace(scenario.node_profile, level=max(scenario.node_profile.level, LEVEL_REDRIVES))
    plan = list(scenario.plan)
    if len(scenario.nodes) >= 3:
        at_us = timeline.chaos + SECOND_US
        while at_us < timeline.calm:
            node = random.choice(scenario.nodes)
            plan.append(Fault(at_us, faults.TRANSFER, (node,), 0, random.randrange(1, profile.shards + 1)))
            at_us += round(random.expovariate(1 / (300 * MILLISECOND_US))) + 1
    plan.sort(key=lambda fault: fault.at_us)
    return replace(scenario, node_profile=profile, plan=tuple(plan), redrives=True)


def draw_braking(seed: int) -> NodeScenario:
    """The scenario of a seed, in which there is a queue with a brake besides, and leaders change most of the time."""
    scenario = draw_redriving(seed)
    profile = replace(scenario.node_profile, level=max(scenario.node_profile.level, LEVEL_BRAKES))
    return replace(scenario, node_profile=profile, redrives=False, brakes=True)


def draw_wide(seed: int) -> NodeScenario:
    """The scenario of a seed with three to seven nodes, and one or three replicas of a shard: most clients are on nodes
    that are told by others what becomes of their commands.

    Shards move to other nodes and queues to other shards, members come and go, nodes are cut off and crash, leaders
    hand over. It is shorter than the others, for many seeds.
    """
    random, timeline = stream(seed, "wide"), WIDE_TIMELINE
    nodes = tuple(range(1, random.randint(3, 7) + 1))
    # With three of three nobody is told by others until a node is added.
    copies = random.choice((1, 3, 3) if len(nodes) > 3 else (1, 1, 3))
    plan = _draw_wide_plan(random, nodes, copies, timeline)
    takes_data = any(fault.kind in faults.DISK_KINDS and fault.kind not in SPARED for fault in plan)
    offsets = tuple(random.randint(-50, 50) * MILLISECOND_US for _ in nodes)
    stepped = any(fault.kind == faults.CLOCK_STEP for fault in plan)
    profile = replace(
        _draw_profile(random),
        rests=_rests(seed),
        shards=random.randint(2, 5),
        replication_factor=copies,
        tick_ms=100,
        # A lease that ends behind the session of a node that stays away ends within the run.
        session_timeout_ms=random.choice((1_500, 2_500)),
        window_bytes=random.choice(WINDOWS_BYTES),
        compact_entries=random.choice((15, 15, 60, 20_000)),
    )
    scenario = NodeScenario(
        seed=seed,
        nodes=nodes,
        node_profile=profile,
        links=LinkProfile(
            base_us=random.choice((50, 150, 2_000)),
            jitter_us=random.choice((50, 150, 2_000)),
            spike_probability=random.choice((0.0, 0.0, 0.002)),
            frame_loss=random.choice((0.0, 0.0, 0.01)),
        ),
        topology=_draw_topology(random),
        timeline=timeline,
        plan=plan,
        absent=random.choice((0, 0, 0, *nodes)) if copies >= 3 and not takes_data else 0,
        clock_offsets_us=offsets,
        clock_drifts_ppm=tuple(random.randint(-100, 100) for _ in nodes),
        disk=DiskProfile(base_us=random.choice((100, 300, 2_000)), jitter_us=random.choice((100, 2_000))),
        tolerance=Tolerance(
            drift_ppm=200,
            early_ms=None if stepped else (max(offsets) - min(offsets)) // MILLISECOND_US + 500,
            late_ms=1_500,
            settle_ms=2_000,
        ),
        publishers=random.choice((1, 2)),
        leaseholders=random.choice((0, 1)),
        gap_us=random.choice((150, 300)) * MILLISECOND_US,
        loop_us=random.choice((200, 2_000, 5_000)),
        placings=draw_placings(seed, timeline.chaos, timeline.calm),
    )
    # A few of the rarer queues in each, so that a run stays cheap.
    for more, share in ((with_limits, 0.2), (with_transactions, 0.2), (with_schedules, 0.2), (with_reluctant, 0.15)):
        scenario = more(scenario) if random.random() < share else scenario
    scenario = replace(scenario, streams=random.random() < 0.2)
    if profile.session_window > 1 and random.random() < 0.4:
        cut = replace(profile, large_body_bytes=random.choice((100, 1_000)), piece_bytes=random.choice((1_000, 2_000)))
        scenario = replace(scenario, node_profile=cut)
    if random.random() < 0.7:
        moves = draw_moves(seed, _movable(scenario), profile.shards, timeline.chaos, timeline.calm)
        scenario = replace(scenario, moves=moves)
    if scenario.absent:
        # Whom an operator takes out, and who stays away, could together be a majority.
        return scenario
    changes = draw_changes(seed, timeline.chaos, timeline.calm)
    if copies < 3:
        # A node that is given up for dead would take the only replica along.
        changes = tuple(change for change in changes if change.kind in (ADD, REMOVE))
    return replace(scenario, changes=changes, growth=draw_growth(seed, timeline.chaos, timeline.calm))


def _draw_wide_plan(
    random: Random, nodes: tuple[int, ...], copies: int, timeline: Timeline
) -> tuple[Fault, ...]:
    """Always some of what makes sessions be told anew, and a few other kinds of faults."""
    drawn = faults.draw_appetite(random, (*faults.KINDS, *(faults.DISK_KINDS if copies >= 3 else SPARED)))
    rare = drawn.kinds[:3]
    if copies < 3:
        # One clock is all that a group has.
        rare = tuple(kind for kind in rare if kind != faults.CLOCK_STEP)
    appetite = replace(
        drawn,
        kinds=(*TOLD_ANEW, *rare),
        mean_gap_us=random.choice((150, 300, 600)) * MILLISECOND_US,
        longest_us=3 * SECOND_US // 2,
    )
    return faults.draw_plan(random, appetite, nodes, timeline.chaos, timeline.calm)


def with_limits(scenario: NodeScenario) -> NodeScenario:
    """The scenario with queues that drop, refuse and give up, and dead letters for a queue that refuses.

    What else the seed decides stays as it is.
    """
    random = stream(scenario.seed, "limited queues")
    queues = [
        QueuePlan(
            "short",
            max_length=random.choice((0, 2, 5)),
            dead_letter_exchange="",
            dead_letter_routing_key="short.dead",
            dead_letter_targets=("short.dead",),
        ),
        QueuePlan("short.dead"),
        QueuePlan("full", max_length=random.choice((0, 2, 5)), refuses=True),
        QueuePlan("roomy"),
        QueuePlan(
            "tried",
            delivery_limit=random.choice((0, 2)),
            dead_letter_exchange="",
            dead_letter_routing_key="tried.dead",
            dead_letter_targets=("tried.dead",),
        ),
        QueuePlan("tried.dead"),
        QueuePlan(
            "squeezed",
            message_ttl_ms=random.choice((50, 300)),
            dead_letter_exchange="squeeze",
            dead_letter_targets=("narrow", "wide"),
        ),
        QueuePlan("narrow", max_length=random.choice((1, 3)), refuses=True),
        QueuePlan("wide"),
    ]
    exchanges = [ExchangePlan("mixed", ("full", "roomy", "short")), ExchangePlan("squeeze", ("narrow", "wide"))]
    topology = scenario.topology
    everything = RunTopology.of([*topology.queues.values(), *queues], [*topology.exchanges.values(), *exchanges])
    return replace(scenario, topology=everything, limits=True)


def with_transactions(scenario: NodeScenario) -> NodeScenario:
    """The scenario with a queue that is traded in, in transactions, and one with priorities.

    What else the seed decides stays as it is.
    """
    queues = [*scenario.topology.queues.values(), QueuePlan("traded"), QueuePlan("ranked", max_priority=2)]
    topology = RunTopology.of(queues, scenario.topology.exchanges.values())
    return replace(scenario, topology=topology, transactions=True)


def with_schedules(scenario: NodeScenario) -> NodeScenario:
    """The scenario with a queue in which messages wait for their time, one in which retries do, a delayed exchange, and
    a queue in which messages expire wherever they are.

    What else the seed decides stays as it is.
    """
    retry_ms = stream(scenario.seed, "retries").choice((60, 300, 700))
    queues = [
        *scenario.topology.queues.values(), QueuePlan("awaited", allow_schedule=True),
        QueuePlan("retried", retry_ms=retry_ms),
        QueuePlan("delayed", delayed_by=DELAYING), QueuePlan("delayed.too", delayed_by=DELAYING),
        QueuePlan(
            "scoped", dead_letter_exchange="", dead_letter_routing_key="scoped.dead",
            dead_letter_targets=("scoped.dead",), expires_anywhere=True,
        ),
        QueuePlan("scoped.dead"),
    ]
    exchange = ExchangePlan(DELAYING, ("delayed", "delayed.too"), delays=True)
    topology = RunTopology.of(queues, [*scenario.topology.exchanges.values(), exchange])
    return replace(scenario, topology=topology, schedules=True)


def with_reluctant(scenario: NodeScenario) -> NodeScenario:
    """The scenario with a queue to whose consumer more is given than it reads.

    What else the seed decides stays as it is.
    """
    queues = [*scenario.topology.queues.values(), QueuePlan("heaped")]
    topology = RunTopology.of(queues, scenario.topology.exchanges.values())
    return replace(scenario, topology=topology, reluctant=True)


def with_busy(scenario: NodeScenario, shard: int) -> NodeScenario:
    """The scenario with the BUSY queues, all of which an operator moves to that shard at first. They are worked with
    for so long that the load of shards shows."""
    queues = [*scenario.topology.queues.values(), *map(QueuePlan, BUSY)]
    topology = RunTopology.of(queues, scenario.topology.exchanges.values())
    quiet_us = 100 * SECOND_US
    timeline = Timeline(calm=quiet_us, quiet=quiet_us, drain=quiet_us + 3 * SECOND_US, end=quiet_us + 6 * SECOND_US)
    profile = replace(scenario.node_profile, hot_for_ms=30_000, messages_weigh=2_000)
    moves = tuple(Move(place * SECOND_US, name, shard) for place, name in enumerate(BUSY))
    return replace(
        scenario, topology=topology, timeline=timeline, node_profile=profile, moves=moves, busy=True
    )


def _rests(seed: int) -> bool:
    return stream(seed, "rests").random() < 0.25


def _draw_profile(random: Random) -> NodeProfile:
    return NodeProfile(
        shards=random.choice((1, 2, 2, 3, 4)),
        tick_ms=random.choice((50, 100)),
        session_timeout_ms=random.choice((1_500, 3_000, 5_000)),
        compact_entries=random.choice((15, 60, 20_000)),
        entry_bytes=random.choice((2_000, 1 << 20)),
        cache_bytes=random.choice((0, 4_000, 1 << 20)),
        session_window=random.choice((1, 4)),
        expiry_tick_ms=random.choice((50, 250)),
    )


def _draw_topology(random: Random) -> RunTopology:
    """A plain queue, timed ones with dead letters of every kind, leased ones, and one that comes and goes."""
    ttl = random.choice
    return RunTopology.of(
        [
            QueuePlan("plain"),
            QueuePlan(
                "work",
                message_ttl_ms=ttl((None, *TTLS_MS)),
                dead_letter_exchange="",
                dead_letter_routing_key="work.dead",
                dead_letter_targets=("work.dead",),
            ),
            QueuePlan("work.dead"),
            QueuePlan(
                "timed",
                message_ttl_ms=ttl(TTLS_MS),
                dead_letter_exchange="",
                dead_letter_routing_key="timed.dead",
                dead_letter_targets=("timed.dead",),
            ),
            QueuePlan(
                "timed.dead",
                message_ttl_ms=ttl((None, *TTLS_MS)),
                dead_letter_exchange="last",
                dead_letter_targets=("last.one", "last.two"),
            ),
            QueuePlan("last.one"),
            QueuePlan("last.two"),
            QueuePlan(
                "fanned",
                message_ttl_ms=ttl((None, *TTLS_MS)),
                dead_letter_exchange="last",
                dead_letter_targets=("last.one", "last.two"),
            ),
            QueuePlan("vanishing", message_ttl_ms=ttl(TTLS_MS)),
            QueuePlan("removed"),
            QueuePlan("leased.short", expires_ms=random.choice((400, 800))),
            QueuePlan("leased.long", expires_ms=random.choice((1_500, 2_000))),
        ],
        [
            ExchangePlan("last", ("last.one", "last.two")),
            ExchangePlan("many", ("plain", "fanned", "vanishing")),
        ],
    )
