"""The state as bytes and back: the same state gives the same bytes on every replica (RULES C1).

Messages are columns of 64-bit numbers, so that a million of them take well under a second; a column in which
all numbers are the same is that number. What follows from the rest (timers, live counts, sessions, sums) is
not written but made anew.

Millions of messages would keep a node silent for seconds. They never change, so a snapshot can be made in
steps: at first all else is written, and which messages are where; then so many messages in each step.
"""

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final

import msgspec

from node.shard.consumers import Holder
from node.shard.delivery import note_due
from node.shard.errors import ShardError
from node.shard.holders import enter_holder
from node.shard.lease import USES, Lease
from node.shard.line import Line
from node.shard.message import Message
from node.shard.outbox import REASONS, Death, Lane, Outbox
from node.shard.packed import BODY_LENGTH, COLUMNS, DEADLINE_MS, INDEX, Packed, numbers_of
from node.shard.packing import pack_numbers, pack_signed, unpack_numbers, unpack_signed
from node.shard.queue import Queue
from node.shard.remains import Remains
from node.shard.settings import ShardQueueSettings, decode_settings, encode_settings
from node.shard.state import Past, State
from node.shard.tombstone import GONE_FOR, Tombstone

VERSION: Final = 5
_WHOLE_LINES: Final = 3
"""A version before, in which a line was one run of columns; read still."""
_NO_PRIORITIES: Final = 4
"""The version before, in which neither messages nor queues had priorities; read still."""
MESSAGES_PER_STEP: Final = 16_384
"""A few milliseconds of work, compiled: a step is made in each tick."""
_LIST_COSTS: Final = 16
"""However few messages are in a list, it takes as long as so many..."""
_COPIED_AS_ONE: Final = 64
"""...and to copy so many numbers as long as a message."""
_DEATH_COLUMNS: Final = 5
_ATTACHED: Final = 1
_CONSUMER: Final = 2
_ACTIVE: Final = 4
_NO_ACK: Final = 8
_EXCLUSIVE: Final = 16


def snapshot(state: State) -> bytes:
    """The state between two entries, as bytes."""
    making = SnapshotInSteps(state, MESSAGES_PER_STEP)
    while True:
        data = making.step()
        if data is not None:
            return data


class SnapshotInSteps:
    """A snapshot of the state as it is now, made in steps; entries may be applied between them."""

    def __init__(self, state: State, messages_per_step: int) -> None:
        self._columns = _Columns(messages_per_step)
        self._row = _state_row(state, self._columns)

    def step(self) -> bytes | None:
        """Write some messages; the snapshot if these were the last, None before."""
        if self._columns.step():
            return None
        return msgspec.msgpack.encode(self._row)


class _Columns:
    """Messages that are to become columns in rows of the snapshot, and those that are half there."""

    def __init__(self, messages_per_step: int) -> None:
        self._per_step = messages_per_step
        self._waiting: deque[tuple[list[object], deque[list[Message]]]] = deque()
        self._halves: list[_Column] = []
        """Columns of the first that waits."""

    def pack(self, messages: list[Message], head: int = 0) -> list[object]:
        """The row of the messages from ``head`` on: their number, and columns that ``step`` fills in."""
        size = self._per_step
        # In pieces from the beginning: to let go of millions of messages at once takes long too.
        pieces = deque([messages[start : start + size] for start in range(head, len(messages), size)])
        row: list[object] = [len(messages) - head]
        self._waiting.append((row, pieces))
        return row

    def step(self) -> bool:
        """Write some messages; whether anything is left."""
        left = self._per_step
        while self._waiting and left > 0:
            left -= self._write_some()
        return bool(self._waiting)

    def _write_some(self) -> int:
        """Write a piece, or the end of a row; what it took, in messages."""
        row, pieces = self._waiting[0]
        if not self._halves:
            self._halves = [_Column() for _ in range(COLUMNS)]
        if pieces:
            messages = pieces.popleft()
            for column, numbers in zip(self._halves, numbers_of(messages), strict=True):
                column.add(numbers)
            return max(_LIST_COSTS, len(messages))
        column = self._halves[len(row) - 1]
        row.append(column.packed())
        if len(row) > COLUMNS:
            self._halves = []
            self._waiting.popleft()
        return column.count // _COPIED_AS_ONE


