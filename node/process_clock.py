"""The process clock: wall time that nobody can step.

The wall clock is read once, when the process starts; from then on only elapsed time counts. `CLOCK_BOOTTIME` goes on
while the machine is suspended, so a message's deadline is not put off by a nap of the machine.
"""

import time

_ELAPSED_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ProcessClock:
    """Milliseconds since 1970, as the wall clock said at the start, plus the time that has passed since."""

    def __init__(self) -> None:
        self._wall_at_start_ns = time.time_ns()
        self._elapsed_at_start_ns = time.clock_gettime_ns(_ELAPSED_CLOCK)

    def now_ms(self) -> int:
        """The time now, in ms; never goes back."""
        elapsed_ns = time.clock_gettime_ns(_ELAPSED_CLOCK) - self._elapsed_at_start_ns
        return (self._wall_at_start_ns + elapsed_ns) // 1_000_000
