"""Records of a journal, the newest first (RULES R4). Pure: reads the replica here.

A page is bounded by rows, by messages looked at and by what is read from the log: records of one queue may be rare, and
what is in the stream need not be records.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from mayfly.node.dead_letter.journal import is_record
from mayfly.node.dead_letter.stream_content import header_of
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.views.json_tables import shown_properties
from mayfly.node.operating.views.log_entries import LogEntries
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.stream_keys import routing_key
from mayfly.node.shard.stream_line import find, last_offset

ROWS_AT_ONCE: Final = 100
LOOKED_AT: Final = 1000
BYTES_READ: Final = 4 * 1024 * 1024
"""Of log entries for one page; the last one may go beyond."""

FIELDS: Final = (
    "what", "reason", "queue", "to", "dead-letter-exchange", "dead-letter-routing-key", "due-ms", "went-ms",
    "enqueued-ms", "last-used-ms", "messages", "exchange", "routing-key", "body-bytes", "message-id", "traceparent",
)  # fmt: skip
"""What records say (`node.dead_letter.journal`)."""


class JournalPart(NamedTuple):
    """Records, the newest first; before the offset ``before`` there may be more, -1 at the end."""

    records: list[dict[str, Any]]
    before: int


def records_in(
    engine: Engine, shard_id: int, journal_id: int, queue: bytes | None, before: int, most: int
) -> JournalPart | None:
    """At most so many records before an offset (-1: the newest), of the queue with this name if one is given; None
    where this node has no replica of the shard, or the stream is not there."""
    shard = shard_here(engine, shard_id)
    journal = None if shard is None else shard.queue(journal_id)
    if journal is None or journal.stream is None:
        return None
    entries = LogEntries(engine, shard_id)
    records: list[dict[str, Any]] = []
    offsets = _offsets(journal, queue, journal.stream.next_offset if before < 0 else before)
    for looked_at, offset in enumerate(offsets):
        if len(records) >= most or looked_at >= LOOKED_AT or entries.bytes_read >= BYTES_READ:
            return JournalPart(records, before)
        before = offset
        row = _row(entries, journal, queue, offset)
        if row:
            records.append(row)
    return JournalPart(records, -1)


def _offsets(journal: Queue, queue: bytes | None, before: int) -> Iterator[int]:
    """Where records may be, the last first: with an index of keys, those of the queue alone."""
    stream = journal.stream
    if stream is None or not journal.ready_count():
        return
    first = stream.first_offset(journal.ready)
    keys = stream.keys
    if queue is None or keys is None:
        yield from range(min(before - 1, last_offset(journal.ready)), first - 1, -1)
        return
    key = keys.keys.get(queue)
    while key is not None:
        found = key.some_before(before, LOOKED_AT)
        if not found:
            return
        yield from found
        before = found[-1]


def _row(entries: LogEntries, journal: Queue, queue: bytes | None, offset: int) -> dict[str, Any]:
    """One record; empty for what is none, or of another queue."""
    message = find(journal.ready, offset)
    if message is None:
        return {}
    data = entries.data(message.index)
    if queue is not None and routing_key(data, message.offset) != queue:
        return {}
    header = header_of(message, data)
    if not is_record(header):
        return {}
    headers = shown_properties(header).get("headers", {})
    return {"offset": offset, **{name.replace("-", "_"): headers.get(name) for name in FIELDS}}
