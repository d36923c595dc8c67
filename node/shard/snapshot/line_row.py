"""A line of messages in the snapshot."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from mayfly.node.shard.dialect import LAST_RULE
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import FAILED, GIVEN_BACK, NOT_SENT
from mayfly.node.shard.packed import AS_PACKED, BODY_LENGTH, Packed
from mayfly.node.shard.retiming import Retiming
from mayfly.node.shard.returning import ReturningMessages
from mayfly.node.shard.snapshot.message_columns import (
    MOST_ALIKE,
    Later,
    MessageColumns,
    MessagesReading,
    columns_at,
    with_acquired,
)
from mayfly.node.shard.snapshot.pace import LIST_COSTS, WorkPace
from mayfly.node.shard.state import State

_WAYS: Final[dict[int, int | bool]] = {NOT_SENT: False, FAILED: True, GIVEN_BACK: GIVEN_BACK}
"""How a way to come back is written: the first two as before there was another."""
_PACKED_AS_ONE: Final = 4
"""So many messages that stay packed are read in the time of one that becomes an object."""


def line_row(line: Line, columns: MessageColumns) -> list[object]:
    """A line as it is cut: what is packed goes as it is, and where messages expire anywhere the time before which none
    is due. Nothing for an empty line."""
    if line.count() == 0:
        return []
    row: list[object] = [
        columns.pack(line.items, line.head),
        [_piece_row(piece, columns) for piece in line.packed],
        columns.pack(line.back) if line.back else [],
    ]
    if line.anywhere:
        row.append(line.soonest_ms)
    return row


def _piece_row(piece: Packed | ReturningMessages, columns: MessageColumns) -> list[object]:
    """Packed messages as they are, and behind them which are there if some have left (from level LEVEL_STREAMS on);
    what is still returning as it was held, behind a 0."""
    if isinstance(piece, ReturningMessages):
        retiming = retiming_row(piece.retiming)
        return [0, piece.queue_ttl_ms, _WAYS[piece.way], retiming, columns.pack(piece.held())]
    if piece.is_settled():
        return _settled_row(piece, columns.count)
    later = _PieceRow(piece, columns.count)
    columns.later(later)
    return later.row


def _settled_row(piece: Packed, count: int) -> list[object]:
    row = [piece.size, piece.queue_ttl_ms, *piece.columns[:count]]
    return row if piece.there is None else [*row, bytes(piece.there)]


class _PieceRow(Later):
    """A piece as it was, to be packed as it is cut, and its row."""

    def __init__(self, piece: Packed, columns: int) -> None:
        self.row: list[object] = []
        self._piece = piece.copy()
        self._columns = columns

    def fill(self) -> int:
        """See `Later.fill`."""
        self._piece.settle()
        self.row += _settled_row(self._piece, self._columns)
        return self._piece.count


def retiming_row(retiming: Retiming | None) -> list[int]:
    """When and to what the TTL of what is there was last changed; nothing if it never was."""
    return [] if retiming is None else [retiming.ttl_ms, retiming.index, retiming.offset]


class LineReading:
    """A line of a ``line_row``, as it is read."""

    __slots__ = ("body_bytes", "counts_references", "line")

    def __init__(self, line: Line, counts_references: bool = True) -> None:
        """``line`` is filled in. Without ``counts_references`` its messages have no content."""
        self.line = line
        self.body_bytes = 0
        self.counts_references = counts_references

    def read(self, state: State, row: Any, pace: WorkPace) -> Iterator[None]:
        """Read it, with pauses, and count its references."""
        front_row, pieces, back_row, *soonest_ms = row
        front, back = MessagesReading(self.counts_references), MessagesReading(self.counts_references)
        yield from front.read(state, front_row, pace)
        packed: deque[Packed | ReturningMessages] = deque()
        timed = front.timed
        for piece_row in pieces:
            if piece_row[0] == 0:
                _, ttl_ms, way, retimed, held_row = piece_row
                if way not in _WAYS:
                    raise ShardError(f"messages that come back in the way {way!r}")
                held = MessagesReading()
                yield from held.read(state, held_row, pace)
                retiming = Retiming(*retimed) if retimed else None
                packed.append(ReturningMessages(dict(enumerate(held.messages)), int(way), retiming, ttl_ms))
                self.body_bytes += held.body_bytes
                continue
            count, queue_ttl_ms, *piece_columns = piece_row
            if not isinstance(queue_ttl_ms, int) or not AS_PACKED <= queue_ttl_ms <= LAST_RULE:
                raise ShardError(f"messages packed with the TTL {queue_ttl_ms!r}")
            there: bytearray | None = None
            if len(piece_columns) > columns_at(state.level):
                there = bytearray(piece_columns.pop())
            piece = Packed(count, with_acquired(state, piece_columns), queue_ttl_ms, there)
            packed.append(piece)
            timed += self._count(state, piece)
            if pace.is_over(max(LIST_COSTS, piece.count // _PACKED_AS_ONE)):
                yield
        if back_row:
            yield from back.read(state, back_row, pace)
        self.body_bytes += front.body_bytes + back.body_bytes
        self.line.put_together(front.messages, packed, back.messages, timed + back.timed)
        if soonest_ms:
            (self.line.soonest_ms,) = soonest_ms

    def _count(self, state: State, piece: Packed) -> int:
        """What is counted of messages that stay packed; how many of them have a deadline."""
        piece.check(MOST_ALIKE)
        if self.counts_references:
            live = state.live
            for index, count in piece.references():
                live[index] = live.get(index, 0) + count
        self.body_bytes += piece.total(BODY_LENGTH)
        return piece.timed()
