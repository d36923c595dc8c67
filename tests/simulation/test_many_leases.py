"""Ten thousand leases that end in the same second, in a cluster that has other work (RULES L4, L6, C4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from mayfly.node.catalog import DeclareQueue, QueueDeclared
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.shard_leader import LEASES_PER_ENTRY
from mayfly.node.shard.commands import encode_create_queue
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.machine import Machine
from simulation.node.lease_edges.client import EdgeClient
from simulation.node.lease_edges.course import EdgeRun
from simulation.node.lease_edges.plan import EdgePlan
from simulation.node.nodes import NodeProfile, SimulatedNode

EXPIRES_MS = 2_000


class Crowd(EdgeRun):
    """A cluster of one shard in which many queues come into being in the same second."""

    def __init__(self, queues: int, crash: bool) -> None:
        profile = NodeProfile(shards=1, tick_ms=50, heartbeat_ms=100, election_timeout_ms=700, expiry_tick_ms=250)
        super().__init__(EdgePlan(1, profile, EXPIRES_MS, (), None, (0, 0, 0), (0, 0, 0)))
        self.queues = queues
        self.crash = crash
        self.created: list[int] = []
        self.steps: list[int] = []
        """How many queues each entry took away, at the replica that looked first."""
        self.confirmed_us: list[int] = []
        self.delivered = 0
        self._counts: dict[int, int] = {}

    def _look(self, machine: Machine[Frame, WriteBatch]) -> None:
        super()._look(machine)
        program = machine.program
        if isinstance(program, SimulatedNode):
            before = self._counts.get(machine.id, 0)
            now = self._counts[machine.id] = len(program.engine.shards[1].queue_ids())
            if now < before:
                self.steps.append(before - now)

    def create_all(self) -> None:
        """Declare all queues at the leader of the shard, as its clients would, in as few entries as possible."""
        program = self._program(self.leader_of(1))
        assert program is not None
        engine = program.engine

        def declared(result: object) -> None:
            assert isinstance(result, QueueDeclared)
            encoded = encode_create_queue(result.queue.id, shard_settings(engine.catalog, result.queue))
            engine.shard(1).submit(encoded, lambda answer: self.created.append(self.queue.now_us))

        def declare_all() -> None:
            for number in range(self.queues):
                arguments = {"x-expires": EXPIRES_MS}
                engine.submit_catalog(DeclareQueue("/", f"crowd{number}", durable=True, arguments=arguments), declared)

        program.machine.call(declare_all)
        assert self._until(lambda: len(self.created) == self.queues, 10 * SECOND_US)

    def serve(self, queue: str, until: Callable[[], bool]) -> None:
        """A client publishes to a queue and consumes it, a message every 5 ms, at the node that leads least."""
        node = 1 + self.leader_of(1) % 3
        client = EdgeClient(self.world, "busy", node, lambda: self._ready.append("busy"))
        assert self._until(lambda: "busy" in self._ready, SECOND_US)
        client.call(commands.Queue.Declare(0, queue, durable=True))
        client.call(commands.Basic.Consume(0, queue, "busy", no_ack=True))
        client.on_confirm = lambda tag, good: self.confirmed_us.append(self.queue.now_us) if good else None

        def came(message: object) -> None:
            self.delivered += 1

        client.on_message = came

        def publish() -> None:
            if not until() and not client.closed:
                client.publish("", queue, b"work", commands.Basic.Properties())
                self.queue.after(5 * MILLISECOND_US, publish)

        publish()

    def left(self) -> int:
        """The most queues of the crowd that any running node still has in its shard, then in its catalog."""
        programs = self.simulation.programs()
        in_shards = max(len(program.engine.shards[1].queue_ids()) for program in programs) - 1
        if in_shards > 0:
            return in_shards
        return max(sum(1 for record in p.engine.catalog.queues() if record.name != "served") for p in programs)


@pytest.mark.slow
@pytest.mark.parametrize("crash", [False, True])
def test_l4_l6_c4_ten_thousand_leases_end_in_the_same_second(crash: bool) -> None:
    """RULES L4, L6, C4: none early, all of them gone, at most so many in an entry, and others are served meanwhile;
    also when the leader dies in the middle of it."""
    crowd = Crowd(10_000, crash)
    crowd.cluster.start_all()
    assert crowd._until(crowd._is_ready, 5 * SECOND_US)
    gone = False
    crowd.serve("served", lambda: gone)
    crowd.create_all()
    assert max(crowd.created) - min(crowd.created) < SECOND_US
    crowd.queue.run_until(min(crowd.created) + (EXPIRES_MS - 20) * MILLISECOND_US)
    assert crowd.left() == 10_000, "deleted early"
    began_us = crowd.queue.now_us
    if crash:
        assert crowd._until(lambda: crowd.left() < 7_000, 5 * SECOND_US)
        crowd.cluster.crash(crowd.leader_of(1))
    assert crowd._until(lambda: crowd.left() == 0, 20 * SECOND_US), f"{crowd.left()} queues are left"
    took_us = crowd.queue.now_us - began_us
    gone = True
    crowd.queue.run_until(crowd.queue.now_us + SECOND_US)
    assert max(crowd.steps) <= LEASES_PER_ENTRY
    for shard in (p.engine.shards[1] for p in crowd.simulation.programs()):
        assert len(shard.queue_ids()) == 1 and shard.next_lease_due_ms() == -1 and not shard.deleted
    # 10 000 in entries of 1 000, one every tick of 250 ms, and an election if the leader dies.
    assert took_us < (10 * 250 + 1_000 + (3_000 if crash else 0)) * MILLISECOND_US
    if not crash:
        meanwhile = [at_us for at_us in crowd.confirmed_us if began_us <= at_us <= began_us + took_us]
        assert len(meanwhile) > took_us // (10 * MILLISECOND_US), "the others were not served"
        assert crowd.delivered == len(crowd.confirmed_us)
