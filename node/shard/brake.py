"""The brake of a queue (RULES R5): what has failed lately, and whether the queue delivers nothing because of it.

Part of the replicated state: it knows the shard's clock alone, so every replica brakes and goes on with the same entry.
Queues that were told of none have none.
"""

from typing import Any, Final

from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.outbox import DELIVERY_LIMIT, REJECTED

FAILURES: Final = (REJECTED, DELIVERY_LIMIT)
"""The reasons that count: what consumers make die. Deaths of deadlines and length limits do not: they become more where
nothing is delivered, and a brake that counted them would hold itself."""

PIECES: Final = 20
"""The window moves on by a piece of itself: failures of less time than that leave it together."""

NEVER: Final = -1


class Brake:
    """``limit`` failures may be within ``window_ms``; the next one brakes. ``since_ms``: since when the queue
    ``is_on`` brake, 0 when it is not.

    ``starts`` and ``counts``: failures by runs that begin with one and last a piece of the window, the oldest first.
    A run leaves the window when its first failure does, so that the brake never counts what is older.
    """

    __slots__ = ("count", "counts", "is_on", "limit", "since_ms", "starts", "window_ms")

    def __init__(self, limit: int, window_ms: int) -> None:
        self.limit = limit
        self.window_ms = window_ms
        self.is_on = False
        self.since_ms = 0
        self.starts: list[int] = []
        self.counts: list[int] = []
        self.count = 0

    def note_failure(self, time_ms: int) -> bool:
        """One message more has failed; whether that brakes."""
        self.pass_to(time_ms)
        if self.starts and time_ms - self.starts[-1] < max(1, self.window_ms // PIECES):
            self.counts[-1] += 1
        else:
            self.starts.append(time_ms)
            self.counts.append(1)
        self.count += 1
        if self.is_on or self.count <= self.limit:
            return False
        self.is_on = True
        self.since_ms = time_ms
        return True

    def pass_to(self, time_ms: int) -> None:
        """The shard's clock stands there: what has left the window counts no more."""
        gone = 0
        while gone < len(self.starts) and self.starts[gone] + self.window_ms <= time_ms:
            self.count -= self.counts[gone]
            gone += 1
        if gone:
            del self.starts[:gone]
            del self.counts[:gone]

    def goes_on(self, time_ms: int) -> bool:
        """Whether the brake, which was on, ends now: no more than the limit is left within the window."""
        self.pass_to(time_ms)
        if not self.is_on or self.count > self.limit:
            return False
        self.is_on = False
        self.since_ms = 0
        return True

    def release(self) -> None:
        """It ends, and nothing has failed up to now."""
        self.is_on = False
        self.since_ms = 0
        self.starts.clear()
        self.counts.clear()
        self.count = 0

    def ends_ms(self) -> int:
        """When it ends if nothing more fails, NEVER if it is not on."""
        if not self.is_on:
            return NEVER
        left = self.count
        for start_ms, count in zip(self.starts, self.counts, strict=True):
            left -= count
            if left <= self.limit:
                return start_ms + self.window_ms
        return NEVER

    def row(self, before_ms: int = 0) -> list[int]:
        """For a snapshot; for another shard with ``before_ms``, the clock of this one: times are before that."""
        numbers = [int(self.is_on), self.since_ms - before_ms if self.is_on else 0]
        for start_ms, count in zip(self.starts, self.counts, strict=True):
            numbers += (start_ms - before_ms, count)
        return numbers

    def restore(self, row: Any, now_ms: int = 0) -> None:
        """Be what `row` has written; times are behind ``now_ms``. ShardError where it is none."""
        try:
            is_on, since_ms, *runs = row
            self.is_on = is_on == 1
            self.since_ms = int(since_ms) + now_ms if self.is_on else int(since_ms)
            self.starts = [start_ms + now_ms for start_ms in runs[::2]]
            self.counts = [int(count) for count in runs[1::2]]
            self.count = sum(self.counts)
        except (TypeError, ValueError) as error:
            raise ShardError(f"{row!r} is no brake") from error
        rises = all(one < other for one, other in zip(self.starts, self.starts[1:], strict=False))
        if len(self.starts) != len(self.counts) or not rises or min(self.counts, default=int(not self.is_on)) < 1:
            raise ShardError(f"{row!r} is no brake")
