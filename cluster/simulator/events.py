"""Virtual time: the queue of everything that is going to happen.

Time is an integer of microseconds since the start of the run ("true time": what a perfect clock would
show). Events at the same microsecond run in the order in which they were scheduled, so that a run has one
order only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

MILLISECOND_US = 1_000
SECOND_US = 1_000_000


class Timer:
    """One scheduled event; `cancel` makes it never happen (harmless afterwards)."""

    __slots__ = ("action", "at_us")

    def __init__(self, at_us: int, action: Callable[[], None]) -> None:
        self.at_us = at_us
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class EventQueue:
    """Runs actions in the order of their virtual time; between two actions no time passes at all."""

    def __init__(self) -> None:
        self.now_us = 0
        self.executed = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, Timer]] = []

    def at(self, when_us: int, action: Callable[[], None]) -> Timer:
        """Run `action` at true time `when_us`, or at once (as the next event) if that is past."""
        if when_us < self.now_us:
            when_us = self.now_us
        timer = Timer(when_us, action)
        self._sequence += 1
        heapq.heappush(self._heap, (when_us, self._sequence, timer))
        return timer

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Run `action` `delay_us` from now."""
        return self.at(self.now_us + delay_us, action)

    def run_until(self, end_us: int) -> None:
        """Run everything due up to and including `end_us`; the clock stands at `end_us` afterwards."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            when_us, _, timer = heapq.heappop(heap)
            action = timer.action
            if action is None:
                continue
            self.now_us = when_us
            self.executed += 1
            action()
        self.now_us = max(self.now_us, end_us)

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        while self._heap:
            when_us, _, timer = heapq.heappop(self._heap)
            if timer.action is None:
                continue
            self.now_us = when_us
            self.executed += 1
            timer.action()
            return True
        return False
