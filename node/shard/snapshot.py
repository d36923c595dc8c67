"""The state as bytes and back: the same state gives the same bytes on every replica (RULES C1).

Messages are columns of 64-bit numbers, so that a million of them take well under a second; a column in which
all numbers are the same is that number. What follows from the rest (timers, live counts, sessions, sums) is
not written but made anew.

Millions of messages would keep a node silent for seconds. They never change, so a snapshot can be made in
steps: at first all else is written, and which messages are where; then so many messages in each step. It is read
in such steps, too.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final

import msgspec

from cluster.versions import SHARD_SNAPSHOT_VERSION, SHARD_SNAPSHOT_WITHOUT_WINDOWS
from node.shard.coming import Coming
from node.shard.consumers import Holder
from node.shard.delivery import note_due
from node.shard.errors import ShardError
from node.shard.holders import enter_holder
from node.shard.lease import USES, Lease
from node.shard.line import Line
from node.shard.message import Message
from node.shard.outbox import REASONS, Death, Lane, Outbox
from node.shard.packed import AS_PACKED, BODY_LENGTH, COLUMNS, INDEX, Packed, numbers_of
from node.shard.packing import NUMBER_BYTES, pack_numbers, pack_signed, unpack_numbers, unpack_signed
from node.shard.queue import Queue
from node.shard.remains import Remains
from node.shard.retiming import Retiming
from node.shard.settings import MAX_NUMBER, ShardQueueSettings, decode_settings, decode_terms, encode_settings
from node.shard.state import Past, State
from node.shard.tombstone import GONE_FOR, Tombstone

MESSAGES_PER_STEP: Final = 16_384
"""A few milliseconds of work, compiled: a step is made in each tick."""
_LIST_COSTS: Final = 16
"""However few messages are in a list, it takes as long as so many..."""
_COPIED_AS_ONE: Final = 64
"""...and to copy so many numbers as long as a message."""
_MOST_ALIKE: Final = 1 << 20
"""One message may be in the outbox once for each queue in which it died. More such would be a number that is damaged:
nothing else in the snapshot says that it can't be."""
_DEATH_COLUMNS: Final = 5
_ATTACHED: Final = 1
_CONSUMER: Final = 2
_ACTIVE: Final = 4
_NO_ACK: Final = 8
_EXCLUSIVE: Final = 16
_VERSIONS: Final = (SHARD_SNAPSHOT_WITHOUT_WINDOWS, SHARD_SNAPSHOT_VERSION)


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
    terms: dict[bytes, int] = {}
    rows = [
        _queue_row(queue, terms.setdefault(queue.terms_bytes, len(terms)), columns)
        for queue in state.queues.values()
    ]
    has_windows = any(holder.window_bytes for queue in state.queues.values() for holder in queue.holders.values())
    return [
        SHARD_SNAPSHOT_VERSION if has_windows else SHARD_SNAPSHOT_WITHOUT_WINDOWS,
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
        rows,
        [_tombstone_row(queue_id, tombstone) for queue_id, tombstone in state.deleted.items()],
        _outbox_row(state.outbox, columns),
        [state.queue_expired, [_remains_row(remains, columns) for remains in state.remains]],
        list(terms),
    ]


def restore(state: State, data: bytes) -> None:
    """Fill a new state from a ``snapshot``; ShardError when it is none (the state is then of no use)."""
    reading = RestoreInSteps(state, data, MESSAGES_PER_STEP)
    while not reading.step():
        pass


class RestoreInSteps:
    """Fills a new state from a ``snapshot``, in steps."""

    def __init__(self, state: State, data: bytes, messages_per_step: int) -> None:
        self._work = _restoring(state, data, _Pace(messages_per_step))

    def step(self) -> bool:
        """Read some messages; whether these were the last. ShardError when it is no snapshot (the state is then of no
        use).
        """
        try:
            for _ in self._work:
                return False
        except (
            TypeError, ValueError, LookupError, OverflowError, AttributeError, RecursionError, msgspec.MsgspecError
        ) as error:
            raise ShardError(f"shard snapshot that can't be read: {error!r}") from error
        return True


