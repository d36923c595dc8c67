"""One run: build what the scenario says, let time pass, judge what the clients saw and what replicas hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.group import Group
from mayfly.cluster.host.clocks_ahead import go_on
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import CorruptStore, WriteBatch
from mayfly.cluster.raft import MESSAGE_TYPE_NAMES
from mayfly.node.duties.lane_transfers import EARLIER_DEATHS_MS
from mayfly.node.duties.queue_moves import HELD_UP_MS
from mayfly.node.limits import CONSUMER_WINDOW_BYTES
from mayfly.node.numbers import CATALOG_GROUP
from simulation.cluster.clocks import MachineClock
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import MILLISECOND_US, SECOND_US, EventQueue
from simulation.cluster.faults import Fault
from simulation.cluster.machine import Machine, MachineProfile
from simulation.cluster.memory_store import SimulatedDisk
from simulation.cluster.randomness import stream
from simulation.cluster.trace import Trace
from simulation.node.actor import Actor
from simulation.node.actors import (
    Delayer,
    Drainer,
    Founder,
    Getter,
    Leaseholder,
    PublishingActor,
    Reluctant,
    Remover,
    Scheduler,
    Tourist,
    Trader,
    Worker,
)
from simulation.node.brakes import BrakeJudge
from simulation.node.checker import check
from simulation.node.history import History
from simulation.node.kept_clocks import KeptClocks
from simulation.node.membership import MOST_MEMBERS, MembershipOperator, settled
from simulation.node.moves import DELAYING, Mover, Placer, judge_moves
from simulation.node.nodes import Acquaintance, SimulatedNode
from simulation.node.recurring import Recurrer, Watcher
from simulation.node.redrives import RedrivingOperator
from simulation.node.scenario import BUSY, SETUP_LIMIT_US, NodeScenario
from simulation.node.streams import Appender, Reader
from simulation.node.topology import GATHERED, MIRROR, QueuePlan
from simulation.node.world import World
from simulation.simulator import ScenarioRun, Sink, Violation

DRAIN_LATE_US = 3 * SECOND_US
"""So much longer than planned may it take until all queues are drained: disks may be slow."""
MOVES_LATE_US = (HELD_UP_MS + EARLIER_DEATHS_MS + 5_000) * MILLISECOND_US
"""So long may moves take from then on: they wait for dead letters that have no room before the queues are drained."""
PLACED_LATE_US = 20 * SECOND_US
"""So long may moves of replicas take then, to nodes that came back a moment before, step by step."""
LETTERS_LATE_US = 10 * SECOND_US
"""So long may what waits in lanes take then: what is large goes in pieces, one behind the other."""
DUE_LATE_US = 5 * SECOND_US
"""So long may messages wait for their time then, which may have come back a moment before."""
RECURS_LONGER_US = 2_250_000
"""For so long behind the other clients' work messages recur, in a calm cluster."""
MARKED_WITHIN_US = 12 * SECOND_US
"""Of the last publish to a stream: the longest TTL, and what the judge of markers gives them to come and be copied."""
REDRIVE_LATE_US = 40 * SECOND_US
"""So long may a redrive take then, of a queue whose messages died slowly."""
BUSY_GAP_US = 100 * MILLISECOND_US
TOLD = {notice_kinds.FEED: "feeds", notice_kinds.RESUME: "resumes", notice_kinds.UNKEPT: "unkept"}
"""What nodes without a replica are told, and ask, by name."""
OVERDUE_MS = 1_500
"""So long after its deadline, at most, a message is still in a queue in which messages expire anywhere: some ticks."""


