"""Trouble that is aimed: what random faults alone bring about too seldom to find a bug of one moment.

A group has one of these beside its random troubles. They know the algorithm, not its code: when a node may forget what
it said, and what figure 8 of the Raft paper is about.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from cluster.raft import ProposalDropped, RawNode
from cluster.simulator.events import MILLISECOND_US, SECOND_US
from cluster.simulator.randomness import exponential_us, stream

if TYPE_CHECKING:
    from cluster.simulator.raft_group import RaftGroup, RaftMember

PLAIN = "plain"
RIVALS = "rivals"
SHORT_REIGNS = "short reigns"


class Schedule:
    """Nothing beside the random troubles."""

    def __init__(self, seed: int) -> None:
        self.random: Random = stream(seed, "schedule")

    def begin(self, group: RaftGroup) -> None:
        """The group is about to start."""

    def writes(self, member: RaftMember, duration_us: int) -> None:
        """A member has begun a write, and sent what may leave before it ends."""

    def leads(self, member: RaftMember) -> None:
        """A member has begun to lead."""


class Rivals(Schedule):
    """Two candidates of one term, again and again, and crashes between a vote and the end of its write.

    Who tells its vote before that gives it a second time.
    """

    MEAN_PAUSE_US = 150 * MILLISECOND_US
    CRASHES = 0.3
    MEAN_OUTAGE_US = MILLISECOND_US
    JITTER_US = 30 * MILLISECOND_US
    WRITE_MEAN_US = 10 * MILLISECOND_US

    def begin(self, group: RaftGroup) -> None:
        group.check_quorum = False
        # Requests are to arrive before and after a restart.
        group.profile.jitter_us = self.JITTER_US
        group.write_mean_us = self.WRITE_MEAN_US
        self._next(group)

    def _next(self, group: RaftGroup) -> None:
        group.queue.after(
            exponential_us(self.random, self.MEAN_PAUSE_US, SECOND_US), lambda: self._stand(group)
        )

    def _stand(self, group: RaftGroup) -> None:
        if group.calm:
            return
        self._next(group)
        able = [member for member in group.members.values() if member.raw is not None and not member.frozen]
        highest = max((_term(member.raw) for member in able), default=0)
        level = [member for member in able if _term(member.raw) == highest]
        for member in self.random.sample(level, min(2, len(level))):
            member.stand()

    def writes(self, member: RaftMember, duration_us: int) -> None:
        if self.random.random() < self.CRASHES:
            outage_us = exponential_us(self.random, self.MEAN_OUTAGE_US, SECOND_US)
            member.crash_within(self.random.randint(0, duration_us), outage_us)


class ShortReigns(Schedule):
    """Leaders that die young, with an entry that few have; the next one may have it or not (figure 8).

    Who counts the copies of an entry of an older term applies what a later leader replaces.
    """

    MEAN_PAUSE_US = 20 * MILLISECOND_US
    MEAN_REIGN_US = 4 * MILLISECOND_US
    MEAN_OUTAGE_US = 20 * MILLISECOND_US

    def begin(self, group: RaftGroup) -> None:
        group.check_quorum = False
        group.max_message_bytes = 64  # one entry a message
        group.max_inflight = 1
        group.write_mean_us = MILLISECOND_US
        self._next(group)

    def _next(self, group: RaftGroup) -> None:
        group.queue.after(
            exponential_us(self.random, self.MEAN_PAUSE_US, SECOND_US), lambda: self._stand(group)
        )

    def _stand(self, group: RaftGroup) -> None:
        if not group.calm:
            self._next(group)
            self.random.choice(list(group.members.values())).stand()

    def leads(self, member: RaftMember) -> None:
        group = member.group
        if group.calm:
            return
        if member.raw is not None:
            with suppress(ProposalDropped):
                member.raw.propose(b"entry of %d in a short reign " % member.id + b"x" * 70)
        reign_us = exponential_us(self.random, self.MEAN_REIGN_US, SECOND_US)
        member.crash_within(reign_us, exponential_us(self.random, self.MEAN_OUTAGE_US, SECOND_US))


def _term(raw: RawNode | None) -> int:
    return 0 if raw is None else raw.raft.term


_SCHEDULES: dict[str, type[Schedule]] = {PLAIN: Schedule, RIVALS: Rivals, SHORT_REIGNS: ShortReigns}


def drawn_schedule(seed: int) -> str:
    """The name of the schedule that goes with a seed."""
    return stream(seed, "which schedule").choice((PLAIN, PLAIN, RIVALS, SHORT_REIGNS))


def make_schedule(name: str, seed: int) -> Schedule:
    """The schedule of this name."""
    return _SCHEDULES[name](seed)
