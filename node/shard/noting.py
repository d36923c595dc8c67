"""ROUTE_NOTED applied: decisions about deaths of which some are records of journals (RULES R4, D6-D8). HOT."""

from mayfly.node.shard.commands import NUMBER_PAIR, PARKED
from mayfly.node.shard.dead_letters import apply_decision, arriving, move_away, move_here, next_death, without_route
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.noted_commands import NOTE_HEAD, NOTED_HEAD
from mayfly.node.shard.outbox import Death
from mayfly.node.shard.state import State


def apply_route_noted(state: State, position: int, end: int) -> int:
    """Apply the ROUTE_NOTED at ``position``; where it ends. What counts, and what is refused, is as in
    `node.shard.dead_letters.apply_route`."""
    data = state.data
    _, count, sequence, journals = NOTED_HEAD.unpack_from(data, position)
    position += NOTED_HEAD.size
    if position + journals * NUMBER_PAIR.size > end:
        raise ShardError(f"ROUTE_NOTED of {journals} journals at {position}, its batch ends at {end}")
    targets: list[tuple[int, int]] = []
    for _ in range(journals):
        target_shard, target = NUMBER_PAIR.unpack_from(data, position)
        targets.append((target_shard, target))
        position += NUMBER_PAIR.size
    for _ in range(count):
        if position >= end:
            raise ShardError(f"ROUTE_NOTED is cut off at {position}")
        number = data[position]
        if not number:
            position = apply_decision(state, position + 1, end)
            sequence += 1
            continue
        if position + NOTE_HEAD.size > end:
            raise ShardError(f"ROUTE_NOTED is cut off at {position}")
        _, key_length, header_length = NOTE_HEAD.unpack_from(data, position)
        offset = position + NOTE_HEAD.size
        position = offset + key_length + header_length
        if position > end or number > journals:
            raise ShardError(f"record for journal {number} of {journals} reaches to {position}, its batch to {end}")
        death = next_death(state, sequence)
        sequence += 1
        if death is not None:
            target_shard, target = targets[number - 1]
            _note(state, death, arriving(state, offset, key_length, header_length, 0, False), target_shard, target)
    return position


def _note(state: State, death: Death, record: Message, target_shard: int, target: int) -> None:
    """The record goes to its journal, of this shard where there is no other."""
    outbox = state.outbox
    if target_shard:
        move_away(state, record, target_shard, target)
    else:
        queue = state.queues.get(target)
        if queue is not None and queue.is_mirror:
            # Nothing but its stream's messages goes into it (RULES J4).
            if without_route(death) == PARKED:
                outbox.parked[death.sequence] = death
            else:
                outbox.dropped_unroutable += 1
                state.release(death.message.index, 1)
            return
        move_here(state, record, target)
    outbox.journaled += 1
    state.release(death.message.index, 1)