class _Column:
    """Numbers as bytes, or the one number that all of them are: lengths and TTLs often are."""

    __slots__ = ("count", "parts", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0
        """The number that all of them are, as long as there are no ``parts``."""
        self.parts: list[bytes] = []

    def add(self, numbers: list[int]) -> None:
        """More of them."""
        if not numbers:
            return
        if not self.parts:
            value = self.value if self.count else numbers[0]
            if numbers[-1] == value and numbers.count(value) == len(numbers):
                self.value = value
                self.count += len(numbers)
                return
            if self.count:
                self.parts.append(pack_signed([value]) * self.count)
        self.parts.append(pack_signed(numbers))
        self.count += len(numbers)

    def packed(self) -> object:
        """As it stands in the snapshot."""
        if self.parts:
            return b"".join(self.parts)
        return self.value if self.count else b""


def _state_row(state: State, columns: _Columns) -> list[object]:
    past = state.past
    return [
        VERSION,
        [state.time_ms, state.led_ms, state.next_order],
        [
            state.missing_targets, state.transfers_lost, state.refused_transfers, state.refused_routes,
            list(state.dead_lettered_for.values()), list(state.gone_for.values()),
        ],
        [
            past.enqueued, past.delivered, past.acknowledged,
            past.expired, past.dead_lettered, past.duplicates,
            past.overflowed, past.refused, past.delivery_limited,
        ],
        [_queue_row(queue, columns) for queue in state.queues.values()],
        [_tombstone_row(queue_id, tombstone) for queue_id, tombstone in state.deleted.items()],
        _outbox_row(state.outbox, columns),
        [state.queue_expired, [_remains_row(remains, columns) for remains in state.remains.values()]],
    ]


def restore(state: State, data: bytes) -> None:
    """Fill a new state from a ``snapshot``; ShardError when it is none (the state is then of no use)."""
    try:
        row = msgspec.msgpack.decode(data)
        if row[0] not in (_WHOLE_LINES, _NO_PRIORITIES, VERSION):
            raise ShardError(f"shard snapshot of version {row[0]}, {_WHOLE_LINES} to {VERSION} expected")
        version, times, counters, past, queues, tombstones, outbox, (state.queue_expired, remains) = row
        state.time_ms, state.led_ms, state.next_order = times
        (
            state.missing_targets, state.transfers_lost, state.refused_transfers, state.refused_routes,
            dead_lettered_for, gone_for,
        ) = counters
        state.dead_lettered_for = dict(zip(REASONS, dead_lettered_for, strict=True))
        state.gone_for = dict(zip(GONE_FOR, gone_for, strict=True))
        _restore_past(state.past, past)
        for row in queues:
            _restore_queue(state, row, version)
        for queue_id, reason, time_ms, activity_ms, messages, vhost, name, use in tombstones:
            state.deleted[queue_id] = Tombstone(
                reason, time_ms, activity_ms, messages, vhost, name, USES[use]
            )
        _restore_outbox(state, outbox)
        for queue_id, settings_bytes, line_row in remains:
            line = Line(state.messages_per_piece)
            _restore_line(state, line, line_row, version)
            state.remains[queue_id] = Remains(queue_id, decode_settings(settings_bytes), line)
    except (TypeError, ValueError, LookupError, OverflowError, AttributeError, msgspec.MsgspecError) as error:
        raise ShardError(f"shard snapshot that can't be read: {error!r}") from error


def unpack_messages(row: Any) -> list[Message]:
    """The messages of a ``_Columns.pack``."""
    if len(row) == COLUMNS:
        # From before priorities.
        row = [*row, 0]
    return [Message(*numbers) for numbers in _rows(row, COLUMNS)]


def _column(numbers: list[int]) -> object:
    column = _Column()
    column.add(numbers)
    return column.packed()


def _rows(row: Any, columns: int) -> Iterable[tuple[int, ...]]:
    """What ``columns`` columns after their length say, row by row."""
    count = row[0]
    if len(row) != columns + 1:
        raise ShardError(f"{len(row) - 1} columns, {columns} expected")
    return zip(*[_unpacked(column, count) for column in row[1:]], strict=True)


def _unpacked(column: Any, count: int) -> Iterable[int]:
    return repeat(column, count) if isinstance(column, int) else unpack_signed(column)


def _retain(state: State, indices: Iterable[int]) -> None:
    """Count references to these entries."""
    live = state.live
    for index in indices:
        live[index] = live.get(index, 0) + 1


def _restore_past(past: Past, row: Any) -> None:
    (
        past.enqueued, past.delivered, past.acknowledged,
        past.expired, past.dead_lettered, past.duplicates,
        past.overflowed, past.refused, past.delivery_limited,
    ) = row


def _remains_row(remains: Remains, columns: _Columns) -> list[object]:
    return [remains.queue_id, encode_settings(remains.settings), _line_row(remains.line, columns)]


def _tombstone_row(queue_id: int, tombstone: Tombstone) -> list[object]:
    return [
        queue_id, tombstone.reason, tombstone.time_ms, tombstone.last_activity_ms, tombstone.messages,
        tombstone.vhost, tombstone.name, USES.index(tombstone.last_use),
    ]


def _queue_row(queue: Queue, columns: _Columns) -> list[object]:
    lease = queue.lease
    single = queue.consumers.single
    return [
        queue.queue_id,
        queue.settings_bytes,
        [lease.epoch, lease.started_ms, lease.last_activity_ms, USES.index(lease.last_use)],
        [
            queue.enqueued, queue.delivered, queue.acknowledged,
            queue.expired, queue.dead_lettered, queue.duplicates,
            queue.overflowed, queue.refused, queue.delivery_limited,
        ],
        list(queue.received.items()),
        _line_row(queue.returned, columns),
        _line_row(queue.ready, columns),
        [_holder_row(holder, columns) for holder in queue.holders.values()],
        [
            [band.priority, [holder.order for holder in band.waiting]]
            for band in queue.consumers.bands
            if band.waiting
        ],
        queue.consumers.single_active,
        0 if single is None else single.order,
        [
            [level.priority, _line_row(level.returned, columns), _line_row(level.ready, columns)]
            for level in queue.levels
            if level.returned.items or level.ready.items
        ],
    ]


def _holder_row(holder: Holder, columns: _Columns) -> list[object]:
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
    ]


