"""Disks that take their time, get stuck, fill up, and lose in a crash what was not synced."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from cluster.simulator.randomness import exponential_us

WriteIn = TypeVar("WriteIn", contravariant=True)


class Disk(Protocol[WriteIn]):
    """What a machine needs of its disk; `cluster.log.memory_store.SimulatedDisk` is one."""

    def begin_write(self, batch: WriteIn) -> None:
        """The write is under way: durable only after `complete`."""
        ...

    def complete(self) -> None:
        """The sync has returned: the write survives every crash from here on."""
        ...

    def crash(self, pending_survives: bool = False) -> None:
        """The machine died: a write that was under way is gone, or has just made it to the disk."""
        ...


@dataclass(slots=True)
class DiskProfile:
    """How long a sync takes now, and what is wrong with the disk. Faults change it while the run goes on."""

    base_us: int = 300
    jitter_us: int = 300
    slow_factor: int = 1
    stuck: bool = False
    full: bool = False

    def latency_us(self, random: Random) -> int:
        """One draw of the time from the start of a write to its durability."""
        jitter_us = exponential_us(random, self.jitter_us, 100 * self.jitter_us)
        return self.slow_factor * (self.base_us + jitter_us)
