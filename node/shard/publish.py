"""PUBLISH: a run of them in one loop. HOT: every message passes here. Those that may be refused or are to wait go one
by one."""

from collections.abc import Sequence
from struct import error as StructError  # noqa: N812  (it is an exception class)
from typing import Final

from mayfly.cluster.versions import LEVEL_RECURRING_IN_ORDER, LEVEL_SCHEDULES
from mayfly.node.shard.commands import (
    AFTER,
    AT,
    CHANGE_SCHEDULED,
    LIST_HEAD,
    NUMBER,
    NUMBER_PAIR,
    PUBLISH,
    PUBLISH_HEAD,
    PUBLISH_KEPT,
    PUBLISH_KEPT_HEAD,
    PUBLISH_LATER,
    PUBLISH_LATER_HEAD,
    RECURRING,
    RECURRING_ONE,
    targets_at,
)
from mayfly.node.shard.delivery import has_room
from mayfly.node.shard.dialect import NEVER_TTL, RABBITMQ
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import NO_DEADLINE, NO_MARKER, NO_TTL, Message, is_own_ttl
from mayfly.node.shard.message_id import digest_at
from mayfly.node.shard.outbox import MAXLEN
from mayfly.node.shard.packing import NUMBER_BYTES, unpack_numbers
from mayfly.node.shard.priority import place_of
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.queues import raise_level
from mayfly.node.shard.recurring import MOST_EVERY_S, begin, mark_of
from mayfly.node.shard.rescheduling import CHANGED, UNDECIDED, apply_change_scheduled, due_at
from mayfly.node.shard.results import Published
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.state import State
from mayfly.node.shard.stream import Stream
from mayfly.node.shard.stream_keys import StreamKeys, routing_key

_HEAD_BYTES: Final = PUBLISH_HEAD.size
_KEPT_BYTES: Final = PUBLISH_KEPT_HEAD.size
_LATER_BYTES: Final = PUBLISH_LATER_HEAD.size
_NO_LINE: Final = Line()
_PUBLISHES: Final = (PUBLISH, PUBLISH_LATER, PUBLISH_KEPT)


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
    dialect = RABBITMQ
    max_priority = 0
    default_priority = 0
    is_stream = False
    stream_offset = 0
    keys: StreamKeys | None = None
    mark = 0
    items: list[Message] = []
    line = _NO_LINE
    messages = 0
    body_bytes = 0
    timed = 0
    further: Sequence[int] = ()
    key_length: int
    extra: int
    header_length: int
    body_length: int
    target: int
    ttl_ms: int
    try:
        while position < end and data[position] == PUBLISH:
            _, key_length, extra, header_length, body_length, target, ttl_ms = unpack(data, position)
            offset = position + head_bytes + extra * NUMBER_BYTES
            stop = offset + key_length + header_length + body_length
            if stop > end or ttl_ms > MAX_NUMBER:
                raise ShardError(f"PUBLISH at {position} reaches to {stop} of {end}, with TTL {ttl_ms}")
            if extra:
                further = unpack_numbers(data, position + head_bytes, extra, offset)
                _refuse_mirrors(state, further)
            if target != queue_id:
                if queue is not None:
                    state.count_run(queue, line, messages, body_bytes, timed)
                elif queue_id >= 0:
                    state.missing_targets += messages
                messages = body_bytes = timed = 0
                queue_id = target
                queue = queues.get(target)
                if queue is not None and queue.is_mirror:
                    queue = None
                    raise _refused_by_mirror(target)
                if queue is not None:
                    state.touch(queue)
                    line = queue.ready if queue.moving is None else queue.entry_line(0)
                    items = line.own_end()
                    queue_ttl_ms = queue.ttl_ms
                    dialect = queue.dialect
                    max_priority = queue.max_priority
                    default_priority = queue.default_priority
                    queue_deadline_ms = now_ms + queue_ttl_ms if queue_ttl_ms >= 0 else -1
                    is_stream = queue.stream is not None
                    stream_offset = 0
                    keys = None
                    mark = 0
                    if queue.stream is not None:
                        queue_deadline_ms = queue.deadline_ms(now_ms, NO_TTL)
                        stream_offset = queue.stream.next_offset
                        keys = queue.stream.keys
            messages += 1
            if queue is not None:
                if is_stream:
                    deadline_ms = queue_deadline_ms
                    if keys is not None:
                        mark = keys.add(routing_key(data, offset), stream_offset)
                elif dialect:
                    deadline_ms = queue.deadline_ms(now_ms, ttl_ms)
                elif ttl_ms < 0:
                    deadline_ms = queue_deadline_ms
                elif queue_ttl_ms < 0 or ttl_ms < queue_ttl_ms:
                    deadline_ms = now_ms + ttl_ms
                else:
                    deadline_ms = queue_deadline_ms
                body_bytes += body_length
                message = Message(
                    index, offset, key_length, header_length, body_length, now_ms, deadline_ms, stream_offset,
                    NO_TTL if is_stream else ttl_ms, mark,
                )
                if is_stream:
                    stream_offset += 1
                if max_priority:
                    place = place_of(data, offset + key_length, header_length, max_priority, default_priority)
                if max_priority and (place or queue.moving is not None):
                    queue.entry_line(place).append(message.with_priority(place))
                else:
                    if deadline_ms >= 0:
                        timed += 1
                    items.append(message)
            if extra:
                _to_further_queues(state, further, offset, key_length, header_length, body_length, ttl_ms)
            position = stop
    except StructError:
        raise ShardError(f"PUBLISH at {position} is cut off") from None
    finally:
        if queue is not None:
            state.count_run(queue, line, messages, body_bytes, timed)
        else:
            state.missing_targets += messages
    return position


