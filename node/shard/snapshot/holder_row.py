"""Who holds messages of a queue, a consumer or the gets of a channel, in the snapshot."""

from collections.abc import Iterator
from typing import Any, Final

from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.holders import enter_holder
from mayfly.node.shard.packing import NUMBER_BYTES, pack_numbers, unpack_numbers
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.snapshot.message_columns import MessageColumns, MessagesReading
from mayfly.node.shard.snapshot.pace import WorkPace
from mayfly.node.shard.state import State

_ATTACHED: Final = 1
_CONSUMER: Final = 2
_ACTIVE: Final = 4
_NO_ACK: Final = 8
_EXCLUSIVE: Final = 16


def holder_row(holder: Holder, columns: MessageColumns) -> list[object]:
    """A holder as it is, with what it holds; ``columns`` fills in the messages."""
    flags = (
        (_ATTACHED if holder.attached else 0)
        | (_CONSUMER if holder.is_consumer else 0)
        | (_ACTIVE if holder.active else 0)
        | (_NO_ACK if holder.no_ack else 0)
        | (_EXCLUSIVE if holder.exclusive else 0)
    )
    return [
        holder.session[0],
        holder.session[1],
        holder.holder_id,
        holder.order,
        flags,
        holder.prefetch,
        holder.priority,
        holder.last_delivery_id,
        holder.first_held,
        pack_numbers(holder.held),
        columns.pack(list(holder.held.values())),
        *_window_row(holder),
    ]


def _window_row(holder: Holder) -> list[int]:
    """Nothing where there is no window: as it was before there were any."""
    return [holder.window_bytes, holder.given_bytes, holder.taken_bytes] if holder.window_bytes else []


def restore_holder(state: State, queue: Queue, row: Any, pace: WorkPace) -> Iterator[None]:
    """Put the holder of a ``holder_row`` into its queue, and count it there."""
    (
        node, incarnation, holder_id, order, flags, prefetch, priority, last_delivery_id, first_held,
        held_ids, held_messages, *window_row,
    ) = row
    is_consumer = bool(flags & _CONSUMER)
    holder = Holder((node, incarnation), queue.queue_id, holder_id, order, is_consumer)
    holder.attached = bool(flags & _ATTACHED)
    holder.active = bool(flags & _ACTIVE)
    holder.no_ack = bool(flags & _NO_ACK)
    holder.exclusive = bool(flags & _EXCLUSIVE)
    holder.prefetch = prefetch
    holder.priority = priority
    holder.last_delivery_id = last_delivery_id
    holder.first_held = first_held
    if window_row:
        holder.window_bytes, holder.given_bytes, holder.taken_bytes = window_row
    read = MessagesReading()
    yield from read.read(state, held_messages, pace)
    count = len(read.messages)
    for start in range(0, count, pace.per_step):
        stop = min(count, start + pace.per_step)
        ids = unpack_numbers(held_ids, start * NUMBER_BYTES, stop - start, len(held_ids))
        holder.held.update(zip(ids, read.messages[start:stop], strict=True))
        if pace.is_over(stop - start):
            yield
    enter_holder(state, queue, holder)
    queue.held_count += count
    queue.held_bytes += read.body_bytes
    holder.held_bytes = read.body_bytes
    if is_consumer:
        queue.lease.suspended_by += 1
    if holder.attached:
        queue.consumers.enter(holder)
