"""SETTLE: acknowledge, requeue or reject what a holder holds. HOT."""

from itertools import repeat
from typing import Final

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES
from mayfly.node.shard.commands import (
    ACK,
    DISCARD,
    GIVE_BACK,
    LIST,
    NUMBER,
    NUMBER_PAIR,
    RANGE,
    REJECT,
    REQUEUE,
    SETTLE_HEAD,
    UNSENT,
    UP_TO,
)
from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.delivery import resume_lease
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.holders import drop_idle_holder
from mayfly.node.shard.message import FAILED, GIVEN_BACK, NOT_SENT, Message
from mayfly.node.shard.outbox import REJECTED
from mayfly.node.shard.packing import unpack_numbers
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.returns import are_too_many, come_back, come_back_together
from mayfly.node.shard.state import State

_SPARSE: Final = 64


def apply_settle(state: State, session: tuple[int, int], position: int, end: int) -> int:
    """Apply the SETTLE at ``position``; where it ends. Unknown queue, holder and ids are ignored."""
    data = state.data
    _, outcome, form, count, queue_id, holder_id = SETTLE_HEAD.unpack_from(data, position)
    position += SETTLE_HEAD.size
    if form == RANGE:
        stop = position + NUMBER_PAIR.size
    elif form == LIST:
        stop = position + count * NUMBER.size
    elif form == UP_TO:
        stop = position + NUMBER.size
    else:
        raise ShardError(f"SETTLE of unknown form {form}")
    if stop > end or not ACK <= outcome <= DISCARD:
        raise ShardError(f"SETTLE with outcome {outcome} reaches to {stop}, its batch to {end}")
    if outcome >= GIVE_BACK and state.level < LEVEL_FAILED_DELIVERIES:
        # A node may know the level before the shard is told; its snapshots have no place for such counts until then.
        outcome = REQUEUE if outcome == GIVE_BACK else REJECT
    queue = state.queues.get(queue_id)
    if outcome != ACK and queue is not None and queue.stream is not None:
        outcome = ACK
    holders = state.sessions.get(session)
    if queue is None or holders is None:
        return stop
    holder = holders.get((queue_id, holder_id))
    if holder is None or not holder.held:
        return stop
    if form == RANGE:
        first, last = NUMBER_PAIR.unpack_from(data, position)
        last = min(last, holder.last_delivery_id)
        if _give_back_all(state, queue, holder, first, last, outcome):
            return stop
        messages = _take_range(holder, first, last)
    elif form == UP_TO:
        (last,) = NUMBER.unpack_from(data, position)
        last = min(last, holder.last_delivery_id)
        if _give_back_all(state, queue, holder, 0, last, outcome):
            return stop
        messages = _take_range(holder, 0, last)
    else:
        held = holder.held
        found = [held.pop(number, None) for number in unpack_numbers(data, position, count, end)]
        messages = [message for message in found if message is not None]
    if messages:
        _settle(state, queue, holder, messages, outcome)
    return stop


def _take_range(holder: Holder, first: int, last: int) -> list[Message]:
    """Take out of the holder what it holds from ``first`` to ``last``, in order."""
    held = holder.held
    first = max(first, holder.first_held)
    last = min(last, holder.last_delivery_id)
    if last < first:
        return []
    if first == holder.first_held:
        holder.first_held = last + 1
    if last - first > 2 * len(held) + _SPARSE:
        # Long settled ids in between: look at what is held instead of at every id.
        numbers = [number for number in held if first <= number <= last]
        return [held.pop(number) for number in numbers]
    found = list(map(held.pop, range(first, last + 1), repeat(None)))
    if None in found:
        return [message for message in found if message is not None]
    return found  # type: ignore[return-value]


def _give_back_all(state: State, queue: Queue, holder: Holder, first: int, last: int, outcome: int) -> bool:
    """If what is given back is nearly all that somebody holds, and very much, it needs not be taken out of there one by
    one; whether it was so."""
    left = holder.last_delivery_id - last
    if outcome in (ACK, REJECT, DISCARD) or left > state.returned_per_entry:
        return False
    if not are_too_many(state, len(holder.held) - left) or first > next(iter(holder.held)):
        return False
    later = range(last + 1, holder.last_delivery_id + 1)
    kept = {number: holder.held.pop(number) for number in later if number in holder.held}
    kept_bytes = sum([message.body_length for message in kept.values()])
    to_back = _goes_to_back(state, queue, outcome)
    count = len(holder.held)
    if come_back_together(state, queue, holder.held, holder.held_bytes - kept_bytes, to_back, _way(outcome)):
        queue.held_count -= count
        holder.held = kept
        holder.held_bytes = kept_bytes
        holder.first_held = last + 1
        _has_room_again(state, queue, holder)
        return True
    holder.held.update(kept)
    return False


def _settle(state: State, queue: Queue, holder: Holder, messages: list[Message], outcome: int) -> None:
    """What was taken out of the holder goes its way; the holder has room again."""
    held_bytes_before = queue.held_bytes
    queue.active_ms = state.time_ms
    queue.held_count -= len(messages)
    if outcome == ACK:
        queue.held_bytes -= state.release_all(messages)
        queue.acknowledged += len(messages)
        if queue.kept:
            resume_lease(state, queue)
    elif outcome not in (REJECT, DISCARD):
        come_back(state, queue, messages, _goes_to_back(state, queue, outcome), _way(outcome))
    else:
        counts = outcome == REJECT and state.level >= LEVEL_FAILED_DELIVERIES
        for message in messages:
            queue.held_bytes -= message.body_length
            state.died(queue, message.returned(FAILED) if counts else message, REJECTED)
        if queue.kept:
            resume_lease(state, queue)
    holder.held_bytes -= held_bytes_before - queue.held_bytes
    _has_room_again(state, queue, holder)


def _goes_to_back(state: State, queue: Queue, outcome: int) -> bool:
    """Whether what is given back so goes behind what was never delivered: as RabbitMQ had it before 4.3."""
    return queue.delivery_limit < 0 and outcome == REQUEUE and state.level < LEVEL_FAILED_DELIVERIES


def _way(outcome: int) -> int:
    """The way in which this outcome brings messages back."""
    if outcome == GIVE_BACK:
        return GIVEN_BACK
    return NOT_SENT if outcome == UNSENT else FAILED


def _has_room_again(state: State, queue: Queue, holder: Holder) -> None:
    if holder.attached:
        if queue.consumers.admit(holder) or queue.consumers.give_way():
            state.touch(queue)
    elif not holder.held:
        drop_idle_holder(state, queue, holder)