def _to_further_queues(
    state: State, targets: Sequence[int], offset: int, key_length: int, header_length: int, body_length: int,
    ttl_ms: int,
) -> None:
    """The same content in the other queues of a fan-out, each with its own deadline (RULES T9)."""
    now_ms = state.time_ms
    found = 0
    for target in targets:
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


def _refuse_mirrors(state: State, queue_ids: Sequence[int]) -> None:
    """Raise ShardError if one of the queues is a mirror."""
    for queue_id in queue_ids:
        queue = state.queues.get(queue_id)
        if queue is not None and queue.is_mirror:
            raise _refused_by_mirror(queue_id)


def _refused_by_mirror(queue_id: int) -> ShardError:
    """What a PUBLISH without a PUBLISH_GUARDED comes to that is for a mirror (RULES J4). It has no answer that could
    tell it apart from one that was taken, and must not be confirmed: so all answers of its batch are lost. Nobody gives
    such a one: whoever publishes to queues that may refuse says so."""
    return ShardError(f"PUBLISH without a guard to queue {queue_id}, which is a mirror")


class OnePublish:
    """A publish of whatever kind, as it is read: its content, and the queues it is for. ``content.enqueued_ms`` is
    when it is due; one that is due now or was before has the time of the entry. ``stream_ttl_ms`` is its TTL in
    streams. ``mark`` says how it recurs (`node.shard.recurring`), 0 for one that does not."""

    __slots__ = ("content", "mark", "queue_ids", "stop", "stream_ttl_ms")

    def __init__(self, state: State, position: int, end: int) -> None:
        """ShardError when it does not fit."""
        data = state.data
        kind = data[position] if position < end else 0
        if kind not in _PUBLISHES:
            raise ShardError(f"PUBLISH expected at {position}")
        further_at = targets_at(data, position)
        if further_at > end:
            raise ShardError(f"PUBLISH at {position} is cut off")
        _, key_length, extra, header_length, body_length, first, ttl_ms = PUBLISH_HEAD.unpack_from(data, position)
        offset = further_at + extra * NUMBER_BYTES
        self.stop: int = offset + key_length + header_length + body_length
        if self.stop > end or ttl_ms > MAX_NUMBER:
            raise ShardError(f"PUBLISH at {position} reaches to {self.stop} of {end}, with TTL {ttl_ms}")
        due_ms = state.time_ms
        self.stream_ttl_ms = NO_TTL
        self.mark = 0
        if kind != PUBLISH:
            asked_ms: int
            if kind == PUBLISH_LATER:
                (asked_ms,) = NUMBER.unpack_from(data, position + _HEAD_BYTES)
            else:
                stream_ttl_ms: int
                asked_ms, stream_ttl_ms = NUMBER_PAIR.unpack_from(data, position + _HEAD_BYTES)
                if stream_ttl_ms > NEVER_TTL:
                    raise ShardError(f"PUBLISH_KEPT with the TTL {stream_ttl_ms}, at most {NEVER_TTL} expected")
                self.stream_ttl_ms = stream_ttl_ms
            form = data[position + 1]
            if form in (RECURRING, RECURRING_ONE):
                if asked_ms > MOST_EVERY_S:
                    raise ShardError(f"PUBLISH every {asked_ms} seconds, at most {MOST_EVERY_S} expected")
                self.mark = mark_of(asked_ms, form == RECURRING_ONE)
            else:
                due_ms = max(due_ms, due_at(state, form, asked_ms))
        self.content = Message(
            state.index, offset, key_length, header_length, body_length, due_ms, NO_DEADLINE, 0, ttl_ms
        )
        self.queue_ids: list[int] = [first]
        if extra:
            self.queue_ids += unpack_numbers(data, further_at, extra, offset)


