"""The commands that move dead letters: ROUTE, TRANSFER, SETTLED, LANE_CLOSED and the operator's (RULES
D6-D9). HOT.
"""

from typing import Final

from mayfly.cluster.versions import (
    LEVEL_FAILED_DELIVERIES,
    LEVEL_LETTERS_BEHIND_ARRIVALS,
    LEVEL_QUEUE_MOVES,
    LEVEL_RELEASES_GET_THROUGH,
)
from mayfly.node.numbers import STREAM_SOURCE
from mayfly.node.shard.commands import (
    CONTENT_HEAD,
    DECISION_HEAD,
    DROPPED_CYCLE,
    DROPPED_UNROUTABLE,
    LIST_HEAD,
    MARKED_CONTENT_HEAD,
    PARKED,
    ROUTED,
    TRANSFER_HEAD,
    TRANSFER_MARKED,
)
from mayfly.node.shard.delivery import has_room
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import DELIVERED_ELSEWHERE, NO_DEADLINE, NO_MARKER, NO_TTL, Message
from mayfly.node.shard.outbox import DUE, MAXLEN, RECORDS, Death
from mayfly.node.shard.packing import NUMBER_BYTES, u16_at, u32_at, unpack_numbers
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.state import State

_REMOTE_NUMBERS: Final = 2


def apply_route(state: State, position: int, end: int) -> int:
    """Apply the ROUTE at ``position``; where it ends.

    Decisions count only for the death at the head of ``unrouted``: an earlier one was routed before, after a
    gap the rest of the command is refused. A bad decision raises ShardError; those before it stay applied. What is to
    go to mirrors alone has no route (RULES J4).
    """
    _, count = LIST_HEAD.unpack_from(state.data, position)
    position += LIST_HEAD.size
    for _ in range(count):
        position = apply_decision(state, position, end)
    return position


def apply_decision(state: State, position: int, end: int) -> int:
    """Apply the decision at ``position``, of a ROUTE or a ROUTE_NOTED; where it ends."""
    data = state.data
    outbox = state.outbox
    if position + DECISION_HEAD.size > end:
        raise ShardError(f"ROUTE is cut off at {position}")
    head = DECISION_HEAD.unpack_from(data, position)
    sequence, outcome, key_length, header_length, body_length, locals_, remotes = head
    targets_at = position + DECISION_HEAD.size
    offset = targets_at + (locals_ + _REMOTE_NUMBERS * remotes) * NUMBER_BYTES
    after: int = offset + key_length + header_length + body_length
    if after > end or outcome > DROPPED_UNROUTABLE:
        raise ShardError(f"decision with outcome {outcome} reaches to {after}, its batch to {end}")
    death = next_death(state, sequence)
    if death is None:
        return after
    if outcome == ROUTED and not remotes and _are_mirrors(state, targets_at, locals_, offset):
        outcome = without_route(death)
    if outcome == PARKED:
        outbox.parked[sequence] = death
        return after
    if outcome == ROUTED:
        is_record = death.reason in RECORDS
        marked = state.level >= LEVEL_FAILED_DELIVERIES and death.message.has_failed and not is_record
        # What was due has its TTL before it, what is dead has lost it (RULES S3, D4).
        ttl_ms = death.message.ttl_ms if death.reason == DUE else NO_TTL
        content = arriving(state, offset, key_length, header_length, body_length, marked, ttl_ms)
        move_content(state, content, targets_at, locals_, remotes, offset)
        if is_record:
            outbox.journaled += 1
        else:
            outbox.routed += 1
    elif death.reason == DUE:
        outbox.dropped_due += 1
    elif outcome == DROPPED_CYCLE:
        outbox.dropped_cycle += 1
    else:
        outbox.dropped_unroutable += 1
    state.release(death.message.index, 1)
    return after


def next_death(state: State, sequence: int) -> Death | None:
    """The death at the head of ``unrouted``, which leaves it, if it has this sequence."""
    unrouted = state.outbox.unrouted
    if unrouted and unrouted[0].sequence == sequence:
        return unrouted.popleft()
    if sequence >= (unrouted[0].sequence if unrouted else state.outbox.next_sequence):
        state.refused_routes += 1
    return None