class _Pace:
    """When it is time for a pause, by work in messages."""

    def __init__(self, per_step: int) -> None:
        self.per_step = per_step
        self._left = per_step

    def is_over(self, work: int) -> bool:
        """So much was done; whether this was a step."""
        self._left -= work
        if self._left > 0:
            return False
        self._left = self.per_step
        return True


def _restoring(state: State, data: bytes, pace: _Pace) -> Iterator[None]:
    """All of it, with a pause after each step."""
    row = msgspec.msgpack.decode(data)
    if row[0] not in _VERSIONS:
        raise ShardError(f"shard snapshot of version {row[0]!r}, one of {_VERSIONS} expected")
    _, times, counters, past, queues, tombstones, outbox, (state.queue_expired, remains), table = row
    state.time_ms, state.led_ms, state.next_order = times
    (
        state.missing_targets, state.transfers_lost, state.refused_transfers, state.refused_routes,
        dead_lettered_for, gone_for,
    ) = counters
    state.dead_lettered_for = dict(zip(REASONS, dead_lettered_for, strict=True))
    state.gone_for = dict(zip(GONE_FOR, gone_for, strict=True))
    _restore_past(state.past, past)
    terms = [(state.shared_terms(terms_bytes), decode_terms(terms_bytes)) for terms_bytes in table]
    for queue_row in queues:
        if pace.is_over(_LIST_COSTS):
            yield
        yield from _restore_queue(state, queue_row, terms, pace)
    for queue_id, reason, time_ms, activity_ms, messages, vhost, name, use in tombstones:
        state.deleted[queue_id] = Tombstone(
            reason, time_ms, activity_ms, messages, vhost, name, USES[use]
        )
        if pace.is_over(1):
            yield
    yield from _restore_outbox(state, outbox, pace)
    for queue_id, settings_bytes, left_row in remains:
        left = _LineReading(Line(state.messages_per_piece))
        yield from left.read(state, left_row, pace)
        state.remains.append(Remains(queue_id, decode_settings(settings_bytes), left.line))


class _Messages:
    """The messages of a ``_Columns.pack``, as they are read."""

    __slots__ = ("body_bytes", "messages", "timed")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.timed = 0
        """How many have a deadline."""
        self.body_bytes = 0

    def read(self, state: State, row: Any, pace: _Pace) -> Iterator[None]:
        """Read them, with pauses, and count their references to their entries."""
        count = _rows_of(row, COLUMNS)
        if count > _MOST_ALIKE and all(isinstance(column, int) for column in row[1:]):
            raise ShardError(f"{count} messages that nothing tells apart, {_MOST_ALIKE} at most expected")
        start = 0
        while start < count:
            stop = min(count, start + pace.per_step)
            self._read_piece(state, [_piece(column, start, stop) for column in row[1:]])
            if pace.is_over(stop - start):
                yield
            start = stop

    def _read_piece(self, state: State, columns: list[Iterable[int]]) -> None:
        live = state.live
        messages = self.messages
        timed = 0
        body_bytes = 0
        for numbers in zip(*columns, strict=True):
            (
                index, offset, key_length, header_length, body_length,
                enqueued_ms, deadline_ms, count, ttl_ms, priority,
            ) = numbers
            messages.append(
                Message(
                    index, offset, key_length, header_length, body_length,
                    enqueued_ms, deadline_ms, count, ttl_ms, priority,
                )
            )
            live[index] = live.get(index, 0) + 1
            body_bytes += body_length
            if deadline_ms >= 0:
                timed += 1
        self.timed += timed
        self.body_bytes += body_bytes


def _rows_of(row: Any, columns: int) -> int:
    """How many rows these columns, behind their length, say they have; ShardError when they have others."""
    count: int = row[0]
    if len(row) != columns + 1:
        raise ShardError(f"{len(row) - 1} columns, {columns} expected")
    for column in row[1:]:
        if not isinstance(column, int) and len(column) != count * NUMBER_BYTES:
            raise ShardError(f"a column of {len(column)} bytes for {count} rows")
    return count


def _piece(column: Any, start: int, stop: int) -> Iterable[int]:
    """Some rows of a column."""
    if isinstance(column, int):
        return repeat(column, stop - start)
    return unpack_signed(column[start * NUMBER_BYTES : stop * NUMBER_BYTES])


