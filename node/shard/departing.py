"""The way out of a queue that has moved: what is in its lines goes into its lane, in bounded pieces. HOT."""

from mayfly.cluster.versions import LEVEL_RELEASES_GET_THROUGH
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import NO_DEADLINE, NO_TTL, Message
from mayfly.node.shard.message_id import NO_DIGEST
from mayfly.node.shard.outbox import (
    END,
    LETTER,
    PUBLISHED,
    RELEASED,
    RETURNED,
    SCHEDULED,
    Lane,
    as_item,
    item_kind,
    item_priority,
)
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.recurring import put_recurring
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.state import State


def put_mark(state: State, queue: Queue, kind: int) -> int:
    """A mark, which is not a message, goes through the lane; its sequence."""
    moving = queue.moving
    assert moving is not None
    mark = Message(state.index, 0, 0, 0, 0, state.time_ms, NO_DEADLINE, 0, NO_TTL)
    state.retain(1)
    state.outbox.put_in_lane(moving.target_shard, queue.queue_id, as_item(mark, kind))
    return state.outbox.lanes[queue.queue_id].last_sequence()


def drain(state: State, queue: Queue, at_least: int = 0) -> None:
    """As much as there is room for goes into the lane, but not less than so much, in the order in which it would have
    left the queue."""
    moving = queue.moving
    assert moving is not None
    lane = state.outbox.lane(moving.target_shard, queue.queue_id)
    most = max(state.items_in_lane, len(lane.items) + at_least)
    for level in queue.levels:
        if not (
            _drain_line(state, queue, lane, level.returned, RETURNED, most)
            and _drain_line(state, queue, lane, level.ready, PUBLISHED, most)
        ):
            return
    if not (
        _drain_line(state, queue, lane, queue.returned, RETURNED, most)
        and _drain_line(state, queue, lane, queue.ready, PUBLISHED, most)
    ):
        return
    while queue.schedule is not None:
        room = most - len(lane.items)
        if room <= 0:
            return
        digests: list[bytes] = []
        leaving = queue.take_scheduled(MAX_NUMBER, room, digests)
        for message, digest in zip(leaving, digests, strict=True):
            state.outbox.put_in_lane(lane.target_shard, queue.queue_id, as_item(message, SCHEDULED))
            if digest:
                lane.note_digest(digest)
    if moving.end_sequence == 0:
        moving.end_sequence = put_mark(state, queue, END)


def _drain_line(state: State, queue: Queue, lane: Lane, line: Line, kind: int, most: int) -> bool:
    """Whether nothing is left in the line."""
    while line.items:
        room = most - len(lane.items)
        if room <= 0:
            return False
        leaving = line.items[line.head : line.head + room]
        for message in leaving:
            if message.deadline_ms >= 0:
                line.timed -= 1
            queue.ready_bytes -= message.body_length
            state.outbox.put_in_lane(lane.target_shard, queue.queue_id, as_item(message, kind))
        line.advance(len(leaving))
    return True


def put_late_in_lane(state: State, queue: Queue) -> None:
    """What this entry has put into a queue that returns goes into its lane."""
    moving = queue.moving
    assert moving is not None
    late = moving.late
    while late.items:
        leaving = late.items[late.head :]
        for message in leaving:
            queue.ready_bytes -= message.body_length
            state.outbox.put_in_lane(state.shard_id, queue.queue_id, as_item(message, PUBLISHED))
        late.advance(len(leaving))
    late.timed = 0


def take_in_lane(state: State, queue: Queue, most: int) -> bool:
    """What waits in the lane to a queue that is here, for room in it or from a time when it was elsewhere, is in the
    queue now: behind what is in it, and before all that comes. At most so many items; whether these were all."""
    lane = state.outbox.lanes.get(queue.queue_id)
    if lane is None:
        return True
    received = queue.received.get(state.shard_id, 0)
    while lane.items and most > 0:
        digest = lane.first_digest()
        item = state.outbox.take_from_lane(lane)
        most -= 1
        kind = item_kind(item)
        if lane.first_sequence - 1 <= received or kind not in (LETTER, PUBLISHED, RETURNED, SCHEDULED):
            state.release(item.index, 1)
            continue
        message = item.with_priority(item_priority(item))
        if kind == LETTER:
            message = message.enqueued_at(state.time_ms, queue.deadline_ms(state.time_ms, message.ttl_ms))
            message = message.with_priority(item_priority(item))
            queue.enqueued += 1
        put(state, queue, message, kind, digest)
    state.touch(queue)
    queue.note_received(state.shard_id, max(received, lane.first_sequence - 1))
    return not lane.items


def put(state: State, queue: Queue, message: Message, kind: int, digest: bytes = NO_DIGEST) -> None:
    """A message of the queue is in its line, or waits again, with the digest of its id."""
    if kind == SCHEDULED and message.recurs:
        put_recurring(state, queue, message, digest)
        return
    if kind == SCHEDULED:
        queue.wait(message, digest)
        return
    line = queue.returned_line(message.priority) if kind == RETURNED else queue.ready_line(message.priority)
    line.append(message)
    queue.ready_bytes += message.body_length


def release_guest(state: State, queue: Queue) -> None:
    """Nobody holds the lease of a queue that has left any more: it runs again where the queue is (RULES L3)."""
    moving = queue.moving
    if moving is not None and queue.has_left and state.shard_id in moving.guests:
        del moving.guests[state.shard_id]
        sequence = put_mark(state, queue, RELEASED)
        if state.level >= LEVEL_RELEASES_GET_THROUGH:
            moving.released_sequence = sequence
