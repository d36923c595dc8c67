"""Whether this node's disk is persistently slow (pure).

A disk that takes half a second for every write never hangs (`cluster.host.disk_watch`), and all that this node leads
goes at its pace. So the node says that it wants no lead (`cluster.host.draining`), and hands what it leads to voters
that do not say so. It stands for election as ever, and where all disks are slow, nobody hands over anything.

Leading is load, and load makes a disk slow: a node that is given its leads back could be slow again with them. So it is
slow from one bound on and quick again from half of it, and not before a while that doubles each time.
"""

from typing import Final

WRITES: Final = 15
"""The pace is the median of so many writes: one that takes long says nothing."""
SHORTEST_MS: Final = 10_000
LONGEST_MS: Final = 1_800_000
"""How long a node is slow at least: the first time, and after many times."""
OTHERS_SAY_SO_MS: Final = 3_000
"""What makes one disk slow may make all slow. Others get so long to find that out before leads are handed to them."""
FORGIVEN_AFTER_MS: Final = 3_600_000
"""After so long without being slow it is the first time again."""


class DiskPace:
    """How long the last writes of one node took. All times are the process clock's, in ms."""

    def __init__(self, slow_ms: int) -> None:
        """`slow_ms`: a median above this is slow."""
        self.slow_ms: int = slow_ms
        self.slow: bool = False
        self._took_ms: list[int] = []
        self._least_ms = SHORTEST_MS
        self._since_ms = -1
        self._until_ms = -1

    def hands_over(self, now_ms: int) -> bool:
        """Whether what the node leads should go to others."""
        return self.slow and now_ms - self._since_ms >= OTHERS_SAY_SO_MS

    def took(self, write_ms: int, now_ms: int) -> None:
        """A write is on disk; it took so long, less what its size explains."""
        self._took_ms.append(write_ms)
        if len(self._took_ms) < WRITES:
            return
        del self._took_ms[:-WRITES]
        if self.slow and now_ms < self._since_ms + self._least_ms:
            return
        median_ms = sorted(self._took_ms)[WRITES // 2]
        if not self.slow and median_ms > self.slow_ms:
            again = self._until_ms >= 0 and now_ms - self._until_ms < FORGIVEN_AFTER_MS
            self._least_ms = min(2 * self._least_ms, LONGEST_MS) if again else SHORTEST_MS
            self._since_ms = now_ms
            self.slow = True
        elif self.slow and 2 * median_ms < self.slow_ms:
            self._until_ms = now_ms
            self.slow = False
