"""A network without any promise: messages are lost, doubled, overtaken and held up, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from simulation.cluster.events import MILLISECOND_US, EventQueue
from simulation.cluster.randomness import exponential_us

Payload = TypeVar("Payload")


@dataclass(slots=True)
class NoticeProfile:
    """How bad the network is; faults change it while the run goes on."""

    loss: float = 0.0
    duplication: float = 0.0
    base_us: int = 1 * MILLISECOND_US
    jitter_us: int = 2 * MILLISECOND_US

    def delay_us(self, random: Random) -> int:
        """One draw of the delay of one copy."""
        return self.base_us + exponential_us(random, self.jitter_us, 50 * self.jitter_us)


class NoticeNetwork(Generic[Payload]):
    """`deliver(target, source, payload)` is called for each copy that arrives."""

    def __init__(
        self,
        queue: EventQueue,
        random: Random,
        profile: NoticeProfile,
        deliver: Callable[[int, int, Payload], None],
    ) -> None:
        self._queue = queue
        self._random = random
        self._deliver = deliver
        self.profile = profile
        self.blocked: dict[tuple[int, int], None] = {}
        """Directions in which nothing arrives, whenever it was sent."""

    def send(self, source: int, target: int, payload: Payload) -> None:
        """Send once; it arrives no time, once or twice."""
        random, profile = self._random, self.profile
        if random.random() < profile.loss:
            return

        def arrive() -> None:
            if (source, target) not in self.blocked:
                self._deliver(target, source, payload)

        twice = random.random() < profile.duplication
        self._queue.after(profile.delay_us(random), arrive)
        if twice:
            self._queue.after(profile.delay_us(random), arrive)