def without_route(death: Death) -> int:
    """What becomes of a death that has none, of those that do not go in a circle."""
    drops = death.reason == DUE or death.settings.dead_letter_at_most_once
    return DROPPED_UNROUTABLE if drops else PARKED


def arriving(
    state: State, offset: int, key_length: int, header_length: int, body_length: int, has_failed: bool,
    ttl_ms: int = NO_TTL,
) -> Message:
    """A dead letter as it comes, with its new content, which starts there in the data of the entry; whether a delivery
    of it had failed before it died. Or what was due, with the TTL that it has in its queues."""
    return Message(
        state.index, offset, key_length, header_length, body_length, state.time_ms, NO_DEADLINE, 0, ttl_ms, 0,
        DELIVERED_ELSEWHERE if has_failed else 0,
    )


def _are_mirrors(state: State, targets_at: int, locals_: int, end: int) -> bool:
    """Whether there are targets in this shard, and all of them are mirrors."""
    for target in unpack_numbers(state.data, targets_at, locals_, end):
        queue = state.queues.get(target)
        if queue is None or not queue.is_mirror:
            return False
    return locals_ > 0


def move_content(state: State, content: Message, targets_at: int, locals_: int, remotes: int, end: int) -> None:
    """Put the new content into queues of this shard and into the lanes of others: one entry does it all
    (RULES D6). A full queue of this shard that refuses it gets a lane as well, and so does what follows (D7, D8). A
    mirror of this shard is as good as gone (J4).
    """
    data = state.data
    for target in unpack_numbers(data, targets_at, locals_, end):
        move_here(state, content, target)
    pairs = unpack_numbers(data, targets_at + locals_ * NUMBER_BYTES, _REMOTE_NUMBERS * remotes, end)
    for place in range(0, len(pairs), _REMOTE_NUMBERS):
        move_away(state, content, pairs[place], pairs[place + 1])


def move_here(state: State, content: Message, target: int) -> None:
    """Put the content into a queue of this shard."""
    queue = state.queues.get(target)
    if queue is None or queue.is_mirror:
        state.outbox.lost += 1
        return
    state.retain(1)
    if _goes_after(state, queue, content):
        return
    if _waits_before(state, queue) or not take_in(state, queue, content):
        state.outbox.put_in_lane(state.shard_id, target, _letter_to(state, queue, content))


def _waits_before(state: State, queue: Queue) -> bool:
    """Whether what comes for the queue has to wait in its lane: it does not take anything now, or others wait. To one
    that is arriving, of what died before it may still be something on the way from where it was (RULES D7)."""
    return (
        queue.has_left or queue.returns or queue.queue_id in state.outbox.filled
        or (queue.is_arriving and state.level >= LEVEL_LETTERS_BEHIND_ARRIVALS)
    )  # fmt: skip


def move_away(state: State, content: Message, target_shard: int, target: int) -> None:
    """Put it into the lane of a queue of another shard."""
    state.retain(1)
    queue = state.queues.get(target)
    if queue is None:
        state.outbox.put_in_lane(target_shard, target, content)
    elif not _goes_after(state, queue, content):
        state.outbox.put_in_lane(target_shard, target, _letter_to(state, queue, content))


def note_run(state: State, run: list[Message], target_shard: int, target: int) -> None:
    """Records go to their journal, of this shard where there is no other (RULES R4): at least one, in order, each as it
    will be in a lane, or in a stream that `takes_straight`."""
    outbox = state.outbox
    queue = state.queues.get(target)
    placed = 0
    if queue is None and target_shard:
        state.retain(len(run))
        outbox.put_run_in_lane(target_shard, target, run)
        placed = len(run)
    elif queue is not None and not target_shard and not _waits_before(state, queue):
        placed = take_in_run(state, queue, run)
    for record in run[placed:]:
        content = record.enqueued_at(state.time_ms, NO_DEADLINE)
        if target_shard:
            move_away(state, content, target_shard, target)
        else:
            move_here(state, content, target)
    outbox.journaled += len(run)


