"""What a command's octets ask for: a head is read here, and the module that keeps the promise is called.

PUBLISH and SETTLE, of which there are most, are not among them: `node.shard.shard.Shard.apply` calls theirs itself.
"""

import struct

from mayfly.cluster.group.sessions import SessionKey
from mayfly.node.shard import (
    commands,
    dead_letters,
    holders,
    moves,
    noted_commands,
    noting,
    queues,
    recurring,
    redriving,
    stream_copies,
)
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import GIVEN_BACK
from mayfly.node.shard.packing import NUMBER_BYTES, unpack_numbers
from mayfly.node.shard.publish import apply_guarded
from mayfly.node.shard.results import Applied, Detached
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.state import State
from mayfly.node.shard.stream import AT_THE_END, SINCE, Start
from mayfly.node.shard.transaction import apply_transaction


def apply_client_command(
    state: State, kind: int, session: SessionKey | None, position: int, end: int, results: list[object]
) -> int:
    """One command of a session other than PUBLISH and SETTLE; where it ends. Appends its answer, if it has one.

    ShardError, or struct.error, for octets that are not such a command."""
    data = state.data
    # A chain and no table: compiled it is a switch, and the quicker of the two (docs/decisions/build.md, 1).
    if kind == commands.GET:
        after = _after(commands.GET_HEAD, position, end)
        _, no_ack, queue_id, holder_id = commands.GET_HEAD.unpack_from(data, position)
        results.append(holders.get(state, required(session), queue_id, holder_id, no_ack != 0))
    elif kind == commands.ATTACH:
        after = _attach(state, session, position, end, results)
    elif kind == commands.DETACH:
        after = _after(commands.CONSUMER_HEAD, position, end)
        _, way, queue_id, consumer_id = commands.CONSUMER_HEAD.unpack_from(data, position)
        if way > GIVEN_BACK:
            raise ShardError(f"DETACH in the unknown way {way}")
        holders.detach(state, required(session), queue_id, consumer_id, way)
        results.append(Detached())
    elif kind == commands.FLOW:
        after = _after(commands.CONSUMER_HEAD, position, end)
        _, flag, queue_id, consumer_id = commands.CONSUMER_HEAD.unpack_from(data, position)
        holders.flow(state, required(session), queue_id, consumer_id, flag != 0)
    elif kind == commands.PREFETCH:
        after = _after(commands.PREFETCH_HEAD, position, end)
        _, prefetch, queue_id, consumer_id = commands.PREFETCH_HEAD.unpack_from(data, position)
        holders.set_prefetch(state, required(session), queue_id, consumer_id, prefetch)
    elif kind == commands.TAKEN:
        after = _after(commands.TAKEN_HEAD, position, end)
        _, queue_id, consumer_id, taken_bytes = commands.TAKEN_HEAD.unpack_from(data, position)
        holders.note_taken(state, required(session), queue_id, consumer_id, taken_bytes)
    elif kind == commands.PUBLISH_GUARDED:
        _after(commands.LIST_HEAD, position, end)
        after = apply_guarded(state, position, end, results)
    elif kind == commands.TRANSACTION:
        _after(commands.TRANSACTION_HEAD, position, end)
        after = apply_transaction(state, required(session), position, end, results)
    elif kind == commands.CREATE_QUEUE:
        after, queue_id, settings = _settings(data, position, end)
        results.append(queues.create_queue(state, queue_id, settings, session is None))
    elif kind == commands.TOUCH_QUEUE:
        after = _after(commands.QUEUE_HEAD, position, end)
        _, queue_id = commands.QUEUE_HEAD.unpack_from(data, position)
        results.append(queues.touch_queue(state, queue_id))
    elif kind == commands.PURGE:
        after = _after(commands.QUEUE_HEAD, position, end)
        _, queue_id = commands.QUEUE_HEAD.unpack_from(data, position)
        results.append(queues.purge(state, queue_id))
    elif kind == commands.DELETE_QUEUE:
        after = _after(commands.DELETE_HEAD, position, end)
        _, flags, queue_id = commands.DELETE_HEAD.unpack_from(data, position)
        if_unused = (flags & commands.FLAG_IF_UNUSED) != 0
        if_empty = (flags & commands.FLAG_IF_EMPTY) != 0
        results.append(queues.delete_queue(state, queue_id, if_unused, if_empty))
    elif kind == commands.CROSS:
        after = _after(commands.NUMBERED_HEAD, position, end)
        _, queue_id, up_to = commands.NUMBERED_HEAD.unpack_from(data, position)
        results.append(moves.cross(state, queue_id, up_to))
    elif kind == commands.DELETE_OFFSET:
        after = _after(commands.NUMBERED_HEAD, position, end)
        _, queue_id, offset = commands.NUMBERED_HEAD.unpack_from(data, position)
        results.append(queues.delete_offset(state, queue_id, offset))
    elif kind == commands.PURGE_KEY:
        key_at = _after(commands.PURGE_KEY_HEAD, position, end)
        _, length, queue_id, up_to = commands.PURGE_KEY_HEAD.unpack_from(data, position)
        after = key_at + length
        results.append(queues.purge_key(state, queue_id, _key(data, key_at, length, end), up_to))
    elif kind == commands.START_REDRIVE:
        _after(commands.START_REDRIVE_HEAD, position, end)
        after = redriving.start_redrive(state, position, end, results)
    elif kind == commands.CHANGE_REDRIVE:
        after = _after(commands.CHANGE_REDRIVE_HEAD, position, end)
        results.append(redriving.change_redrive(state, position))
    elif kind == commands.RELEASE_BRAKE:
        after = _after(commands.QUEUE_HEAD, position, end)
        _, queue_id = commands.QUEUE_HEAD.unpack_from(data, position)
        results.append(queues.release_brake(state, queue_id))
    elif kind == commands.NOOP:
        after = position + 1
        results.append(Applied())
    else:
        raise ShardError(f"unknown command {kind} at {position}")
    return after


