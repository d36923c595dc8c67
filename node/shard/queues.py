"""How a queue comes, is used, changes and goes."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES, LEVEL_RETURNS_COUNTED
from mayfly.node.shard.delivery import catch_up, expiry_is_behind, serve
from mayfly.node.shard.effects import ConsumerCancelled
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.lease import DECLARED, Lease
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import PURGE, REMOVE, Message
from mayfly.node.shard.orphans import Orphans
from mayfly.node.shard.outbox import QUEUE_EXPIRED, RECORD_OF_QUEUE, RECORD_OF_QUEUE_EXPIRED
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.results import (
    IN_USE,
    NO_KEYS,
    NOT_BRAKED,
    NOT_EMPTY,
    Applied,
    Deleted,
    Gone,
    Moved,
    Purged,
    PurgedKey,
    QueueCounts,
    Refused,
    Result,
)
from mayfly.node.shard.retiming import Retiming
from mayfly.node.shard.settings import MAX_NUMBER, ShardQueueSettings, decode_settings, decode_terms, encode_terms
from mayfly.node.shard.state import State
from mayfly.node.shard.stream_expiry import take_out
from mayfly.node.shard.stream_line import count_off
from mayfly.node.shard.tombstone import DELETED, DROPPED, EXPIRED, Tombstone

RELEASED_PER_ENTRY: Final = 10_000
"""Messages of queues that are gone that one entry releases (RULES C4); what a queue has more of remains for others."""


def gone(state: State, queue_id: int) -> Gone:
    """The answer for a queue that is not here."""
    tombstone = state.deleted.get(queue_id)
    return Gone(queue_id, "" if tombstone is None else tombstone.reason)


def moved(queue: Queue) -> Moved | None:
    """The answer for a queue that has left; None if it is here."""
    moving = queue.moving
    return Moved(queue.queue_id, moving.target_shard) if moving is not None and queue.has_left else None


def counts(queue: Queue, created: bool) -> QueueCounts:
    """The answer to a declare."""
    return QueueCounts(queue.ready_count(), queue.consumers.count, created)


def create_queue(state: State, queue_id: int, settings_bytes: bytes, by_leader: bool) -> Result:
    """A new queue; an existing one is used (RULES L2), unless it is only the leader making sure."""
    if queue_id in state.deleted:
        return gone(state, queue_id)
    queue = state.queues.get(queue_id)
    if queue is not None:
        if not by_leader:
            return touch_queue(state, queue_id)
        return counts(queue, False)
    if not 0 < queue_id <= MAX_NUMBER:
        raise ShardError(f"queue id {queue_id}, from 1 to {MAX_NUMBER} expected")
    queue = add_queue(state, queue_id, decode_settings(settings_bytes), Lease(state.led_ms, state.time_ms))
    if queue.expires_ms >= 0:
        state.lease_timers.arm(queue_id, state.led_ms + queue.expires_ms)
    return counts(queue, True)


def add_queue(state: State, queue_id: int, settings: ShardQueueSettings, lease: Lease) -> Queue:
    """A row more. The timer of its lease is the caller's."""
    terms_bytes = state.shared_terms(encode_terms(settings))
    vhost, name = settings.vhost, settings.name
    queue = Queue(queue_id, vhost, name, settings, terms_bytes, lease, state.messages_per_piece)
    queue.active_ms = state.time_ms
    queue.consumers.yields = settings.single_active_consumer and state.level >= LEVEL_FAILED_DELIVERIES
    state.queues[queue_id] = queue
    state.queue_changes += 1
    return queue


