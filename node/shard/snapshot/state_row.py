"""The whole state as a row: clocks, counts, then all that stands in rows of its own."""

from collections.abc import Iterator
from typing import Final

import msgspec

from mayfly.cluster.versions import (
    LEVEL_FAILED_DELIVERIES,
    SHARD_SNAPSHOT_VERSION,
    SHARD_SNAPSHOT_WITH_BRAKES,
    SHARD_SNAPSHOT_WITH_MOVE_NUMBERS,
    SHARD_SNAPSHOT_WITH_MOVES,
    SHARD_SNAPSHOT_WITH_SPECIAL_ROWS,
    SHARD_SNAPSHOT_WITHOUT_LEVEL,
    SHARD_SNAPSHOT_WITHOUT_WINDOWS,
)
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.lease import USES
from mayfly.node.shard.line import Line
from mayfly.node.shard.orphans import Orphans
from mayfly.node.shard.outbox import REASONS
from mayfly.node.shard.settings import decode_settings, decode_terms, encode_settings
from mayfly.node.shard.snapshot.line_row import LineReading, line_row
from mayfly.node.shard.snapshot.message_columns import MessageColumns
from mayfly.node.shard.snapshot.outbox_row import outbox_row, restore_outbox
from mayfly.node.shard.snapshot.pace import LIST_COSTS, WorkPace
from mayfly.node.shard.snapshot.queue_row import queue_row, restore_queue
from mayfly.node.shard.state import State
from mayfly.node.shard.tombstone import GONE_FOR, Tombstone

_VERSIONS: Final = (
    SHARD_SNAPSHOT_WITHOUT_WINDOWS, SHARD_SNAPSHOT_WITHOUT_LEVEL, SHARD_SNAPSHOT_VERSION, SHARD_SNAPSHOT_WITH_MOVES,
    SHARD_SNAPSHOT_WITH_SPECIAL_ROWS, SHARD_SNAPSHOT_WITH_BRAKES, SHARD_SNAPSHOT_WITH_MOVE_NUMBERS,
)


def state_row(state: State, columns: MessageColumns) -> list[object]:
    """The state as it is now, between two entries; ``columns`` fills in the messages, step by step."""
    terms: dict[bytes, int] = {}
    rows = [
        queue_row(queue, terms.setdefault(queue.terms_bytes, len(terms)), columns, state.move_numbers.get(queue_id, 0))
        for queue_id, queue in state.queues.items()
    ]
    times = [state.time_ms, state.led_ms, state.next_order]
    version = _version(state)
    if version >= SHARD_SNAPSHOT_VERSION:
        times.append(state.level)
    if state.pause_until_ms:
        times += (state.pause_from_ms, state.pause_until_ms)
    return [
        version,
        times,
        [
            state.missing_targets, state.transfers_lost, state.refused_transfers, state.refused_routes,
            list(state.dead_lettered_for.values()), list(state.gone_for.values()),
        ],
        state.past.counts_row(),
        rows,
        [_tombstone_row(queue_id, tombstone) for queue_id, tombstone in state.deleted.items()],
        outbox_row(state.outbox, columns),
        [state.queue_expired, [_orphans_row(orphans, columns) for orphans in state.orphans.in_order()]],
        list(terms),
    ]


def _version(state: State) -> int:
    """The oldest that says all of it: replicas of older releases have to read it."""
    if state.move_numbers or any(
        queue.moving is not None and queue.moving.released_sequence for queue in state.queues.values()
    ):
        # As for the next: none has one before the cluster is at that level.
        return SHARD_SNAPSHOT_WITH_MOVE_NUMBERS
    if any(queue.has_failures for queue in state.queues.values()):
        # No queue has one before the cluster is at that level.
        return SHARD_SNAPSHOT_WITH_BRAKES
    waits = any(queue.stream is not None or queue.schedule is not None for queue in state.queues.values())
    if waits or state.redrives or state.pause_until_ms:
        # Whatever this shard was told: nobody schedules, redrives, or has streams, before the cluster is at that level.
        # Pauses are noted from it on.
        return SHARD_SNAPSHOT_WITH_SPECIAL_ROWS
    if state.level >= LEVEL_FAILED_DELIVERIES:
        moves = any(queue.moving is not None for queue in state.queues.values())
        return SHARD_SNAPSHOT_WITH_MOVES if moves else SHARD_SNAPSHOT_VERSION
    has_windows = any(holder.window_bytes for queue in state.queues.values() for holder in queue.holders.values())
    return SHARD_SNAPSHOT_WITHOUT_LEVEL if has_windows else SHARD_SNAPSHOT_WITHOUT_WINDOWS


def restore_state(state: State, data: bytes, pace: WorkPace) -> Iterator[None]:
    """Fill a new state from a snapshot's bytes, with a pause after each step."""
    row = msgspec.msgpack.decode(data)
    if row[0] not in _VERSIONS:
        raise ShardError(f"shard snapshot of version {row[0]!r}, one of {_VERSIONS} expected")
    _, times, counters, past, queues, tombstones, outbox, (state.queue_expired, orphans), table = row
    state.time_ms, state.led_ms, state.next_order, *level = times
    if row[0] >= SHARD_SNAPSHOT_VERSION:
        state.level, *pause = level
        if pause:
            state.pause_from_ms, state.pause_until_ms = pause
    (
        state.missing_targets, state.transfers_lost, state.refused_transfers, state.refused_routes,
        dead_lettered_for, gone_for,
    ) = counters
    state.dead_lettered_for = dict(zip(REASONS, dead_lettered_for, strict=True))
    state.gone_for = dict(zip(GONE_FOR, gone_for, strict=True))
    state.past.restore_counts(past)
    terms = [(state.shared_terms(terms_bytes), decode_terms(terms_bytes)) for terms_bytes in table]
    for each in queues:
        if pace.is_over(LIST_COSTS):
            yield
        yield from restore_queue(state, each, terms, pace)
    for queue_id, reason, time_ms, activity_ms, messages, vhost, name, use in tombstones:
        state.deleted[queue_id] = Tombstone(
            reason, time_ms, activity_ms, messages, vhost, name, USES[use]
        )
        if pace.is_over(1):
            yield
    yield from restore_outbox(state, outbox, pace)
    for queue_id, settings_bytes, left_row in orphans:
        left = LineReading(Line(state.messages_per_piece))
        yield from left.read(state, left_row, pace)
        state.orphans.add(Orphans(queue_id, decode_settings(settings_bytes), left.line, []))


def _orphans_row(orphans: Orphans, columns: MessageColumns) -> list[object]:
    return [orphans.queue_id, encode_settings(orphans.settings), line_row(orphans.line, columns)]


def _tombstone_row(queue_id: int, tombstone: Tombstone) -> list[object]:
    return [
        queue_id, tombstone.reason, tombstone.time_ms, tombstone.last_activity_ms, tombstone.messages,
        tombstone.vhost, tombstone.name, USES.index(tombstone.last_use),
    ]
