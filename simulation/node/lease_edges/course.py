"""The course of a run: queues whose leases end together, what meets their end, and what is left afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pamqp import commands

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from mayfly.node.numbers import CATALOG_GROUP
from simulation.cluster import faults
from simulation.cluster.disk import DiskProfile
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.faults import Fault
from simulation.cluster.machine import Machine
from simulation.cluster.network import LinkProfile
from simulation.node.checker import Tolerance, check_edges
from simulation.node.history import BROKEN, NOT_FOUND, LeaseUse, Life
from simulation.node.lease_edges.client import EdgeClient
from simulation.node.lease_edges.plan import (
    ALL,
    ATTACH,
    CANCEL,
    CLOCK,
    CLOSE,
    CRASH,
    CUT_OFF,
    DECISION,
    DROP,
    FREEZE,
    GET,
    GET_EMPTY,
    LEADER,
    NODE_LOSS,
    NODES,
    OUTAGE,
    PASSIVE,
    PUBLISH,
    REDECLARE,
    RELEASES,
    TRANSFER,
    Edge,
    EdgePlan,
)
from simulation.node.nodes import SimulatedNode
from simulation.node.run import Simulation
from simulation.node.scenario import NodeScenario, Timeline
from simulation.node.topology import RunTopology
from simulation.simulator import ScenarioRun, Sink, Violation

EXCHANGE = "edges"
READY_LIMIT_US = 5 * SECOND_US
STEP_US = 10 * MILLISECOND_US
RENEWALS = 8


class _Shards:
    """What a process was last seen to lead, by shard: (leads, established)."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[bool, bool]] = {}
        self.applied = 0