class Simulation(ScenarioRun[NodeScenario]):
    """A cluster, its clients and its faults."""

    def __init__(
        self,
        scenario: NodeScenario,
        sink: Sink = None,
        on_wire: Callable[[Frame, int, int], Frame] | None = None,
    ) -> None:
        """`sink` gets the trace line by line. `on_wire(frame, sender, receiver)` makes what arrives of what was
        sent: an encoding and back, for those who have one."""
        self.scenario = scenario
        self._on_wire = on_wire
        self.queue = EventQueue()
        self.trace = Trace(self.queue, sink)
        self.history = History()
        seed = scenario.seed
        self.cluster: SimulatedCluster[Frame, WriteBatch] = SimulatedCluster(
            self.queue, stream(seed, "network"), scenario.links, self.trace
        )
        self.cluster.frame_text = frame_text
        self.cluster.transfer_leadership = self._transfer_leadership
        self.cluster.begin_drain = self._begin_drain
        self.cluster.is_drained = self._is_drained
        self.cluster.may_lose = self._may_lose
        self.cluster.lost = self._lose
        self._lost: dict[int, None] = {}
        self.world = World(seed, self.cluster, scenario.topology, self.history)
        self.world.probe.rebuilt = lambda: self.cluster.count("rebuilt")
        if len(scenario.nodes) >= 3 and not scenario.changes:
            self.world.probe.clock_limit_ms = (
                scenario.node_profile.clock_bound_ms
                + max(scenario.clock_offsets_us) // MILLISECOND_US
                + 100
            )
        for place, node in enumerate(scenario.nodes):
            known = Acquaintance(list(scenario.nodes), scenario.nodes)
            self._add_machine(node, known, scenario.clock_offsets_us[place], scenario.clock_drifts_ppm[place])
        self.workers: list[Actor] = []
        self._founded_us = -1
        self._operator: MembershipOperator | None = None
        self._drainer: Drainer | None = None
        self._overdue: list[Violation] = []
        self.redriving = RedrivingOperator(self.world, seed, self._programs) if scenario.redrives else None
        self.braking = BrakeJudge(self.world, self._programs) if scenario.brakes else None
        self._mover = Mover(self.queue, self.trace, self.history, seed, self.programs)
        self._placer = Placer(self.queue, self.trace, seed, self.programs)
        self._told = dict.fromkeys(TOLD, 0)

    def add_member(self, node: int, known: Acquaintance) -> None:
        """A machine for a node that joins; it starts at once."""
        if node not in self.cluster.machines:
            self._add_machine(node, known, 0, 0)
            self.cluster.start(node)

    def _send_away(self, node: int) -> None:
        """A node was told that it is out: its process ends. (At calm it comes back once more, as nodes do.)"""
        self.trace.add("sent away", node)
        self.queue.after(1, lambda: self.cluster.take_away(node))

    def _add_machine(self, node: int, known: Acquaintance, offset_us: int, drift_ppm: int) -> None:
        scenario, disk, ahead = self.scenario, SimulatedDisk(), KeptClocks()

        def boot(machine: Machine[Frame, WriteBatch]) -> tuple[SimulatedNode, WriteBatch | None]:
            if node in self._lost:
                raise CorruptStore(f"the data of node {node} is gone")
            random = stream(scenario.seed, f"node {node} life {machine.life}")
            program = SimulatedNode(
                machine, disk, known, scenario.node_profile, random, self.world.probe, self._send_away
            )
            go_on(program.engine.host.groups, ahead.found(machine.process_clock))
            return program, program.first_write

        machine: Machine[Frame, WriteBatch] = Machine(
            node,
            self.queue,
            stream(scenario.seed, f"machine {node}"),
            self.cluster.network,
            disk,
            boot,
            MachineClock(offset_us, drift_ppm),
            MachineProfile(
                tick_us=scenario.node_profile.tick_ms * MILLISECOND_US, loop_us=scenario.loop_us
            ),
            replace(scenario.disk),
        )
        machine.after_input = partial(self._look, ahead)
        machine.transmit = lambda peer, frame: self._transmit(machine, peer, frame)
        self.cluster.add(machine)

    def _transmit(self, machine: Machine[Frame, WriteBatch], peer: int, frame: Frame) -> None:
        program = machine.program
        if isinstance(program, SimulatedNode):
            program.transmit(peer, frame, self._send)

    def _send(
        self,
        source: int,
        target: int,
        frame: Frame,
        bulk: bool = False,
        result: Callable[[bool], None] | None = None,
    ) -> None:
        for kind, _ in frame.notices:
            if kind in TOLD:
                self._told[kind] += 1
        if self._on_wire is not None and not bulk:
            frame = self._on_wire(frame, source, target)
        self.cluster.network.send(source, target, frame, bulk, result)

    def _look(self, ahead: KeptClocks, machine: Machine[Frame, WriteBatch]) -> None:
        if isinstance(machine.program, SimulatedNode):
            self.world.probe.look(machine.program)
            if self.braking is not None:
                self.braking.look(machine.program)
            ahead.look(machine.program.engine.host, machine.process_clock, machine.now_ms())

    def group_clocks_ms(self) -> list[int]:
        """What the leaders' clocks show, of each group that is led."""
        return [
            group.clock.current_ms(program.machine.now_ms())
            for program in self._programs()
            for group in program.engine.host.groups.values()
            if group.leads
        ]

    def _begin_drain(self, node: int) -> None:
        program = self.cluster.machines[node].program
        if isinstance(program, SimulatedNode):
            program.begin_drain()

    def _is_drained(self, node: int) -> bool:
        program = self.cluster.machines[node].program
        return not isinstance(program, SimulatedNode) or program.drain.state == "drained"

    def _transfer_leadership(self, node: int, number: int) -> None:
        """Whoever leads the group of that number is asked to hand over to `node`."""
        group_id = number % len(self._groups())
        for machine in self.cluster.machines.values():
            program = machine.program
            if isinstance(program, SimulatedNode) and not machine.frozen:
                group = program.engine.host.groups.get(group_id)
                if group is not None and group.leads and node != machine.id and node in group.conf_state.voters:
                    self._hand_over(program, group_id, node)

    def _hand_over(self, program: SimulatedNode, group_id: int, node: int) -> None:
        program.machine.call(lambda: program.engine.host.groups[group_id].raw.transfer_leader(node))

    # ------------------------------------------------------------------ disks that lose data

    def impaired(self) -> bool:
        """Whether a node lacks some of its data, be it known to anybody or not."""
        for node, machine in self.cluster.machines.items():
            disk, program = machine.disk, machine.program
            if node not in self._lost and isinstance(disk, SimulatedDisk) and disk.rotten():
                return True
            if isinstance(program, SimulatedNode) and any(
                group.rebuild is not None for group in program.engine.host.groups.values()
            ):
                return True
        return False

    def _may_lose(self, node: int, kind: str) -> bool:
        """One node at a time, in a cluster at rest whose groups all have three voters: no promise holds otherwise."""
        if self._operator is None or self._operator.busy or self.impaired():
            return False
        programs = self._programs()
        if node not in [program.machine.id for program in programs]:
            return False
        members = programs[0].engine.catalog.members
        if len(programs) != len(members.with_replicas()) or any(len(voters) < 3 for voters in members.plan.values()):
            return False
        return all(
            settled(program) and program.engine.catalog.members.version == members.version for program in programs
        )

    def _lose(self, node: int, why: str) -> None:
        """A node can't start on its disk, or was wiped: it never comes back under its id, and is replaced."""
        if node not in self._lost and self._operator is not None:
            self._lost[node] = None
            self.trace.add("lost", node, why)
            self._operator.replace(node)

    # ------------------------------------------------------------------ the course of a run

    def pass_time(self) -> None:
        """The course of time of the scenario. Raises whatever a node raised, and StateError when replicas disagree."""
        timeline = self.scenario.timeline
        self.cluster.start_all()
        founder = Founder(self.world, "founder", self._founded)
        founder.start()
        while self._founded_us < 0:
            if self.queue.now_us > SETUP_LIMIT_US:
                return
            self.queue.run_until(self.queue.now_us + 10 * MILLISECOND_US)
        # A binding counts on a node once its catalog has it, a moment after bind-ok was answered elsewhere.
        self.queue.run_until(self._founded_us + SECOND_US // 2)
        start = self.queue.now_us
        self.history.calm_us = start + timeline.calm
        self._start_workers(start + timeline.quiet)
        planned = sorted((*self.scenario.changes, *self.scenario.growth), key=lambda change: change.at_us)
        changes = tuple(replace(change, at_us=change.at_us + start) for change in planned)
        self._operator = MembershipOperator(self, self.scenario.seed, changes, start + timeline.calm)
        self._operator.most_members = max(MOST_MEMBERS, len(self.scenario.nodes))
        self._operator.start()
        self._mover.start(self.scenario.moves, start)
        self._placer.start(self.scenario.placings, start)
        if self.redriving is not None:
            self.redriving.start()
        if self.braking is not None:
            self.braking.start(start + timeline.quiet)
        self.cluster.schedule([fault_at(fault, start) for fault in self.scenario.plan])
        self.queue.run_until(start + timeline.calm)
        self.cluster.calm_down((self.scenario.absent,) if self.scenario.absent else ())
        self.queue.run_until(start + timeline.drain)
        self.cluster.all_present()
        for worker in self.workers:
            worker.finish()
        self.queue.run_until(self.queue.now_us + SECOND_US // 2)
        self._drainer = self._drain()
        self.queue.run_until(start + timeline.end)
        self._wait_for(DRAIN_LATE_US, self._drainer.is_done)
        self._wait_for(MOVES_LATE_US, self._nothing_moves)
        if self.scenario.placings:
            self._wait_for(PLACED_LATE_US, lambda: all(map(settled, self._programs())))
        self._wait_for(LETTERS_LATE_US, self._lanes_are_empty)
        self._wait_for(DUE_LATE_US, self._nothing_is_to_be_due)
        if self.scenario.schedules:
            self.queue.run_until(self.queue.now_us + SECOND_US)
        if self.scenario.streams:
            self.queue.run_until(start + timeline.quiet + MARKED_WITHIN_US)
        if self.redriving is not None:
            self._wait_for(REDRIVE_LATE_US, self.redriving.is_settled)
            self.redriving.finish()
        if self.braking is not None:
            self._wait_for(REDRIVE_LATE_US, self.braking.is_settled)
            self.braking.finish()
        self._wait_for_replicas()

    def _founded(self) -> None:
        self._founded_us = self.queue.now_us
        self.trace.add("founded")

    def _start_workers(self, until_us: int) -> None:
        scenario, world = self.scenario, self.world
        queues = scenario.topology.queues
        targets: list[PublishingActor.Target] = [
            ("", "plain", ("plain",), (None, None, 200, 1_500)),
            ("", "work", ("work",), (None, None, 700)),
            ("", "timed", ("timed",), (None, None, 100, 1_800)),
            ("", "fanned", ("fanned",), (None, 0, 400, 400)),
            ("", "vanishing", ("vanishing",), (None,)),
            ("many", "", ("plain", "fanned", "vanishing"), (None, 900)),
        ]
        for number in range(scenario.publishers):
            some = stream(scenario.seed, f"targets {number}").sample(targets, 3)
            self.workers.append(PublishingActor(world, f"publisher{number}", some, scenario.gap_us, until_us))
        self.workers += [
            Worker(world, "worker1", "work", until_us, reject=0.2),
            Worker(world, "worker2", "plain", until_us, requeue=0.2),
            Getter(world, "getter", "vanishing", until_us),
            Remover(world, "remover", queues["removed"], until_us),
            Tourist(world, "tourist", until_us),
        ]
        leased = [plan for plan in queues.values() if plan.expires_ms is not None]
        for number in range(scenario.leaseholders):
            self.workers.append(Leaseholder(world, f"leaseholder{number}", leased, until_us))
        if scenario.limits:
            self.workers += self._limited_workers(until_us)
        if scenario.transactions:
            self.workers += self._trading_workers(until_us)
        if scenario.schedules:
            awaited: PublishingActor.Target = ("", "awaited", ("awaited",), (None,))
            delayed: PublishingActor.Target = (DELAYING, "", ("delayed", "delayed.too"), (None,))
            scoped: PublishingActor.Target = ("", "scoped", ("scoped",), (None, 60, 300, 300, 900, 1_500))
            self.workers += [
                Scheduler(world, "scheduler1", [awaited], scenario.gap_us, until_us),
                Scheduler(world, "scheduler2", [awaited], scenario.gap_us, until_us),
                Worker(world, "worker6", "awaited", until_us, requeue=0.1),
                PublishingActor(world, "retrier", [("", "retried", ("retried",), (None,))], scenario.gap_us, until_us),
                Worker(world, "worker7", "retried", until_us, requeue=0.5),
                Delayer(world, "delayer1", [delayed], scenario.gap_us, until_us),
                Delayer(world, "delayer2", [delayed], scenario.gap_us, until_us),
                Worker(world, "worker8", "delayed", until_us, requeue=0.1),
                PublishingActor(world, "scoper1", [scoped], scenario.gap_us, until_us),
                PublishingActor(world, "scoper2", [scoped], scenario.gap_us, until_us),
            ]
        if scenario.recurring:
            # It ends by itself, when it has cancelled all that recurs.
            Recurrer(world, "recurrer", until_us + RECURS_LONGER_US).start()
            self.workers += [Watcher(world, "watcher")]
        if scenario.reluctant:
            heaped: PublishingActor.Target = ("", "heaped", ("heaped",), (None,))
            self.workers += [
                PublishingActor(world, "heaper", [heaped], scenario.gap_us // 4, until_us),
                Reluctant(world, "reluctant", "heaped", until_us),
            ]
        if scenario.busy:
            for name in BUSY:
                busy: PublishingActor.Target = ("", name, (name,), (None,))
                self.workers += [
                    PublishingActor(world, f"publisher to {name}", [busy], BUSY_GAP_US, until_us),
                    Worker(world, f"worker of {name}", name, until_us),
                ]
        if scenario.streams:
            self.workers += [
                Appender(world, "appender1", scenario.gap_us, until_us),
                Appender(world, "appender2", scenario.gap_us, until_us),
                *(Reader(world, f"reader{number}") for number in range(3)),
                Reader(world, "reader of the mirror", MIRROR),
                Reader(world, "reader of both", GATHERED),
            ]
        for worker in self.workers:
            worker.start()

    def _limited_workers(self, until_us: int) -> list[Actor]:
        """Clients of the queues with limits."""
        world, gap_us = self.world, self.scenario.gap_us
        targets: list[PublishingActor.Target] = [
            ("", "short", ("short",), (None,)),
            ("", "full", ("full",), (None, None, 500)),
            ("", "tried", ("tried",), (None,)),
            ("", "squeezed", ("squeezed",), (None,)),
            ("mixed", "", ("full", "roomy", "short"), (None,)),
        ]
        return [
            PublishingActor(world, "filler", targets, gap_us, until_us),
            Getter(world, "getter2", "full", until_us),
            Worker(world, "worker4", "tried", until_us, reject=0.05, requeue=0.5),
            Getter(world, "getter3", "narrow", until_us),
        ]

    def _trading_workers(self, until_us: int) -> list[Actor]:
        """Clients with transactions, and those of the queue with priorities."""
        world = self.world
        ranked: PublishingActor.Target = ("", "ranked", ("ranked",), (None,))
        return [
            Trader(world, "trader1", "traded", ranked, until_us),
            Trader(world, "trader2", "traded", ranked, until_us),
            PublishingActor(world, "ranker", [ranked], self.scenario.gap_us, until_us),
            Worker(world, "worker5", "ranked", until_us, requeue=0.2),
        ]

    def _drain(self) -> Drainer:
        self.trace.add("drain")
        self._overdue = self._judge_scopes()
        for program in self.programs():
            # A message in a round trip would take too long.
            program.broker.settings.consumer_window_bytes = CONSUMER_WINDOW_BYTES
        kept = [plan.name for plan in self.scenario.topology.queues.values() if self._is_kept(plan)]
        drainer = Drainer(self.world, "drainer", kept)
        drainer.start()
        if self.scenario.streams:
            for name in self.scenario.topology.streams:
                Reader(self.world, f"last reader of {name}", name, final=True).start()
        return drainer

    def _judge_scopes(self) -> list[Violation]:
        """In a calm cluster nothing is in a queue in which messages expire anywhere much later than a tick after its
        deadline, as its leader has it (RULES X2)."""
        violations: list[Violation] = []
        for program in self._programs():
            for shard_id, shard in program.engine.shards.items():
                group = program.engine.host.groups.get(shard_id)
                if group is None or not group.leads:
                    continue
                due_ms = group.clock.current_ms(program.machine.now_ms()) - OVERDUE_MS
                for queue_id in shard.queue_ids():
                    queue = shard.queue(queue_id)
                    plan = None if queue is None else self.scenario.topology.queues.get(queue.name)
                    if queue is None or queue.has_left or plan is None or not plan.expires_anywhere:
                        continue
                    deadlines = [message.deadline_ms for line in queue.lines() for message in line.live()]
                    if any(0 <= deadline_ms < due_ms for deadline_ms in deadlines):
                        violations.append(Violation("X2 late", f"{queue.name} has what was due {OVERDUE_MS} ms ago"))
        return violations

    def _is_kept(self, plan: QueuePlan) -> bool:
        return plan.expires_ms is None and (plan.name != "removed" or self._exists("removed"))

    def _exists(self, name: str) -> bool:
        return name in self._names_at_nodes()

    def programs(self) -> list[SimulatedNode]:
        """All nodes whose processes run."""
        programs = [machine.program for machine in self.cluster.machines.values()]
        return [program for program in programs if isinstance(program, SimulatedNode)]

    def _programs(self) -> list[SimulatedNode]:
        """The running nodes that are members, as the catalog that is furthest ahead has it."""
        running = self.programs()
        if not running:
            return []
        members = max(running, key=lambda program: program.engine.catalog.members.version).engine.catalog.members
        present = {record.id for record in members.with_replicas()}
        return [program for program in running if program.machine.id in present or not present]

    def _names_at_nodes(self) -> list[str]:
        names: dict[str, None] = {}
        for program in self._programs():
            for queue in program.engine.catalog.queues():
                names.setdefault(queue.name)
        return list(names)

    # ------------------------------------------------------------------ the verdict

    def judge(self) -> list[Violation]:
        """What the clients saw, and what replicas hold."""
        drainer = self._drainer
        if drainer is None:
            return [Violation("setup", "the queues could not be declared in time")]
        history = self.history
        history.ended_us = self.queue.now_us
        history.present_at_end = self._names_at_nodes()
        violations = [
            Violation("unanswered", f"{queue} could not be drained at the end")
            for queue in drainer.queues
            if queue not in drainer.drained
        ]
        violations += check(history, self.scenario.topology, self.scenario.tolerance)
        violations += self._judge_replicas()
        violations += self._overdue
        violations += judge_moves(self._programs())
        if self.redriving is not None:
            violations += self.redriving.judge()
        if self.braking is not None:
            violations += self.braking.judge()
        return violations

    def _wait_for(self, late_us: int, is_over: Callable[[], bool]) -> None:
        until_us = self.queue.now_us + late_us
        while not is_over() and self.queue.now_us < until_us:
            self.queue.run_until(self.queue.now_us + SECOND_US // 2)

    def _nothing_moves(self) -> bool:
        return not any(program.engine.catalog.moving_queues() for program in self._programs())

    def _lanes_are_empty(self) -> bool:
        shards = [shard for program in self._programs() for shard in program.engine.shards.values()]
        return not any(shard.has_lanes or shard.unrouted(1) for shard in shards)

    def _nothing_is_to_be_due(self) -> bool:
        shards = [shard for program in self._programs() for shard in program.engine.shards.values()]
        queues = [shard.queue(queue_id) for shard in shards for queue_id in shard.queue_ids()]
        waits = any(queue is not None and queue.schedule is not None for queue in queues)
        return not waits and not any(shard.unrouted(1) for shard in shards)

    def _wait_for_replicas(self) -> None:
        """Let what was proposed in the last moment reach everyone, and leads that are handed over be taken."""
        for _ in range(100):
            if all(map(self._is_at_rest, self._groups())):
                return
            self.queue.run_until(self.queue.now_us + 20 * MILLISECOND_US)

    def _is_at_rest(self, group_id: int) -> bool:
        groups = [group for _, group in self._replicas(group_id)]
        return len({group.applied for group in groups}) == 1 and sum(group.leads for group in groups) == 1

    def _groups(self) -> range:
        """Those that some node knows by now."""
        return range(1 + max((program.engine.catalog.shard_count for program in self._programs()), default=0))

    def _replicas(self, group_id: int) -> list[tuple[SimulatedNode, Group]]:
        """The replicas of a group, with the nodes that they are on."""
        programs = self._programs()
        found = [(program, program.engine.host.groups.get(group_id)) for program in programs]
        return [(program, group) for program, group in found if group is not None]

    def _judge_replicas(self) -> list[Violation]:
        """In the end all replicas are at the same place, and nothing is stuck on its way."""
        violations: list[Violation] = []
        programs = self._programs()
        for program in programs:
            if not settled(program):
                states = [(record.id, record.state) for record in program.engine.catalog.members.all()]
                text = f"node {program.machine.id} does not have the members that it should have: {states}"
                violations.append(Violation("membership", text))
            known = len(program.engine.host.sessions)
            if known != len(self._groups()):
                text = f"node {program.machine.id} knows {known} groups, there are {len(self._groups())}"
                violations.append(Violation("convergence", text))
        for group_id in self._groups():
            replicas = self._replicas(group_id)
            applied = {program.machine.id: group.applied for program, group in replicas}
            if len(set(applied.values())) != 1:
                violations.append(
                    Violation("convergence", f"group {group_id} is applied up to {applied}")
                )
                continue
            leaders = [program.machine.id for program, group in replicas if group.leads]
            if len(leaders) != 1:
                violations.append(Violation("convergence", f"group {group_id} is led by {leaders}"))
            for program, _ in replicas:
                self.world.probe.compare(program, group_id)
                if group_id != CATALOG_GROUP:
                    violations += self._judge_outbox(program, group_id)
        return violations

    def _judge_outbox(self, program: SimulatedNode, group_id: int) -> list[Violation]:
        shard = program.engine.shards[group_id]
        waiting = len(shard.unrouted(10))
        if waiting or list(shard.parked()) or any(lane.items for lane in shard.lanes()):
            return [Violation("D6", f"dead letters are stuck in the outbox of shard {group_id}")]
        return []

    def _moves_of(self, program: SimulatedNode) -> int:
        return sum(record.moves.count for record in program.engine.catalog.queues() if record.moves is not None)

    def happened(self) -> dict[str, int]:
        """What clients, operator and faults did."""
        counts = self.history.counts()
        counts["changes"] = self._operator.done if self._operator is not None else 0
        counts["moves asked"] = self._mover.asked
        counts["moves made"] = max((self._moves_of(program) for program in self._programs()), default=0)
        counts["replicas moved"] = self._placer.done
        counts |= {name: self._told[kind] for kind, name in TOLD.items()}
        counts["growths"] = self._operator.growths if self._operator is not None else 0
        counts["digests"] = self.world.probe.digests_compared
        counts["spreads without all"] = self.world.probe.spreads_without_all
        counts["sessions lost"] = self.world.probe.sessions_lost
        counts["told by snapshot"] = self.world.probe.told_by_snapshot
        return counts | self.cluster.effects


def fault_at(fault: Fault, start_us: int) -> Fault:
    """The fault, moved from the plan's time to the run's."""
    return replace(fault, at_us=fault.at_us + start_us)


def frame_text(frame: Frame) -> str:
    """A frame in the trace: enough to tell two runs apart at the first difference."""
    parts = [f"{frame.clock_ms} {len(frame.group_clocks)}"]
    for group, message in frame.raft:
        parts.append(
            f"{group}:{MESSAGE_TYPE_NAMES[message.type]} {message.term} {message.log_term}/{message.index} "
            f"{message.commit} {message.reject} {len(message.entries)}"
        )
    for group, batch in frame.proposals:
        parts.append(f"{group}:proposal {len(batch)}")
    for kind, data in frame.notices:
        parts.append(f"notice {kind} {len(data)}")
    return "; ".join(parts)
