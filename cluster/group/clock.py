"""Clocks that no machine's wall clock can hurry.

Three readings, each made from the one before:

* **process clock** (the shell's): the wall clock as the first process after the machine's start read it, plus the time
  since. Stepping the machine's clock changes nothing until the machine starts anew.
* **trusted clock** (`MemberClocks`): the process clock, held back to the lower median of the members' clocks plus a
  bound (RULES C3), so that one node with a wrong clock stamps nothing wrong.
* **group clock** (`GroupClock`): what log entries carry. A group takes the trusted clock once, when it first has a
  leader; from then on each leader *continues* the clock of the leader before it, which it knows from the
  heartbeat that came quickest of late: one that waited in a frozen process would hold the clock up for good. A leader
  change therefore neither turns the clock back (C2) nor makes it jump by the difference of two machines.

A process that starts again on the same boot goes on with its process clock, and with what it kept of the groups' clocks
that were ahead of it (`cluster.host.clocks_ahead`).

A group has a second clock, the *led* clock: the milliseconds during which it had a leader (RULES L7). Leases are
measured on it, so an outage is not charged to them.

All times are integers in milliseconds.
"""

from collections.abc import Collection
from typing import Final


class MemberClocks:
    """What this node knows of the other members' process clocks, from the frames they send."""

    def __init__(self, bound_ms: int) -> None:
        self.bound_ms: int = bound_ms
        self._offsets: dict[int, int] = {}
        self._away: dict[int, int] = {}
        """The offsets of members that are not heard of, as they were."""

    def observe(self, member: int, their_clock_ms: int, now_ms: int) -> None:
        """Note that `member` read `their_clock_ms` when we read `now_ms` (the transit time makes it seem late)."""
        self._offsets[member] = their_clock_ms - now_ms
        if self._away:
            self._away.pop(member, None)

    def away(self, member: int) -> None:
        """A member is not heard of now. It outvotes nobody, but what its clock showed still holds ours back: it may be
        the one whose vote makes us lead."""
        offset_ms = self._offsets.pop(member, None)
        if offset_ms is not None:
            self._away[member] = offset_ms

    def forget(self, member: int) -> None:
        """It is no member any more."""
        self._offsets.pop(member, None)
        self._away.pop(member, None)

    def offset_ms(self, member: int) -> int | None:
        """How far ahead of ours the clock of `member` is, in ms; None when it is not heard of."""
        return self._offsets.get(member)

    def excess_ms(self) -> int:
        """How far our clock is ahead of what the members together allow (0 when it is not)."""
        return max(0, -(_lower_median([0, *self._offsets.values(), *self._away.values()]) + self.bound_ms))

    def contradicted(self) -> bool:
        """Whether our clock is ahead of those of the members that are heard of, or behind, by more than the bound."""
        return abs(_lower_median([0, *self._offsets.values()])) > self.bound_ms

    def outvoted(self, voters: list[int], silent: Collection[int] = ()) -> bool:
        """Whether most voters of a group are behind us by more than the bound, so that they can and should choose a
        leader among themselves (RULES C3). Those that are `silent` can't: their replica is damaged.

        With fewer to compare with nobody can say whose clock is wrong, and our log may be the one that is needed.
        """
        behind = 0
        for voter in voters:
            if voter not in silent and self._offsets.get(voter, 0) < -self.bound_ms:
                behind += 1
        return behind > len(voters) // 2

    def trusted(self, now_ms: int) -> int:
        """Our process clock without the excess (RULES C3)."""
        return now_ms - self.excess_ms()