def touch_queue(state: State, queue_id: int) -> Result:
    """A declare of a queue that is here, active or passive (RULES L2)."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    if queue.has_left:
        return moved(queue) or gone(state, queue_id)
    catch_up(state, queue)
    state.used(queue, DECLARED)
    return counts(queue, False)


def raise_level(state: State, level: int) -> None:
    """What follows means what it does from this feature level on; lower ones change nothing."""
    if level <= state.level:
        return
    before = state.level
    state.level = level
    if before < LEVEL_FAILED_DELIVERIES <= level:
        for queue in state.queues.values():
            if queue.consumers.begin_to_yield():
                state.touch(queue)


def update_queues(state: State, position: int, terms_bytes: bytes, queue_ids: Iterable[int]) -> None:
    """New terms for queues (RULES T12, L9); nothing happens to one that has them, or is gone. ``position``: where the
    command stands in the entry."""
    terms = decode_terms(terms_bytes)
    terms_bytes = state.shared_terms(terms_bytes)
    all_queues = state.queues
    for queue_id in queue_ids:
        queue = all_queues.get(queue_id)
        if queue is not None and queue.terms_bytes != terms_bytes:
            _update(state, queue, terms, terms_bytes, position)


def _update(state: State, queue: Queue, terms: ShardQueueSettings, terms_bytes: bytes, position: int) -> None:
    expires_before_ms = queue.expires_ms
    had_brake = queue.brake is not None
    queue.configure(terms, terms_bytes)
    if had_brake:
        state.note_brake(queue)
        state.touch(queue)
    if queue.expires_ms != expires_before_ms:
        lease = queue.lease
        lease.renew(state.led_ms, lease.last_activity_ms)
        if queue.expires_ms < 0:
            state.lease_timers.cancel(queue.queue_id)
        elif lease.suspended_by == 0 and not queue.has_left:
            state.lease_timers.arm(queue.queue_id, state.led_ms + queue.expires_ms)
    if not queue.is_empty():
        # Lower limits count at once, and a lease may not have to wait for messages any more.
        state.touch(queue)
    if terms.ttl_retroactive:
        for line in queue.lines():
            if line.items:
                line.retime(queue.ttl_ms)
        if queue.stream is not None:
            queue.stream.unpacked.clear()
        if queue.schedule is not None:
            queue.schedule.retime(queue.ttl_ms)
        queue.retiming = Retiming(queue.ttl_ms, state.index, position) if queue.held_count else None


def purge(state: State, queue_id: int) -> Result:
    """What is ready or scheduled goes, without being dead-lettered; what is held stays (RULES T13)."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    elsewhere = not_all_here(state, queue)
    if elsewhere is not None:
        return elsewhere
    if queue.stream is not None:
        return Purged(0)
    catch_up(state, queue)
    count = queue.waiting_count()
    _let_go(state, queue, [*[line.leave() for line in queue.lines()], *queue.leave_schedule()])
    queue.ready_bytes = 0
    state.undecided.pop(queue_id, None)
    state.touch(queue)
    return Purged(count)


def release_brake(state: State, queue_id: int) -> Result:
    """A queue on brake delivers again, and what has failed up to now is forgotten (RULES R5)."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    elsewhere = moved(queue)
    if elsewhere is not None:
        return elsewhere
    if queue.brake is None or not queue.brake.is_on:
        return Refused(NOT_BRAKED)
    queue.brake.release()
    state.note_brake(queue)
    state.touch(queue)
    return Applied()


def delete_offset(state: State, queue_id: int, offset: int) -> Result:
    """One message of a stream leaves, wherever it stands (RULES J3)."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    if queue.stream is None or take_out(state, queue, offset, REMOVE) is None:
        return Purged(0)
    state.touch(queue)
    return Purged(1)