def apply_publish_later(state: State, position: int, end: int) -> int:
    """Apply the PUBLISH_LATER or PUBLISH_KEPT at ``position`` and all that follow it without a break; where they end
    (RULES S2, J2).

    ShardError when one does not fit; those before it are applied.
    """
    data = state.data
    while position < end and data[position] in (PUBLISH_LATER, PUBLISH_KEPT):
        if data[position] == PUBLISH_KEPT:
            after = _apply_kept(state, position, end)
        else:
            after = _schedule_some(state, position, end)
        position = after if after > position else _apply_one_later(state, position, end)
    return position


def _apply_kept(state: State, position: int, end: int) -> int:
    """Apply PUBLISH_KEPTs for one stream without keys, due now, one after the other: their TTLs are all that tells them
    from PUBLISHes. Where they end; what is anything else is left to `_apply_one_later`, and so is what does not fit."""
    data = state.data
    index = state.index
    now_ms = state.time_ms
    queue: Queue | None = None
    stream: Stream | None = None
    items: list[Message] = []
    messages = 0
    body_bytes = 0
    timed = 0
    while position + _KEPT_BYTES <= end and data[position] == PUBLISH_KEPT:
        (
            _, form, key_length, extra, header_length, body_length, target, ttl_ms, due_ms, stream_ttl_ms
        ) = PUBLISH_KEPT_HEAD.unpack_from(data, position)
        offset = position + _KEPT_BYTES
        stop = offset + key_length + header_length + body_length
        if extra or form != AFTER or due_ms or stop > end or ttl_ms > MAX_NUMBER or stream_ttl_ms > NEVER_TTL:
            break
        if queue is None:
            queue = state.queues.get(target)
            stream = None if queue is None else queue.stream
            if queue is None or stream is None or stream.is_mirror or stream.keys is not None:
                return position
            items = queue.ready.own_end()
        elif target != queue.queue_id:
            break
        assert stream is not None
        deadline_ms = queue.deadline_ms(now_ms, stream_ttl_ms)
        if deadline_ms >= 0:
            timed += 1
        stream_offset = stream.next_offset + messages
        items.append(
            Message(
                index, offset, key_length, header_length, body_length, now_ms, deadline_ms, stream_offset, stream_ttl_ms
            )
        )
        if is_own_ttl(stream_ttl_ms):
            stream.expiry.put(now_ms + stream_ttl_ms, stream_offset)
        messages += 1
        body_bytes += body_length
        position = stop
    if queue is not None and messages:
        state.touch(queue)
        state.count_run(queue, queue.ready, messages, body_bytes, timed)
    return position


