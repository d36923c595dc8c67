"""Consumers and holders of basic.get: how they come, pause and go."""

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES, LEVEL_PLACES_KEPT
from mayfly.node.shard.commands import KEPT
from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.delivery import catch_up, expiry_is_behind, get_one, hand_over, judge_brake
from mayfly.node.shard.departing import release_guest
from mayfly.node.shard.errors import BrokenInvariant
from mayfly.node.shard.lease import CONSUMED, GOT, RELEASED
from mayfly.node.shard.message import FAILED, GIVEN_BACK
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.queues import gone, is_incomplete, moved, remove_queue
from mayfly.node.shard.results import (
    DUPLICATE_CONSUMER,
    EXCLUSIVE,
    NO_KEYS,
    Attached,
    GetResult,
    Moved,
    Refused,
    Result,
)
from mayfly.node.shard.returns import are_too_many, come_back, come_back_together
from mayfly.node.shard.state import State
from mayfly.node.shard.stream import AT_THE_END, Start
from mayfly.node.shard.stream_delivery import begin, let_go
from mayfly.node.shard.tombstone import AUTO_DELETED


def find(state: State, session: tuple[int, int], queue_id: int, holder_id: int) -> Holder | None:
    """The holder with this id of a session and a queue."""
    holders = state.sessions.get(session)
    return None if holders is None else holders.get((queue_id, holder_id))


def _add(
    state: State, session: tuple[int, int], queue: Queue, holder_id: int, is_consumer: bool
) -> Holder:
    """A new holder, entered in the queue and in the session."""
    order = state.next_order
    state.next_order += 1
    holder = Holder(session, queue.queue_id, holder_id, order, is_consumer)
    enter_holder(state, queue, holder)
    return holder


def enter_holder(state: State, queue: Queue, holder: Holder) -> None:
    """Make the holder known to its queue and its session."""
    queue.add_holder(holder)
    holders = state.sessions.get(holder.session)
    if holders is None:
        holders = {}
        state.sessions[holder.session] = holders
    holders[(queue.queue_id, holder.holder_id)] = holder


def _forget(state: State, queue: Queue, holder: Holder) -> None:
    """The holder holds nothing and is not attached: nothing refers to it any more."""
    del queue.holders[holder.order]
    holders = state.sessions[holder.session]
    del holders[(queue.queue_id, holder.holder_id)]
    if not holders:
        del state.sessions[holder.session]


def get(state: State, session: tuple[int, int], queue_id: int, holder_id: int, no_ack: bool) -> Result:
    """basic.get: the first live message (RULES T5); a use of the queue even if it is empty (L2). On brake there is
    nothing to be had (R5)."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    if queue.has_left:
        return moved(queue) or gone(state, queue_id)
    if queue.stream is not None:
        return GetResult(None, 0, queue.ready_count(), False)
    state.used(queue, GOT)
    catch_up(state, queue)
    judge_brake(state, queue)
    message = None if queue.is_braked else get_one(state, queue)
    state.touch(queue)
    if message is None and is_incomplete(state, queue):
        return Moved(queue_id, state.shard_id)
    if message is None:
        return GetResult(None, 0, queue.ready_count(), not queue.is_braked and expiry_is_behind(state, queue))
    queue.delivered += 1
    delivery_id = 0
    if no_ack:
        queue.ready_bytes -= message.body_length
        queue.acknowledged += 1
        state.release(message.index, 1)
    else:
        holder = find(state, session, queue_id, holder_id)
        if holder is None:
            holder = _add(state, session, queue, holder_id, False)
        hand_over(state, queue, holder, [message])
        delivery_id = holder.last_delivery_id
    return GetResult(message, delivery_id, queue.ready_count(), False)


def attach(
    state: State,
    session: tuple[int, int],
    queue_id: int,
    consumer_id: int,
    prefetch: int,
    no_ack: bool,
    exclusive: bool,
    priority: int,
    window_bytes: int,
    again: bool = False,
    start: Start = AT_THE_END,
    key: bytes | None = None,
) -> Result:
    """basic.consume. The lease is suspended from here on (RULES L3). ``again``: the queue has come here from another
    shard, where it was attached; a place may be kept for it. ``start``: where in a stream it begins (J1). ``key``: of a
    stream with keys it is given the messages with this routing key (J5); Refused where there are none."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    if find(state, session, queue_id, consumer_id) is not None:
        return Refused(DUPLICATE_CONSUMER)
    if queue.has_left:
        return moved(queue) or gone(state, queue_id)
    if key is not None and (queue.stream is None or queue.stream.keys is None):
        return Refused(NO_KEYS)
    consumers = queue.consumers
    if again and exclusive and queue.moving is not None and queue.moving.exclusive:
        queue.moving.exclusive = False
        consumers.exclusive = False
    if consumers.exclusive or (exclusive and (consumers.count or (not again and _keeps_places(state, queue)))):
        return Refused(EXCLUSIVE)
    catch_up(state, queue)
    holder = _add(state, session, queue, consumer_id, True)
    holder.prefetch = prefetch
    holder.no_ack = no_ack
    holder.exclusive = exclusive
    holder.priority = priority
    holder.window_bytes = window_bytes
    if queue.stream is not None:
        begin(state, queue, holder, start, key)
    queue.lease.suspended_by += 1
    state.used(queue, CONSUMED)
    state.lease_timers.cancel(queue_id)
    consumers.attach(holder)
    state.touch(queue)
    return Attached(consumers.count)


