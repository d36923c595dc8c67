"""Whether this node's disk is quick enough for a leader (pure).

A leader whose write hangs can commit nothing that needs its own disk, and the group's writes of this moment with it
hang until somebody else leads. So a write that takes longer than `limit_ms`, and than its size explains, makes the node
resign what it leads and stand for no election, where there is a majority of others that have quicker disks
(`Leadership.others_are_quick`). When the write ends at last the node is on probation: it may lead again
only after a while that doubles with every further late write, or a disk that hangs now and then would be elected again
and again.
"""

from typing import Final

from mayfly.cluster.limits import SLOW_BYTES_PER_MS


class DiskWatch:
    """Follows the writes of one node. All times are the process clock's, in ms."""

    LONGEST_PROBATION_MS: Final = 30_000
    FORGIVEN_AFTER_MS: Final = 60_000
    """A disk that was never late for so long begins with a short probation again."""

    def __init__(self, limit_ms: int) -> None:
        self.limit_ms: int = limit_ms
        self.late_writes: int = 0
        """How many writes took longer than the limit, since the start."""
        self._since_ms = -1
        self._allowed_ms = limit_ms
        self._probation_ms = limit_ms
        self._last_late_ms = -1
        self._trusted_from_ms = -1
        self._looked_ms = -1

    def looked(self, now_ms: int) -> None:
        """The process is running: to be said at every tick, and before `ended`. If it was not for longer than the limit
        (stopped, or its machine), the disk is not to blame for that time."""
        pause_ms = now_ms - self._looked_ms
        if self._looked_ms >= 0 and pause_ms > self.limit_ms and self._since_ms >= 0:
            self._since_ms += pause_ms
        self._looked_ms = now_ms

    def began(self, now_ms: int, size_bytes: int = 0) -> None:
        """A write of so much is under way."""
        self._since_ms = now_ms
        self._allowed_ms = self.limit_ms + size_bytes // SLOW_BYTES_PER_MS

    def ended(self, now_ms: int) -> None:
        """It is on disk."""
        if self.is_stuck(now_ms):
            self.late_writes += 1
            if self._last_late_ms >= 0 and now_ms - self._last_late_ms < self.FORGIVEN_AFTER_MS:
                self._probation_ms = min(2 * self._probation_ms, self.LONGEST_PROBATION_MS)
            else:
                self._probation_ms = self.limit_ms
            self._last_late_ms = now_ms
            self._trusted_from_ms = now_ms + self._probation_ms
        self._since_ms = -1

    def under_way_ms(self, now_ms: int) -> int:
        """How long the write that is under way has taken; 0 if there is none."""
        return now_ms - self._since_ms if self._since_ms >= 0 else 0

    def beyond_size_ms(self, now_ms: int) -> int:
        """How long the write that is under way has taken, less what its size explains."""
        return max(0, self.under_way_ms(now_ms) - (self._allowed_ms - self.limit_ms))

    def is_stuck(self, now_ms: int) -> bool:
        """Whether the write that is under way takes too long."""
        return self._since_ms >= 0 and now_ms - self._since_ms > self._allowed_ms

    def overdue_ms(self, now_ms: int) -> int:
        """How much longer than it may the write that is under way has taken; 0 if there is none that is late."""
        return max(0, now_ms - self._since_ms - self._allowed_ms) if self._since_ms >= 0 else 0

    def may_lead(self, now_ms: int) -> bool:
        """Whether this node should stand for election."""
        return now_ms >= self._trusted_from_ms and not self.is_stuck(now_ms)
