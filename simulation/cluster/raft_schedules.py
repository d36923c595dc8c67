"""Trouble that is aimed: what random faults alone bring about too seldom to find a bug of one moment.

A group has one of these beside its random troubles. They know the algorithm, not its code: when a node may forget what
it said, and what figure 8 of the Raft paper is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Protocol

from mayfly.cluster.raft import ProposalDropped, RawNode, Ready
from simulation.cluster.events import MILLISECOND_US, SECOND_US, EventQueue
from simulation.cluster.notices import NoticeNetwork
from simulation.cluster.randomness import exponential_us, stream

PLAIN = "plain"
RIVALS = "rivals"
SHORT_REIGNS = "short reigns"


class Member(Protocol):
    """A member of a group, as schedules see and hit it."""

    id: int
    raw: RawNode | None
    frozen: bool

    @property
    def group(self) -> TroubledGroup:
        """The group that it was made for."""
        ...

    def crash_within(self, delay_us: int, outage_us: int) -> None:
        """Crash so much later, unless it has crashed by then; and start again after the outage."""
        ...

    def stand(self) -> None:
        """Stand for election now, if it can."""
        ...


class TroubledGroup(Protocol):
    """A group, and what of its settings schedules change."""

    queue: EventQueue
    network: NoticeNetwork[Any]
    calm: bool
    check_quorum: bool
    max_message_bytes: int
    max_inflight: int
    write_mean_us: int

    @property
    def members(self) -> Mapping[int, Member]:
        """All members by their ids, those that are down too."""
        ...


class TroubleSchedule:
    """Nothing beside the random troubles."""

    def __init__(self, seed: int) -> None:
        self.random: Random = stream(seed, "schedule")

    def size(self, drawn: int) -> int:
        """How many voters the group has at first."""
        return drawn

    def begin(self, group: TroubledGroup) -> None:
        """The group is about to start."""

    def writes(self, member: Member, ready: Ready, duration_us: int) -> None:
        """A member has begun a write, and sent what may leave before it ends."""

    def leads(self, member: Member) -> None:
        """A member has begun to lead."""


class Rivals(TroubleSchedule):
    """Two candidates of one term that don't hear of each other, again and again; those whom they ask crash between
    their vote and the end of its write, and are soon back when the second one asks.

    Who tells its vote before it is written gives it a second time.
    """

    MEAN_PAUSE_US = 100 * MILLISECOND_US
    CRASHES = 0.6
    MEAN_OUTAGE_US = MILLISECOND_US
    LONGEST_LEAD_US = 30 * MILLISECOND_US
    DEAFNESS_US = 60 * MILLISECOND_US
    WRITE_MEAN_US = 3 * MILLISECOND_US

    def size(self, drawn: int) -> int:
        return max(drawn, 3)

    def begin(self, group: TroubledGroup) -> None:
        group.check_quorum = False
        group.write_mean_us = self.WRITE_MEAN_US
        self._next(group)

    def _next(self, group: TroubledGroup) -> None:
        group.queue.after(
            exponential_us(self.random, self.MEAN_PAUSE_US, SECOND_US), lambda: self._stand(group)
        )

    def _stand(self, group: TroubledGroup) -> None:
        if group.calm:
            return
        self._next(group)
        able = [member for member in group.members.values() if member.raw is not None and not member.frozen]
        highest = max((_term(member.raw) for member in able), default=0)
        level = [member for member in able if _term(member.raw) == highest]
        if len(level) < 2:
            return
        first, second = self.random.sample(level, 2)
        blocked = group.network.blocked
        for way in ((first.id, second.id), (second.id, first.id)):
            if way not in blocked:
                blocked[way] = None
                group.queue.after(self.DEAFNESS_US, partial(_heal, blocked, way))
        first.stand()
        group.queue.after(self.random.randint(0, self.LONGEST_LEAD_US), second.stand)

    def writes(self, member: Member, ready: Ready, duration_us: int) -> None:
        voted = 0 if ready.hard_state is None else ready.hard_state.vote
        if voted not in (0, member.id) and self.random.random() < self.CRASHES:
            outage_us = exponential_us(self.random, self.MEAN_OUTAGE_US, SECOND_US)
            member.crash_within(self.random.randint(0, duration_us), outage_us)


class ShortReigns(TroubleSchedule):
    """Leaders that die young, with an entry that few have; the next one may have it or not (figure 8).

    Who counts the copies of an entry of an older term applies what a later leader replaces.
    """

    MEAN_PAUSE_US = 20 * MILLISECOND_US
    MEAN_REIGN_US = 4 * MILLISECOND_US
    MEAN_OUTAGE_US = 20 * MILLISECOND_US

    def size(self, drawn: int) -> int:
        return max(drawn, 3)

    def begin(self, group: TroubledGroup) -> None:
        group.check_quorum = False
        group.max_message_bytes = 64  # one entry a message
        group.max_inflight = 1
        group.write_mean_us = MILLISECOND_US
        self._next(group)

    def _next(self, group: TroubledGroup) -> None:
        group.queue.after(
            exponential_us(self.random, self.MEAN_PAUSE_US, SECOND_US), lambda: self._stand(group)
        )

    def _stand(self, group: TroubledGroup) -> None:
        if not group.calm:
            self._next(group)
            self.random.choice(list(group.members.values())).stand()

    def leads(self, member: Member) -> None:
        group = member.group
        if group.calm:
            return
        if member.raw is not None:
            with suppress(ProposalDropped):
                member.raw.propose(b"entry of %d in a short reign " % member.id + b"x" * 70)
        reign_us = exponential_us(self.random, self.MEAN_REIGN_US, SECOND_US)
        member.crash_within(reign_us, exponential_us(self.random, self.MEAN_OUTAGE_US, SECOND_US))


def _term(raw: RawNode | None) -> int:
    return 0 if raw is None else raw.term


_SCHEDULES: dict[str, type[TroubleSchedule]] = {PLAIN: TroubleSchedule, RIVALS: Rivals, SHORT_REIGNS: ShortReigns}


def drawn_schedule(seed: int) -> str:
    """The name of the schedule that goes with a seed."""
    return stream(seed, "which schedule").choice((PLAIN, RIVALS, SHORT_REIGNS))


def make_schedule(name: str, seed: int) -> TroubleSchedule:
    """The schedule of this name."""
    return _SCHEDULES[name](seed)


def _heal(blocked: dict[tuple[int, int], None], way: tuple[int, int]) -> None:
    blocked.pop(way, None)
