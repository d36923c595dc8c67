"""Who holds messages of a queue, and whose turn it is. HOT.

Consumers that can take a message wait in bands, one per priority, highest first. In a band they take turns, a
message each; one without room leaves the band and joins it at the end when it has room again.

There may be tens of thousands of them at one queue, and all may go at once: to come, to wait, to pause and to go take
no more steps however many there are.
"""

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from typing import Final

from mayfly.node.shard.message import Message

UNLIMITED: Final = 1 << 62
NO_WINDOW: Final = 1 << 60
"""Bytes left of a window that there is not: more than there can be, and a small number for the compiler."""


class Holder:
    """One consumer of a queue, or the messages that one channel got by basic.get (``is_consumer`` False).

    Ids are those of the session; ``order`` is unique in the shard and grows with every attach. Delivery ids
    count from 1 without gaps; ``held`` has what is unacknowledged, in rising order of id, none of it below
    ``first_held``; ``held_bytes`` of bodies.

    A consumer with a window, ``window_bytes``, is given messages only while what it was given since it was attached,
    ``given_bytes``, is ahead of what its node has said was taken, ``taken_bytes``, by less than that. So the last one
    given may go beyond: else one larger than the window could never go.
    """

    __slots__ = (
        "active",
        "attached",
        "exclusive",
        "first_held",
        "following",
        "given_bytes",
        "held",
        "held_bytes",
        "holder_id",
        "is_consumer",
        "last_delivery_id",
        "no_ack",
        "order",
        "pending",
        "preceding",
        "prefetch",
        "priority",
        "queue_id",
        "session",
        "taken_bytes",
        "waiting",
        "window_bytes",
    )

    def __init__(
        self, session: tuple[int, int], queue_id: int, holder_id: int,
        order: int, is_consumer: bool,
    ) -> None:
        self.session = session
        self.queue_id = queue_id
        self.holder_id = holder_id
        self.order = order
        self.is_consumer = is_consumer
        self.attached = is_consumer
        self.active = True
        self.no_ack = False
        self.exclusive = False
        self.prefetch = 0
        self.priority = 0
        self.waiting = False
        self.last_delivery_id = 0
        self.first_held = 1
        self.held: dict[int, Message] = {}
        self.held_bytes = 0
        self.window_bytes = 0
        self.given_bytes = 0
        self.taken_bytes = 0
        self.pending: list[Message] = []
        # Whose turn is before and after this one's, while it waits.
        self.preceding: Holder | None = None
        self.following: Holder | None = None

    def room(self) -> int:
        """How many more messages it may be given. What they count for in its window is not known: with any of that left
        there is room for one."""
        if self.window_bytes and self.given_bytes - self.taken_bytes >= self.window_bytes:
            return 0
        if self.no_ack or self.prefetch == 0:
            return UNLIMITED
        return self.prefetch - len(self.held)

    def window_left(self) -> int:
        """How many bytes of messages it may be given, and one message beyond."""
        return self.window_bytes - self.given_bytes + self.taken_bytes if self.window_bytes else NO_WINDOW


