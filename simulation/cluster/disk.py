"""Disks that take their time, get stuck, fill up, lose in a crash what was not synced, fail in a sync, and rot.

Two parts: a `Disk` holds what is stored and knows what a crash, a failed sync and a flipped bit do to it; a
`DiskProfile` says how the machine's device behaves at the moment. `Machine` brings them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from simulation.cluster.randomness import exponential_us

WriteIn = TypeVar("WriteIn", contravariant=True)


class Disk(Protocol[WriteIn]):
    """What a machine needs of its disk; `simulation.cluster.memory_store.SimulatedDisk` is one."""

    def begin_write(self, batch: WriteIn) -> None:
        """The write is under way: durable only after `complete`."""
        ...

    def complete(self) -> None:
        """The sync has returned: the write survives every crash from here on."""
        ...

    def crash(self, pending_survives: bool = False) -> None:
        """The machine died: a write that was under way is gone, or has just made it to the disk."""
        ...

    def refuse(self, batch: WriteIn) -> None:
        """There is no room for this write; the disk may take the part of it that gives room back."""
        ...

    def fail_sync(self, survives: bool) -> None:
        """The sync has failed: the write under way is on the disk or gone, and the process must not go on."""
        ...

    def decay(self, what: str, below: Callable[[int], int]) -> str:
        """Flip a bit of a stored record of a kind ("entry", "snapshot", "hard state"); what was hit, or "".

        `below(n)` draws a number from 0 to n - 1."""
        ...

    def wipe(self) -> None:
        """Forget everything, as a new disk does."""
        ...


@dataclass(slots=True)
class DiskProfile:
    """How long a sync takes now, and what is wrong with the disk. Faults change it while the run goes on."""

    base_us: int = 300
    jitter_us: int = 300
    slow_factor: int = 1
    stuck: bool = False
    full: bool = False
    failing: bool = False
    """The next sync fails, once. `Machine` then ends the process, and takes the flag away."""

    def latency_us(self, random: Random) -> int:
        """One draw of the time from the start of a write to its durability."""
        jitter_us = exponential_us(random, self.jitter_us, 100 * self.jitter_us)
        return self.slow_factor * (self.base_us + jitter_us)
