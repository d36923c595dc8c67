"""Which replicated shard a new queue goes to.

The one with the fewest queues, then the lowest id. It needs no more than the counts, is the same on every
replica, and spreads a handful of queues over as many shards: hashing the names would put some of four queues
together in every other cluster, and two queues of one shard share its one order of entries.
"""
from __future__ import annotations

from collections.abc import Sequence


class Placement:
    """How many queues each of the shards 1..shard_count holds."""

    def __init__(self, shard_count: int) -> None:
        if shard_count < 1:
            raise ValueError("there is at least one shard")
        self._counts = [0] * shard_count

    @property
    def counts(self) -> Sequence[int]:
        """Queues per shard, shard 1 first."""
        return tuple(self._counts)

    def choose(self) -> int:
        """The shard for the next queue."""
        return self._counts.index(min(self._counts)) + 1

    def add(self, shard: int) -> None:
        """A queue more in the shard."""
        self._counts[shard - 1] += 1

    def remove(self, shard: int) -> None:
        """A queue less in the shard."""
        self._counts[shard - 1] -= 1
