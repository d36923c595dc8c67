"""Virtual time: the queue of everything that is going to happen.

Time is an integer of microseconds since the start of the run ("true time": what a perfect clock would
show). Events at the same microsecond run in the order in which they were scheduled, so that a run has one
order only.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

MOST_EVENTS = 1_000_000
"""No run needs a tenth of these."""
MILLISECOND_US = 1_000
SECOND_US = 1_000_000
_ACTION = 2


class Timer(list[Any]):
    """One scheduled event; `cancel` makes it never happen (harmless afterwards).

    A list of [time, place among those of one time, action], because the heap then compares and keeps it as it is;
    a run makes tens of thousands of these.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[_ACTION] = None


class EndlessRun(AssertionError):
    """More happens than can be meant: members that answer each other without end, say."""


class EventQueue:
    """Runs actions in the order of their virtual time; between two actions no time passes at all.

    After `most_events` the run ends.
    """

    def __init__(self, most_events: int = MOST_EVENTS) -> None:
        self._most_events = most_events
        self.now_us = 0
        self.executed = 0
        self._sequence = 0
        self._heap: list[Timer] = []

    def at(self, when_us: int, action: Callable[[], None]) -> Timer:
        """Run `action` at true time `when_us`, or at once (as the next event) if that is past."""
        if when_us < self.now_us:
            when_us = self.now_us
        self._sequence += 1
        timer = Timer((when_us, self._sequence, action))
        heappush(self._heap, timer)
        return timer

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Run `action` `delay_us` from now."""
        self._sequence += 1
        timer = Timer((self.now_us + delay_us if delay_us > 0 else self.now_us, self._sequence, action))
        heappush(self._heap, timer)
        return timer

    def run_until(self, end_us: int) -> None:
        """Run everything due up to and including `end_us`; the clock stands at `end_us` afterwards.

        Raises EndlessRun.
        """
        heap, most_events = self._heap, self._most_events
        while heap and heap[0][0] <= end_us:
            when_us, _, action = heappop(heap)
            if action is not None:
                self.now_us = when_us
                self.executed += 1
                action()
                if self.executed > most_events:
                    raise EndlessRun(f"{self.executed} events by {self.now_us} us, and no end")
        self.now_us = max(self.now_us, end_us)

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        while self._heap:
            when_us, _, action = heappop(self._heap)
            if action is not None:
                self.now_us = when_us
                self.executed += 1
                action()
                return True
        return False