def apply_internal_command(state: State, kind: int, position: int, end: int) -> int:
    """One command of the leader; where it ends. Raises as `apply_client_command`."""
    data = state.data
    if kind == commands.EXPIRE_DUE:
        state.expiry_due = True
        return position + 1
    if kind == commands.ROUTE:
        _after(commands.LIST_HEAD, position, end)
        return dead_letters.apply_route(state, position, end)
    if kind == commands.ROUTE_NOTED:
        _after(noted_commands.NOTED_HEAD, position, end)
        return noting.apply_route_noted(state, position, end)
    if kind in (commands.TRANSFER, commands.TRANSFER_MARKED):
        _after(commands.TRANSFER_HEAD, position, end)
        return dead_letters.apply_transfer(state, position, end)
    if kind == commands.TRANSFER_MOVED:
        _after(commands.TRANSFER_MOVED_HEAD, position, end)
        return moves.apply_transfer_moved(state, position, end)
    if kind == commands.TRANSFER_COPIES:
        _after(commands.TRANSFER_COPIES_HEAD, position, end)
        return stream_copies.apply_transfer_copies(state, position, end)
    if kind == commands.MOVE_IN:
        _after(commands.MOVE_HEAD, position, end)
        return moves.apply_move_in(state, position, end)
    if kind == commands.REDRIVE:
        _after(commands.REDRIVE_HEAD, position, end)
        return redriving.apply_redrive(state, position, end)
    if kind == commands.UPDATE_QUEUES:
        terms_at = _after(commands.TERMS_HEAD, position, end)
        length: int
        count: int
        _, length, count = commands.TERMS_HEAD.unpack_from(data, position)
        ids_at = terms_at + length
        ids = unpack_numbers(data, ids_at, count, end)
        queues.update_queues(state, position, data[terms_at:ids_at], ids)
        return ids_at + count * NUMBER_BYTES
    if kind in (commands.EXPIRE_QUEUE, commands.SETTLED, commands.MOVE_OUT):
        after = _after(commands.NUMBERED_HEAD, position, end)
        _, queue_id, number = commands.NUMBERED_HEAD.unpack_from(data, position)
        if kind == commands.EXPIRE_QUEUE:
            queues.expire_queue(state, queue_id, number)
        elif kind == commands.MOVE_OUT:
            moves.move_out(state, queue_id, number, 0)
        else:
            dead_letters.settled(state, queue_id, number)
        return after
    if kind == commands.MOVE_OUT_NUMBERED:
        after = _after(commands.MOVE_OUT_HEAD, position, end)
        _, target_shard, queue_id, number = commands.MOVE_OUT_HEAD.unpack_from(data, position)
        moves.move_out(state, queue_id, target_shard, number)
        return after
    if kind in (commands.LANE_CLOSED, commands.DROP_QUEUE):
        after = _after(commands.QUEUE_HEAD, position, end)
        _, queue_id = commands.QUEUE_HEAD.unpack_from(data, position)
        if kind == commands.LANE_CLOSED:
            dead_letters.lane_closed(state, queue_id)
        else:
            queues.drop_queue(state, queue_id)
        return after
    if kind == commands.NEXT_TIMES:
        _after(commands.LIST_HEAD, position, end)
        return recurring.apply_next_times(state, position, end)
    if kind == commands.RAISE_LEVEL:
        after = _after(commands.LEVEL_HEAD, position, end)
        queues.raise_level(state, commands.LEVEL_HEAD.unpack_from(data, position)[1])
        return after
    return _apply_listed(state, kind, position, end)


