"""Dead letters on their way, in the snapshot."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.outbox import ALL_REASONS, Death, Lane, Outbox
from mayfly.node.shard.settings import ShardQueueSettings, decode_settings, encode_settings
from mayfly.node.shard.snapshot.columns import column_of, column_piece, rows_of
from mayfly.node.shard.snapshot.message_columns import MessageColumns, MessagesReading
from mayfly.node.shard.snapshot.pace import WorkPace
from mayfly.node.shard.state import State

_DEATH_COLUMNS: Final = 5
_COUNTERS: Final = 8


def outbox_row(outbox: Outbox, columns: MessageColumns) -> list[object]:
    """The outbox as it is; ``columns`` fills in the messages."""
    table: dict[bytes, int] = {}
    places: dict[int, int] = {}
    unrouted = _deaths_row(outbox.unrouted, table, places, columns)
    parked = _deaths_row(outbox.parked.values(), table, places, columns)
    return [
        outbox.next_sequence,
        [
            outbox.routed, outbox.settled, outbox.lost,
            outbox.dropped_cycle, outbox.dropped_unroutable, outbox.dropped_by_operator,
            # Only where there are delayed exchanges, or journals: earlier releases know of none.
            *([outbox.dropped_due] if outbox.dropped_due or outbox.journaled else []),
            *([outbox.journaled] if outbox.journaled else []),
        ],
        list(table),
        unrouted,
        parked,
        [
            [
                lane.target_shard, lane.target_queue, lane.first_sequence, columns.pack(list(lane.items)),
                *_digests_row(lane),
            ]
            for lane in outbox.lanes.values()
        ],
    ]


def _digests_row(lane: Lane) -> list[object]:
    """Nothing in most lanes: as it was before there were any."""
    return [list(lane.digests.items())] if lane.digests else []


def _deaths_row(
    deaths: Iterable[Death], table: dict[bytes, int], places: dict[int, int], columns: MessageColumns
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
            column_of([death.sequence for death in rows]),
            column_of([death.queue_id for death in rows]),
            column_of([ALL_REASONS.index(death.reason) for death in rows]),
            column_of([death.time_ms for death in rows]),
            column_of(settings_column),
        ],
        columns.pack([death.message for death in rows]),
    ]


def restore_outbox(state: State, row: Any, pace: WorkPace) -> Iterator[None]:
    """Fill the state's outbox from an ``outbox_row``, with pauses."""
    next_sequence, counters, table, unrouted, parked, lanes = row
    outbox = state.outbox
    outbox.next_sequence = next_sequence
    (
        outbox.routed, outbox.settled, outbox.lost,
        outbox.dropped_cycle, outbox.dropped_unroutable, outbox.dropped_by_operator, outbox.dropped_due,
        outbox.journaled,
    ) = [*counters, 0, 0][:_COUNTERS]
    settings = [decode_settings(encoded) for encoded in table]
    waiting = _Deaths()
    yield from waiting.read(state, unrouted, settings, pace)
    outbox.unrouted.extend(waiting.deaths)
    lost = _Deaths()
    yield from lost.read(state, parked, settings, pace)
    for death in lost.deaths:
        outbox.parked[death.sequence] = death
    for target_shard, target_queue, first_sequence, packed, *digests in lanes:
        lane = Lane(target_shard, target_queue)
        lane.first_sequence = first_sequence
        items = MessagesReading()
        yield from items.read(state, packed, pace)
        lane.items.extend(items.messages)
        if digests:
            lane.digests = dict(digests[0])
        queue = state.queues.get(target_queue)
        if queue is not None and queue.has_left:
            lane.find_own()
        outbox.restore_lane(lane)


class _Deaths:
    """The deaths of a ``_deaths_row``, as they are read."""

    __slots__ = ("deaths",)

    def __init__(self) -> None:
        self.deaths: list[Death] = []

    def read(self, state: State, row: Any, settings: "list[ShardQueueSettings]", pace: WorkPace) -> Iterator[None]:
        """Read them, with pauses."""
        numbers, packed = row
        read = MessagesReading()
        yield from read.read(state, packed, pace)
        count = rows_of(numbers, _DEATH_COLUMNS)
        if count != len(read.messages):
            raise ShardError(f"{count} deaths of {len(read.messages)} messages")
        for start in range(0, count, pace.per_step):
            stop = min(count, start + pace.per_step)
            columns = [column_piece(column, start, stop) for column in numbers[1:]]
            for death_row, message in zip(zip(*columns, strict=True), read.messages[start:stop], strict=True):
                sequence, queue_id, reason, time_ms, place = death_row
                self.deaths.append(Death(sequence, queue_id, message, ALL_REASONS[reason], time_ms, settings[place]))
            if pace.is_over(stop - start):
                yield