def purge_key(state: State, queue_id: int, key: bytes, up_to: int) -> Result:
    """The messages of a routing key leave a stream, up to this offset and as far as the entry's bound goes (RULES J3,
    C4)."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    if queue.stream is None or queue.stream.keys is None:
        return Refused(NO_KEYS)
    purged = 0
    found = queue.stream.keys.keys.get(key)
    while found is not None and found.count and state.return_budget > 0:
        offsets = [offset for offset in found.some_from(0, state.return_budget) if offset <= up_to]
        if not offsets:
            break
        state.return_budget -= len(offsets)
        purged += len(offsets)
        for offset in offsets:
            take_out(state, queue, offset, PURGE)
    if purged:
        state.touch(queue)
    return PurgedKey(purged, 0 if found is None else found.count_to(up_to))


def not_all_here(state: State, queue: Queue) -> Moved | None:
    """The answer for a queue that has left, or is still arriving: what goes now must be all of it."""
    return Moved(queue.queue_id, state.shard_id) if is_incomplete(state, queue) else moved(queue)


def is_incomplete(state: State, queue: Queue) -> bool:
    """Whether some of what is in the queue is on its way to it, from another shard or in its lane here."""
    return queue.is_arriving or (queue.returns and state.level >= LEVEL_RETURNS_COUNTED)


def _let_go(state: State, queue: Queue, lines: list[Line]) -> None:
    """What is in these lines is no longer the queue's, and dies of nothing: it is released, now or, if it is too much,
    little by little (RULES C4).
    """
    if sum([line.count() for line in lines]) > RELEASED_PER_ENTRY:
        _leave_behind(state, queue, ShardQueueSettings(queue.vhost, queue.name), lines)
        return
    for line in lines:
        for piece in line.pieces():
            state.release_all(piece)
    if queue.stream is not None:
        for line in lines:
            count_off(line)
        state.release_departed(queue.stream.departed)


def _leave_behind(state: State, queue: Queue, settings: ShardQueueSettings, lines: list[Line]) -> None:
    for line in lines:
        if line.count():
            departed: list[tuple[int, int]] = [] if queue.stream is None else queue.stream.departed
            state.orphans.add(Orphans(queue.queue_id, settings, line, departed))


def delete_queue(state: State, queue_id: int, if_unused: bool, if_empty: bool) -> Result:
    """Delete at a client's wish."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    elsewhere = not_all_here(state, queue)
    if elsewhere is not None:
        return elsewhere
    if if_unused and (queue.consumers.count or (queue.moving is not None and queue.moving.guests)):
        return Refused(IN_USE)
    catch_up(state, queue)
    waiting = queue.waiting_count()
    if if_empty and waiting:
        return Refused(NOT_EMPTY)
    remove_queue(state, queue, DELETED)
    return Deleted(waiting)


def expire_queue(state: State, queue_id: int, epoch: int) -> None:
    """The leader found that this lease has run out; it is so only if nothing happened to it meanwhile (RULES
    L5).

    Messages whose own deadline has passed die of it first, and are dead-lettered or noted; with more of them than the
    entry's bound allows, the leader will ask again. Where only empty queues expire, one with messages stays, and its
    lease is looked at again when the last has gone (L11).
    """
    queue = state.queues.get(queue_id)
    if queue is None or not queue.lease.has_run_out(epoch, queue.expires_ms, state.led_ms):
        return
    if queue.has_left or is_incomplete(state, queue):
        return
    if queue.dead_letters or queue.journals:
        serve(state, queue)
        if expiry_is_behind(state, queue):
            return
    if queue.settings.expires_if_empty and not queue.is_empty():
        queue.kept = True
        state.lease_timers.cancel(queue_id)
        return
    remove_queue(state, queue, EXPIRED)


def drop_queue(state: State, queue_id: int) -> None:
    """The catalog does not know this queue: nothing of it is kept."""
    queue = state.queues.get(queue_id)
    if queue is not None:
        remove_queue(state, queue, "")