def _lower_median(values: list[int]) -> int:
    return sorted(values)[(len(values) - 1) // 2]


class GroupClock:
    """The shard clock and the led clock of one group, on one node (RULES C1, C2, L6, L7)."""

    LONGEST_LED_STEP_MS: Final = 500
    """A leader that did not look at its clock for longer was frozen: the rest of that time is not charged to leases."""
    BEST_KEPT_MS: Final = 60_000
    """So long the heartbeat that came quickest is kept; the clocks of two machines drift by little in that time."""

    def __init__(self) -> None:
        self.time_ms: int = 0
        self.led_ms: int = 0
        """The led clock: as applied, and while leading as it runs."""
        self.applied_led_ms: int = 0
        self._anchor_time_ms: int = -1
        self._anchor_now_ms: int = 0
        self._anchor_term: int = 0
        """The term of the leader whose clock the anchor shows."""
        self._kept_term: int = -1
        self._kept_ahead_ms: int = 0
        self._led_seen_ms: int = -1
        self._term: int = 0
        self._claimed_led_ms: int = 0
        self._claimed_term: int = 0

    def applied(self, time_ms: int, led_ms: int) -> None:
        """An entry with these stamps was applied: neither clock is ever behind it again."""
        if time_ms > self.time_ms:
            self.time_ms = time_ms
        if led_ms > self.applied_led_ms:
            self.applied_led_ms = led_ms
        if led_ms > self.led_ms:
            self.led_ms = led_ms

    def observed(self, time_ms: int, led_ms: int, now_ms: int, term: int = 0) -> None:
        """The heartbeat of the leader of `term` showed its clocks: remember them, to continue from should we lead
        next. One that took longer on its way than one a while before, or waited here while we were frozen, tells less
        than that one did."""
        self._claim(led_ms, term)
        since_ms = now_ms - self._anchor_now_ms
        is_recent = self._anchor_time_ms >= 0 and term == self._anchor_term and 0 <= since_ms <= self.BEST_KEPT_MS
        if is_recent and time_ms < self._anchor_time_ms + since_ms:
            return
        self._anchor_time_ms = time_ms
        self._anchor_now_ms = now_ms
        self._anchor_term = term

    def kept(self, term: int, ahead_ms: int) -> None:
        """An earlier process on this boot, whose process clock this one goes on with, knew from the leader of `term`
        that this clock was so far ahead of that one."""
        self._kept_term = term
        self._kept_ahead_ms = ahead_ms

    def ahead(self, now_ms: int) -> tuple[int, int] | None:
        """The term of the leader that this clock is known from, and how many ms it is ahead of the process clock. None
        if no leader was heard of, by this process or the one before."""
        if self._anchor_time_ms >= 0:
            return self._anchor_term, self.current_ms(now_ms) - now_ms
        return None if self._kept_term < 0 else (self._kept_term, self._kept_ahead_ms)

    def _claim(self, led_ms: int, term: int) -> None:
        if term > self._claimed_term or (term == self._claimed_term and led_ms > self._claimed_led_ms):
            self._claimed_led_ms = led_ms
            self._claimed_term = term

    def lead(self, now_ms: int, trusted_ms: int, term: int = 0, last_term: int = 0) -> None:
        """This node became the leader in `term`: both clocks run from here. `last_term` is that of the last entry
        before its own.

        What a leader said of the led clock counts only if none led after it: one that did may have continued from
        less, and leases that were renewed under it would end early (RULES L4). What an earlier process kept of the
        clock counts under the same condition: messages that came under a later leader would die early (RULES T5).
        """
        if self._anchor_time_ms < 0:
            is_known = self._kept_term >= max(last_term, 0)
            self._anchor_time_ms = max(trusted_ms, now_ms + self._kept_ahead_ms) if is_known else trusted_ms
            self._anchor_now_ms = now_ms
        # A wall clock that was set back while this process was down must not make the group's clock stand still.
        if self._anchor_time_ms + now_ms - self._anchor_now_ms < self.time_ms:
            self._anchor_time_ms = self.time_ms
            self._anchor_now_ms = now_ms
        self.led_ms = self.applied_led_ms
        if self._claimed_term >= last_term and self._claimed_led_ms > self.led_ms:
            self.led_ms = self._claimed_led_ms
        self._led_seen_ms = now_ms
        self._term = self._anchor_term = term

    def follow(self) -> None:
        """This node no longer leads: its led clock stands still until it hears of the leader's."""
        if self._led_seen_ms >= 0:
            self._claim(self.led_ms, self._term)
            self.led_ms = self.applied_led_ms
        self._led_seen_ms = -1

    def current_ms(self, now_ms: int) -> int:
        """The shard clock at `now_ms`, never behind what was applied."""
        if self._anchor_time_ms < 0:
            return self.time_ms
        return max(self.time_ms, self._anchor_time_ms + now_ms - self._anchor_now_ms)

    @property
    def known_led_ms(self) -> int:
        """The led clock as far as this node knows: its own while it leads, else as the last leader's heartbeat had it.

        For showing. What a leader said that was lost since may be ahead of the one that follows it.
        """
        if self._led_seen_ms >= 0:
            return self.led_ms
        return max(self.led_ms, self._claimed_led_ms)

    def advance_led(self, now_ms: int) -> None:
        """Charge the time since the last call to the led clock; call it often while leading."""
        if self._led_seen_ms >= 0 and now_ms > self._led_seen_ms:
            self.led_ms += min(now_ms - self._led_seen_ms, self.LONGEST_LED_STEP_MS)
            self._led_seen_ms = now_ms
