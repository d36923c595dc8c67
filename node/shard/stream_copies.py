"""TRANSFER_COPIES: what a stream takes over from another one, in whatever shard that is (RULES J4). HOT.

One entry says what stands in the other stream from one offset to another. It is appended here, and noted how far that
was, in the same step: so each message comes once, in order, whichever leader repeats what.
"""

from typing import Final

from mayfly.node.numbers import STREAM_SOURCE
from mayfly.node.shard.commands import COPIED_CONTENT_HEAD, TRANSFER_COPIES_HEAD
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import NO_DEADLINE, NO_TTL, PURGE, Message
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.state import State
from mayfly.node.shard.stream import Stream
from mayfly.node.shard.stream_line import last_enqueued_ms

_HIGHEST: Final = 1 << 62


class _Copy:
    """A message as it comes: ``content`` has the offset and the time that it has in the other stream."""

    __slots__ = ("content", "reason")

    def __init__(self, content: Message, reason: int) -> None:
        self.content = content
        self.reason = reason


def apply_transfer_copies(state: State, position: int, end: int) -> int:
    """Apply the TRANSFER_COPIES at ``position``; where it ends.

    Repeats are dropped and counted, a gap refuses the command: the source goes back to where it was. A mirror, whose
    offsets are those of one stream, refuses all that comes from another.
    """
    _, count, source, queue_id, first, last, time_ms = TRANSFER_COPIES_HEAD.unpack_from(state.data, position)
    if not 0 < first <= last < _HIGHEST or time_ms > MAX_NUMBER or source < STREAM_SOURCE:
        raise ShardError(f"TRANSFER_COPIES of source {source} from {first} to {last} at {time_ms}")
    copies: list[_Copy] = []
    after = _read(state, copies, count, first, last, position + TRANSFER_COPIES_HEAD.size, end)
    queue = state.queues.get(queue_id)
    if queue is None or queue.stream is None:
        state.transfers_lost += count
        return after
    received = queue.received.get(source, 0)
    if first > received + 1 or queue.follows_another(source):
        state.refused_transfers += 1
        return after
    _take(state, queue, queue.stream, copies, received, time_ms)
    if last > received:
        queue.note_received(source, last)
        if queue.stream.is_mirror:
            queue.stream.next_offset = last
        state.touch(queue)
    return after


def _read(state: State, copies: list[_Copy], count: int, first: int, last: int, position: int, end: int) -> int:
    """The messages of the command; where they end."""
    before = first - 1
    for _ in range(count):
        if position + COPIED_CONTENT_HEAD.size > end:
            raise ShardError(f"TRANSFER_COPIES is cut off at {position}")
        head = COPIED_CONTENT_HEAD.unpack_from(state.data, position)
        reason, key_length, header_length, body_length, sequence, enqueued_ms = head
        offset = position + COPIED_CONTENT_HEAD.size
        position = offset + key_length + header_length + body_length
        if position > end or not before < sequence <= last or reason > PURGE or enqueued_ms > MAX_NUMBER:
            raise ShardError(f"copy {sequence} behind {before} of {last} reaches to {position}, its batch to {end}")
        before = sequence
        content = Message(
            state.index, offset, key_length, header_length, body_length, enqueued_ms, NO_DEADLINE, sequence - 1, NO_TTL
        )
        copies.append(_Copy(content, reason))
    return position


def _take(
    state: State, queue: Queue, stream: Stream, copies: list[_Copy], received: int, time_ms: int
) -> None:
    """Append those behind what was received. In a mirror each keeps its offset, and its age as far as the two clocks
    tell it: never older, and never before what is there."""
    least_ms = last_enqueued_ms(queue.ready) if stream.is_mirror else 0
    for copy in copies:
        content = copy.content
        if content.stream_offset < received:
            queue.duplicates += 1
            continue
        ttl_ms = stream.arriving_ttl_ms(state.data, content)
        state.retain(1)
        if stream.is_mirror:
            since_ms = content.enqueued_ms + state.time_ms - time_ms
            least_ms = max(least_ms, min(since_ms, state.time_ms))
            stream.next_offset = content.stream_offset
            state.append_to_stream(queue, stream, content, ttl_ms, copy.reason, least_ms)
        else:
            state.append_to_stream(queue, stream, content, ttl_ms, copy.reason, state.time_ms)
