"""Who holds messages of a queue, and whose turn it is. HOT.

Consumers that can take a message wait in bands, one per priority, highest first. In a band they take turns, a
message each; one without room leaves the band and joins it at the end when it has room again.
"""

from collections import deque
from typing import Final

from node.shard.message import Message

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
        "given_bytes",
        "held",
        "held_bytes",
        "holder_id",
        "is_consumer",
        "last_delivery_id",
        "local",
        "no_ack",
        "order",
        "pending",
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
        order: int, local: bool, is_consumer: bool,
    ) -> None:
        self.session = session
        self.queue_id = queue_id
        self.holder_id = holder_id
        self.order = order
        self.local = local
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
    """The consumers of one priority that wait for messages, in order of their turn; ``members`` are attached.
    """

    __slots__ = ("members", "priority", "waiting")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.members = 0
        self.waiting: deque[Holder] = deque()


_NO_BANDS: Final[list[Band]] = []
"""What all queues without consumers have in common; never changed."""


class Consumers:
    """The attached consumers of one queue.

    With ``single_active`` only one of them gets messages: of those with the highest priority the first
    attached, until it goes.
    """

    __slots__ = ("bands", "count", "exclusive", "single", "single_active")

    def __init__(self, single_active: bool) -> None:
        self.bands = _NO_BANDS
        self.count = 0
        self.exclusive = False
        self.single_active = single_active
        self.single: Holder | None = None

    def top_band(self) -> Band | None:
        """The highest band in which somebody waits."""
        for band in self.bands:
            if band.waiting:
                return band
        return None

    def credit(self, counted_bytes: int = 0) -> int:
        """How many messages those who wait would take, if they count for so many bytes together."""
        credit = 0
        for band in self.bands:
            for holder in band.waiting:
                credit += holder.room() if holder.window_left() >= counted_bytes else 1
                if credit >= UNLIMITED:
                    return UNLIMITED
        return credit

    def window_left(self) -> int:
        """For how many bytes of messages each of those who wait gets his turn: until the largest window is full."""
        left = 0
        for band in self.bands:
            for holder in band.waiting:
                left = max(left, holder.window_left())
        return left

    def band(self, priority: int) -> Band:
        """The band of this priority, made if there is none."""
        place = 0
        for band in self.bands:
            if band.priority == priority:
                return band
            if band.priority < priority:
                break
            place += 1
        made = Band(priority)
        if self.bands:
            self.bands.insert(place, made)
        else:
            self.bands = [made]
        return made

    def attach(self, holder: Holder) -> None:
        """A new consumer."""
        self.count += 1
        if holder.exclusive:
            self.exclusive = True
        self.band(holder.priority).members += 1
        if self.single_active and self.single is None:
            self.single = holder
        self.admit(holder)

    def admit(self, holder: Holder) -> bool:
        """Let it wait for messages if it can take one; True when it did not wait before."""
        if (
            holder.waiting
            or not holder.attached
            or not holder.active
            or (self.single_active and self.single is not holder)
            or holder.room() <= 0
        ):
            return False
        holder.waiting = True
        self.band(holder.priority).waiting.append(holder)
        return True

    def suspend(self, holder: Holder) -> None:
        """It gets nothing until it is admitted again."""
        if holder.waiting:
            holder.waiting = False
            self.band(holder.priority).waiting.remove(holder)

    def detach(self, holder: Holder, holders: list[Holder]) -> None:
        """It is no consumer any more; ``holders`` are all of the queue, to choose the next single active one
        from.
        """
        self.suspend(holder)
        holder.attached = False
        self.count -= 1
        if holder.exclusive:
            self.exclusive = False
        band = self.band(holder.priority)
        band.members -= 1
        if band.members == 0:
            self.bands.remove(band)
        if self.single is holder:
            self.single = None
            for other in holders:
                if other.attached and (self.single is None or other.priority > self.single.priority):
                    self.single = other
            if self.single is not None:
                self.admit(self.single)
