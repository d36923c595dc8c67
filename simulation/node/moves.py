"""An operator who moves queues to other shards while everything else goes on; drawn from a stream of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from mayfly.node.catalog import MoveQueue
from simulation.cluster.events import MILLISECOND_US
from simulation.cluster.randomness import stream
from simulation.simulator import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.cluster.events import EventQueue
    from simulation.cluster.trace import Trace
    from simulation.node.history import History
    from simulation.node.nodes import SimulatedNode


DELAYING = "delaying"
"""A delayed exchange, whose queue moves too."""


@dataclass(frozen=True, slots=True)
class Move:
    """A queue, or that of DELAYING, is to move, at a time from the moment when all queues are there."""

    at_us: int
    queue: str
    shard: int


def draw_moves(
    seed: int, queues: tuple[str, ...], shards: int, start_us: int, end_us: int
) -> tuple[Move, ...]:
    """The moves of a seed: mostly of a few queues, so that they move again before all is quiet."""
    random = stream(seed, "moves")
    some = random.sample(queues, random.randint(1, len(queues)))
    gap_us = random.choice((60, 150, 400)) * MILLISECOND_US
    moves: list[Move] = []
    at_us = start_us
    while at_us < end_us:
        moves.append(Move(at_us, random.choice(some), random.randint(1, shards)))
        at_us += round(random.expovariate(1 / gap_us)) + 1
    return tuple(moves)


class Mover:
    """Asks for the moves, each at any node that runs. What is refused, or gets lost, is not asked for again."""

    def __init__(
        self, queue: EventQueue, trace: Trace, history: History, seed: int,
        programs: Callable[[], list[SimulatedNode]],
    ) -> None:
        self.asked = 0
        self._queue = queue
        self._trace = trace
        self._history = history
        self._random: Random = stream(seed, "mover")
        self._programs = programs

    def start(self, moves: tuple[Move, ...], start_us: int) -> None:
        """Every move at its time."""
        for move in moves:
            self._history.moved.setdefault(move.queue)
            self._queue.at(start_us + move.at_us, partial(self._ask, move))

    def _ask(self, move: Move) -> None:
        programs = self._programs()
        if programs:
            program = self._random.choice(programs)
            self.asked += 1
            self._trace.add("move", move.queue, move.shard)
            program.machine.call(
                lambda: program.engine.submit_catalog(
                    MoveQueue("/", move.queue, move.shard, delays=move.queue == DELAYING), lambda _: None
                )
            )


def judge_moves(programs: list[SimulatedNode]) -> list[Violation]:
    """In the end every queue is where it was to go, and nothing of it is anywhere else."""
    violations: list[Violation] = []
    for program in programs:
        catalog, node = program.engine.catalog, program.machine.id
        violations += [
            Violation("move", f"node {node}: queue {record.name} still moves from {record.shard} to {record.moving_to}")
            for record in catalog.moving_queues()
        ]
        for shard in program.engine.shards.values():
            for queue_id in shard.queue_ids():
                queue, record = shard.queue(queue_id), catalog.queue_by_id(queue_id)
                if queue is None or record is None:
                    continue
                if queue.has_left == (record.shard == shard.shard_id):
                    text = f"node {node}: queue {queue.name} is in shard {record.shard}, has left {shard.shard_id}: "
                    violations.append(Violation("move", text + str(queue.has_left)))
                if queue.is_arriving or queue.returns or (queue.has_left and queue.has_ready()):
                    violations.append(Violation("move", f"node {node}: queue {queue.name} has not arrived"))
    return violations