def _schedule_some(state: State, position: int, end: int) -> int:
    """Apply PUBLISH_LATERs whose message waits in one queue, as most do, one after the other; where they end. Any other
    is left to `_apply_one_later`, and so is what does not fit."""
    data = state.data
    index = state.index
    now_ms = state.time_ms
    queues = state.queues
    scheduled = 0
    form: int
    key_length: int
    extra: int
    header_length: int
    body_length: int
    target: int
    ttl_ms: int
    asked_ms: int
    while position + _LATER_BYTES <= end and data[position] == PUBLISH_LATER and data[position + 1] <= AT:
        (
            _, form, key_length, extra, header_length, body_length, target, ttl_ms, asked_ms
        ) = PUBLISH_LATER_HEAD.unpack_from(data, position)
        offset = position + _LATER_BYTES
        stop = offset + key_length + header_length + body_length
        due_ms = asked_ms if form == AT else now_ms + asked_ms
        queue = queues.get(target)
        if (
            extra or stop > end or ttl_ms > MAX_NUMBER or asked_ms > MAX_NUMBER or queue is None or due_ms <= now_ms
            or not queue.allows_schedule
        ):  # fmt: skip
            break
        deadline_ms = NO_DEADLINE
        if ttl_ms >= 0 or queue.ttl_ms >= 0:
            deadline_ms = queue.deadline_ms(due_ms, ttl_ms)
        message = Message(index, offset, key_length, header_length, body_length, due_ms, deadline_ms, 0, ttl_ms)
        if queue.max_priority:
            message = state.prioritized(queue, message)
        queue.wait(message, digest_at(data, offset + key_length, header_length))
        queue.enqueued += 1
        if not queue.touched:
            state.touch(queue)
        scheduled += 1
        position = stop
    if scheduled:
        state.count_scheduled(scheduled)
        state.retain(scheduled)
    return position


def _apply_one_later(state: State, position: int, end: int) -> int:
    one = OnePublish(state, position, end)
    _refuse_mirrors(state, one.queue_ids)
    for queue_id in one.queue_ids:
        queue = state.queues.get(queue_id)
        if queue is None:
            state.missing_targets += 1
        else:
            _take(state, queue, one)
    return one.stop


def _take(state: State, queue: Queue, one: OnePublish) -> None:
    """Put the content into a queue: to wait if it is not due, or recurs, and the queue allows it, else to be ready."""
    content = one.content
    if queue.stream is not None:
        state.append_to_stream(queue, queue.stream, content, one.stream_ttl_ms, NO_MARKER, state.time_ms)
        state.retain(1)
        return
    if one.mark and queue.allows_schedule:
        # Nobody has messages recur before the cluster is at that level, whatever this shard was told.
        raise_level(state, LEVEL_SCHEDULES)
        if begin(state, queue, content, one.mark):
            state.retain(1)
            return
    due_ms = content.enqueued_ms
    waits = due_ms > state.time_ms and queue.allows_schedule
    if not waits:
        due_ms = state.time_ms
    message = content.enqueued_at(due_ms, queue.deadline_ms(due_ms, content.ttl_ms))
    if waits:
        state.schedule(queue, message)
    else:
        state.enqueue(queue, message)
    state.retain(1)