class Band:
    """The consumers of one priority: ``members`` are attached, and ``count`` of them wait for messages, in a row from
    ``first`` to ``last``, in order of their turn."""

    __slots__ = ("count", "first", "last", "members", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.members = 0
        self.count = 0
        self.first: Holder | None = None
        self.last: Holder | None = None

    def join(self, holder: Holder) -> None:
        """It waits, behind all others."""
        last = self.last
        if last is None:
            self.first = holder
        else:
            last.following = holder
            holder.preceding = last
        self.last = holder
        self.count += 1
        holder.waiting = True

    def leave(self, holder: Holder) -> None:
        """It waits no longer, wherever it stood."""
        before, after = holder.preceding, holder.following
        if before is None:
            self.first = after
        else:
            before.following = after
        if after is None:
            self.last = before
        else:
            after.preceding = before
        holder.preceding = None
        holder.following = None
        self.count -= 1
        holder.waiting = False


_NO_BANDS: Final[dict[int, Band]] = {}
_NO_NUMBERS: Final[list[int]] = []
_NO_CANDIDATES: Final[list[tuple[int, int, Holder]]] = []
"""What all queues without consumers have in common; never changed."""
_SLACK: Final = 64


class Consumers:
    """The attached consumers of one queue, in ``bands`` by their priorities.

    With ``single_active`` only one of them gets messages: of those with the highest priority the first
    attached, until it goes. If it ``yields``, then only until one of a higher priority comes, and it holds nothing any
    more; until then it gets no more.
    """

    __slots__ = ("_candidates", "_waiting", "bands", "count", "exclusive", "single", "single_active", "yields")

    def __init__(self, single_active: bool) -> None:
        self.bands = _NO_BANDS
        # Priorities of the bands in which somebody waits, rising.
        self._waiting = _NO_NUMBERS
        # A heap of those that may become the single active one, some of which have gone: (-priority, order, holder).
        self._candidates = _NO_CANDIDATES
        self.count = 0
        self.exclusive = False
        self.single_active = single_active
        self.single: Holder | None = None
        self.yields = False

    def top_band(self) -> Band | None:
        """The highest band in which somebody waits."""
        return self.bands[self._waiting[-1]] if self._waiting else None

    def credit(self, most: int, counted_bytes: int = 0) -> int:
        """How many messages those who wait would take, if they count for so many bytes together; looked at no further
        than to find out that it is ``most``."""
        credit = 0
        for priority in reversed(self._waiting):
            holder = self.bands[priority].first
            while holder is not None:
                credit += holder.room() if holder.window_left() >= counted_bytes else 1
                if credit >= most:
                    return most
                holder = holder.following
        return credit

    def window_left(self, most: int) -> int:
        """For how many bytes of messages each of those who wait gets his turn: until the largest window is full, of the
        first ``most`` of them."""
        left = 0
        for priority in reversed(self._waiting):
            holder = self.bands[priority].first
            while holder is not None and most > 0:
                left = max(left, holder.window_left())
                holder = holder.following
                most -= 1
            if most <= 0:
                break
        return left

    def in_turn(self) -> list[tuple[int, list[Holder]]]:
        """Who waits, by priority, the highest first."""
        found: list[tuple[int, list[Holder]]] = []
        for priority in reversed(self._waiting):
            holder = self.bands[priority].first
            row: list[Holder] = []
            while holder is not None:
                row.append(holder)
                holder = holder.following
            found.append((priority, row))
        return found

    def enter(self, holder: Holder) -> None:
        """It is a consumer from now on; whether it waits is another matter."""
        self.count += 1
        if holder.exclusive:
            self.exclusive = True
        band = self.bands.get(holder.priority)
        if band is None:
            band = Band(holder.priority)
            if self.bands:
                self.bands[holder.priority] = band
            else:
                self.bands = {holder.priority: band}
        band.members += 1
        if self.single_active:
            if self._candidates is _NO_CANDIDATES:
                self._candidates = []
            heappush(self._candidates, (-holder.priority, holder.order, holder))

    def attach(self, holder: Holder) -> None:
        """A new consumer."""
        self.enter(holder)
        if self.single_active:
            single = self.single
            if single is None:
                self.single = holder
            elif self.is_outranked():
                # It was not before, unless it holds something: so this is the one that comes next.
                self.suspend(single)
                if not single.held:
                    self.single = holder
        self.admit(holder)

    def _first_choice(self) -> Holder | None:
        """Of the highest priority the first attached."""
        candidates = self._candidates
        while candidates and not candidates[0][2].attached:
            heappop(candidates)
        return candidates[0][2] if candidates else None

    def is_outranked(self) -> bool:
        """Whether the single active one is to yield."""
        if not self.yields or self.single is None:
            return False
        choice = self._first_choice()
        return choice is not None and choice.priority > self.single.priority

    def give_way(self) -> bool:
        """The single active one yields if it is to, and holds nothing; True when another waits now."""
        if self.single is None or self.single.held or not self.is_outranked():
            return False
        self.suspend(self.single)
        self.single = self._first_choice()
        return self.single is not None and self.admit(self.single)

    def begin_to_yield(self) -> bool:
        """From now on the single active one yields; True when it is to at once."""
        self.yields = self.single_active
        if self.single is None or not self.is_outranked():
            return False
        self.suspend(self.single)
        self.give_way()
        return True

    def admit(self, holder: Holder) -> bool:
        """Let it wait for messages if it can take one; True when it did not wait before."""
        if (
            holder.waiting
            or not holder.attached
            or not holder.active
            or (self.single_active and (self.single is not holder or self.is_outranked()))
            or holder.room() <= 0
        ):
            return False
        self.wait(holder)
        return True

    def wait(self, holder: Holder) -> None:
        """It waits, behind all others of its priority."""
        band = self.bands[holder.priority]
        band.join(holder)
        if band.count == 1:
            self._row_begins(band.priority)

    def suspend(self, holder: Holder) -> None:
        """It gets nothing until it is admitted again."""
        if holder.waiting:
            band = self.bands[holder.priority]
            band.leave(holder)
            if band.count == 0:
                self.row_ends(band.priority)

    def _row_begins(self, priority: int) -> None:
        waiting = self._waiting
        if not waiting:
            self._waiting = [priority]
        elif priority > waiting[-1]:
            waiting.append(priority)
        else:
            waiting.insert(bisect_left(waiting, priority), priority)

    def row_ends(self, priority: int) -> None:
        """Nobody of this priority waits any more."""
        waiting = self._waiting
        if waiting[-1] == priority:
            waiting.pop()
        else:
            del waiting[bisect_left(waiting, priority)]

    def detach(self, holder: Holder) -> None:
        """It is no consumer any more."""
        self.suspend(holder)
        holder.attached = False
        self.count -= 1
        if holder.exclusive:
            self.exclusive = False
        band = self.bands[holder.priority]
        band.members -= 1
        if band.members == 0:
            del self.bands[holder.priority]
        if self.single_active:
            self._choose(holder)

    def _choose(self, gone: Holder) -> None:
        if self.single is gone:
            self.single = self._first_choice()
            if self.single is not None:
                self.admit(self.single)
        elif self.yields and self.single is not None:
            # It may have to yield to nobody any more.
            self.admit(self.single)
        if len(self._candidates) > 2 * self.count + _SLACK:
            # Most of them have gone.
            attached = [candidate for candidate in self._candidates if candidate[2].attached]
            heapify(attached)
            self._candidates = attached

    def let_go(self) -> None:
        """The queue is gone: those that wait do not hold on to one another, or only the garbage collector could free
        them."""
        for _, row in self.in_turn():
            for holder in row:
                holder.preceding = None
                holder.following = None
