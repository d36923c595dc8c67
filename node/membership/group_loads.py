"""What load the groups of a node are, from what was applied in them and the time that its process took (pure)."""

from collections.abc import Callable, Iterable
from typing import Final

MEASURED_EVERY_MS: Final = 5_000
MESSAGE_US: Final = 7
"""What a message costs a leader with clients (docs/measurements), in a batch with others..."""
BYTES_PER_US: Final = 250
"""...and how many bytes of one cost a microsecond more."""
FOLLOWED_PART: Final = 2
"""A replica that follows costs about half of it."""
MOST_DEARER: Final = 4
"""By so much at most the process's time says that messages are dearer here; the rest of its time has other reasons."""
SMOOTHED: Final = 4
"""A measurement counts for one of so many parts."""

Work = tuple[int, int]
"""Messages, and bytes, that were applied in a group so far."""


class GroupLoads:
    """The loads of the groups of one node, in thousandths of a core."""

    def __init__(self, work: Callable[[int], Work]) -> None:
        """`work(group)` is what was applied in a replica of this node."""
        self.of_groups: dict[int, int] = {}
        self.cpu_permille: int = 0
        """What the process takes of a core, as the shell saw it last; 0: not known."""
        self.work: Callable[[int], Work] = work
        self._before: dict[int, Work] = {}
        self._measured_ms = -1

    def tick(self, groups: Iterable[int], led: Callable[[int], bool], now_ms: int) -> None:
        """Measure, if it is time to."""
        period_ms = now_ms - self._measured_ms
        if self._measured_ms >= 0 and period_ms < MEASURED_EVERY_MS:
            return
        work = {group: self.work(group) for group in groups}
        if self._measured_ms >= 0:
            self._measure(work, led, period_ms)
        self._before, self._measured_ms = work, now_ms

    def _measure(self, work: dict[int, Work], led: Callable[[int], bool], period_ms: int) -> None:
        permille: dict[int, int] = {}
        for group, (messages, bytes_) in work.items():
            before = self._before.get(group, (messages, bytes_))
            # Counts of a replica that a snapshot replaced may go anywhere.
            took_us = max(0, messages - before[0]) * MESSAGE_US + max(0, bytes_ - before[1]) // BYTES_PER_US
            permille[group] = min(1000, took_us // period_ms)
        modelled = sum(each if led(group) else each // FOLLOWED_PART for group, each in permille.items())
        self.of_groups = {
            group: (self.of_groups.get(group, 0) * (SMOOTHED - 1) + self._dearer(each, modelled)) // SMOOTHED
            for group, each in permille.items()
        }

    def _dearer(self, permille: int, modelled: int) -> int:
        if modelled == 0 or self.cpu_permille <= modelled:
            return permille
        return min(permille * self.cpu_permille // modelled, permille * MOST_DEARER)
