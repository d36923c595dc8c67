"""An operator who moves queues to other shards, and shards to other nodes, while everything else goes on; drawn from
streams of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from mayfly.node.catalog import Done, MoveQueue, PlaceGroup, PreferLeader
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


@dataclass(frozen=True, slots=True)
class Placing:
    """Some shard is to have its replicas on other nodes, or, of those that it has, another leader (`leads`), at a time
    from the moment when all queues are there."""

    at_us: int
    leads: bool


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


def draw_placings(seed: int, start_us: int, end_us: int) -> tuple[Placing, ...]:
    """The moves of replicas of a seed; of which shard, and to whom, follows from what is there by then."""
    random = stream(seed, "placings")
    gap_us = random.choice((300, 700, 1_500)) * MILLISECOND_US
    placings: list[Placing] = []
    at_us = start_us + round(random.expovariate(1 / (gap_us // 2)))
    while at_us < end_us:
        placings.append(Placing(at_us, random.random() < 0.2))
        at_us += round(random.expovariate(1 / gap_us)) + 1
    return tuple(placings)


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


class Placer:
    """Asks for the moves of replicas, each at any node that runs; a shard has as many afterwards as it is to have. What
    is refused, or gets lost, is not asked for again."""

    def __init__(
        self, queue: EventQueue, trace: Trace, seed: int, programs: Callable[[], list[SimulatedNode]]
    ) -> None:
        self.done = 0
        """How many were taken."""
        self._queue = queue
        self._trace = trace
        self._random: Random = stream(seed, "placer")
        self._programs = programs

    def start(self, placings: tuple[Placing, ...], start_us: int) -> None:
        """Every one at its time."""
        for placing in placings:
            self._queue.at(start_us + placing.at_us, partial(self._ask, placing))

    def _ask(self, placing: Placing) -> None:
        programs = [program for program in self._programs() if program.engine.catalog.members.founded]
        if not programs:
            return
        program = self._random.choice(programs)
        members = program.engine.catalog.members
        fit = [record.id for record in members.all() if record.state == "member" and not record.away]
        shard = self._random.randint(1, members.shard_count)
        if placing.leads:
            command: PreferLeader | PlaceGroup = PreferLeader(shard, str(self._random.choice(members.plan[shard])))
        elif len(fit) <= members.replication_factor:
            return
        else:
            voters = self._random.sample(fit, members.replication_factor)
            command = PlaceGroup(shard, tuple(map(str, voters)))
        self._trace.add("place", command)
        program.machine.call(lambda: program.engine.submit_catalog(command, self._answered))

    def _answered(self, answer: object) -> None:
        self.done += isinstance(answer, Done)


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