def _letter_to(state: State, queue: Queue, content: Message) -> Message:
    """A dead letter that waits in the lane to a queue which has a row here: with its priority there, which can't be
    told any more if it is put in from where it waits (`node.shard.departing.take_in_lane`)."""
    return state.prioritized(queue, content) if state.level >= LEVEL_QUEUE_MOVES else content


def takes_from(queue: Queue, source: int) -> bool:
    """Whether the queue takes now what a shard transfers. One that has left does not: where it is now is known what it
    has received. One that is arriving takes its own messages first, and what waits in its own shard it takes in by
    itself."""
    moving = queue.moving
    if moving is None or moving.source_shard == source:
        return not queue.has_left
    return not (queue.has_left or queue.returns or queue.is_arriving)


def _goes_after(state: State, queue: Queue, content: Message) -> bool:
    """If a queue that has left has something in its lines still, what comes for it goes behind that (D7)."""
    if not queue.has_left or not queue.has_ready():
        return False
    state.enqueue(queue, content.enqueued_at(state.time_ms, queue.deadline_ms(state.time_ms, content.ttl_ms)))
    return True


def waits_behind_letters(state: State, queue: Queue, source: int) -> bool:
    """Whether the queue takes letters from a shard although it is full: behind them comes the word that its lease is
    not held there any more, without which nobody may be given what it has. That shard sends no more before then than
    what is before that word."""
    moving = queue.moving
    return moving is not None and source in moving.guests and state.level >= LEVEL_RELEASES_GET_THROUGH


def take_in(state: State, queue: Queue, content: Message, beyond_limits: bool = False) -> bool:
    """A dead letter, or what was due, arrives: the queue's own TTL and limits apply to it as to any other (RULES D9).

    False: the queue is full and refuses it, so it has to wait. Where refused publishes die, it dies again. One that is
    larger than all that may be ready waits until nothing is: else it would hold up its lane for ever (D8).
    ``beyond_limits``: it need not wait.
    """
    if queue.refuses and not has_room(state, queue, content.body_length):
        if queue.refusals_die:
            queue.refused += 1
            state.died(queue, content, MAXLEN)
            return True
        if not beyond_limits and (queue.ready_count() or not queue.max_length):
            return False
    if queue.stream is not None:
        ttl_ms = queue.stream.arriving_ttl_ms(state.data, content)
        state.append_to_stream(queue, queue.stream, content, ttl_ms, NO_MARKER, state.time_ms)
        return True
    state.enqueue(queue, content.enqueued_at(state.time_ms, queue.deadline_ms(state.time_ms, content.ttl_ms)))
    return True


def takes_straight(queue: Queue) -> bool:
    """Whether it is a stream in which what comes from other queues is what it comes as: with the next offset and the
    queue's deadline, and never refused."""
    stream = queue.stream
    return stream is not None and stream.takes_as_they_are and not queue.refuses


def take_in_run(state: State, queue: Queue, run: list[Message], beyond_limits: bool = False) -> int:
    """`take_in` for one after the other, of at least one, until one is refused; how many it took. They refer to the
    entry from here on. Where the queue `takes_straight`, they are as they will be there."""
    stream = queue.stream
    if stream is None or not takes_straight(queue):
        taken = 0
        for content in run:
            if not take_in(state, queue, content, beyond_limits):
                break
            state.retain(1)
            taken += 1
        return taken
    deadline_ms = queue.deadline_ms(state.time_ms, NO_TTL)
    if run[0].stream_offset != stream.next_offset or run[0].deadline_ms != deadline_ms:
        # Something else of the same command has come to the stream since they were made.
        run = [
            Message(
                each.index, each.offset, each.key_length, each.header_length, each.body_length, each.enqueued_ms,
                deadline_ms, stream_offset,
            )
            for stream_offset, each in enumerate(run, stream.next_offset)
        ]  # fmt: skip
    queue.ready.own_end().extend(run)
    state.touch(queue)
    body_bytes = sum([each.body_length for each in run])
    state.count_run(queue, queue.ready, len(run), body_bytes, len(run) if deadline_ms >= 0 else 0)
    return len(run)


