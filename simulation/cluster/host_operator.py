"""An operator of simulated hosts: adds, removes and replaces nodes, and replaces those that have lost their data.

One thing after the other, each as soon as the others can do without the node: an operator who takes away a majority
has no promise. Commands go through some member, again and again until one has answered; all are idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from simulation.cluster import host_machine as commands
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import MILLISECOND_US, EventQueue
from simulation.cluster.host_node import CATALOG, LOST, HostNode
from simulation.cluster.host_scenario import HostScenario
from simulation.cluster.membership_change import ADD, REMOVE, REPLACE, MembershipChange
from simulation.cluster.randomness import stream
from simulation.cluster.trace import Trace

_MOST_MEMBERS = 6
_PAUSE_US = 400 * MILLISECOND_US


class OperatedHosts(Protocol):
    """The run, as its operator sees it."""

    scenario: HostScenario
    queue: EventQueue
    trace: Trace
    cluster: SimulatedCluster[Any, Any]
    out_of_action: dict[int, str]

    def programs(self) -> list[HostNode]:
        """All that runs."""
        ...

    def members(self) -> list[HostNode]:
        """What runs on members, by the directory that is furthest ahead."""
        ...

    def is_present(self, node: int) -> bool:
        """Whether a node is a member, by the directory that is furthest ahead."""
        ...

    def impaired(self) -> list[int]:
        """The nodes that have lost some of their data, and not got it back."""
        ...

    def all_settled(self) -> bool:
        """Whether all members run, show the same members and are at rest with them."""
        ...

    def new_store(self) -> int:
        """A name for data that has none."""
        ...

    def add_member(self, node: int, store: int, members: list[int], version: int) -> None:
        """A machine for a node that has been given a place; it starts at once."""
        ...

    def count(self, what: str) -> None:
        """Something happened; tests want to see that it does."""
        ...


class HostOperator:
    """Carries out what was drawn, and what accidents demand."""

    def __init__(self, simulation: OperatedHosts, changes: tuple[MembershipChange, ...]) -> None:
        self.done = 0
        """How many changes were made, replacements after accidents too."""
        self._simulation = simulation
        self._queue = simulation.queue
        self._random: Random = stream(simulation.scenario.seed, "host operator")
        self._changes = changes
        self._lost: list[int] = []
        self._at_work = ""

    def __str__(self) -> str:
        return f"{self._at_work or 'idle'}, to be replaced: {self._lost}"

    @property
    def busy(self) -> bool:
        """Whether a change is under way or due."""
        return bool(self._at_work or self._lost)

    def start(self) -> None:
        """Put what was drawn on the queue."""
        for change in self._changes:
            self._queue.at(change.at_us, partial(self._begin, change.kind))

    def replace(self, node: int) -> None:
        """A node has lost its data."""
        self._lost.append(node)
        self._queue.after(_PAUSE_US, self._next)

    def see_off(self, nodes: Sequence[int]) -> None:
        """Take out nodes that are gone for good, all at once: votes of the first must not go to the second."""
        self._at_work = f"remove {nodes}"
        left = list(nodes)

        def gone(node: int) -> None:
            left.remove(node)
            if not left:
                self._finished()

        for node in nodes:
            self._remove(node, partial(gone, node))

    def _next(self) -> None:
        if self._lost and not self._at_work:
            node = self._lost.pop(0)
            self._at_work = f"replace {node}"
            self._remove(node, self._add)

    def _begin(self, kind: str) -> None:
        """A drawn change: made now or not at all."""
        simulation = self._simulation
        if self.busy or simulation.impaired() or not simulation.all_settled():
            return
        members = simulation.members()
        if kind == ADD:
            if len(members) < _MOST_MEMBERS:
                self._at_work = ADD
                self._add()
        elif len(members) >= (2 if kind == REMOVE else 3):
            victim = self._random.choice(members).id
            self._at_work = f"{kind} {victim}"
            simulation.trace.add("operator", self._at_work)
            if kind == REPLACE:
                simulation.out_of_action[victim] = "taken away"
                simulation.cluster.take_away(victim)
            self._remove(victim, self._add if kind == REPLACE else self._finished)

    def _finished(self) -> None:
        self.done += 1
        self._simulation.count("change " + self._at_work.split()[0])
        self._at_work = ""
        self._queue.after(1, self._next)

    def _remove(self, node: int, then: Callable[[], None]) -> None:
        self._ask(commands.REMOVE, node, lambda answer: self._wait_until_gone(node, then))

    def _wait_until_gone(self, node: int, then: Callable[[], None]) -> None:
        if self._simulation.is_present(node):
            self._queue.after(_PAUSE_US, lambda: self._wait_until_gone(node, then))
            return
        self._simulation.out_of_action.pop(node, None)
        then()

    def _add(self) -> None:
        store = self._simulation.new_store()
        self._ask(commands.ADD, store, lambda node: self._added(node, store))

    def _added(self, node: int, store: int) -> None:
        known = max(self._simulation.programs(), key=lambda it: it.directory.version, default=None)
        if known is None:
            self._queue.after(_PAUSE_US, lambda: self._added(node, store))
            return
        self._simulation.add_member(node, store, known.directory.present(), known.directory.version)
        self._wait_until_member(node)

    def _wait_until_member(self, node: int) -> None:
        """It is one when it has said so itself; until then nobody else is touched."""
        if all(it.directory.states.get(node) != commands.MEMBER for it in self._simulation.members()):
            self._queue.after(_PAUSE_US, lambda: self._wait_until_member(node))
            return
        self._finished()

    def _ask(self, kind: int, first: int, then: Callable[[int], None]) -> None:
        """Give a command through some member, until one has answered."""
        answered = [False]

        def answer(result: object) -> None:
            if not answered[0] and result != LOST and isinstance(result, tuple):
                answered[0] = True
                self._queue.after(1, lambda: then(result[2]))

        def attempt() -> None:
            if answered[0]:
                return
            program = self._some_program()
            if program is not None:
                program.machine.call(lambda: program.submit(CATALOG, kind, first, 0, answer))
            self._queue.after(5 * _PAUSE_US, attempt)

        attempt()

    def _some_program(self) -> HostNode | None:
        running = [it for it in self._simulation.members() if not it.machine.frozen]
        return self._random.choice(running) if running else None
