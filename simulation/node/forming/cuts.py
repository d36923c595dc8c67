"""Which places can't hear each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import SECOND_US, EventQueue
from simulation.node.forming.place import StartPlace


class Cuts:
    """Pairs of places that are cut off from each other now, by number; for questions, and between their nodes."""

    def __init__(
        self,
        queue: EventQueue,
        cluster: SimulatedCluster[Frame, WriteBatch],
        random: Random,
        places: Sequence[StartPlace],
    ) -> None:
        self._queue = queue
        self._cluster = cluster
        self._random = random
        self._places = places
        self._pairs: set[tuple[int, int]] = set()

    def hold_for_new_nodes(self) -> None:
        """A place has become a node: it is cut off as the place is."""
        for pair in self._pairs:
            self._block(*pair)

    def heal_all(self) -> None:
        """Nothing is cut any more."""
        for pair in list(self._pairs):
            self._heal(*pair)

    def for_a_while(self, one: StartPlace, other: StartPlace) -> None:
        """Nothing gets from one place to the other, nor back, for some seconds."""
        pair = (min(one.number, other.number), max(one.number, other.number))
        if one is not other and pair not in self._pairs:
            self._pairs.add(pair)
            self._block(*pair)
            self._queue.after(self._random.randint(SECOND_US, 10 * SECOND_US), partial(self._heal, *pair))

    def is_cut(self, one: StartPlace, other: StartPlace) -> bool:
        """Whether they can't hear each other."""
        return (min(one.number, other.number), max(one.number, other.number)) in self._pairs

    def _block(self, one: int, other: int) -> None:
        for source, target in self._ways(one, other):
            self._cluster.network.block(source, target)

    def _heal(self, one: int, other: int) -> None:
        if (one, other) in self._pairs:
            self._pairs.remove((one, other))
            for source, target in self._ways(one, other):
                self._cluster.network.unblock(source, target)

    def _ways(self, one: int, other: int) -> list[tuple[int, int]]:
        first, second = self._places[one - 1].node, self._places[other - 1].node
        known = self._cluster.machines
        return [(first, second), (second, first)] if first in known and second in known else []