def apply_guarded(state: State, position: int, end: int, results: list[object]) -> int:
    """Apply the PUBLISH_GUARDED at ``position`` with the PUBLISHes and CHANGE_SCHEDULEDs it announces; where they end.

    Appends the Published that answers it. A queue that refuses what is too much (``Queue.refuses``) does so message
    by message, and a mirror refuses each; the others take theirs. ShardError when a command does not fit; those before
    it are applied.
    """
    data = state.data
    _, count = LIST_HEAD.unpack_from(data, position)
    position += LIST_HEAD.size
    refused: list[int] = []
    nowhere: list[int] = []
    number = 0
    taken = 1
    while number < count:
        if taken:
            # From the first that is to be offered on all go one by one: its queue is likely to be that of the others.
            position, taken = _take_some(state, position, end, count - number)
            number += taken
            continue
        if position < end and data[position] == CHANGE_SCHEDULED:
            position, outcome = apply_change_scheduled(state, position, end)
            if outcome != CHANGED:
                (refused if outcome == UNDECIDED else nowhere).append(number)
        elif position < end and data[position] in _PUBLISHES:
            one = OnePublish(state, position, end)
            position = one.stop
            is_here = False
            is_taken = True
            for queue_id in one.queue_ids:
                queue = state.queues.get(queue_id)
                if queue is None:
                    state.missing_targets += 1
                    continue
                is_here = True
                is_taken = _offer(state, queue, one) and is_taken
            if not is_taken:
                refused.append(number)
            elif not is_here:
                nowhere.append(number)
        else:
            raise ShardError(f"PUBLISH {number} of {count} expected at {position}")
        number += 1
    results.append(Published(refused, nowhere))
    return position


def _take_some(state: State, position: int, end: int, most: int) -> tuple[int, int]:
    """Apply PUBLISHes, at most so many, for one queue that takes whatever comes, one after the other; where they end,
    and how many they are. Any other is left to `OnePublish`, and so is what does not fit."""
    data = state.data
    index = state.index
    now_ms = state.time_ms
    queue: Queue | None = None
    queue_id = -1
    items: list[Message] = []
    messages = 0
    body_bytes = 0
    timed = 0
    key_length: int
    extra: int
    header_length: int
    body_length: int
    target: int
    ttl_ms: int
    while messages < most and position + _HEAD_BYTES <= end and data[position] == PUBLISH:
        _, key_length, extra, header_length, body_length, target, ttl_ms = PUBLISH_HEAD.unpack_from(data, position)
        offset = position + _HEAD_BYTES
        stop = offset + key_length + header_length + body_length
        if extra or stop > end or ttl_ms > MAX_NUMBER:
            break
        if target != queue_id:
            if queue is not None:
                break
            queue = state.queues.get(target)
            if (
                queue is None or queue.refuses or queue.stream is not None or queue.max_priority
                or queue.moving is not None
            ):  # fmt: skip
                return position, 0
            queue_id = target
            items = queue.ready.own_end()
        assert queue is not None
        deadline_ms = NO_DEADLINE
        if ttl_ms >= 0 or queue.ttl_ms >= 0:
            deadline_ms = queue.deadline_ms(now_ms, ttl_ms)
        if deadline_ms >= 0:
            timed += 1
        items.append(Message(index, offset, key_length, header_length, body_length, now_ms, deadline_ms, 0, ttl_ms))
        messages += 1
        body_bytes += body_length
        position = stop
    if queue is not None:
        state.touch(queue)
        state.count_run(queue, queue.ready, messages, body_bytes, timed)
    return position, messages


def _offer(state: State, queue: Queue, one: OnePublish) -> bool:
    """Put the content into one queue; False if that is full and refuses it (RULES D2, D9), a mirror (J4), or on its way
    between shards while the content recurs: what it would replace may arrive after it (S6)."""
    content = one.content
    if queue.is_mirror:
        queue.refused += 1
        return False
    if (
        one.mark != 0 and queue.is_between_shards and queue.allows_schedule
        and state.level >= LEVEL_RECURRING_IN_ORDER
    ):  # fmt: skip
        return False
    body_bytes = content.body_length
    waits = (content.enqueued_ms > state.time_ms or one.mark != 0) and queue.allows_schedule
    if queue.refuses and not (has_room(state, queue, body_bytes) and (not waits or queue.fits(body_bytes))):
        queue.refused += 1
        if queue.refusals_die:
            state.retain(1)
            state.died(queue, content, MAXLEN)
        return False
    _take(state, queue, one)
    return True