def _apply_listed(state: State, kind: int, position: int, end: int) -> int:
    """One command of the leader that is a list of numbers."""
    after = _after(commands.LIST_HEAD, position, end)
    count: int = commands.LIST_HEAD.unpack_from(state.data, position)[1]
    if not commands.FORGET_DELETED <= kind <= commands.DROP_PARKED:
        raise ShardError(f"unknown command {kind} at {position}")
    for number in unpack_numbers(state.data, after, count, end):
        if kind == commands.FORGET_DELETED:
            state.deleted.pop(number, None)
        elif kind == commands.RETRY_PARKED:
            dead_letters.retry_parked(state, number)
        elif kind == commands.DROP_PARKED:
            dead_letters.drop_parked(state, number)
    return after + count * NUMBER_BYTES


def required(session: SessionKey | None) -> SessionKey:
    """The session of a command that only one can give; ShardError for the leader."""
    if session is None:
        raise ShardError("a command of consumers without a session")
    return session


def _attach(state: State, session: SessionKey | None, position: int, end: int, results: list[object]) -> int:
    """ATTACH; where it ends."""
    data = state.data
    after = _after(commands.ATTACH_HEAD, position, end)
    head = commands.ATTACH_HEAD.unpack_from(data, position)
    _, flags, prefetch, queue_id, consumer_id, priority = head
    no_ack = (flags & commands.FLAG_NO_ACK) != 0
    exclusive = (flags & commands.FLAG_EXCLUSIVE) != 0
    window_bytes = 0
    if flags & commands.FLAG_WINDOW:
        window_at = after
        after = _after(commands.WINDOW, window_at, end)
        (window_bytes,) = commands.WINDOW.unpack_from(data, window_at)
    again = (flags & commands.FLAG_AGAIN) != 0
    start = AT_THE_END
    if flags & commands.FLAG_START:
        start_at = after
        after = _after(commands.START, start_at, end)
        kind, number = commands.START.unpack_from(data, start_at)
        if kind > SINCE or number > MAX_NUMBER:
            raise ShardError(f"ATTACH that begins at {kind}, {number}")
        start = Start(kind, number)
    key: bytes | None = None
    if flags & commands.FLAG_KEY:
        key_at = _after(commands.KEY_LENGTH, after, end)
        key = _key(data, key_at, data[after], end)
        after = key_at + len(key)
    results.append(
        holders.attach(
            state, required(session), queue_id, consumer_id, prefetch, no_ack, exclusive, priority, window_bytes, again,
            start, key,
        )
    )
    return after


def _key(data: bytes, position: int, length: int, end: int) -> bytes:
    """The routing key in a command."""
    if position + length > end:
        raise ShardError(f"routing key at {position} reaches to {position + length}, its batch to {end}")
    return data[position : position + length]


def _after(head: struct.Struct, position: int, end: int) -> int:
    """Where a command of this fixed size ends; ShardError when the batch ends before."""
    after = position + head.size
    if after > end:
        raise ShardError(f"command at {position} reaches to {after}, its batch to {end}")
    return after


def _settings(data: bytes, position: int, end: int) -> tuple[int, int, bytes]:
    """End, queue and settings of a CREATE_QUEUE."""
    after = _after(commands.SETTINGS_HEAD, position, end)
    _, length, queue_id = commands.SETTINGS_HEAD.unpack_from(data, position)
    if after + length > end:
        raise ShardError(f"settings at {after} reach to {after + length}, their batch to {end}")
    return after + length, queue_id, data[after : after + length]
