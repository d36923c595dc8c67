"""What a redrive is to a queue's state: a job of which all replicas know how far it has come (RULES R1).

The shard never looks at content, so which message moves where is decided by its leader (`node.duties.redrives`), which
names the messages in REDRIVE commands (`node.shard.redriving`).
"""

from typing import Any, Final

from mayfly.node.shard.errors import ShardError

RUNNING: Final = 0
PAUSED: Final = 1
DONE: Final = 2
CANCELLED: Final = 3
STATES: Final = ("running", "paused", "done", "cancelled")
"""Their names."""

MOST_PER_SECOND: Final = 1_000_000
"""The highest rate; 0 is none: as fast as targets take them."""
BURST_US: Final = 1_000_000
"""What a leader could not move in time it makes up for, up to a second's worth: part of what the log means."""
_US_PER_MS: Final = 1000
_US_PER_SECOND: Final = 1_000_000


class Place:
    """How far a redrive has looked: all before this message of this line, and in the lines before it. ``index`` 0: none
    of the line yet.

    ``is_back``, ``priority``: which line, of what came back or of what was never delivered (`Queue.levels`).
    ``index``, ``offset``, ``enqueued_ms``: a message that was looked at and stays. Once it has left, so have all before
    it. (Of one that recurs several have the same content.) ``acquired_count`` tells it from itself after it came back.
    """

    __slots__ = ("acquired_count", "enqueued_ms", "index", "is_back", "offset", "priority")

    def __init__(
        self, is_back: bool, priority: int, index: int, offset: int, enqueued_ms: int, acquired_count: int
    ) -> None:
        self.is_back = is_back
        self.priority = priority
        self.index = index
        self.offset = offset
        self.enqueued_ms = enqueued_ms
        self.acquired_count = acquired_count

    def row(self) -> list[object]:
        """For a snapshot."""
        return [self.is_back, self.priority, self.index, self.offset, self.enqueued_ms, self.acquired_count]


class Redrive:
    """The redrive of a queue that is under way, or the last one there was.

    ``redrive_id`` is the log entry that has started it. Messages whose content or whose place in the queue is younger
    (``redrive_id``, ``started_ms``) are none of its business, so what it moves does not come round again, and what it
    moves is what a preview at its start has said. ``terms`` are the leader's: which messages go, and where to
    (`node.dead_letter.redrive`). ``waiting`` were ready at its start; ``moved`` have left, ``stayed`` were looked at
    and do not match. ``step`` numbers the REDRIVE commands that were applied, ``tag`` is the leader's name of the last.
    ``paid_us``: up to when of the shard's time, in microseconds, the rate is used up. ``state`` is one of RUNNING,
    PAUSED, DONE and CANCELLED, since ``changed_ms``.
    """

    __slots__ = (
        "changed_ms", "moved", "paid_us", "per_second", "place", "redrive_id", "started_ms", "state", "stayed", "step",
        "tag", "terms", "waiting",
    )  # fmt: skip

    def __init__(self, redrive_id: int, terms: bytes, per_second: int, started_ms: int, waiting: int) -> None:
        self.redrive_id = redrive_id
        self.terms = terms
        self.per_second = per_second
        self.started_ms = started_ms
        self.changed_ms = started_ms
        self.waiting = waiting
        self.state = RUNNING
        self.moved = 0
        self.stayed = 0
        self.step = 0
        self.tag = 0
        self.paid_us = started_ms * _US_PER_MS
        self.place: Place | None = None

    @property
    def is_active(self) -> bool:
        """Whether it is running or paused."""
        return self.state <= PAUSED

    def is_meant(self, index: int, enqueued_ms: int) -> bool:
        """Whether a message was in the queue when it started, by its content's entry and its time."""
        return index <= self.redrive_id and enqueued_ms <= self.started_ms

    def change(self, state: int, time_ms: int) -> None:
        """It is in another state."""
        if state == RUNNING:
            # The time that it has stood still is not made up for.
            self.paid_us = max(self.paid_us, time_ms * _US_PER_MS)
        self.state = state
        self.changed_ms = time_ms

    def set_rate(self, per_second: int, time_ms: int) -> None:
        """Another rate from now on."""
        self.per_second = per_second
        self.paid_us = time_ms * _US_PER_MS

    def may_move(self, time_ms: int, most: int) -> int:
        """How many messages it may move at this time of the shard's clock, not more than ``most``."""
        if not self.per_second:
            return most
        now_us = time_ms * _US_PER_MS
        if self.paid_us > now_us:
            return 0
        free_us = now_us - max(self.paid_us, now_us - BURST_US)
        # The first of its time is free to go; the next one is due when it is paid for.
        return min(most, 1 + free_us * self.per_second // _US_PER_SECOND)

    def note_moved(self, count: int, time_ms: int) -> None:
        """So many have moved."""
        self.moved += count
        if self.per_second and count:
            paid_us = max(self.paid_us, time_ms * _US_PER_MS - BURST_US)
            self.paid_us = paid_us + count * _US_PER_SECOND // self.per_second

    def row(self) -> list[object]:
        """For a snapshot."""
        place = self.place
        return [
            self.redrive_id, self.terms, self.per_second, self.started_ms, self.changed_ms, self.waiting, self.state,
            self.moved, self.stayed, self.step, self.tag, self.paid_us,
            [] if place is None else place.row(),
        ]


def redrive_of(row: Any) -> Redrive:
    """What `Redrive.row` has written. ShardError where it is none."""
    try:
        redrive_id, terms, per_second, started_ms, changed_ms, waiting, state, moved, stayed, *steps = row
        step, tag, paid_us, at = steps
        found = Redrive(redrive_id, terms, per_second, started_ms, waiting)
        found.changed_ms = changed_ms
        found.state = state
        found.moved = moved
        found.stayed = stayed
        found.step = step
        found.tag = tag
        found.paid_us = paid_us
        if at:
            is_back, priority, index, offset, enqueued_ms, acquired_count = at
            found.place = Place(is_back, priority, index, offset, enqueued_ms, acquired_count)
    except (TypeError, ValueError) as error:
        raise ShardError(f"{row!r} is no redrive") from error
    if not 0 <= found.state <= CANCELLED:
        raise ShardError(f"a redrive in the unknown state {found.state}")
    return found
