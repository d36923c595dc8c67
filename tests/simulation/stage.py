"""Three simulated nodes on virtual time, and a client at each: a stage for scenes that tests make up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import commands

from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.node.lease_edges.client import EdgeClient
from simulation.node.lease_edges.course import EdgeRun
from simulation.node.lease_edges.plan import EdgePlan
from simulation.node.nodes import NodeProfile, SimulatedNode

TICK_MS = 50


class Stage(EdgeRun):
    """Three simulated nodes and one client at each, on which a test plays its scene."""

    def __init__(self, shards: int = 1, clock_offsets_ms: tuple[int, int, int] = (0, 0, 0)) -> None:
        profile = NodeProfile(shards=shards, tick_ms=TICK_MS, heartbeat_ms=100, election_timeout_ms=500)
        offsets = tuple(offset * MILLISECOND_US for offset in clock_offsets_ms)
        super().__init__(EdgePlan(1, profile, 1_000, (), None, offsets, (0, 0, 0)))
        self.world.probe.clock_limit_ms = None
        self.at: dict[int, EdgeClient] = {}
        self.dead: list[bytes] = []
        self.cluster.start_all()
        self.until(self._is_ready)
        for node in (1, 2, 3):
            self.connect(node)

    def connect(self, node: int) -> None:
        """A client at the node, once it is there."""
        self._ready.clear()
        self.at[node] = EdgeClient(self.world, f"c{node}", node, lambda: self._ready.append("c"))
        self.until(lambda: bool(self._ready))

    def until(self, condition: Callable[[], bool], limit_us: int = 10 * SECOND_US) -> None:
        assert self._until(condition, limit_us), "it never came true"

    def pass_ms(self, milliseconds: int) -> None:
        self.queue.run_until(self.queue.now_us + milliseconds * MILLISECOND_US)

    def ask(self, node: int, method: Any) -> Any:
        """Call a method; its answer."""
        answers: list[Any] = []
        self.at[node].call(method, answers.append)
        self.until(lambda: bool(answers))
        return answers[0]

    def declare(self, node: int, name: str, **arguments: Any) -> None:
        method = commands.Queue.Declare(0, name, durable=True, arguments=arguments)
        assert isinstance(self.ask(node, method), commands.Queue.DeclareOk)

    def publish(self, node: int, name: str, *bodies: bytes, ttl_ms: int | None = None) -> None:
        """Publish to a queue; returns when all are confirmed."""
        confirmed: list[int] = []
        client = self.at[node]
        client.on_confirm = lambda tag, good: confirmed.append(tag)
        for body in bodies:
            client.publish("", name, body, self.expiring(ttl_ms))
        self.until(lambda: len(confirmed) == len(bodies))

    @staticmethod
    def expiring(ttl_ms: int | None) -> commands.Basic.Properties:
        """Of a message with this TTL."""
        return commands.Basic.Properties(expiration=None if ttl_ms is None else str(ttl_ms))

    def consume_dead(self, node: int, name: str) -> None:
        client = self.at[node]
        client.on_message = lambda message: self.dead.append(message.body)
        client.call(commands.Basic.Consume(0, name, f"dead {node}", no_ack=True))

    def programs(self) -> list[SimulatedNode]:
        return self.simulation.programs()

    def ready(self, name: str) -> list[int]:
        """Messages ready in a queue, at each running node; -1 where there is none."""
        found = []
        for program in self.programs():
            records = [record for record in program.engine.catalog.queues() if record.name == name]
            queue = program.engine.shards[records[0].shard].queue(records[0].id) if records else None
            found.append(-1 if queue is None else queue.ready_count())
        return found

    def applied(self) -> list[int]:
        """How far the log of every group has come."""
        groups = (0, *range(1, self.scenario.profile.shards + 1))
        return [max(p.engine.host.groups[group].applied for p in self.programs()) for group in groups]
