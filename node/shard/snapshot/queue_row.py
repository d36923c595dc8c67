"""A queue in the snapshot, with its lease, its lines and its consumers."""

from collections.abc import Iterator
from typing import Any, Final

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES
from mayfly.node.shard.delivery import note_due
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.lease import USES, Lease
from mayfly.node.shard.moving import Moving
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.recurring import find_undecided
from mayfly.node.shard.redrive import redrive_of
from mayfly.node.shard.retiming import Retiming
from mayfly.node.shard.schedule import Schedule
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.snapshot.holder_row import holder_row, restore_holder
from mayfly.node.shard.snapshot.line_row import LineReading, line_row, retiming_row
from mayfly.node.shard.snapshot.message_columns import MessageColumns
from mayfly.node.shard.snapshot.pace import WorkPace
from mayfly.node.shard.snapshot.schedule_row import restore_schedule, schedule_row
from mayfly.node.shard.snapshot.stream_row import restore_stream, stream_row
from mayfly.node.shard.state import State

# Places of the rows that most queues have not.
_MOVING: Final = 0
_STREAM: Final = 1
_SCHEDULE: Final = 2
_REDRIVE: Final = 3
_BRAKE: Final = 4
_MOVE_NUMBER: Final = 5


def queue_row(queue: Queue, terms: int, columns: MessageColumns, move_number: int) -> list[object]:
    """``terms``: the place of the queue's in the table of them; ``move_number``: as the state has it."""
    lease = queue.lease
    single = queue.consumers.single
    return [
        queue.queue_id,
        [queue.vhost, queue.name, terms, *retiming_row(queue.retiming)],
        [lease.epoch, lease.started_ms, lease.last_activity_ms, USES.index(lease.last_use)],
        queue.counts_row(),
        list(queue.received.items()),
        line_row(queue.returned, columns),
        line_row(queue.ready, columns),
        [holder_row(holder, columns) for holder in queue.holders.values()],
        [[priority, [holder.order for holder in row]] for priority, row in queue.consumers.in_turn()],
        queue.consumers.single_active,
        0 if single is None else single.order,
        [
            [level.priority, line_row(level.returned, columns), line_row(level.ready, columns)]
            for level in queue.levels
            if level.returned.items or level.ready.items
        ],
        *_special_rows(queue, columns, move_number),
    ]


def _special_rows(queue: Queue, columns: MessageColumns, move_number: int) -> list[object]:
    """What most queues have not: of a move, of a stream, what is scheduled, of a redrive, what has failed lately, the
    number of its last move; up to the last there is."""
    moving = [] if queue.moving is None else queue.moving.row()
    stream = [] if queue.stream is None else stream_row(queue.stream, columns)
    schedule = [] if queue.schedule is None else schedule_row(queue.schedule, columns)
    redrive = [] if queue.redrive is None else queue.redrive.row()
    brake = queue.brake.row() if queue.brake is not None and queue.has_failures else []
    if move_number:
        return [moving, stream, schedule, redrive, brake, move_number]
    if brake:
        return [moving, stream, schedule, redrive, brake]
    if redrive:
        return [moving, stream, schedule, redrive]
    if schedule:
        return [moving, stream, schedule]
    if stream:
        return [moving, stream]
    return [moving] if moving else []


def restore_queue(
    state: State, row: Any, table: "list[tuple[bytes, ShardQueueSettings]]", pace: WorkPace
) -> Iterator[None]:
    """Put the queue of a ``queue_row`` into the state, and arm its timers. ``table``: all terms, as bytes and read."""
    (
        queue_id, (vhost, name, place, *retiming), lease_row, counters, received, returned, ready, holders, bands,
        single_active, single, levels, *special_rows,
    ) = row
    lease = Lease(0, 0)
    lease.epoch, lease.started_ms, lease.last_activity_ms, last_use = lease_row
    lease.last_use = USES[last_use]
    terms_bytes, terms = table[place]
    queue = Queue(queue_id, vhost, name, terms, terms_bytes, lease, state.messages_per_piece)
    if retiming:
        queue.retiming = Retiming(*retiming)
    if special_rows and special_rows[_MOVING]:
        queue.moving = Moving()
        queue.moving.restore(special_rows[_MOVING])
    queue.restore_counts(counters)
    for source, sequence in received:
        queue.note_received(source, sequence)
    line_rows = [(queue.returned, returned), (queue.ready, ready)]
    for priority, returned, ready in levels:
        level = queue.level(priority)
        line_rows += [(level.returned, returned), (level.ready, ready)]
    for line, written in line_rows:
        if written:
            reading = LineReading(line)
            yield from reading.read(state, written, pace)
            queue.ready_bytes += reading.body_bytes
    if len(special_rows) > _SCHEDULE and special_rows[_SCHEDULE]:
        queue.schedule = Schedule(state.messages_per_piece)
        yield from restore_schedule(state, queue.schedule, special_rows[_SCHEDULE], pace)
        if not queue.schedule.count:
            raise ShardError(f"queue {queue_id} has a schedule without messages")
        find_undecided(state, queue)
    if len(special_rows) > _REDRIVE and special_rows[_REDRIVE]:
        queue.redrive = redrive_of(special_rows[_REDRIVE])
        state.note_redrive(queue)
    if len(special_rows) > _MOVE_NUMBER:
        state.move_numbers[queue_id] = special_rows[_MOVE_NUMBER]
    if len(special_rows) > _BRAKE and special_rows[_BRAKE]:
        if queue.brake is None:
            raise ShardError(f"queue {queue_id} has failures, and no brake")
        queue.brake.restore(special_rows[_BRAKE])
        state.note_brake(queue)
    consumers = queue.consumers
    consumers.single_active = single_active
    consumers.yields = single_active and state.level >= LEVEL_FAILED_DELIVERIES
    for each in holders:
        yield from restore_holder(state, queue, each, pace)
    for _, orders in bands:
        for order in orders:
            holder = queue.holders[order]
            if holder.waiting:
                raise ShardError(f"consumer {order} of queue {queue_id} waits twice")
            consumers.wait(holder)
    if single:
        consumers.single = queue.holders[single]
    if queue.stream is not None:
        yield from restore_stream(state, queue, queue.stream, special_rows[_STREAM], pace)
    state.queues[queue_id] = queue
    if queue.is_returning():
        state.returning.add(queue)
    if queue.moving is not None and not queue.has_left:
        lease.suspended_by += len(queue.moving.guests)
        consumers.exclusive = consumers.exclusive or queue.moving.exclusive
    if queue.expires_ms >= 0 and lease.suspended_by == 0 and not queue.has_left:
        state.lease_timers.arm(queue_id, max(0, lease.started_ms + queue.expires_ms))
    note_due(state, queue)