def _column(numbers: list[int]) -> object:
    column = _Column()
    column.add(numbers)
    return column.packed()


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


def _queue_row(queue: Queue, terms: int, columns: _Columns) -> list[object]:
    """``terms``: the place of the queue's in the table of them."""
    lease = queue.lease
    single = queue.consumers.single
    return [
        queue.queue_id,
        [queue.vhost, queue.name, terms, *_retiming_row(queue.retiming)],
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


def _retiming_row(retiming: Retiming | None) -> list[int]:
    return [] if retiming is None else [retiming.ttl_ms, retiming.index, retiming.offset]


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
        *_window_row(holder),
    ]


def _window_row(holder: Holder) -> list[int]:
    """Nothing where there is no window: as it was before there were any."""
    return [holder.window_bytes, holder.given_bytes, holder.taken_bytes] if holder.window_bytes else []


def _restore_queue(
    state: State, row: Any, table: "list[tuple[bytes, ShardQueueSettings]]", pace: _Pace
) -> Iterator[None]:
    (
        queue_id, (vhost, name, place, *retiming), lease_row, counters, received, returned, ready, holders, bands,
        single_active, single, levels,
    ) = row
    lease = Lease(0, 0)
    lease.epoch, lease.started_ms, lease.last_activity_ms, last_use = lease_row
    lease.last_use = USES[last_use]
    terms_bytes, terms = table[place]
    queue = Queue(queue_id, vhost, name, terms, terms_bytes, lease, state.messages_per_piece)
    if retiming:
        queue.retiming = Retiming(*retiming)
    (
        queue.enqueued, queue.delivered, queue.acknowledged,
        queue.expired, queue.dead_lettered, queue.duplicates,
        queue.overflowed, queue.refused, queue.delivery_limited,
    ) = counters
    for source, sequence in received:
        queue.note_received(source, sequence)
    line_rows = [(queue.returned, returned), (queue.ready, ready)]
    for priority, returned, ready in levels:
        level = queue.level(priority)
        line_rows += [(level.returned, returned), (level.ready, ready)]
    for line, line_row in line_rows:
        if line_row:
            reading = _LineReading(line)
            yield from reading.read(state, line_row, pace)
            queue.ready_bytes += reading.body_bytes
    consumers = queue.consumers
    consumers.single_active = single_active
    for holder_row in holders:
        yield from _restore_holder(state, queue, holder_row, pace)
    for priority, orders in bands:
        band = consumers.band(priority)
        for order in orders:
            holder = queue.holders[order]
            holder.waiting = True
            band.waiting.append(holder)
    if single:
        consumers.single = queue.holders[single]
    state.queues[queue_id] = queue
    if queue.is_coming():
        state.coming[queue_id] = queue
    if queue.expires_ms >= 0 and lease.suspended_by == 0:
        state.lease_timers.arm(queue_id, lease.started_ms + queue.expires_ms)
    note_due(state, queue)


def _line_row(line: Line, columns: _Columns) -> list[object]:
    """A line as it is cut: what is packed goes as it is. Nothing for an empty line."""
    if line.count() == 0:
        return []
    return [
        columns.pack(line.items, line.head),
        [_piece_row(piece, columns) for piece in line.packed],
        columns.pack(line.back) if line.back else [],
    ]


def _piece_row(piece: Packed | Coming, columns: _Columns) -> list[object]:
    """Packed messages as they are; what is still coming as it was held, behind a 0."""
    if isinstance(piece, Coming):
        retiming_row = _retiming_row(piece.retiming)
        return [0, piece.queue_ttl_ms, piece.counted, retiming_row, columns.pack(piece.held())]
    return [piece.count, piece.queue_ttl_ms, *piece.columns]


