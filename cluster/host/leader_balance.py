"""When a leader may hand its group to the preferred one: after a while, and after pauses that double."""

from typing import Final

STABLE_BEFORE_TRANSFER_MS: Final = 3000
"""How long a node must have been up before it is given the lead."""

FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 60_000
"""Between two attempts of one group: a preferred leader that does not keep the lead, or does not get it, is tried
again after pauses that double."""

LASTED_PAUSES: Final = 4
LASTED_MS: Final = 10_000
"""After so many of its pauses, and so long, without an attempt a group is a new case: the preferred leader had kept the
lead, and something else has ended that. One that is given back at once is handed over again as soon as the pause is
over."""


class LeaderBalance:
    """The attempts of one node to hand over the groups that it leads."""

    def __init__(self) -> None:
        self._attempts: dict[int, tuple[int, int]] = {}

    def is_due(self, group: int, up_since_ms: int, now_ms: int) -> bool:
        """Whether a group may be handed over now, to a node that has been up since then."""
        pause_ms, last_ms = self._attempts.get(group, (FIRST_PAUSE_MS, -1 << 40))
        return now_ms - last_ms >= pause_ms and now_ms - up_since_ms >= STABLE_BEFORE_TRANSFER_MS

    def attempted(self, group: int, now_ms: int) -> None:
        """The group is being handed over."""
        pause_ms, last_ms = self._attempts.get(group, (FIRST_PAUSE_MS, -1 << 40))
        lasted_ms = min(max(LASTED_MS, LASTED_PAUSES * pause_ms), 2 * LONGEST_PAUSE_MS)
        lasted = now_ms - last_ms > lasted_ms
        self._attempts[group] = (2 * FIRST_PAUSE_MS if lasted else min(2 * pause_ms, LONGEST_PAUSE_MS), now_ms)
