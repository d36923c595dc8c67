"""One run of the outsider over a simulated cluster. Of the cluster's inside it knows nothing: it starts it, breaks it,
and judges what clients saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from mayfly.node.broker.cluster_facade import ClusterEvents, ClusterFacade
from mayfly.node.catalog import Done, MoveQueue
from simulation.cluster import faults
from simulation.cluster.clocks import EPOCH_MS, MachineClock
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import MILLISECOND_US, MOST_EVENTS, SECOND_US, EventQueue
from simulation.cluster.machine import Machine, MachineProfile
from simulation.cluster.memory_store import SimulatedDisk
from simulation.cluster.randomness import stream
from simulation.cluster.trace import MOST_LINES, Trace
from simulation.node.history import History
from simulation.node.nodes import Acquaintance, SimulatedNode
from simulation.node.probe import Probe, ProbedNode
from simulation.node.sockets import Wire
from simulation.outsider.both_judges import verdict_of_first
from simulation.outsider.client import CLIENT_DELAY_US, OutsiderClient
from simulation.outsider.judging.history import (
    DECLARE,
    EMPTY,
    GET,
    UNKNOWN,
    OutsiderHistory,
    Phases,
    Setting,
    Trouble,
)
from simulation.outsider.judging.judge import Judgement, judge
from simulation.outsider.recorder import Recorder
from simulation.outsider.scenario import CALM_US, DRAIN_US, WORK_US, MoveAsked, OutsiderScenario
from simulation.outsider.workload import BIND, EXCHANGE, ClientPlan, ClientStep
from simulation.simulator import ScenarioRun, Sink, Violation

LEVEL_US = 2 * SECOND_US
"""Nodes that have just founded a cluster refuse for a moment what not all of them are known to know."""
LONG_LEVEL_US = 60 * SECOND_US
LONGER = 50
LOOKS = 3
"""So often in a row each queue must be found empty at the end."""
LOOK_AGAIN_US = 900 * MILLISECOND_US
"""Longer than any time to live, wait or lease there is by then may leave a message unseen."""
ANSWER_LIMIT_US = 30 * SECOND_US
FIRST_JUDGE = "first judge, "
"""How the rules begin that the judge of `simulation.node.checker` finds broken in what the outsider saw."""
DRAIN_LIMIT_US = 240 * SECOND_US
"""Dead letters that wait before a full queue come into it once a second, as many as it takes."""


class Blindfold(Probe):
    """Nodes can't do without a probe: this one sees nothing and objects to nothing."""

    def watch(self, node: ProbedNode) -> ClusterFacade:
        """The engine itself."""
        return node.engine

    def watch_effects(self, node: ProbedNode, events: ClusterEvents) -> ClusterEvents:
        """The broker itself."""
        return events