class _LineReading:
    """A line of a ``_line_row``, as it is read."""

    __slots__ = ("body_bytes", "line")

    def __init__(self, line: Line) -> None:
        """``line`` is filled in."""
        self.line = line
        self.body_bytes = 0

    def read(self, state: State, row: Any, pace: _Pace) -> Iterator[None]:
        """Read it, with pauses, and count its references."""
        front_row, pieces, back_row = row
        front, back = _Messages(), _Messages()
        yield from front.read(state, front_row, pace)
        packed: deque[Packed | Coming] = deque()
        timed = front.timed
        for piece_row in pieces:
            if piece_row[0] == 0:
                _, ttl_ms, counted, retiming_row, held_row = piece_row
                held = _Messages()
                yield from held.read(state, held_row, pace)
                retiming = Retiming(*retiming_row) if retiming_row else None
                packed.append(Coming(dict(enumerate(held.messages)), counted, retiming, ttl_ms))
                self.body_bytes += held.body_bytes
                continue
            count, queue_ttl_ms, *piece_columns = piece_row
            if not isinstance(queue_ttl_ms, int) or not AS_PACKED <= queue_ttl_ms <= MAX_NUMBER:
                raise ShardError(f"messages packed with the TTL {queue_ttl_ms!r}")
            piece = Packed(count, piece_columns, queue_ttl_ms)
            packed.append(piece)
            timed += self._count(state, piece)
            if pace.is_over(piece.count):
                yield
        if back_row:
            yield from back.read(state, back_row, pace)
        self.body_bytes += front.body_bytes + back.body_bytes
        self.line.put_together(front.messages, packed, back.messages, timed + back.timed)

    def _count(self, state: State, piece: Packed) -> int:
        """What is counted of messages that stay packed; how many of them have a deadline."""
        piece.check(_MOST_ALIKE)
        live = state.live
        for index in piece.column(INDEX):
            live[index] = live.get(index, 0) + 1
        self.body_bytes += sum(piece.column(BODY_LENGTH))
        return piece.timed()


def _restore_holder(state: State, queue: Queue, row: Any, pace: _Pace) -> Iterator[None]:
    (
        node, incarnation, holder_id, order, flags, prefetch, priority, last_delivery_id, first_held,
        held_ids, held_messages, *window_row,
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
    if window_row:
        holder.window_bytes, holder.given_bytes, holder.taken_bytes = window_row
    read = _Messages()
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


class _Deaths:
    """The deaths of a ``_deaths_row``, as they are read."""

    __slots__ = ("deaths",)

    def __init__(self) -> None:
        self.deaths: list[Death] = []

    def read(self, state: State, row: Any, settings: "list[ShardQueueSettings]", pace: _Pace) -> Iterator[None]:
        """Read them, with pauses."""
        numbers, packed = row
        read = _Messages()
        yield from read.read(state, packed, pace)
        count = _rows_of(numbers, _DEATH_COLUMNS)
        if count != len(read.messages):
            raise ShardError(f"{count} deaths of {len(read.messages)} messages")
        for start in range(0, count, pace.per_step):
            stop = min(count, start + pace.per_step)
            columns = [_piece(column, start, stop) for column in numbers[1:]]
            for death_row, message in zip(zip(*columns, strict=True), read.messages[start:stop], strict=True):
                sequence, queue_id, reason, time_ms, place = death_row
                self.deaths.append(Death(sequence, queue_id, message, REASONS[reason], time_ms, settings[place]))
            if pace.is_over(stop - start):
                yield


def _restore_outbox(state: State, row: Any, pace: _Pace) -> Iterator[None]:
    next_sequence, counters, table, unrouted, parked, lanes = row
    outbox = state.outbox
    outbox.next_sequence = next_sequence
    (
        outbox.routed, outbox.settled, outbox.lost,
        outbox.dropped_cycle, outbox.dropped_unroutable, outbox.dropped_by_operator,
    ) = counters
    settings = [decode_settings(encoded) for encoded in table]
    waiting = _Deaths()
    yield from waiting.read(state, unrouted, settings, pace)
    outbox.unrouted.extend(waiting.deaths)
    lost = _Deaths()
    yield from lost.read(state, parked, settings, pace)
    for death in lost.deaths:
        outbox.parked[death.sequence] = death
    for target_shard, target_queue, first_sequence, packed in lanes:
        lane = Lane(target_shard, target_queue)
        lane.first_sequence = first_sequence
        items = _Messages()
        yield from items.read(state, packed, pace)
        lane.items.extend(items.messages)
        outbox.lanes[target_queue] = lane
