"""Messages as columns, a column for each number of a message; written and read in steps."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.packed import COLUMNS, COLUMNS_WITHOUT_ACQUIRED, DELIVERY_COUNT, numbers_of
from mayfly.node.shard.snapshot.columns import Column, column_piece, rows_of
from mayfly.node.shard.snapshot.pace import LIST_COSTS, WorkPace
from mayfly.node.shard.state import State

MOST_ALIKE: Final = 1 << 20
"""One message may be in the outbox once for each queue in which it died. More such would be a number that is damaged:
nothing else in the snapshot says that it can't be."""
_COPIED_AS_ONE: Final = 64
"""To copy so many numbers takes as long as a message."""


def columns_at(level: int) -> int:
    """How many columns messages have in snapshots of a shard at this level."""
    return COLUMNS if level >= LEVEL_FAILED_DELIVERIES else COLUMNS_WITHOUT_ACQUIRED


def with_acquired(state: State, columns: list[Any]) -> list[Any]:
    """All columns of messages, from what a snapshot of this shard has."""
    if state.level >= LEVEL_FAILED_DELIVERIES or len(columns) != COLUMNS_WITHOUT_ACQUIRED:
        return columns
    return [*columns, columns[DELIVERY_COUNT]]


class Later:
    """Something of a row that is filled in by a step."""

    def fill(self) -> int:
        """Fill it in; what it took, in messages."""
        raise NotImplementedError


class MessageColumns:
    """Messages that are to become columns in rows of the snapshot, and those that are half there."""

    def __init__(self, messages_per_step: int, level: int) -> None:
        """``level``: the shard's."""
        self._per_step = messages_per_step
        self.count: int = columns_at(level)
        self._waiting: deque[tuple[list[object], deque[list[Message]]]] = deque()
        self._halves: list[Column] = []
        """Columns of the first that waits."""
        self._later: deque[Later] = deque()

    def pack(self, messages: list[Message], head: int = 0) -> list[object]:
        """The row of the messages from ``head`` on: their number, and columns that ``step`` fills in."""
        size = self._per_step
        # In pieces from the beginning: to let go of millions of messages at once takes long too.
        pieces = deque([messages[start : start + size] for start in range(head, len(messages), size)])
        row: list[object] = [len(messages) - head]
        self._waiting.append((row, pieces))
        return row

    def later(self, what: Later) -> None:
        """This is filled in by ``step``."""
        self._later.append(what)

    def step(self) -> bool:
        """Write some messages; whether anything is left."""
        left = self._per_step
        while self._later and left > 0:
            left -= self._later.popleft().fill()
        while self._waiting and left > 0:
            left -= self._write_some()
        return bool(self._waiting or self._later)

    def _write_some(self) -> int:
        """Write a piece, or the end of a row; what it took, in messages."""
        row, pieces = self._waiting[0]
        if not self._halves:
            self._halves = [Column() for _ in range(self.count)]
        if pieces:
            messages = pieces.popleft()
            for column, numbers in zip(self._halves, numbers_of(messages)[: self.count], strict=True):
                column.add(numbers)
            return max(LIST_COSTS, len(messages))
        column = self._halves[len(row) - 1]
        row.append(column.packed())
        if len(row) > self.count:
            self._halves = []
            self._waiting.popleft()
        return column.count // _COPIED_AS_ONE


class MessagesReading:
    """The messages of a ``MessageColumns.pack``, as they are read."""

    __slots__ = ("body_bytes", "counts_references", "messages", "timed")

    def __init__(self, counts_references: bool = True) -> None:
        """Without ``counts_references`` they have no content."""
        self.counts_references = counts_references
        self.messages: list[Message] = []
        self.timed = 0
        """How many have a deadline."""
        self.body_bytes = 0

    def read(self, state: State, row: Any, pace: WorkPace) -> Iterator[None]:
        """Read them, with pauses, and count their references to their entries."""
        count = rows_of(row, columns_at(state.level))
        if count > MOST_ALIKE and all(isinstance(column, int) for column in row[1:]):
            raise ShardError(f"{count} messages that nothing tells apart, {MOST_ALIKE} at most expected")
        start = 0
        while start < count:
            stop = min(count, start + pace.per_step)
            columns = with_acquired(state, row[1:])
            self._read_piece(state, [column_piece(column, start, stop) for column in columns])
            if pace.is_over(stop - start):
                yield
            start = stop

    def _read_piece(self, state: State, columns: list[Iterable[int]]) -> None:
        live = state.live
        counts_references = self.counts_references
        messages = self.messages
        timed = 0
        body_bytes = 0
        for numbers in zip(*columns, strict=True):
            (
                index, offset, key_length, header_length, body_length,
                enqueued_ms, deadline_ms, count, ttl_ms, priority, acquired,
            ) = numbers
            messages.append(
                Message(
                    index, offset, key_length, header_length, body_length,
                    enqueued_ms, deadline_ms, count, ttl_ms, priority, acquired,
                )
            )
            if counts_references:
                live[index] = live.get(index, 0) + 1
            body_bytes += body_length
            if deadline_ms >= 0:
                timed += 1
        self.timed += timed
        self.body_bytes += body_bytes
