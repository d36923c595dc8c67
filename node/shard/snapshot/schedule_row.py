"""What waits for its time, in the snapshot: a queue's messages, or a stream's deadlines."""

from collections.abc import Iterator
from typing import Any

from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message_id import DIGEST_BYTES, NO_DIGEST
from mayfly.node.shard.schedule import Schedule
from mayfly.node.shard.snapshot.line_row import LineReading, line_row
from mayfly.node.shard.snapshot.message_columns import MessageColumns, MessagesReading
from mayfly.node.shard.snapshot.pace import WorkPace
from mayfly.node.shard.state import State


def schedule_row(schedule: Schedule, columns: MessageColumns) -> list[object]:
    """A schedule as it is cut, and the digests of the messages' ids where there are any."""
    runs = [line_row(run, columns) for run in schedule.runs]
    return [columns.pack(schedule.young), runs, *schedule.digest_rows()]


def restore_schedule(
    state: State, schedule: Schedule, row: Any, pace: WorkPace, counts_references: bool = True
) -> Iterator[None]:
    """Fill a new schedule from a `schedule_row`, with pauses. Without ``counts_references`` it has messages without
    content. ShardError where the digests are not those of the messages."""
    young_row, run_rows, *digest_rows = row
    young = MessagesReading(counts_references)
    yield from young.read(state, young_row, pace)
    if not digest_rows:
        digest_rows = [NO_DIGEST] * (len(run_rows) + 1)
    _check_digests(digest_rows[0], len(young.messages))
    schedule.restore_young(young.messages, digest_rows[0], young.body_bytes)
    for run_row, digests in zip(run_rows, digest_rows[1:], strict=True):
        run = schedule.empty_run()
        reading = LineReading(run, counts_references)
        yield from reading.read(state, run_row, pace)
        _check_digests(digests, run.count())
        run.digests = digests
        schedule.restore_run(run, reading.body_bytes)
        if digests and pace.is_over(run.count()):
            yield


def _check_digests(digests: object, count: int) -> None:
    """ShardError unless these are the digests of so many messages, or none."""
    if not isinstance(digests, bytes) or len(digests) not in (0, count * DIGEST_BYTES):
        raise ShardError(f"{count} messages that wait have ids that can't be read")
