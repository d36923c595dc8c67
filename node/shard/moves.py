"""How a queue leaves for another shard and comes to one: MOVE_OUT, MOVE_IN, TRANSFER_MOVED, CROSS.

    MOVE_OUT   the queue here gives nothing to consumers any more; its lane begins with the queue itself
    MOVE_IN    the queue is made in its new shard, with its lease and with what it has received
    lane       what was in it, then what is still published for it or comes back here (`node.shard.departing`)
    CROSS      whoever has published here asks whether that has arrived, before it publishes there
"""

from array import array
from typing import Final

from mayfly.cluster.versions import LEVEL_LETTERS_NOT_CROSSED, LEVEL_NUMBERED_MOVES, LEVEL_QUEUE_MOVES
from mayfly.node.shard.commands import (
    BRAKE_LENGTH,
    FLAG_BRAKE,
    FLAG_EXCLUSIVE_MOVE,
    FLAG_NUMBERED_MOVE,
    MOVE_HEAD,
    MOVED_CONTENT_HEAD,
    NUMBER,
    TRANSFER_MOVED_HEAD,
    MovedLease,
    encode_move_in,
)
from mayfly.node.shard.dead_letters import lose, take_in, takes_from, waits_behind_letters
from mayfly.node.shard.delivery import serve
from mayfly.node.shard.departing import drain, put, put_mark, take_in_lane
from mayfly.node.shard.effects import ConsumerMoved
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.lease import RELEASED as LEASE_RELEASED
from mayfly.node.shard.lease import USES, Lease
from mayfly.node.shard.message import Message, deadline_ms
from mayfly.node.shard.message_id import NO_DIGEST, digest_at
from mayfly.node.shard.moving import Moving
from mayfly.node.shard.outbox import END, LETTER, MANIFEST, PUBLISHED, RELEASED, RETURNED, SCHEDULED
from mayfly.node.shard.packing import NUMBER_BYTES, unpack_numbers, unpack_signed
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.queues import add_queue
from mayfly.node.shard.recurring import is_told_when, recurring_digest
from mayfly.node.shard.results import Crossed
from mayfly.node.shard.settings import ShardQueueSettings, decode_settings, encode_terms
from mayfly.node.shard.state import State

_PAIR: Final = 2


def move_out(state: State, queue_id: int, target_shard: int, number: int) -> None:
    """The queue leaves: from here on consumers are given nothing here, and what comes for it goes on. ``number``: of
    the move, 0 below LEVEL_NUMBERED_MOVES."""
    queue = state.queues.get(queue_id)
    if state.level < LEVEL_QUEUE_MOVES or target_shard in (0, state.shard_id):
        return
    if (number > 0) != (state.level >= LEVEL_NUMBERED_MOVES):
        return
    if queue is None or queue.has_left or queue.is_arriving or queue.stream is not None:
        return
    if queue.is_redriven or (number and number <= state.move_numbers.get(queue_id, 0)):
        return
    lane = state.outbox.lane(target_shard, queue_id)
    if queue.returns or len(lane.items) > state.returned_per_entry:
        return
    take_in_lane(state, queue, len(lane.items))
    before = queue.moving
    moving = queue.moving = Moving()
    lease = queue.lease
    if before is not None:
        moving.guests.update(before.guests)
        moving.awaited.update(before.awaited)
        lease.suspended_by -= len(before.guests)
        moving.exclusive = before.exclusive
    if lease.suspended_by:
        moving.guests[state.shard_id] = None
    moving.unused_ms = 0 if moving.guests else state.led_ms - lease.started_ms
    moving.target_shard = target_shard
    moving.exclusive = queue.consumers.exclusive
    for holder in queue.holders.values():
        if holder.attached:
            queue.consumers.detach(holder)
            moving.awaited[holder.order] = None
            if holder.session[0] in state.listeners:
                state.effects.append(
                    ConsumerMoved(
                        holder.holder_id, queue_id, holder.session, target_shard, holder.prefetch, holder.exclusive,
                        holder.priority,
                    )
                )
    queue.consumers.exclusive = False
    state.queue_changes += 1
    state.message_timers.cancel(queue_id)
    state.lease_timers.cancel(queue_id)
    state.unserved.remove(queue_id)
    state.overfull.remove(queue_id)
    state.undecided.pop(queue_id, None)
    queue.kept = False
    queue.redrive = None
    state.note_redrive(queue)
    state.note_brake(queue)
    lane.target_shard = target_shard
    _note_number(state, queue_id, number)
    moving.manifest_sequence = put_mark(state, queue, MANIFEST)
    state.touch(queue)


def _note_number(state: State, queue_id: int, number: int) -> None:
    if number:
        state.move_numbers[queue_id] = number
    else:
        state.move_numbers.pop(queue_id, None)


