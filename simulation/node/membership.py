"""An operator who adds, removes and replaces nodes, and adds shards, while everything else goes on.

What is to be done, and when, is drawn before the run from a stream of its own; on which node follows from what is
there by then. A node is only given up for dead when the others can do without it: an operator who takes away a
majority has no promise.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from mayfly.cluster.versions import LEVEL_FEEDS, LEVELS
from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.catalog import AddMember, AddShards, CatalogCommand, Done, MemberAdded, RemoveMember
from mayfly.node.numbers import CATALOG_GROUP
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import MILLISECOND_US, EventQueue
from simulation.cluster.membership_change import ADD, ADD_SHARDS, REMOVE, REPLACE, MembershipChange
from simulation.cluster.randomness import stream
from simulation.cluster.trace import Trace
from simulation.node.nodes import Acquaintance, SimulatedNode

MOST_MEMBERS = 6
_PAUSE_US = 300 * MILLISECOND_US


def draw_changes(seed: int, start_us: int, end_us: int) -> tuple[MembershipChange, ...]:
    """The changes of a seed; none in every second one."""
    random = stream(seed, "membership")
    count = random.choice((0, 0, 0, 1, 2, 4))
    times = sorted(random.randint(start_us, end_us) for _ in range(count))
    return tuple(MembershipChange(at_us, random.choice((ADD, ADD, REMOVE, REPLACE))) for at_us in times)


def draw_growth(seed: int, start_us: int, end_us: int) -> tuple[MembershipChange, ...]:
    """When shards are added in the run of a seed; in every second one never."""
    random = stream(seed, "added shards")
    times = sorted(random.randint(start_us, end_us) for _ in range(random.choice((0, 0, 1, 2))))
    return tuple(MembershipChange(at_us, ADD_SHARDS) for at_us in times)


class OperatedCluster(Protocol):
    """The run, as its operator sees it."""

    queue: EventQueue
    trace: Trace
    cluster: SimulatedCluster[Frame, WriteBatch]

    def programs(self) -> list[SimulatedNode]:
        """All nodes whose processes run."""
        ...

    def impaired(self) -> bool:
        """Whether a node lacks some of its data, be it known to anybody or not."""
        ...

    def add_member(self, node: int, known: Acquaintance) -> None:
        """A machine for a node that joins; it starts at once."""
        ...


class MembershipOperator:
    """Carries the changes out, one after the other; each as soon as it is possible."""

    def __init__(
        self, simulation: OperatedCluster, seed: int, changes: tuple[MembershipChange, ...], until_us: int
    ) -> None:
        self.done = 0
        """How many changes were made."""
        self.growths = 0
        """How often shards were added."""
        self.most_members = MOST_MEMBERS
        """With so many no other one is added."""
        self._simulation = simulation
        self._queue = simulation.queue
        self._random: Random = stream(seed, "operator")
        self._changes = list(changes)
        self._until_us = until_us
        self._stores = 0
        self._lost: list[int] = []
        self._at_work = False

    @property
    def busy(self) -> bool:
        """Whether a change is under way, or a node is to be replaced."""
        return self._at_work or bool(self._lost)

    def replace(self, node: int) -> None:
        """A node has lost its data for good: take it out, and put a new one in its place."""
        self._lost.append(node)
        self._queue.after(_PAUSE_US, self._replace_lost)

    def _replace_lost(self) -> None:
        if self._at_work:
            self._queue.after(_PAUSE_US, self._replace_lost)
            return
        self._at_work = True
        node = self._lost.pop(0)
        self._simulation.trace.add("operator", "replaces", node)
        self._ask(RemoveMember(str(node)), lambda answer, at: self._add())

    def start(self) -> None:
        """Begin with the first change at its time."""
        if self._changes:
            change = self._changes.pop(0)
            self._queue.at(max(change.at_us, self._queue.now_us + 1), lambda: self._make(change.kind))

    def _make(self, kind: str) -> None:
        if self._queue.now_us > self._until_us:
            return
        if kind == ADD_SHARDS and not self.busy:
            self._add_shards()
            return
        if self.busy or self._simulation.impaired():
            self._queue.after(_PAUSE_US, lambda: self._make(kind))
            return
        program = self._some_program()
        victim = None if program is None else self._victim(program, kind)
        if program is None or not program.engine.catalog.members.founded or (kind != ADD and victim is None):
            self._queue.after(_PAUSE_US, lambda: self._make(kind))
            return
        self._simulation.trace.add("operator", kind, victim)
        self._at_work = True
        if kind == REPLACE and victim is not None:
            self._simulation.cluster.take_away(victim)
        if victim is not None:
            self._ask(RemoveMember(str(victim)), lambda answer, at: self._finished(kind))
        elif len(program.engine.catalog.members.with_replicas()) < self.most_members:
            self._add()
        else:
            self._at_work = False
            self.start()

    def _add_shards(self) -> None:
        """Whatever the cluster goes through: it is refused where too few nodes are up."""
        program = self._some_program()
        if program is None or not program.engine.catalog.members.founded:
            self._queue.after(_PAUSE_US, lambda: self._make(ADD_SHARDS))
            return
        total = program.engine.catalog.shard_count + self._random.randint(1, 3)
        self._simulation.trace.add("operator", ADD_SHARDS, total)
        self._at_work = True
        self._ask(AddShards(total), self._shards_added)

    def _shards_added(self, answer: object, at: SimulatedNode) -> None:
        self.growths += isinstance(answer, Done)
        self._finished(ADD_SHARDS)

    def _finished(self, kind: str) -> None:
        if kind == REPLACE:
            self._add()
        else:
            self.done += 1
            self._at_work = False
            self.start()

    def _add(self) -> None:
        self._stores += 1
        store = f"store {self._stores}"
        self._ask(AddMember("", f"machine of {store}", store, (LEVELS.lowest, LEVELS.highest)), self._added)

    def _added(self, answer: object, program: SimulatedNode) -> None:
        if not isinstance(answer, MemberAdded):
            self._queue.after(_PAUSE_US, self._add)
            return
        members = program.engine.catalog.members
        known = [record.id for record in members.with_replicas()]
        self._simulation.add_member(answer.member.id, Acquaintance(known, (), members.version, True))
        self._finished(ADD)

    def _ask(self, command: CatalogCommand, then: Callable[[object, SimulatedNode], None]) -> None:
        """Give a command through some node, again and again until one has answered."""
        asked = [0]
        answered = [False]

        def attempt() -> None:
            if answered[0]:
                return
            asked[0] += 1
            program = self._some_program()
            if program is not None:
                at = program

                def answer(result: object) -> None:
                    if not answered[0] and result is not SESSION_LOST:
                        answered[0] = True
                        self._queue.after(1, lambda: then(result, at))

                at.machine.call(lambda: at.engine.submit_catalog(command, answer))
            self._queue.after(5 * _PAUSE_US, attempt)

        attempt()

    def _some_program(self) -> SimulatedNode | None:
        members = [
            program
            for program in self._simulation.programs()
            if program.ready and not program.machine.frozen and not program.engine.membership.removed
        ]
        return self._random.choice(members) if members else None

    def _victim(self, program: SimulatedNode, kind: str) -> int | None:
        """Whom to take out; None while nobody can be spared."""
        if kind == ADD:
            return None
        members = program.engine.catalog.members
        present = members.with_replicas()
        if len(present) < (2 if kind == REMOVE else 3) or any(record.state != "member" for record in present):
            return None
        running = {other.machine.id for other in self._simulation.programs()}
        if kind == REPLACE and not running.issuperset(record.id for record in present):
            return None
        if kind == REPLACE and not all(
            other.engine.catalog.members.version == members.version and settled(other)
            for other in self._simulation.programs()
            if not other.engine.membership.removed
        ):
            return None
        return self._random.choice([record.id for record in present if record.id != program.machine.id])


def settled(program: SimulatedNode) -> bool:
    """Whether every replica of the node shows the members that the plan of its catalog wants."""
    members = program.engine.catalog.members
    everyone = {record.id for record in members.with_replicas()}
    if any(record.state != "member" for record in members.with_replicas()):
        return False
    for id, voters in members.plan.items():
        everywhere = id == CATALOG_GROUP or program.engine.catalog.level < LEVEL_FEEDS
        replicas = everyone if everywhere else set(voters)
        group = program.engine.host.groups.get(id)
        if program.machine.id not in replicas or group is None:
            if group is not None or program.machine.id in replicas:
                return False
            continue
        present = group.conf_state
        if present.voters_outgoing or set(present.voters) != set(voters):
            return False
        if set(present.voters) | set(present.learners) != replicas:
            return False
    return True
