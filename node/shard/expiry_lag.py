"""How late messages expired, in buckets: kept by each replica for itself, in no snapshot and no digest. HOT."""

from bisect import bisect_left
from typing import Final

BOUNDS_MS: Final = (10, 25, 50, 100, 250, 300, 500, 1000, 2500, 5000, 15_000, 60_000, 600_000, 3_600_000)
"""Upper ends of the buckets, each in its bucket; the last bucket has no end."""


class ExpiryLag:
    """Shard time from a message's deadline to the entry that expired it, for what was ready when it died.

    A message that waited behind a live head (RULES T6) counts from its deadline too. One that was held and came
    back too late (T10) does not count.
    """

    __slots__ = ("counts", "run", "run_lag_ms", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.total_ms = 0
        # Messages often expire side by side, equally late: a run of them is put in its bucket once.
        self.run = 0
        self.run_lag_ms = 0

    def observe(self, lag_ms: int) -> None:
        """One message expired, so late."""
        if lag_ms != self.run_lag_ms:
            self._end_run()
            self.run_lag_ms = lag_ms
        self.run += 1

    def observe_all(self, now_ms: int, deadlines_ms: list[int]) -> None:
        """Messages with these deadlines, in order, expired now."""
        stop = len(deadlines_ms)
        self.total_ms += now_ms * stop - sum(deadlines_ms)
        counts = self.counts
        for bucket, bound_ms in enumerate(BOUNDS_MS):
            if not stop:
                return
            start = bisect_left(deadlines_ms, now_ms - bound_ms, 0, stop)
            counts[bucket] += stop - start
            stop = start
        counts[len(BOUNDS_MS)] += stop

    def by_bucket(self) -> list[int]:
        """Messages by bucket: one number more than there are bounds."""
        self._end_run()
        return self.counts.copy()

    def sum_ms(self) -> int:
        """All lags together."""
        self._end_run()
        return self.total_ms

    def _end_run(self) -> None:
        if self.run:
            self.counts[bisect_left(BOUNDS_MS, self.run_lag_ms)] += self.run
            self.total_ms += self.run * self.run_lag_ms
            self.run = 0