def move_in_command(state: State, queue: Queue) -> bytes:
    """The MOVE_IN of a queue that has left."""
    moving, lease = queue.moving, queue.lease
    assert moving is not None
    since_ms = state.time_ms - lease.last_activity_ms
    moved = MovedLease(lease.epoch, moving.unused_ms, since_ms, USES.index(lease.last_use), list(moving.guests))
    failed = queue.brake.row(state.time_ms) if queue.brake is not None and queue.brake.count else []
    return encode_move_in(
        queue.queue_id, state.shard_id, moving.manifest_sequence, queue.settings, moved, moving.exclusive,
        list(queue.received.items()), failed, state.move_numbers.get(queue.queue_id, 0),
    )


def apply_move_in(state: State, position: int, end: int) -> int:
    """Apply the MOVE_IN at ``position``; where it ends. The queue is here from now on, its messages are to come."""
    data = state.data
    (
        _, flags, use, settings_length, guest_count, sources,
        queue_id, source, sequence, epoch, unused_ms, since_ms,
    ) = MOVE_HEAD.unpack_from(data, position)
    settings_at = position + MOVE_HEAD.size
    guests_at = settings_at + settings_length
    sources_at = guests_at + guest_count * NUMBER_BYTES
    after: int = sources_at + _PAIR * sources * NUMBER_BYTES
    brake: array[int] | None = None
    if flags & FLAG_BRAKE:
        brake_at, after = after, after + BRAKE_LENGTH.size
        if after <= end:
            after += BRAKE_LENGTH.unpack_from(data, brake_at)[0] * NUMBER_BYTES
            brake = unpack_signed(data[brake_at + BRAKE_LENGTH.size : after])
    number = 0
    if flags & FLAG_NUMBERED_MOVE:
        number_at, after = after, after + NUMBER.size
        if after <= end:
            (number,) = NUMBER.unpack_from(data, number_at)
    if after > end or use >= len(USES):
        raise ShardError(f"MOVE_IN with use {use} reaches to {after}, its batch to {end}")
    queue = state.queues.get(queue_id)
    if state.level < LEVEL_QUEUE_MOVES or queue_id in state.deleted:
        return after
    if queue is not None and (not queue.has_left or sequence <= queue.received.get(source, 0)):
        return after
    if queue is not None and queue.has_waiting():
        drain(state, queue, state.returned_per_entry)
        if queue.has_waiting():
            # There is very much: some more is seen to when the other shard asks again (RULES C4).
            return after
    settings = decode_settings(data[settings_at:guests_at])
    lease = Lease(state.led_ms - unused_ms, state.time_ms - since_ms)
    lease.epoch = epoch + 1
    lease.last_use = USES[use]
    moving = Moving()
    moving.source_shard = source
    moving.exclusive = (flags & FLAG_EXCLUSIVE_MOVE) != 0
    guests = unpack_numbers(data, guests_at, guest_count, sources_at)
    moving.guests = dict.fromkeys([guest for guest in guests if guest != state.shard_id])
    if queue is None:
        queue = add_queue(state, queue_id, settings, lease)
    else:
        _come_back(state, queue, settings, lease, moving)
    queue.moving = moving
    _note_number(state, queue_id, number)
    if queue.brake is not None:
        queue.brake.release()
        if brake is not None:
            queue.brake.restore(brake, state.time_ms)
    state.note_brake(queue)
    lease.suspended_by += len(moving.guests)
    queue.consumers.exclusive = moving.exclusive
    received = unpack_numbers(data, sources_at, _PAIR * sources, end)
    queue.received = dict(zip(received[::_PAIR], received[1::_PAIR], strict=True))
    queue.note_received(source, sequence)
    if queue.expires_ms >= 0 and lease.suspended_by == 0:
        state.lease_timers.arm(queue_id, max(0, lease.started_ms + queue.expires_ms))
    state.touch(queue)
    return after


def _come_back(state: State, queue: Queue, settings: ShardQueueSettings, lease: Lease, moving: Moving) -> None:
    """The queue was here before: what is held and waits here is its own again."""
    before = queue.moving
    assert before is not None
    state.queue_changes += 1
    moving.awaited.update(before.awaited)
    moving.returns = True
    lease.suspended_by = queue.lease.suspended_by
    queue.lease = lease
    queue.configure(settings, state.shared_terms(encode_terms(settings)))


