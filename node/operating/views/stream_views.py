"""What a stream has, and the latest message of a routing key (RULES J5). Pure: reads the replica here."""

import base64
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from mayfly.node.amqp.content import Content
from mayfly.node.dead_letter.publisher_headers import as_shown
from mayfly.node.dead_letter.stream_content import REASONS, header_of
from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import STREAM_SOURCE
from mayfly.node.operating.views.json_tables import shown_properties
from mayfly.node.operating.views.log_entries import LogEntries
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.shard.dialect import NEVER_TTL
from mayfly.node.shard.message import NO_TTL
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.stream import Stream
from mayfly.node.shard.stream_line import find

MOST_READERS: Final = 100
"""Consumers of one stream that are shown."""


class StreamPart(NamedTuple):
    """A stream now. ``keys`` is -1 where it has no index of them, ``next_expiry_in_ms`` where nothing expires as things
    are. ``expiring``: messages with a deadline of their own. ``expired``, ``removed_by_size`` and ``markers`` count
    from when it was declared. ``copied``: for each stream that it copies, by id, the offset that it wants next."""

    first_offset: int
    next_offset: int
    messages: int
    message_bytes: int
    keys: int
    expiring: int
    next_expiry_in_ms: int
    expired: int
    removed_by_size: int
    markers: int
    copied: dict[int, int]


class Reading(NamedTuple):
    """Where a consumer of a stream is: the node of its client, its number there, the offset that it is given next, and
    how many messages it has not settled."""

    node: int
    consumer_id: int
    next_offset: int
    unacknowledged: int


class ReadersPart(NamedTuple):
    """How many consumers a stream has, and the first `MOST_READERS` of those that are furthest behind."""

    total: int
    readers: list[Reading]


class LatestPart(NamedTuple):
    """The latest message of a key as JSON, empty if there is none; ``has_keys`` says whether the stream knows."""

    has_keys: bool
    message: dict[str, Any]


def stream_in(engine: Engine, shard_id: int, queue_id: int, now_ms: int) -> StreamPart | None:
    """The stream; None where this node has no replica of the shard, or the stream is not there."""
    shard = shard_here(engine, shard_id)
    queue = None if shard is None else shard.queue(queue_id)
    if shard is None or queue is None or queue.stream is None:
        return None
    stream = queue.stream
    due_ms = queue.next_due_ms()
    return StreamPart(
        stream.first_offset(queue.ready), stream.next_offset, queue.ready_count(), queue.ready_bytes,
        -1 if stream.keys is None else len(stream.keys.keys),
        stream.expiry.count - stream.outdated,
        -1 if due_ms < 0 else max(0, due_ms - shard_now(engine, shard, now_ms).time_ms),
        queue.expired, queue.overflowed, stream.markers,
        {source - STREAM_SOURCE: received for source, received in queue.received.items() if source >= STREAM_SOURCE},
    )  # fmt: skip


def readers_in(engine: Engine, shard_id: int, queue_id: int) -> ReadersPart | None:
    """The consumers of the stream; None as of `stream_in`."""
    shard = shard_here(engine, shard_id)
    queue = None if shard is None else shard.queue(queue_id)
    if queue is None or queue.stream is None:
        return None
    places = queue.stream.places
    furthest = nsmallest(MOST_READERS, [(offset, order) for order, offset in places.items()])
    readers = []
    for offset, order in furthest:
        holder = queue.holders[order]
        readers.append(Reading(holder.session[0], holder.holder_id, offset, len(holder.held)))
    return ReadersPart(len(places), readers)


def lag_in(engine: Engine, shard_id: int, queue_id: int) -> int | None:
    """How many offsets the consumer that is furthest behind has before it; None without consumers, and as of
    `stream_in`."""
    shard = shard_here(engine, shard_id)
    queue = None if shard is None else shard.queue(queue_id)
    return None if queue is None or queue.stream is None else _lag(queue.stream)


def offsets_of(queue: Queue, stream: Stream) -> dict[str, int | None]:
    """Which offsets it has, and as ``consumer_lag`` how many of them the consumer that is furthest behind has before
    it, None without consumers."""
    return {
        "first_offset": stream.first_offset(queue.ready),
        "next_offset": stream.next_offset,
        "consumer_lag": _lag(stream),
    }


def _lag(stream: Stream) -> int | None:
    return max(0, stream.next_offset - min(stream.places.values())) if stream.places else None


def latest_in(engine: Engine, shard_id: int, queue_id: int, key: bytes) -> LatestPart | None:
    """The latest message of a routing key; None as of `stream_in`."""
    shard = shard_here(engine, shard_id)
    queue = None if shard is None else shard.queue(queue_id)
    if queue is None or queue.stream is None:
        return None
    keys = queue.stream.keys
    if keys is None:
        return LatestPart(False, {})
    found = keys.keys.get(key)
    if found is None:
        return LatestPart(True, {})
    return LatestPart(True, _row(LogEntries(engine, shard_id), queue, queue.stream, found.latest()))


def _row(entries: LogEntries, queue: Queue, stream: Stream, offset: int) -> dict[str, Any]:
    message = find(queue.ready, offset)
    if message is None:
        return {}
    data = entries.data(message.index)
    header_at = message.offset + message.key_length
    body_at = header_at + message.header_length
    header = as_shown(header_of(message, data))
    content = Content(data[message.offset : header_at], header, data[body_at : body_at + message.body_length])
    try:
        payload, encoding = content.body.decode("utf-8"), "string"
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(content.body).decode(), "base64"
    ttl_ms = {NO_TTL: None, NEVER_TTL: "never"}.get(message.ttl_ms, message.ttl_ms)
    return {
        "offset": offset,
        "published_ms": message.enqueued_ms,
        "expires_ms": None if message.deadline_ms < 0 else message.deadline_ms,
        "ttl_ms": ttl_ms,
        "marker": REASONS.get(message.marker_reason),
        "exchange": content.exchange,
        "routing_key": content.routing_key,
        "properties": shown_properties(content.header),
        "payload_bytes": message.body_length,
        "payload": payload,
        "payload_encoding": encoding,
    }