def _restore_queue(state: State, row: Any, version: int) -> None:
    (
        queue_id, settings_bytes, lease_row, counters, received, returned, ready, holders, bands,
        single_active, single, *more,
    ) = row
    lease = Lease(0, 0)
    lease.epoch, lease.started_ms, lease.last_activity_ms, last_use = lease_row
    lease.last_use = USES[last_use]
    queue = Queue(queue_id, decode_settings(settings_bytes), settings_bytes, lease, state.messages_per_piece)
    (
        queue.enqueued, queue.delivered, queue.acknowledged,
        queue.expired, queue.dead_lettered, queue.duplicates,
        queue.overflowed, queue.refused, queue.delivery_limited,
    ) = counters
    for source, sequence in received:
        queue.note_received(source, sequence)
    queue.ready_bytes = _restore_line(state, queue.returned, returned, version)
    queue.ready_bytes += _restore_line(state, queue.ready, ready, version)
    for levels in more:
        for priority, returned, ready in levels:
            level = queue.level(priority)
            queue.ready_bytes += _restore_line(state, level.returned, returned, version)
            queue.ready_bytes += _restore_line(state, level.ready, ready, version)
    consumers = queue.consumers
    consumers.single_active = single_active
    for holder_row in holders:
        _restore_holder(state, queue, holder_row)
    for priority, orders in bands:
        band = consumers.band(priority)
        for order in orders:
            holder = queue.holders[order]
            holder.waiting = True
            band.waiting.append(holder)
    if single:
        consumers.single = queue.holders[single]
    state.queues[queue_id] = queue
    if queue.expires_ms >= 0 and lease.suspended_by == 0:
        state.lease_timers.arm(queue_id, lease.started_ms + queue.expires_ms)
    note_due(state, queue)


def _line_row(line: Line, columns: _Columns) -> list[object]:
    """A line as it is cut: what is packed goes as it is. Nothing for an empty line."""
    if line.count() == 0:
        return []
    return [
        columns.pack(line.items, line.head),
        [[packed.count, *packed.columns] for packed in line.packed],
        columns.pack(line.back) if line.back else [],
    ]


def _restore_line(state: State, line: Line, row: Any, version: int) -> int:
    """Fill the line, and count its references; the bytes of its bodies."""
    if not row:
        return 0
    if version == _WHOLE_LINES:
        line.replace(unpack_messages(row))
    else:
        front, pieces, back = row
        items = unpack_messages(front)
        no_priorities = [0] if version == _NO_PRIORITIES else []
        packed = deque([Packed(piece[0], [*piece[1:], *no_priorities]) for piece in pieces])
        ends = items + (unpack_messages(back) if back else [])
        timed = sum([1 for message in ends if message.deadline_ms >= 0])
        for piece in packed:
            timed += sum([1 for deadline_ms in piece.column(DEADLINE_MS) if deadline_ms >= 0])
        line.put_together(items, packed, ends[len(items) :], timed)
    body_bytes = 0
    for messages in (line.items, line.back):
        _retain(state, [message.index for message in messages])
        body_bytes += sum([message.body_length for message in messages])
    for piece in line.packed:
        _retain(state, piece.column(INDEX))
        body_bytes += sum(piece.column(BODY_LENGTH))
    return body_bytes