class OutsiderRun(ScenarioRun[OutsiderScenario]):
    """A cluster, its faults, and the outsider's clients."""

    def __init__(self, scenario: OutsiderScenario, sink: Sink = None) -> None:
        self.scenario = scenario
        # In long times most that happens is that nodes look at the time.
        longer = 1 if scenario.stretch == 1 else LONGER
        self.queue = EventQueue(longer * MOST_EVENTS)
        self.trace = Trace(self.queue, sink, longer * MOST_LINES)
        seed = scenario.seed
        self.cluster: SimulatedCluster[Frame, WriteBatch] = SimulatedCluster(
            self.queue, stream(seed, "network"), scenario.links, self.trace
        )
        self.cluster.transfer_leadership = self._transfer_leadership
        self._probe = Blindfold(self.queue, History())
        setting = Setting(
            seed, scenario.workload.queues, scenario.workload.exchanges, scenario.profile.expiry_tick_ms,
            scenario.clock_ms, scenario.late_ms, EPOCH_MS, scenario.settle_ms,
            scenario.behind_ms, tuple(dict.fromkeys(move.queue for move in scenario.moves)),
        )  # fmt: skip
        self.history = OutsiderHistory(setting)
        self.recorder = Recorder(self.history)
        self.wires = stream(seed, "client wires")
        self.queues = {queue.name: queue for queue in scenario.workload.queues}
        self.nodes = scenario.nodes
        self.slowness = scenario.slowness
        self.moved = 0
        """How often it was said that a queue moves."""
        self.judgement: Judgement | None = None
        self.verdict_of_first: list[Violation] = []
        for place, node in enumerate(scenario.nodes):
            self._add_machine(node, scenario.clock_offsets_us[place])
        self._founded = False

    def _add_machine(self, node: int, offset_us: int) -> None:
        scenario, disk = self.scenario, SimulatedDisk()
        known = Acquaintance(list(scenario.nodes), scenario.nodes)

        def boot(machine: Machine[Frame, WriteBatch]) -> tuple[SimulatedNode, WriteBatch | None]:
            random = stream(scenario.seed, f"node {node} life {machine.life}")
            program = SimulatedNode(
                machine, disk, known, scenario.profile, random, self._probe, lambda other: None
            )
            return program, program.first_write

        machine: Machine[Frame, WriteBatch] = Machine(
            node,
            self.queue,
            stream(scenario.seed, f"machine {node}"),
            self.cluster.network,
            disk,
            boot,
            MachineClock(offset_us),
            MachineProfile(
                tick_us=scenario.profile.tick_ms * MILLISECOND_US,
                loop_us=scenario.loop_us,
                full_disk_retry_us=MachineProfile().full_disk_retry_us * scenario.slowness,
            ),
            replace(scenario.disk),
        )

        def transmit(peer: int, frame: Frame) -> None:
            if isinstance(machine.program, SimulatedNode):
                machine.program.transmit(peer, frame, self.cluster.network.send)

        machine.transmit = transmit
        self.cluster.add(machine)

    def _transfer_leadership(self, node: int, number: int) -> None:
        for machine in self.cluster.machines.values():
            program = machine.program
            if not isinstance(program, SimulatedNode) or machine.frozen or node == machine.id:
                continue
            groups = program.engine.host.groups
            group = groups.get(number % (len(groups) or 1))
            if group is not None and group.leads and node in group.conf_state.voters:
                machine.call(partial(group.raw.transfer_leader, node))

    def connect(self, node: int, wire: Wire, refused: Callable[[], None]) -> None:
        """Open a TCP connection; `refused` is called when nobody listens there."""
        machine = self.cluster.machines[node]
        wire.run_on_server = machine.call
        machine.on_crash.append(wire.machine_died)

        def accept() -> None:
            program = machine.program
            if not isinstance(program, SimulatedNode) or not program.accept(wire):
                wire.machine_died()
                refused()

        if machine.serving:
            machine.call(accept)
        else:
            self.queue.after(CLIENT_DELAY_US, refused)

    # ------------------------------------------------------------------ the course of a run

    def pass_time(self) -> None:
        """All that happens."""
        self.cluster.start_all()
        self._found()
        start = self.queue.now_us
        plan = [replace(fault, at_us=fault.at_us + start) for fault in self.scenario.plan]
        self._note_troubles(plan)
        self.cluster.schedule(plan)
        clients = [
            OutsiderClient(self, each, stream(self.scenario.seed, f"mind of {place}"))
            for place, each in enumerate(self.scenario.workload.clients)
        ]
        for client in clients:
            client.start()
        for move in self.scenario.moves:
            self.queue.at(start + move.at_us, partial(self._ask_to_move, move))
        stretch = self.scenario.stretch
        self.queue.run_until(start + CALM_US * stretch)
        self.cluster.calm_down()
        self.queue.run_until(start + WORK_US * stretch)
        self.queue.run_until(start + (DRAIN_US - SECOND_US) * stretch)
        for client in clients:
            client.finish()
        self.queue.run_until(start + DRAIN_US * stretch)
        drain_us = self.queue.now_us
        self._drain()
        self.history.phases = Phases(start + CALM_US * stretch, drain_us, self.queue.now_us)

    def _ask_to_move(self, move: MoveAsked) -> None:
        """As an operator: what a node that is down does not hear is not asked again."""
        machine = self.cluster.machines[move.node]
        program = machine.program
        if machine.serving and isinstance(program, SimulatedNode):
            asked = MoveQueue("/", move.queue, move.shard)
            machine.call(lambda: program.engine.submit_catalog(asked, self._answered_move))

    def _answered_move(self, answer: object) -> None:
        self.moved += isinstance(answer, Done) and answer.changed

    def _note_troubles(self, plan: list[faults.Fault]) -> None:
        alone = (faults.CRASH, faults.KILL, faults.FREEZE)
        for fault in plan:
            if fault.kind == faults.TRANSFER:
                continue  # Leaders come and go: no client is to see that.
            nodes = fault.nodes if fault.kind in alone else ()
            to_us = fault.at_us + fault.duration_us
            self.history.troubles.append(Trouble(fault.kind, nodes, fault.at_us, to_us))
        if plan:
            # At calm everything that is down or held up starts at once.
            calm_us = self.queue.now_us + CALM_US * self.scenario.stretch
            self.history.troubles.append(Trouble("calm", (), calm_us, calm_us))

    def _found(self) -> None:
        """Declare everything, when the cluster has found its feature level; it is there on all nodes a moment after."""
        self.queue.run_until(LEVEL_US if self.scenario.stretch == 1 else LONG_LEVEL_US * self.scenario.slowness)
        workload = self.scenario.workload
        steps = [ClientStep(0, EXCHANGE, exchange=exchange.name) for exchange in workload.exchanges]
        steps += [ClientStep(0, DECLARE, name) for name in workload.declared]
        steps += [
            ClientStep(0, BIND, queue, exchange=each.name) for each in workload.exchanges for queue in each.queues
        ]
        client = OutsiderClient(self, ClientPlan("founder", self.nodes[0], tuple(steps)), stream(0, "founder"))
        self._do_all(client)
        if not client.is_done:
            raise AssertionError("the cluster does not come up")
        self.queue.run_until(self.queue.now_us + SECOND_US // 2)

    def _drain(self) -> None:
        """Take out what is left, until nothing comes any more."""
        limit_us = self.queue.now_us + DRAIN_LIMIT_US * self.scenario.stretch
        empty = 0
        while empty < LOOKS:
            if self.queue.now_us > limit_us:
                raise AssertionError("the drain has no end")
            before = len(self.history.handed)
            self._look_into(list(self.queues))
            empty = empty + 1 if len(self.history.handed) == before else 0
            self.queue.run_until(self.queue.now_us + (LOOK_AGAIN_US * self.scenario.stretch if empty else 0))

    def _look_into(self, names: list[str]) -> None:
        """Every queue until it is empty, or gone."""
        many = 1
        while names:
            steps = tuple(ClientStep(0, GET, name, no_ack=True) for name in names for _ in range(many))
            plan = ClientPlan("drainer", self.nodes[0], steps)
            before = len(self.history.calls)
            self._do_all(OutsiderClient(self, plan, stream(0, "drainer")))
            calls = self.history.calls[before:]
            done = {call.queue for call in calls if call.outcome == EMPTY or call.code}
            names = [name for name in names if name not in done]
            many = 10

    def _do_all(self, client: OutsiderClient) -> None:
        client.start()
        self._wait(lambda: client.is_idle)
        client.finish()
        self._wait(lambda: client.is_done)

    def _wait(self, is_over: Callable[[], bool]) -> None:
        limit_us = self.queue.now_us + ANSWER_LIMIT_US * self.scenario.slowness
        while not is_over() and self.queue.now_us < limit_us:
            self.queue.run_until(self.queue.now_us + MILLISECOND_US * self.scenario.slowness)

    # ------------------------------------------------------------------ the verdict

    def judge(self) -> list[Violation]:
        """What the outsider finds wrong; and, where times are as usual, what the first judge does."""
        self.judgement = judge(self.history)
        found = [Violation(finding.rule, finding.text) for finding in self.judgement.findings]
        if self._has_two_judges:
            self.verdict_of_first = verdict_of_first(self.history)
        return found + [Violation(f"{FIRST_JUDGE}{each.rule}", each.text) for each in self.verdict_of_first]

    @property
    def _has_two_judges(self) -> bool:
        return self.scenario.stretch == 1

    def happened(self) -> dict[str, int]:
        """What happened, and how often."""
        history = self.history
        counts = {
            "published": len(history.publishes),
            "confirmed": sum(each.outcome == "confirmed" for each in history.publishes),
            "handed": len(history.handed),
            "dead": sum(bool(each.deaths) for each in history.handed),
            "calls": len(history.calls),
            "unanswered": sum(each.outcome == UNKNOWN for each in history.calls)
            + sum(each.outcome == UNKNOWN for each in history.publishes),
            "undecided": 0 if self.judgement is None else self.judgement.undecided,
        }
        if self.scenario.moves:
            counts["moves"] = self.moved
        if self._has_two_judges and self.judgement is not None:
            differ = bool(self.judgement.findings) != bool(self.verdict_of_first)
            counts |= {"judged twice": 1, "judges differ": int(differ)}
        return counts | self.cluster.effects
