"""What the parts of a run see of it: its places, their processes, and what may be done to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import EventQueue
from simulation.cluster.trace import Trace
from simulation.node.forming.cuts import Cuts
from simulation.node.forming.place import StartPlace
from simulation.node.nodes import SimulatedNode


class Ground(Protocol):
    """Places on one network, of which some are founders and some never come."""

    random: Random
    queue: EventQueue
    trace: Trace
    cluster: SimulatedCluster[Frame, WriteBatch]
    cuts: Cuts
    accepted: list[str]
    """What somebody was told is done."""
    calm: bool

    @property
    def places(self) -> Sequence[StartPlace]:
        """All of them, in the order of their numbers."""
        ...

    @property
    def founders(self) -> Sequence[StartPlace]:
        """Those that may found a cluster."""
        ...

    @property
    def absent(self) -> Sequence[StartPlace]:
        """Those at which nobody is ever started."""
        ...

    @property
    def loses_a_disk(self) -> bool:
        """Whether an outage with the loss of a disk is planned."""
        ...

    def count(self, what: str) -> None:
        """For the summary: faults that did something."""
        ...

    def start(self, place: StartPlace) -> None:
        """The process of a place is started, if it does not run."""
        ...

    def stop(self, place: StartPlace) -> None:
        """Its process is killed."""
        ...

    def wipe(self, place: StartPlace) -> None:
        """Its process is killed and its disk emptied."""
        ...

    def look_once(self, place: StartPlace, life: int) -> None:
        """One turn of the loop of an empty node; also when the place was asked or answered."""
        ...

    def joined(self, place: StartPlace, node: int) -> None:
        """It was let in as this node."""
        ...

    def programs(self) -> list[SimulatedNode]:
        """The nodes that run, not those that ask."""
        ...

    def program_of(self, place: StartPlace) -> SimulatedNode | None:
        """The node that runs there; None: nobody, or one that asks."""
        ...

    def serves(self, place: StartPlace) -> bool:
        """Whether a node that serves runs there."""
        ...

    def when(self, condition: Callable[[], bool], then: Callable[[], object]) -> None:
        """As soon as it is true, unless it is calm before."""
        ...
