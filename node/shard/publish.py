"""PUBLISH: a run of them in one loop. HOT: every message passes here. Those that may be refused go one by one."""

from struct import error as StructError  # noqa: N812  (it is an exception class)
from typing import Final

from mayfly.node.shard.commands import LIST_HEAD, PUBLISH, PUBLISH_HEAD
from mayfly.node.shard.delivery import has_room
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import NO_DEADLINE, Message
from mayfly.node.shard.outbox import MAXLEN
from mayfly.node.shard.packing import NUMBER_BYTES, unpack_numbers
from mayfly.node.shard.priority import priority_of
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.results import Published
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.state import State

_HEAD_BYTES: Final = PUBLISH_HEAD.size
_NO_LINE: Final = Line()


def apply_publishes(state: State, position: int, end: int) -> int:
    """Apply the PUBLISH at ``position`` and all that follow it without a break; where they end.

    Deadlines are fixed here, for each queue by its own TTL (RULES T3, T4, T9). What all messages of a run for
    one queue have in common is counted once. ShardError when a command does not fit; those before it are
    applied.
    """
    data = state.data
    index = state.index
    now_ms = state.time_ms
    queues = state.queues
    unpack = PUBLISH_HEAD.unpack_from
    head_bytes = _HEAD_BYTES
    queue: Queue | None = None
    queue_id = -1
    queue_ttl_ms = -1
    queue_deadline_ms = -1
    max_priority = 0
    items: list[Message] = []
    line = _NO_LINE
    messages = 0
    body_bytes = 0
    timed = 0
    try:
        while position < end and data[position] == PUBLISH:
            _, key_length, extra, header_length, body_length, target, ttl_ms = unpack(data, position)
            offset = position + head_bytes + extra * NUMBER_BYTES
            stop = offset + key_length + header_length + body_length
            if stop > end or ttl_ms > MAX_NUMBER:
                raise ShardError(f"PUBLISH at {position} reaches to {stop} of {end}, with TTL {ttl_ms}")
            if target != queue_id:
                if queue is not None:
                    _count(state, queue, line, messages, body_bytes, timed)
                elif queue_id >= 0:
                    state.missing_targets += messages
                messages = body_bytes = timed = 0
                queue_id = target
                queue = queues.get(target)
                if queue is not None:
                    state.touch(queue)
                    line = queue.ready if queue.moving is None else queue.entry_line(0)
                    items = line.own_end()
                    queue_ttl_ms = queue.ttl_ms
                    max_priority = queue.max_priority
                    queue_deadline_ms = now_ms + queue_ttl_ms if queue_ttl_ms >= 0 else -1
            messages += 1
            if queue is not None:
                if ttl_ms < 0:
                    deadline_ms = queue_deadline_ms
                elif queue_ttl_ms < 0 or ttl_ms < queue_ttl_ms:
                    deadline_ms = now_ms + ttl_ms
                else:
                    deadline_ms = queue_deadline_ms
                body_bytes += body_length
                message = Message(
                    index, offset, key_length, header_length, body_length, now_ms, deadline_ms, 0, ttl_ms
                )
                if max_priority:
                    priority = min(priority_of(data, offset + key_length, header_length), max_priority)
                    queue.entry_line(priority).append(message.with_priority(priority))
                else:
                    if deadline_ms >= 0:
                        timed += 1
                    items.append(message)
            if extra:
                _to_further_queues(
                    state, position + head_bytes, extra, offset,
                    key_length, header_length, body_length, ttl_ms,
                )
            position = stop
    except StructError:
        raise ShardError(f"PUBLISH at {position} is cut off") from None
    finally:
        if queue is not None:
            _count(state, queue, line, messages, body_bytes, timed)
        else:
            state.missing_targets += messages
    return position


def _count(state: State, queue: Queue, line: Line, messages: int, body_bytes: int, timed: int) -> None:
    """A run of messages was put at the end of this queue, in this line."""
    line.timed += timed
    line.grown()
    queue.ready_bytes += body_bytes
    queue.enqueued += messages
    state.applied_messages += messages
    state.expiry_budget += messages
    state.delivery_budget += messages
    state.delivery_bytes += body_bytes
    state.retain(messages)


def _to_further_queues(
    state: State, position: int, count: int, offset: int,
    key_length: int, header_length: int, body_length: int, ttl_ms: int,
) -> None:
    """The same content in the other queues of a fan-out, each with its own deadline (RULES T9)."""
    now_ms = state.time_ms
    found = 0
    for target in unpack_numbers(state.data, position, count, offset):
        queue = state.queues.get(target)
        if queue is None:
            state.missing_targets += 1
            continue
        found += 1
        deadline_ms = queue.deadline_ms(now_ms, ttl_ms)
        state.enqueue(
            queue,
            Message(
                state.index, offset, key_length, header_length, body_length, now_ms, deadline_ms, 0, ttl_ms
            ),
        )
    if found:
        state.retain(found)


def apply_guarded(state: State, position: int, end: int, results: list[object]) -> int:
    """Apply the PUBLISH_GUARDED at ``position`` with the PUBLISHes it announces; where they end.

    Appends the Published that answers it. A queue that refuses what is too much (``Queue.refuses``) does so message
    by message; the others take theirs. ShardError when a command does not fit; those before it are applied.
    """
    data = state.data
    _, count = LIST_HEAD.unpack_from(data, position)
    position += LIST_HEAD.size
    refused: list[int] = []
    for number in range(count):
        if position + _HEAD_BYTES > end or data[position] != PUBLISH:
            raise ShardError(f"PUBLISH {number} of {count} expected at {position}")
        _, key_length, extra, header_length, body_length, first, ttl_ms = PUBLISH_HEAD.unpack_from(data, position)
        targets_at = position + _HEAD_BYTES
        offset = targets_at + extra * NUMBER_BYTES
        position = offset + key_length + header_length + body_length
        if position > end or ttl_ms > MAX_NUMBER:
            raise ShardError(f"PUBLISH at {offset} reaches to {position} of {end}, with TTL {ttl_ms}")
        content = Message(
            state.index, offset, key_length, header_length, body_length, state.time_ms, NO_DEADLINE, 0, ttl_ms
        )
        taken = _offer(state, first, content)
        if extra:
            for target in unpack_numbers(data, targets_at, extra, offset):
                taken = _offer(state, target, content) and taken
        if not taken:
            refused.append(number)
    results.append(Published(refused))
    return position


def _offer(state: State, queue_id: int, content: Message) -> bool:
    """Put the content into one queue; False if that is full and refuses it (RULES D2, D9)."""
    queue = state.queues.get(queue_id)
    if queue is None:
        state.missing_targets += 1
        return True
    if queue.refuses and not has_room(state, queue, content.body_length):
        queue.refused += 1
        if queue.refusals_die:
            state.retain(1)
            state.died(queue, content, MAXLEN)
        return False
    state.enqueue(queue, content.enqueued_at(state.time_ms, queue.deadline_ms(state.time_ms, content.ttl_ms)))
    state.retain(1)
    return True