def _keeps_places(state: State, queue: Queue) -> bool:
    """Whether consumers of a shard in which the queue was may still be on their way to it, or hold messages there."""
    return queue.moving is not None and len(queue.moving.guests) > 0 and state.level >= LEVEL_PLACES_KEPT


def detach(state: State, session: tuple[int, int], queue_id: int, holder_id: int, way: int) -> None:
    """basic.cancel (``way`` KEPT), or the end of a channel. Unknown ones are ignored."""
    holder = find(state, session, queue_id, holder_id)
    if holder is None:
        return
    if way == GIVEN_BACK and state.level < LEVEL_FAILED_DELIVERIES:
        # As all returns counted; its snapshots can't tell the two apart until the shard is told the level.
        way = FAILED
    queue = state.queues[queue_id]
    if queue.moving is not None:
        queue.moving.awaited.pop(holder.order, None)
        queue.forget_move()
    if holder.attached:
        queue.consumers.detach(holder)
        if queue.stream is not None:
            queue.stream.forget(holder)
        state.touch(queue)
    _let_go(state, queue, holder, way)
    if holder.is_consumer and queue.auto_delete and queue.consumers.count == 0:
        remove_queue(state, queue, AUTO_DELETED)


def _let_go(state: State, queue: Queue, holder: Holder, way: int) -> None:
    """The holder is not attached (any more): it keeps what it holds, or gives it back and is forgotten."""
    if way != KEPT and holder.held:
        held, held_bytes = holder.held, holder.held_bytes
        holder.held = {}
        holder.held_bytes = 0
        queue.held_count -= len(held)
        if queue.stream is not None:
            let_go(state, queue, list(held.values()))
        elif not (
            are_too_many(state, len(held)) and come_back_together(state, queue, held, held_bytes, False, way)
        ):
            come_back(state, queue, list(held.values()), False, way)
    if holder.held:
        return
    if holder.is_consumer:
        drop_idle_holder(state, queue, holder)
    elif way != KEPT:
        _forget(state, queue, holder)


def drop_idle_holder(state: State, queue: Queue, holder: Holder) -> None:
    """A consumer that was cancelled holds nothing any more: it is forgotten, and the lease may run again
    (RULES L3).

    A holder of basic.get stays until its channel ends: its delivery ids go on. So does a consumer that is to be
    attached where the queue has gone: until then it holds the lease (L3).
    """
    if queue.moving is not None and holder.order in queue.moving.awaited:
        return
    if holder.is_consumer:
        _forget(state, queue, holder)
        queue.lease.suspended_by -= 1
        if queue.lease.suspended_by == 0:
            state.used(queue, RELEASED)
            release_guest(state, queue)


def flow(state: State, session: tuple[int, int], queue_id: int, consumer_id: int, active: bool) -> None:
    """Pause or resume a consumer."""
    holder = find(state, session, queue_id, consumer_id)
    if holder is None or not holder.attached:
        return
    queue = state.queues[queue_id]
    holder.active = active
    if not active:
        _suspend(state, queue, holder)
    elif queue.consumers.admit(holder):
        state.touch(queue)


def set_prefetch(
    state: State, session: tuple[int, int], queue_id: int, consumer_id: int, prefetch: int
) -> None:
    """Another limit for what a consumer may hold. What it holds beyond it stays its own."""
    holder = find(state, session, queue_id, consumer_id)
    if holder is None or not holder.attached:
        return
    queue = state.queues[queue_id]
    holder.prefetch = prefetch
    if holder.room() <= 0:
        _suspend(state, queue, holder)
    elif queue.consumers.admit(holder):
        state.touch(queue)


def note_taken(
    state: State, session: tuple[int, int], queue_id: int, consumer_id: int, taken_bytes: int
) -> None:
    """So much of all that a consumer with a window was given has gone on to its client (`commands.encode_taken`)."""
    holder = find(state, session, queue_id, consumer_id)
    if holder is None or not holder.attached or not holder.window_bytes or taken_bytes <= holder.taken_bytes:
        return
    holder.taken_bytes = min(taken_bytes, holder.given_bytes)
    queue = state.queues[queue_id]
    if queue.consumers.admit(holder):
        state.touch(queue)


def _suspend(state: State, queue: Queue, holder: Holder) -> None:
    queue.consumers.suspend(holder)
    if queue.consumers.top_band() is None:
        # Nobody waits to be served any more: derived, and to be so on every replica alike.
        state.unserved.remove(queue.queue_id)


def close_session(state: State, session: tuple[int, int]) -> None:
    """A node is lost: its consumers are detached in the order they came, what it held comes back (RULES T4,
    L3). Whether deliveries have failed is not known: they don't count as such (Q1).
    """
    holders = state.sessions.get(session)
    if holders is None:
        return
    for holder in sorted(holders.values(), key=_order_of):
        # A queue with auto-delete may have gone with an earlier one, and this one with it.
        if find(state, session, holder.queue_id, holder.holder_id) is holder:
            detach(state, session, holder.queue_id, holder.holder_id, GIVEN_BACK)
    if state.sessions.pop(session, None):
        raise BrokenInvariant(f"session {session} still holds something after it was closed")


def _order_of(holder: Holder) -> int:
    return holder.order