class EdgeRun(ScenarioRun[EdgePlan]):
    """One run."""

    def __init__(self, plan: EdgePlan, sink: Sink = None) -> None:
        self.scenario = plan
        simulation = self.simulation = Simulation(_scenario_of(plan), sink)
        self.queue = simulation.queue
        self.trace = simulation.trace
        self.cluster = simulation.cluster
        self.world = simulation.world
        self.history = simulation.history
        if plan.fault is not None and plan.fault.kind == CLOCK and plan.fault.whom == ALL:
            # With all of them an hour off, nobody is left who could say so (RULES C3).
            self.world.probe.clock_limit_ms = None
        self._seen: dict[int, _Shards] = {node: _Shards() for node in NODES}
        self._impaired: set[int] = set()
        for machine in self.cluster.machines.values():
            machine.after_input = self._look
        self._clients: dict[str, EdgeClient] = {}
        self._ready: list[str] = []
        self._not_begun = ""
        """Why the edge was never come to."""

    # ------------------------------------------------------------------ what is seen from outside

    def _look(self, machine: Machine[Frame, WriteBatch]) -> None:
        program = machine.program
        if not isinstance(program, SimulatedNode):
            return
        self.world.probe.look(program)
        seen = self._seen[machine.id]
        for group_id in program.engine.shards:
            group = program.engine.host.groups[group_id]
            now = (group.leads, group.established and machine.id not in self._impaired)
            self._note(machine.id, group_id, now)
        applied = program.engine.host.groups[CATALOG_GROUP].applied
        if applied != seen.applied:
            seen.applied = applied
            for record in program.engine.catalog.queues():
                if record.id not in self.history.lives:
                    self.history.lives[record.id] = Life(record.name, record.id, record.shard, self.queue.now_us)

    def _note(self, node: int, shard: int, now: tuple[bool, bool]) -> None:
        before = self._seen[node].seen.get(shard, (False, False))
        if now == before:
            return
        self._seen[node].seen[shard] = now
        if now[0] != before[0]:
            self.history.leading.append((self.queue.now_us, shard, node, now[0]))
        if now[1] != before[1]:
            self.history.established.append((self.queue.now_us, shard, node, now[1]))

    def _died(self, node: int) -> None:
        for shard in list(self._seen[node].seen):
            self._note(node, shard, (False, False))
        self._seen[node] = _Shards()

    def _impair(self, node: int) -> None:
        """The node is frozen or cut off: it may think that it leads, and decides nothing."""
        self._impaired.add(node)
        for shard, (leads, _) in list(self._seen[node].seen.items()):
            self._note(node, shard, (leads, False))

    def leader_of(self, shard: int) -> int:
        """The node that leads and may decide; 0 for none."""
        for program in self.simulation.programs():
            if program.engine.host.groups[shard].established:
                return program.machine.id
        return 0

    def _program(self, node: int) -> SimulatedNode | None:
        program = self.cluster.machines[node].program
        return program if isinstance(program, SimulatedNode) else None

    # ------------------------------------------------------------------ the course

    def pass_time(self) -> None:
        """Up to the edge, over it, and until nothing is left."""
        self._not_begun = self._come_to_the_edge()
        if self._not_begun:
            return
        self.cluster.calm_down()
        self._until(self._is_over, 8 * SECOND_US + 2 * self.scenario.expires_ms * MILLISECOND_US)
        self._ask_at_the_end()
        self.history.ended_us = self.queue.now_us
        for gone in self.history.disappearances:
            life = self.history.lives[gone.queue_id]
            life.gone_us, life.reason = gone.at_us, gone.reason

    def judge(self) -> list[Violation]:
        """What clients were told, held against when queues were there."""
        if self._not_begun:
            return [Violation("setup", self._not_begun)]
        return check_edges(self.history, self.scenario)

    def happened(self) -> dict[str, int]:
        """How uses were answered."""
        answers: dict[str, int] = {}
        for use in self.history.uses:
            key = f"{use.kind}: {use.answer}"
            answers[key] = answers.get(key, 0) + 1
        return dict(sorted(answers.items()))

    def _come_to_the_edge(self) -> str:
        """Until the last of what is aimed at the edge has happened; why it could not come to that, "" for nothing."""
        self.cluster.start_all()
        if not self._until(self._is_ready, READY_LIMIT_US):
            return "the cluster did not get ready"
        setup = self._client("setup", 1 + self.scenario.seed % 3)
        if not self._until(lambda: "setup" in self._ready, SECOND_US):
            return "no connection"
        self._found(setup)
        if not self._until(lambda: len(self._settled("found")) == len(self.scenario.edges), 3 * SECOND_US):
            return "the queues could not be declared in time"
        deadlines_us = self._renew_all(setup)
        if not deadlines_us:
            return "the leases could not be renewed together"
        for edge in self.scenario.edges:
            self._schedule(edge, deadlines_us[edge.queue])
        end_us = max(deadlines_us.values()) + 10 * MILLISECOND_US
        end_us = max(end_us, self._schedule_fault(deadlines_us[self.scenario.edges[0].queue]))
        self.queue.run_until(end_us)
        return ""

    def _until(self, condition: Callable[[], bool], limit_us: int) -> bool:
        end_us = self.queue.now_us + limit_us
        while not condition():
            if self.queue.now_us >= end_us:
                return False
            self.queue.run_until(self.queue.now_us + STEP_US)
        return True

    def _is_ready(self) -> bool:
        programs = self.simulation.programs()
        shards = range(1, self.scenario.profile.shards + 1)
        return (
            len(programs) == len(NODES)
            and all(program.ready for program in programs)
            and all(self.leader_of(shard) for shard in (CATALOG_GROUP, *shards))
        )

    # ------------------------------------------------------------------ before the edge

    def _client(self, name: str, node: int) -> EdgeClient:
        client = self._clients[name] = EdgeClient(self.world, name, node, lambda: self._ready.append(name))
        return client

    def _settled(self, kind: str) -> list[LeaseUse]:
        return [use for use in self.history.uses if use.kind == kind and use.answer]

    def _found(self, setup: EdgeClient) -> None:
        setup.call(commands.Exchange.Declare(0, EXCHANGE, "fanout", durable=True))
        for edge in self.scenario.edges:
            setup.call(commands.Queue.Declare(0, edge.queue, durable=True, arguments=self._lease()))
            setup.use(edge.queue, "found", commands.Queue.Bind(0, edge.queue, EXCHANGE, edge.queue))
            if edge.kind == GET:
                setup.publish("", edge.queue, b"before", commands.Basic.Properties())

    def _lease(self) -> dict[str, Any]:
        return {"x-expires": self.scenario.expires_ms}

    def _renew_all(self, setup: EdgeClient) -> dict[str, int]:
        """Clients of all queues get ready, holders attach, then one client renews every lease in one go; the true
        times at which they end."""
        for edge in self.scenario.edges:
            shard = self.history.shard_of(edge.queue)
            leader = self.leader_of(shard) or 1
            node = leader if edge.by_leader else 1 + leader % len(NODES)
            self._client(edge.queue, node)
            setup.use(edge.queue, PASSIVE, commands.Queue.Declare(0, edge.queue, passive=True))
        everyone = {"setup", *(edge.queue for edge in self.scenario.edges)}
        if not self._until(lambda: everyone <= set(self._ready), SECOND_US):
            return {}
        for edge in self.scenario.edges:
            if edge.kind in RELEASES:
                self._clients[edge.queue].attach(edge.queue)
        held = sum(edge.kind in RELEASES for edge in self.scenario.edges)
        if not self._until(lambda: len(self._settled(ATTACH)) == held, SECOND_US):
            return {}
        # Leaders may just be on their way to the nodes that the placement prefers.
        for _ in range(RENEWALS):
            wanted = len(self._settled(PASSIVE)) + len(self.scenario.edges)
            for edge in self.scenario.edges:
                setup.use(edge.queue, PASSIVE, commands.Queue.Declare(0, edge.queue, passive=True))
            if not self._until(lambda: len(self._settled(PASSIVE)) >= wanted, SECOND_US):  # noqa: B023
                return {}
            deadlines_us = {edge.queue: self._deadline_us(edge.queue) for edge in self.scenario.edges}
            if min(deadlines_us.values()) > 0:
                return deadlines_us
            self.queue.run_until(self.queue.now_us + 2 * STEP_US)
        return {}

    def _deadline_us(self, queue: str) -> int:
        """When the lease of the queue would end, if nothing happened to it or to its leader."""
        shard = self.history.shard_of(queue)
        program = self._program(self.leader_of(shard))
        ids = [life.queue_id for life in self.history.lives.values() if life.queue == queue]
        found = None if program is None else program.engine.shards[shard].queue(ids[-1])
        if program is None or found is None:
            return -1
        clock = program.engine.host.groups[shard].clock
        clock.advance_led(program.machine.now_ms())
        left_ms = found.lease.started_ms + self.scenario.expires_ms - clock.led_ms
        return self.queue.now_us + left_ms * MILLISECOND_US

    # ------------------------------------------------------------------ the edge

    def _schedule(self, edge: Edge, deadline_us: int) -> None:
        at_us = deadline_us
        if edge.aim == DECISION:
            machine = self.cluster.machines[self.leader_of(self.history.shard_of(edge.queue))]
            tick_us = machine.profile.tick_us
            ticks = -(-(deadline_us - machine.next_tick_us) // tick_us)
            at_us = machine.next_tick_us + ticks * tick_us
        self.queue.at(at_us + edge.delta_us, lambda: self._act(edge))

    def _act(self, edge: Edge) -> None:
        client, queue = self._clients[edge.queue], edge.queue
        later_us = self.scenario.expires_ms * 1_500
        if edge.kind == ATTACH:
            client.attach(queue, client.publish_after)
            self._leave_later(client, later_us)
        elif edge.kind in (GET, GET_EMPTY):
            client.use(queue, edge.kind, commands.Basic.Get(0, queue, no_ack=True), client.publish_after)
        elif edge.kind == REDECLARE:
            method = commands.Queue.Declare(0, queue, durable=True, arguments=self._lease())
            client.use(queue, edge.kind, method, client.publish_after)
        elif edge.kind == PASSIVE:
            client.use(queue, edge.kind, commands.Queue.Declare(0, queue, passive=True), client.publish_after)
        elif edge.kind == PUBLISH and not client.closed:
            client.publish("", queue, b"in vain", commands.Basic.Properties())
        elif edge.kind == CANCEL:
            client.cancel()
        elif edge.kind == CLOSE:
            client.close()
        elif edge.kind == DROP:
            client.drop()
        elif edge.kind == NODE_LOSS:
            at_us = self.queue.now_us
            self._break(CRASH, (client.node,), at_us, self.scenario.expires_ms * MILLISECOND_US // 2)

    def _leave_later(self, client: EdgeClient, delay_us: int) -> None:
        """Cancel the consumer after a while, once it is attached."""

        def leave() -> None:
            if not client.is_attached and not client.closed:
                self._leave_later(client, delay_us)
            else:
                client.cancel()

        self.queue.after(delay_us, leave)

    # ------------------------------------------------------------------ what goes wrong

    def _schedule_fault(self, deadline_us: int) -> int:
        """Put the fault on the queue; when it is over."""
        fault = self.scenario.fault
        if fault is None:
            return deadline_us + (self.scenario.expires_ms if self._loses_a_node() else 0) * MILLISECOND_US
        at_us = deadline_us + fault.delta_us
        leader = self.leader_of(self.history.shard_of(self.scenario.edges[0].queue))
        whom = {LEADER: (leader,), ALL: NODES}.get(fault.whom, (1 + leader % len(NODES),))
        if fault.kind == CLOCK:
            step = Fault(at_us - 1, faults.CLOCK_STEP, whom, 0, fault.step_us)
            self.cluster.schedule([step])
            if fault.duration_us:
                self._break(CRASH, whom, at_us, fault.duration_us)
        elif fault.kind == TRANSFER:
            heir, shard = 1 + leader % len(NODES), self.history.shard_of(self.scenario.edges[0].queue)
            self.history.fault_us = (at_us, at_us)
            self.cluster.schedule([Fault(at_us, faults.TRANSFER, (heir,), 0, shard)])
        else:
            self._break(CRASH if fault.kind == OUTAGE else fault.kind, whom, at_us, fault.duration_us)
        return max(at_us + fault.duration_us, deadline_us) + MILLISECOND_US

    def _loses_a_node(self) -> bool:
        return any(edge.kind == NODE_LOSS for edge in self.scenario.edges)

    def _break(self, kind: str, nodes: tuple[int, ...], at_us: int, duration_us: int) -> None:
        start_us, end_us = self.history.fault_us
        start_us = at_us if start_us < 0 else min(start_us, at_us)
        self.history.fault_us = (start_us, max(end_us, at_us + duration_us))
        words = {CRASH: faults.CRASH, FREEZE: faults.FREEZE, CUT_OFF: faults.PARTITION}
        for node in nodes:
            if kind == CRASH:
                self.queue.at(at_us, partial(self._watch_death, node))
            else:
                self.queue.at(at_us, partial(self._impair, node))
                self.queue.at(at_us + duration_us, partial(self._impaired.discard, node))
        self.cluster.schedule([Fault(at_us, words[kind], nodes, duration_us, 1)])

    def _watch_death(self, node: int) -> None:
        self.cluster.machines[node].on_crash.append(lambda: self._died(node))

    # ------------------------------------------------------------------ after the edge

    def _is_over(self) -> bool:
        """Whether every use is answered and nothing is left of any queue."""
        if any(not use.answer for use in self.history.uses):
            return False
        programs = self.simulation.programs()
        if len(programs) < len(NODES) or not all(program.ready for program in programs):
            return False
        return not any(self._left_at(program) for program in programs)

    def _left_at(self, program: SimulatedNode) -> list[str]:
        name = f"node {program.machine.id}"
        left = [f"{name} has {record.name} in its catalog" for record in program.engine.catalog.queues()]
        left += [f"{name} has a binding to {bound.destination}" for bound in program.engine.catalog.bindings("/")]
        for shard in program.engine.shards.values():
            left += [f"{name} has the queue {queue_id} in its shard" for queue_id in shard.queue_ids()]
            left += [f"{name} has the tombstone of {gone.name}" for gone in shard.deleted.values()]
            if shard.next_lease_due_ms() >= 0:
                left.append(f"{name} has a timer without a queue")
        return left

    def _ask_at_the_end(self) -> None:
        """What clients and replicas say when all is over."""
        programs = self.simulation.programs()
        for program in programs:
            self.history.left_behind += self._left_at(program)
        for shard in (CATALOG_GROUP, *range(1, self.scenario.profile.shards + 1)):
            for program in programs:
                self.world.probe.compare(program, shard)
        node = 1 + (self.scenario.seed // 3) % 3
        last = EdgeClient(self.world, "last", node, lambda: self._ready.append("last"))
        if not self._until(lambda: "last" in self._ready, SECOND_US):
            self.history.final["a connection in the end"] = BROKEN
            return
        queue = self.scenario.edges[0].queue
        returned: list[str] = []
        last.on_returned = lambda message: returned.append(EXCHANGE)
        last.publish(EXCHANGE, "", b"", commands.Basic.Properties())
        final = LeaseUse(queue, "last look", self.queue.now_us)

        def told(result: Any) -> None:
            code = getattr(result, "code", 0)
            final.answer = NOT_FOUND if code == 404 else f"was answered {result}"

        last.call(commands.Queue.Declare(0, queue, passive=True), told)
        self._until(lambda: bool(final.answer), SECOND_US)
        self.history.final[f"{queue} in the end"] = "gone" if final.answer == NOT_FOUND else final.answer
        self.history.final["a publish to what was bound"] = "gone" if returned else "was not returned"


def _scenario_of(plan: EdgePlan) -> NodeScenario:
    """The cluster of a plan, in the words of the big simulation."""
    return NodeScenario(
        seed=plan.seed,
        nodes=NODES,
        node_profile=plan.profile,
        links=LinkProfile(base_us=150, jitter_us=100, spike_probability=0.0, frame_loss=0.0),
        topology=RunTopology(),
        timeline=Timeline(),
        plan=(),
        absent=0,
        clock_offsets_us=plan.clock_offsets_us,
        clock_drifts_ppm=plan.clock_drifts_ppm,
        disk=DiskProfile(base_us=100, jitter_us=200),
        tolerance=Tolerance(),
        publishers=0,
        leaseholders=0,
        gap_us=0,
        loop_us=200,
    )