def remove_queue(state: State, queue: Queue, reason: str) -> None:
    """The queue goes with all it has, ready and held (RULES L4); deaths that wait in the outbox stay.

    Its consumers are told. With a ``reason`` it leaves a tombstone. What an expired one is to have dead-lettered
    orphans: held messages first, they were at the head (L11). So do messages that are too many to be released now (C4),
    and those that are to be noted in a journal, behind their queue (R4).
    """
    queue_id = queue.queue_id
    messages: list[Message] = []
    for holder in queue.holders.values():
        messages.extend(holder.held.values())
        session_holders = state.sessions[holder.session]
        del session_holders[(queue_id, holder.holder_id)]
        if not session_holders:
            del state.sessions[holder.session]
        if holder.attached and holder.session[0] in state.listeners:
            state.effects.append(ConsumerCancelled(holder.holder_id, queue_id, holder.session))
    queue.consumers.let_go()
    # As they are: there may be millions in them, and nobody else needs them.
    held = Line(state.messages_per_piece)
    held.put_together(messages, deque(), [], 0)
    lines = [held, *[line.leave() for line in queue.lines()], *queue.leave_schedule()]
    if queue.returns and queue.moving is not None and state.level >= LEVEL_RETURNS_COUNTED:
        lines.append(queue.moving.late.leave())
    count = sum([line.count() for line in lines])
    if reason == EXPIRED and queue.journals:
        _note_queue(state, queue, count)
    if reason == EXPIRED and ((queue.settings.expires_dead_letter and queue.dead_letters) or queue.journals):
        _leave_behind(state, queue, queue.settings, lines)
    else:
        _let_go(state, queue, lines)
    state.message_timers.cancel(queue_id)
    state.lease_timers.cancel(queue_id)
    state.unserved.remove(queue_id)
    state.overfull.remove(queue_id)
    state.returning.remove(queue_id)
    state.undecided.pop(queue_id, None)
    state.past.add_counts(queue)
    del state.queues[queue_id]
    queue.redrive = None
    state.note_redrive(queue)
    state.braked.pop(queue_id, None)
    state.move_numbers.pop(queue_id, None)
    state.queue_changes += 1
    queue.deleted = True
    state.gone_for[reason or DROPPED] += 1
    if reason:
        state.deleted[queue_id] = Tombstone(
            reason,
            state.time_ms,
            queue.lease.last_activity_ms,
            count,
            queue.vhost,
            queue.name,
            queue.lease.last_use,
        )


def _note_queue(state: State, queue: Queue, messages: int) -> None:
    """The end of a queue's lease is to be noted in its journal (RULES R4), and that so many messages go with it."""
    lease = queue.lease
    ended_ms = state.time_ms - (state.led_ms - lease.started_ms - queue.expires_ms)
    state.retain(1)
    stands_for_it = Message(state.index, 0, 0, 0, 0, lease.last_activity_ms, ended_ms, messages)
    state.outbox.add(queue.queue_id, stands_for_it, RECORD_OF_QUEUE, state.time_ms, queue.settings)


def clear_orphans(state: State) -> None:
    """What queues left is dead-lettered, noted or released, the oldest first, within the entry's bounds (RULES L11, R4,
    C4)."""
    dying, released = state.orphans.dying, state.orphans.released
    while dying and state.expiry_budget > 0:
        state.expiry_budget -= _dead_letter(state, dying[0], state.expiry_budget)
        if dying[0].is_over:
            dying.popleft()
    releases = RELEASED_PER_ENTRY
    while released and releases > 0:
        leaving = released[0].take(releases)
        releases -= len(leaving)
        state.release_all(leaving)
        state.release_departed(released[0].departed)
        if released[0].is_over:
            released.popleft()


def _dead_letter(state: State, orphans: Orphans, most: int) -> int:
    """How many of them have died now."""
    dying = orphans.take(most)
    state.release_departed(orphans.departed)
    queue_id, settings = orphans.queue_id, orphans.settings
    if not orphans.are_dead_lettered:
        for message in dying:
            state.outbox.add(queue_id, message, RECORD_OF_QUEUE_EXPIRED, state.time_ms, settings)
        return len(dying)
    for message in dying:
        state.outbox.add(queue_id, message, QUEUE_EXPIRED, state.time_ms, settings)
        if settings.journal is not None:
            state.also_note(queue_id, message, RECORD_OF_QUEUE_EXPIRED, settings)
    state.queue_expired += len(dying)
    state.dead_lettered_for[QUEUE_EXPIRED] += len(dying)
    state.past.dead_lettered += len(dying)
    return len(dying)
