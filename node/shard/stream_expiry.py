"""What leaves a stream: by its own deadline or by age, because there is too much, or because somebody has it deleted.
HOT.

A message with a TTL of its own (RULES J2) has its deadline in a schedule of the stream, by its offset, and leaves from
wherever it stands. All others grow old in the order in which they came. Where a stream leaves markers (J3), one takes
the place of the last message of a routing key, at the end of the stream, in the entry in which that message leaves.
"""

from typing import Final

from mayfly.node.shard.deadlines import Taken, deadline_of, offset_of
from mayfly.node.shard.dialect import NEVER_TTL, queue_ttl_of
from mayfly.node.shard.message import MAX_AGE, NO_MARKER, NO_TTL, Message, is_own_ttl
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.state import State
from mayfly.node.shard.stream import Stream
from mayfly.node.shard.stream_line import find, remove

_FEW_OUTDATED: Final = 2
"""Outdated deadlines are looked for when there are more than so many pieces have, and more than others."""
_SWEPT_AS_ONE: Final = 4
"""So many deadlines that are looked at count as one message that leaves."""


def expire(state: State, queue: Queue) -> None:
    """What is late, or too old, leaves, within the entry's bounds (RULES C4)."""
    stream = queue.stream
    assert stream is not None
    if stream.expiry.count:
        _expire_late(state, queue, stream)
        if stream.outdated:
            _sweep(state, queue, stream)
    age_ms = queue_ttl_of(queue.ttl_ms)
    if age_ms >= 0:
        _expire_old(state, queue, stream, age_ms)


def _expire_late(state: State, queue: Queue, stream: Stream) -> None:
    """What has passed its own deadline leaves, in the order of these."""
    late = stream.expiry.take(state.time_ms, state.expiry_budget)
    state.expiry_budget -= late.count()
    if stream.keys is None:
        _expire_together(state, queue, stream, late)
        return
    for key in late.in_order():
        message = remove(queue.ready, stream.unpacked, offset_of(key))
        if message is None:
            stream.outdated -= 1
        else:
            _expired(state, queue, stream, message, deadline_of(key))


def _expire_together(state: State, queue: Queue, stream: Stream, late: Taken) -> None:
    """The same where there are no keys, so that nothing is to be known of any message but what it holds."""
    leaving = stream.leaving(queue.ready)
    deadlines_ms, offsets = late.columns()
    gone = set(leaving.leave_together(offsets, are_there=not stream.outdated))
    if gone:
        deadlines_ms = [deadlines_ms[place] for place in range(len(offsets)) if offsets[place] not in gone]
        stream.outdated -= len(gone)
    queue.ready_bytes -= leaving.body_bytes
    queue.expired += len(deadlines_ms)
    state.release_departed(stream.departed)
    state.expiry_lag.observe_all(state.time_ms, deadlines_ms)


def _expire_old(state: State, queue: Queue, stream: Stream, age_ms: int) -> None:
    """What is too old leaves, the oldest first; what stays for ever is passed over."""
    line = queue.ready
    while state.expiry_budget > 0:
        message = stream.next_to_age(line)
        if message is None or message.enqueued_ms + age_ms > state.time_ms:
            return
        state.expiry_budget -= 1
        stream.aged_offset = message.stream_offset + 1
        if message.ttl_ms == NEVER_TTL:
            continue
        remove(line, stream.unpacked, message.stream_offset)
        if is_own_ttl(message.ttl_ms):
            stream.outdated += 1
        _expired(state, queue, stream, message, message.enqueued_ms + age_ms)


def _expired(state: State, queue: Queue, stream: Stream, message: Message, deadline_ms: int) -> None:
    """A message that was removed is counted, and leaves a marker."""
    queue.expired += 1
    state.expiry_lag.observe(state.time_ms - deadline_ms)
    _let_go(state, queue, stream, message, MAX_AGE)


def drop_oldest(state: State, queue: Queue) -> None:
    """The oldest leave while there is too much (RULES J1), without markers."""
    stream = queue.stream
    assert stream is not None
    line = queue.ready
    while state.expiry_budget > 0 and queue.is_over_limit() and line.count():
        message = line.first()
        state.expiry_budget -= 1
        queue.overflowed += 1
        take_out(state, queue, message.stream_offset, NO_MARKER)


def take_out(state: State, queue: Queue, offset: int, reason: int) -> Message | None:
    """The message at this offset leaves before its time, for this reason of markers, or 0; None if it is not there."""
    stream = queue.stream
    assert stream is not None
    message = remove(queue.ready, stream.unpacked, offset)
    if message is None:
        return None
    if is_own_ttl(message.ttl_ms):
        stream.outdated += 1
    _let_go(state, queue, stream, message, reason)
    return message


def _let_go(state: State, queue: Queue, stream: Stream, message: Message, reason: int) -> None:
    """A message has been removed; its marker takes over what it holds of the log, if there is one."""
    queue.ready_bytes -= message.body_length
    state.release_departed(stream.departed)
    if stream.keys is not None:
        key = stream.keys.remove(message.priority, message.stream_offset)
        if reason and key.count == key.markers and stream.marker_ttl_ms >= 0 and not message.marker_reason:
            _mark(state, queue, stream, message, key.name, reason)
            return
    state.release(message.index, 1)


def _mark(state: State, queue: Queue, stream: Stream, message: Message, key: bytes, reason: int) -> None:
    """A marker for this key, in the place of its last message."""
    content = Message(message.index, message.offset, message.key_length, 0, 0, 0, NO_TTL, 0)
    ttl_ms = stream.marker_ttl_ms
    deadline_ms = queue.deadline_ms(state.time_ms, ttl_ms)
    queue.ready.append(stream.placed(content, state.time_ms, deadline_ms, ttl_ms, key, reason))
    stream.markers += 1
    queue.enqueued += 1


def _sweep(state: State, queue: Queue, stream: Stream) -> None:
    """When many deadlines are of messages that have left, they go run by run (RULES T13), within the entry's bounds."""
    expiry = stream.expiry
    line = queue.ready
    few = _FEW_OUTDATED * line.piece
    while stream.outdated > few and 2 * stream.outdated > expiry.count and state.expiry_budget > 0:
        keys = expiry.next_run(stream.swept)
        there = [key for key in keys if find(line, offset_of(key)) is not None]
        stream.outdated -= len(keys) - len(there)
        expiry.put_run(there)
        stream.swept = (there or keys)[0] + 1
        state.expiry_budget -= 1 + len(keys) // _SWEPT_AS_ONE