def apply_transfer_moved(state: State, position: int, end: int) -> int:
    """Apply the TRANSFER_MOVED at ``position``; where it ends. Repeats and gaps are as those of a TRANSFER."""
    data = state.data
    _, count, source, lane, first_sequence, source_ms = TRANSFER_MOVED_HEAD.unpack_from(data, position)
    position += TRANSFER_MOVED_HEAD.size
    if first_sequence == 0:
        raise ShardError("TRANSFER_MOVED from sequence 0")
    # What is left of a time there is left of it here: on its way no time has passed for it (RULES T5).
    ahead_ms = state.time_ms - source_ms
    items: list[tuple[int, Message]] = []
    for _ in range(count):
        if position + MOVED_CONTENT_HEAD.size > end:
            raise ShardError(f"TRANSFER_MOVED is cut off at {position}")
        (
            kind, priority, key_length, header_length, body_length, delivery_count, acquired_count, ttl_ms, enqueued_ms,
            until_ms,
        ) = MOVED_CONTENT_HEAD.unpack_from(data, position)
        offset = position + MOVED_CONTENT_HEAD.size
        position = offset + key_length + header_length + body_length
        if position > end or kind > SCHEDULED:
            raise ShardError(f"TRANSFER_MOVED with item {kind} reaches to {position}, its batch to {end}")
        if until_ms >= 0:
            until_ms = max(0, until_ms + ahead_ms)
        if not (kind == SCHEDULED and is_told_when(delivery_count)):
            enqueued_ms += ahead_ms
        items.append(
            (
                kind,
                Message(
                    state.index, offset, key_length, header_length, body_length, enqueued_ms, until_ms,
                    delivery_count, ttl_ms, priority, acquired_count,
                ),
            )
        )
    queue = state.queues.get(lane)
    if queue is None:
        return position
    highest = queue.received.get(source, 0)
    if not takes_from(queue, source) or first_sequence > highest + 1:
        state.refused_transfers += 1
        return position
    repeats = min(highest + 1 - first_sequence, count)
    queue.duplicates += repeats
    if queue.is_mirror:
        lose(state, queue, source, highest, count - repeats)
        return position
    taken = 0
    retimed = queue.settings.ttl_retroactive
    for kind, message in items[repeats:]:
        if kind == LETTER:
            if not take_in(state, queue, message, waits_behind_letters(state, queue, source)):
                break
            state.retain(1)
        elif kind in (PUBLISHED, RETURNED, SCHEDULED):
            if retimed:
                message = message.with_deadline(deadline_ms(message.enqueued_ms, message.ttl_ms, queue.ttl_ms))
            put(state, queue, message, kind, _digest(data, message) if kind == SCHEDULED else NO_DIGEST)
            state.retain(1)
            state.expiry_budget += 1
            state.delivery_budget += 1
            state.delivery_bytes += message.body_length
            state.touch(queue)
        else:
            _mark(state, queue, source, kind)
        taken += 1
    if taken:
        queue.note_received(source, highest + taken)
    return position


def _digest(data: bytes, message: Message) -> bytes:
    """Of the id under which a message waits. One that was delivered before can't be cancelled (RULES S4)."""
    if message.acquired_count > 0:
        return NO_DIGEST
    digest = digest_at(data, message.offset + message.key_length, message.header_length)
    return recurring_digest(digest) if message.recurs else digest


def _mark(state: State, queue: Queue, source: int, kind: int) -> None:
    """A mark has arrived, which is not a message."""
    moving = queue.moving
    if moving is None:
        return
    if kind == END and moving.source_shard == source:
        moving.source_shard = 0
        state.touch(queue)
    elif kind == RELEASED and source in moving.guests:
        del moving.guests[source]
        if moving.exclusive and not moving.guests:
            # Whoever its place was kept for does not come.
            moving.exclusive = False
            queue.consumers.exclusive = False
        queue.lease.suspended_by -= 1
        if queue.lease.suspended_by == 0:
            state.used(queue, LEASE_RELEASED)
        state.touch(queue)
    queue.forget_move()


def cross(state: State, queue_id: int, up_to: int) -> Crossed:
    """Whether what had been published here for the queue has arrived where it is now (`commands.encode_cross`)."""
    queue = state.queues.get(queue_id)
    if queue is not None and queue.moving is not None and (queue.has_left or queue.returns):
        if queue.returns:
            return Crossed(0, False)
        if queue.touched:
            serve(state, queue)
        if queue.has_waiting() and not up_to:
            return Crossed(0, False)
    lane = state.outbox.lanes.get(queue_id)
    if lane is None:
        return Crossed(0, True)
    if state.level >= LEVEL_LETTERS_NOT_CROSSED and not up_to:
        # What is in the lane of a queue that is here, and all behind the last that was published, are others' letters.
        if queue is None or not queue.has_left or lane.last_own < lane.first_sequence:
            return Crossed(0, True)
        return Crossed(lane.last_own, False)
    up_to = up_to or lane.last_sequence()
    return Crossed(up_to, lane.first_sequence > up_to)
