"""Which replicated shard a new queue goes to.

The one with the fewest queues, then the lowest id: of those near to the client that declares it, or of all. It needs
no more than the counts, is the same on every replica, and spreads a handful of queues over as many shards: hashing the
names would put some of four queues together in every other cluster, and two queues of one shard share its one order of
entries.

Near is where the client's node leads: a publish there takes one way to a follower and back before its confirm, a
publish elsewhere another one to the leader first. That is worth a queue or two more in a shard, and not more: all
clients may be at one node, and its shards must not take all queues while others have none.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MORE_QUEUES: Final = 2
"""By so many queues a near shard may be ahead of the emptiest one of all: an application's ten or so stay near..."""

MORE_PARTS: Final = 8
"""...and by an eighth of what that one holds: of many queues declared through one node its shards get little more than
the others."""


class Placement:
    """How many queues each of the shards 1..shard_count holds."""

    def __init__(self, shard_count: int) -> None:
        if shard_count < 1:
            raise ValueError("there is at least one shard")
        self._counts = [0] * shard_count

    def grow(self, shard_count: int) -> None:
        """There are further shards, without queues: the next ones go there."""
        self._counts += [0] * (shard_count - len(self._counts))

    @property
    def counts(self) -> Sequence[int]:
        """Queues per shard, shard 1 first."""
        return tuple(self._counts)

    def choose(self, near: Sequence[int] = (), always_near: bool = False) -> int:
        """The shard for the next queue: of those `near`, unless they are ahead of the emptiest of all by more than
        MORE_QUEUES and one of MORE_PARTS; with `always_near` however far. Of all, when none is near."""
        counts = self._counts
        least = min(counts)
        if near:
            nearest = min(near, key=lambda shard: (counts[shard - 1], shard))
            if always_near or counts[nearest - 1] <= least + MORE_QUEUES + least // MORE_PARTS:
                return nearest
        return counts.index(least) + 1

    def add(self, shard: int) -> None:
        """A queue more in the shard."""
        self._counts[shard - 1] += 1

    def remove(self, shard: int) -> None:
        """A queue less in the shard."""
        self._counts[shard - 1] -= 1