def _restore_holder(state: State, queue: Queue, row: Any) -> None:
    (
        node, incarnation, holder_id, order, flags, prefetch, priority, last_delivery_id, first_held,
        held_ids, held_messages,
    ) = row
    is_consumer = bool(flags & _CONSUMER)
    local = node == state.local_node
    holder = Holder((node, incarnation), queue.queue_id, holder_id, order, local, is_consumer)
    holder.attached = bool(flags & _ATTACHED)
    holder.active = bool(flags & _ACTIVE)
    holder.no_ack = bool(flags & _NO_ACK)
    holder.exclusive = bool(flags & _EXCLUSIVE)
    holder.prefetch = prefetch
    holder.priority = priority
    holder.last_delivery_id = last_delivery_id
    holder.first_held = first_held
    messages = unpack_messages(held_messages)
    ids = unpack_numbers(held_ids, 0, len(messages), len(held_ids))
    holder.held = dict(zip(ids, messages, strict=True))
    enter_holder(state, queue, holder)
    _retain(state, [message.index for message in messages])
    queue.held_count += len(messages)
    for message in messages:
        queue.held_bytes += message.body_length
    if is_consumer:
        queue.lease.suspended_by += 1
    if holder.attached:
        queue.consumers.count += 1
        queue.consumers.band(priority).members += 1
        if holder.exclusive:
            queue.consumers.exclusive = True


def _outbox_row(outbox: Outbox, columns: _Columns) -> list[object]:
    table: dict[bytes, int] = {}
    places: dict[int, int] = {}
    unrouted = _deaths_row(outbox.unrouted, table, places, columns)
    parked = _deaths_row(outbox.parked.values(), table, places, columns)
    return [
        outbox.next_sequence,
        [
            outbox.routed, outbox.settled, outbox.lost,
            outbox.dropped_cycle, outbox.dropped_unroutable, outbox.dropped_by_operator,
        ],
        list(table),
        unrouted,
        parked,
        [
            [lane.target_shard, lane.target_queue, lane.first_sequence, columns.pack(list(lane.items))]
            for lane in outbox.lanes.values()
        ],
    ]


def _deaths_row(
    deaths: Iterable[Death], table: dict[bytes, int], places: dict[int, int], columns: _Columns
) -> list[object]:
    """Deaths as columns. Settings are written once each (``table``), whether or not deaths share the object.
    """
    rows = list(deaths)
    settings_column: list[int] = []
    for death in rows:
        place = places.get(id(death.settings), -1)
        if place < 0:
            place = table.setdefault(encode_settings(death.settings), len(table))
            places[id(death.settings)] = place
        settings_column.append(place)
    return [
        [
            len(rows),
            _column([death.sequence for death in rows]),
            _column([death.queue_id for death in rows]),
            _column([REASONS.index(death.reason) for death in rows]),
            _column([death.time_ms for death in rows]),
            _column(settings_column),
        ],
        columns.pack([death.message for death in rows]),
    ]


def _restore_deaths(state: State, row: Any, settings: "list[ShardQueueSettings]") -> list[Death]:
    numbers, packed = row
    messages = unpack_messages(packed)
    _retain(state, [message.index for message in messages])
    deaths = []
    for death_row, message in zip(_rows(numbers, _DEATH_COLUMNS), messages, strict=True):
        sequence, queue_id, reason, time_ms, place = death_row
        deaths.append(Death(sequence, queue_id, message, REASONS[reason], time_ms, settings[place]))
    return deaths


def _restore_outbox(state: State, row: Any) -> None:
    next_sequence, counters, table, unrouted, parked, lanes = row
    outbox = state.outbox
    outbox.next_sequence = next_sequence
    (
        outbox.routed, outbox.settled, outbox.lost,
        outbox.dropped_cycle, outbox.dropped_unroutable, outbox.dropped_by_operator,
    ) = counters
    settings = [decode_settings(encoded) for encoded in table]
    outbox.unrouted.extend(_restore_deaths(state, unrouted, settings))
    for death in _restore_deaths(state, parked, settings):
        outbox.parked[death.sequence] = death
    for target_shard, target_queue, first_sequence, packed in lanes:
        lane = Lane(target_shard, target_queue)
        lane.first_sequence = first_sequence
        items = unpack_messages(packed)
        lane.items.extend(items)
        _retain(state, [message.index for message in items])
        outbox.lanes[target_queue] = lane