def apply_transfer(state: State, position: int, end: int) -> int:
    """Apply the TRANSFER or TRANSFER_MARKED at ``position``; where it ends.

    Repeats are dropped and counted; a gap refuses the command (RULES D6, D7): the source sends from where it
    was. So does it with what a full queue refuses (D8).
    """
    data = state.data
    kind, count, source, lane, first_sequence = TRANSFER_HEAD.unpack_from(data, position)
    position += TRANSFER_HEAD.size
    if first_sequence == 0:
        raise ShardError("TRANSFER from sequence 0")
    # The shard that they come from may have been told the level before this one.
    knows_failures = state.level >= LEVEL_FAILED_DELIVERIES
    mark_bytes = MARKED_CONTENT_HEAD.size - CONTENT_HEAD.size if kind == TRANSFER_MARKED else 0
    queue = state.queues.get(lane)
    highest = 0 if queue is None else queue.received.get(source, 0)
    repeats = min(highest + 1 - first_sequence, count)
    straight_to = queue.stream if queue is not None and takes_straight(queue) else None
    index, now_ms = state.index, state.time_ms
    deadline_ms, place = NO_DEADLINE, 0
    if queue is not None and straight_to is not None:
        deadline_ms, place = queue.deadline_ms(now_ms, NO_TTL), straight_to.next_offset - repeats
    run: list[Message] = []
    for _ in range(count):
        at = position + mark_bytes
        offset = at + CONTENT_HEAD.size
        if offset > end:
            raise ShardError(f"TRANSFER is cut off at {position}")
        # As CONTENT_HEAD has them.
        key_length, header_length, body_length = u16_at(data, at), u32_at(data, at + 2), u32_at(data, at + 6)
        has_failed = mark_bytes != 0 and data[position] != 0 and knows_failures
        position = offset + key_length + header_length + body_length
        if position > end:
            raise ShardError(f"TRANSFER reaches to {position}, its batch to {end}")
        if straight_to is not None:
            run.append(Message(index, offset, key_length, header_length, body_length, now_ms, deadline_ms, place))
            place += 1
        else:
            run.append(arriving(state, offset, key_length, header_length, body_length, has_failed))
    if queue is None:
        state.transfers_lost += count
        return position
    if not takes_from(queue, source):
        state.refused_transfers += 1
        return position
    if first_sequence > highest + 1:
        state.refused_transfers += 1
        return position
    queue.duplicates += repeats
    if queue.is_mirror:
        lose(state, queue, source, highest, count - repeats)
        return position
    beyond_limits = waits_behind_letters(state, queue, source)
    taken = take_in_run(state, queue, run[repeats:], beyond_limits) if repeats < count else 0
    if taken:
        queue.note_received(source, highest + taken)
    return position


def lose(state: State, queue: Queue, source: int, highest: int, count: int) -> None:
    """What a shard transfers to a mirror, that many behind the ``highest`` before, gets lost there (RULES J4). The
    shard is told that it was received: its lane is not to wait for ever."""
    if count and source < STREAM_SOURCE:
        state.transfers_lost += count
        queue.note_received(source, highest + count)


def settled(state: State, lane_id: int, up_to: int) -> None:
    """The target has committed the lane's items up to here: they go."""
    lane = state.outbox.lanes.get(lane_id)
    if lane is None:
        return
    leaving = state.outbox.take_up_to(lane, up_to)
    state.release_all(leaving)
    state.outbox.settled += len(leaving)
    queue = state.queues.get(lane_id)
    if queue is not None and queue.has_left and queue.has_waiting():
        # There is room in the lane again.
        state.touch(queue)


def lane_closed(state: State, lane_id: int) -> None:
    """The target queue is gone for ever: what waits for it goes, and the lane."""
    lost = state.outbox.close_lane(lane_id)
    state.outbox.lost += len(lost)
    state.release_all(lost)


def retry_parked(state: State, sequence: int) -> None:
    """A parked death waits for a decision once more, behind all others, under a new number."""
    outbox = state.outbox
    death = outbox.parked.pop(sequence, None)
    if death is not None:
        outbox.add(death.queue_id, death.message, death.reason, death.time_ms, death.settings)


def drop_parked(state: State, sequence: int) -> None:
    """A parked death is given up."""
    death = state.outbox.parked.pop(sequence, None)
    if death is not None:
        state.outbox.dropped_by_operator += 1
        state.release(death.message.index, 1)
