"""When a node ticks (pure), so that one at rest is woken seldom, and for much at once.

A wake costs a node at rest more than what it then does. So when nothing has happened for a while,

- its heartbeats, of which there are fewer then (`HostSettings.heartbeat_ticks_at_rest`), leave at multiples of their
  period by its process clock, as those of all nodes do: what they send each other comes while they are awake,
- ticks between two heartbeats are left out and made up for: just before whatever comes next, the tick with the
  heartbeat at the latest. Then as many ticks were made as without that, and each before what came after its time.

A tick with which a replica may stand for election is never left out, nor made when those of other nodes are: two that
do so at the same moment take each other's votes.
"""

from collections.abc import Callable
from typing import Final

_LATER_PERCENT: Final = 10
"""By so much of a tick at most one comes sooner or later than it would otherwise."""


class TickTimes:
    """Of one node; times are those of its process clock."""

    def __init__(self, tick_ms: int, heartbeat_ticks: int, random: Callable[[int], int]) -> None:
        """Each `heartbeat_ticks`th tick of a node at rest has the heartbeats. `random(n)` is one of 0 to n - 1."""
        self.tick_ms: int = tick_ms
        self._heartbeat_ticks = heartbeat_ticks
        self._random = random
        self._most_ms = tick_ms * _LATER_PERCENT // 100
        self._made = 0
        """Ticks since the last one with heartbeats."""
        self.due_ms: int = 0
        """When the next tick is to be made that is not left out."""
        self.left_out: int = 0
        """How many there are before that one that are..."""
        self.left_out_ms: int = 0
        """...and when the first of them was to be made."""

    def made(self, now_ms: int) -> None:
        """A tick was made: the next one comes a tick later."""
        self._made = (self._made + 1) % self._heartbeat_ticks
        self.left_out = 0
        self.due_ms = now_ms + self.tick_ms

    def rest(self, now_ms: int, ticks_to_election: int, can_wait: Callable[[int], bool]) -> None:
        """After `made`, at rest: with so many more ticks a replica may stand for election. `can_wait(until_ms)` says
        whether ticks may come as late as that."""
        if ticks_to_election <= 1:
            self.due_ms = now_ms + 1 + self._random(self.tick_ms)
            return
        period_ms = self._heartbeat_ticks * self.tick_ms
        aim_ms = (self._made + 1) * self.tick_ms
        late_ms = (self.due_ms - aim_ms + period_ms // 2) % period_ms - period_ms // 2
        self.due_ms -= max(-self._most_ms, min(late_ms, self._most_ms))
        before_heartbeat = self._heartbeat_ticks - 1 - self._made
        until_ms = self.due_ms + before_heartbeat * self.tick_ms
        is_in_step = abs(late_ms) <= self._most_ms
        if is_in_step and 0 < before_heartbeat < ticks_to_election - 1 and can_wait(until_ms):
            self.left_out, self.left_out_ms, self.due_ms = before_heartbeat, self.due_ms, until_ms

    def made_up_for(self) -> None:
        """One that was left out was made."""
        self._made += 1
        self.left_out -= 1
        self.left_out_ms += self.tick_ms

    def take_back(self) -> bool:
        """Leave nothing out any more; whether something was."""
        if not self.left_out:
            return False
        self.left_out, self.due_ms = 0, self.left_out_ms
        return True
