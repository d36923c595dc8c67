"""What waits in a queue, looked at again and again without looking at every message each time.

A queue keeps no count of its messages whose deadline has passed: that would cost every publish. Whoever asks keeps a
`WaitingIndex` of the queue instead. It has the deadlines of the messages, sorted, chunk by chunk: messages leave a line
at its head, join it at its end and do not change, so a chunk stays right until its last message has left. The first
look at n messages costs O(n), in slices of any size; every further one looks at two chunks and into n / CHUNK others.
"""

from array import array
from bisect import bisect_right
from collections import deque
from typing import Final

from mayfly.node.shard.line import Line
from mayfly.node.shard.queue import Queue

CHUNK: Final = 4096
"""Messages in a chunk."""
_NONE: Final = -1


class Waiting:
    """What is ready in a queue at one moment of the shard clock.

    ``expired``: messages whose deadline has passed and that stay behind a live head (RULES T6), or were not
    expired yet. ``oldest_ms``: when the oldest message was enqueued, -1 if there is none; one that came back
    keeps its time. With ``exact`` False not all were looked at: there may be more expired ones, and older ones.
    ``looked_at`` is what this look has cost, in messages.
    """

    __slots__ = ("exact", "expired", "looked_at", "oldest_ms")

    def __init__(self) -> None:
        self.expired = 0
        self.oldest_ms = _NONE
        self.exact = True
        self.looked_at = 0

    def older(self, enqueued_ms: int) -> None:
        """There is a message that was enqueued then."""
        if self.oldest_ms == _NONE or enqueued_ms < self.oldest_ms:
            self.oldest_ms = enqueued_ms


class _Chunk:
    """Messages that were side by side in a line when they were looked at, from ``place`` on."""

    __slots__ = ("deadlines", "oldest_ms", "place")

    def __init__(self, place: int, size: int, line: Line) -> None:
        start = place - line.gone
        messages = line.between(start, start + size)
        self.place = place
        self.deadlines = array("q", sorted([m.deadline_ms for m in messages if m.deadline_ms >= 0]))
        self.oldest_ms = min([m.enqueued_ms for m in messages])


class _LineIndex:
    """The chunks of one line, side by side; before them and behind them less than a chunk, or what is still to do."""

    __slots__ = ("chunks", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.chunks: deque[_Chunk] = deque()

    def look(self, line: Line, now_ms: int, most: int, waiting: Waiting) -> None:
        """Add the line to ``waiting``; the rest is left out once ``most`` messages were looked at."""
        chunks = self.chunks
        size = self.size
        first = line.gone
        end = first + line.count()
        while chunks and chunks[0].place + size <= first:
            chunks.popleft()
        place = first
        for chunk in chunks:
            place = chunk.place + size
            if chunk.place < first:
                # Some of it have left.
                _look_at(line, first, place, now_ms, waiting)
            else:
                waiting.expired += bisect_right(chunk.deadlines, now_ms)
                waiting.older(chunk.oldest_ms)
        while place < end:
            step = min(size, end - place)
            if waiting.looked_at + step > most:
                # What is not looked at is likely to be younger than the head.
                waiting.exact = False
                waiting.older(line.first().enqueued_ms)
                return
            if step < size:
                _look_at(line, place, end, now_ms, waiting)
                return
            chunk = _Chunk(place, size, line)
            chunks.append(chunk)
            waiting.looked_at += size
            waiting.expired += bisect_right(chunk.deadlines, now_ms)
            waiting.older(chunk.oldest_ms)
            place += size


def _look_at(line: Line, place: int, end: int, now_ms: int, waiting: Waiting) -> None:
    """Look at the messages in these places one by one."""
    expired = 0
    oldest_ms = waiting.oldest_ms
    for message in line.between(place - line.gone, end - line.gone):
        if 0 <= message.deadline_ms <= now_ms:
            expired += 1
        if oldest_ms == _NONE or message.enqueued_ms < oldest_ms:
            oldest_ms = message.enqueued_ms
    waiting.expired += expired
    waiting.oldest_ms = oldest_ms
    waiting.looked_at += end - place


class WaitingIndex:
    """What is known of the messages ready in ``queue``. After a snapshot was restored the queue is another object and
    needs another index. ``chunk``: messages in a chunk; tests lower it.
    """

    __slots__ = ("chunk", "levels", "queue", "ready", "returned")

    def __init__(self, queue: Queue, chunk: int = CHUNK) -> None:
        self.queue = queue
        self.ready = _LineIndex(chunk)
        self.returned = _LineIndex(chunk)
        self.chunk = chunk
        self.levels: dict[int, tuple[_LineIndex, _LineIndex]] = {}
        """By priority: of what came back, and of what was never delivered."""

    def look(self, now_ms: int, most: int) -> Waiting:
        """What waits at ``now_ms`` of shard time; looks at ``most`` messages, and at what is left of a chunk."""
        waiting = Waiting()
        if self.queue.stream is not None:
            # From there they leave anywhere, and none that is late stays.
            if self.queue.ready.items:
                waiting.older(self.queue.ready.first().enqueued_ms)
            return waiting
        for level in self.queue.levels:
            indexes = self.levels.get(level.priority)
            if indexes is None:
                indexes = self.levels[level.priority] = (_LineIndex(self.chunk), _LineIndex(self.chunk))
            indexes[0].look(level.returned, now_ms, most, waiting)
            indexes[1].look(level.ready, now_ms, most, waiting)
        self.returned.look(self.queue.returned, now_ms, most, waiting)
        self.ready.look(self.queue.ready, now_ms, most, waiting)
        return waiting
