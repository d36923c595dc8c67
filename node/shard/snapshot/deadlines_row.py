"""The deadlines of a stream in the snapshot, as messages that have an offset and a time and nothing else: so they were
first written, and are still read by all releases that know streams."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from mayfly.node.shard.deadlines import DeadlineRun, Deadlines, deadline_of, key_of, offset_of
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import NO_DEADLINE, NO_TTL, Message
from mayfly.node.shard.packed import AS_PACKED, ENQUEUED_MS, INDEX, Packed, pack_column
from mayfly.node.shard.snapshot.line_row import LineReading
from mayfly.node.shard.snapshot.message_columns import Later, MessageColumns, MessagesReading
from mayfly.node.shard.snapshot.pace import WorkPace
from mayfly.node.shard.state import State


def deadlines_row(deadlines: Deadlines, columns: MessageColumns) -> list[object]:
    """The young, and the runs as lines: the first of each alone, what follows it packed."""
    young = [_message(deadline_of(key), offset_of(key)) for key in deadlines.young()]
    return [columns.pack(young), [_run_row(run, columns) for run in deadlines.runs]]


def _message(deadline_ms: int, offset: int) -> Message:
    return Message(offset, 0, 0, 0, 0, deadline_ms, NO_DEADLINE, 0)


class _RunRow(Later):
    """A run, as it was, and its row."""

    def __init__(self, run: DeadlineRun, columns: int) -> None:
        self.row: list[object] = []
        self._run = run.copy()
        self._columns = columns

    def fill(self) -> int:
        """See `Later.fill`."""
        deadlines_ms, offsets = self._run.columns()
        numbers: list[object] = [offsets[0], 0, 0, 0, 0, deadlines_ms[0], NO_DEADLINE, 0, NO_TTL, 0, 0]
        self.row.append([1, *numbers[: self._columns]])
        count = len(offsets) - 1
        if not count:
            self.row += [[], []]
            return 1
        packed = [
            pack_column(offsets[1:]), 0, 0, 0, 0, pack_column(deadlines_ms[1:]), NO_DEADLINE, 0, NO_TTL, 0, 0
        ]  # fmt: skip
        self.row += [[[count, AS_PACKED, *packed[: self._columns]]], []]
        return count


def _run_row(run: DeadlineRun, columns: MessageColumns) -> list[object]:
    later = _RunRow(run, columns.count)
    columns.later(later)
    return later.row


def restore_deadlines(state: State, deadlines: Deadlines, row: Any, pace: WorkPace) -> Iterator[None]:
    """Fill new deadlines, with pauses. ShardError where they are not in order."""
    young_row, run_rows = row
    young = MessagesReading(counts_references=False)
    yield from young.read(state, young_row, pace)
    runs: list[DeadlineRun] = []
    for run_row in run_rows:
        reading = LineReading(Line(), counts_references=False)
        yield from reading.read(state, run_row, pace)
        runs.append(_run(reading.line))
    deadlines.restore([key_of(each.enqueued_ms, each.index) for each in young.messages], runs)


def _run(line: Line) -> DeadlineRun:
    deadlines_ms: list[int] = []
    offsets: list[int] = []
    for messages in (line.items[line.head :], line.back):
        if messages is line.back:
            for piece in line.packed:
                if not isinstance(piece, Packed):
                    raise ShardError("deadlines of a stream that are still returning")
                deadlines_ms += piece.column(ENQUEUED_MS)
                offsets += piece.column(INDEX)
        deadlines_ms += [each.enqueued_ms for each in messages]
        offsets += [each.index for each in messages]
    if not offsets or any(one > other for one, other in pairwise(deadlines_ms)):
        raise ShardError(f"{len(offsets)} deadlines of a stream that are not in order")
    return DeadlineRun(deadlines_ms, offsets)
