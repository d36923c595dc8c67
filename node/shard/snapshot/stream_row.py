"""What a queue has besides that is a stream, in the snapshot. The index of its keys follows from its messages."""

from collections.abc import Iterator
from typing import Any, Final

from mayfly.node.shard.deadlines import deadline_of, key_of, offset_of
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.packed import PRIORITY, STREAM_OFFSET, Packed
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.snapshot.deadlines_row import deadlines_row, restore_deadlines
from mayfly.node.shard.snapshot.message_columns import MessageColumns
from mayfly.node.shard.snapshot.pace import WorkPace
from mayfly.node.shard.state import State
from mayfly.node.shard.stream import Stream
from mayfly.node.shard.stream_keys import StreamKeys

# Places of the rows that streams without TTLs and keys have not.
_TIMES: Final = 2
_EXPIRY: Final = 3
_KEYS: Final = 4


def stream_row(stream: Stream, columns: MessageColumns) -> list[object]:
    """Its numbers and places; behind them what it has of deadlines and keys. Which consumers are idle follows."""
    row: list[object] = [stream.next_offset, list(stream.places.items())]
    times = [
        stream.aged_offset, stream.markers, stream.outdated, deadline_of(stream.swept), offset_of(stream.swept)
    ]
    if any(times) or stream.expiry.count or stream.keys is not None:
        row.append(times)
        row.append(deadlines_row(stream.expiry, columns) if stream.expiry.count else [])
    if stream.keys is not None:
        row.append([stream.keys.next_number, list(stream.keys.keys), list(stream.filters.items())])
    return row


def restore_stream(state: State, queue: Queue, stream: Stream, row: Any, pace: WorkPace) -> Iterator[None]:
    """Become what a `stream_row` says, once the queue has its messages and its holders, of which those that wait are
    in their bands."""
    stream.next_offset, places = row[:_TIMES]
    stream.woken_offset = stream.next_offset
    stream.places = dict(places)
    if len(row) > _TIMES:
        stream.aged_offset, stream.markers, stream.outdated, swept_ms, swept_offset = row[_TIMES]
        stream.swept = key_of(swept_ms, swept_offset)
        if row[_EXPIRY]:
            yield from restore_deadlines(state, stream.expiry, row[_EXPIRY], pace)
    if stream.keys is not None:
        next_number, names, filters = row[_KEYS]
        stream.filters = dict(filters)
        yield from _restore_keys(queue, stream.keys, names, next_number, pace)
    elif len(row) > _KEYS:
        raise ShardError(f"stream {queue.queue_id} has keys, and does not ask for them")
    for holder in queue.holders.values():
        if holder.attached and holder.active and not holder.waiting and holder.room() > 0:
            stream.idle[holder.order] = holder


def _restore_keys(
    queue: Queue, keys: StreamKeys, names: list[bytes], next_number: int, pace: WorkPace
) -> Iterator[None]:
    """The index, from the marks of the messages."""
    line = queue.ready
    for message in line.items[line.head :]:
        keys.note(message.priority, message.stream_offset)
    for piece in line.packed:
        assert isinstance(piece, Packed)
        for mark, offset in zip(piece.column(PRIORITY), piece.column(STREAM_OFFSET), strict=False):
            keys.note(mark, offset)
        if pace.is_over(piece.count):
            yield
    for message in line.back:
        keys.note(message.priority, message.stream_offset)
    keys.name_all(names, next_number)
