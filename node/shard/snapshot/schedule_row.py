"""What waits for its time, in the snapshot: a queue's messages, or a stream's deadlines."""

from collections.abc import Iterator
from typing import Any

from mayfly.node.shard.line import Line
from mayfly.node.shard.schedule import Schedule
from mayfly.node.shard.snapshot.line_row import LineReading, line_row
from mayfly.node.shard.snapshot.message_columns import MessageColumns, MessagesReading
from mayfly.node.shard.snapshot.pace import Pace
from mayfly.node.shard.state import State


def schedule_row(schedule: Schedule, columns: MessageColumns) -> list[object]:
    """A schedule as it is cut."""
    runs = [line_row(run, columns) for run in schedule.runs]
    return [columns.pack(schedule.young), runs]


def restore_schedule(
    state: State, schedule: Schedule, row: Any, pace: Pace, counts_references: bool = True
) -> Iterator[None]:
    """Fill a new schedule from a `schedule_row`, with pauses. Without ``counts_references`` it has messages without
    content."""
    young_row, run_rows = row
    young = MessagesReading(counts_references)
    yield from young.read(state, young_row, pace)
    body_bytes = young.body_bytes
    runs: list[Line] = []
    for run_row in run_rows:
        reading = LineReading(schedule.empty_run(), counts_references)
        yield from reading.read(state, run_row, pace)
        body_bytes += reading.body_bytes
        runs.append(reading.line)
    schedule.restore(young.messages, runs, body_bytes)
