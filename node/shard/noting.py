"""ROUTE_NOTED applied: decisions about deaths of which some are records of journals (RULES R4, D6-D8). HOT."""

from mayfly.node.shard.commands import NUMBER_PAIR, PARKED
from mayfly.node.shard.dead_letters import Arrival, apply_decision, next_death, note_run, without_route
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.noted_commands import NOTE_HEAD, NOTED_HEAD
from mayfly.node.shard.outbox import Death
from mayfly.node.shard.state import State


class _Journal:
    """Where records of the command go, and those that do."""

    __slots__ = ("is_mirror", "records", "target", "target_shard")

    def __init__(self, target_shard: int, target: int, is_mirror: bool) -> None:
        self.target_shard = target_shard
        self.target = target
        self.is_mirror = is_mirror
        """Nothing but its stream's messages goes into it (RULES J4)."""
        self.records: list[Arrival] = []


def apply_route_noted(state: State, position: int, end: int) -> int:
    """Apply the ROUTE_NOTED at ``position``; where it ends. What counts, and what is refused, is as in
    `node.shard.dead_letters.apply_route`; records come together, behind what else the command brings."""
    data = state.data
    _, count, sequence, number_of_journals = NOTED_HEAD.unpack_from(data, position)
    position += NOTED_HEAD.size
    if position + number_of_journals * NUMBER_PAIR.size > end:
        raise ShardError(f"ROUTE_NOTED of {number_of_journals} journals at {position}, its batch ends at {end}")
    journals: list[_Journal] = []
    for _ in range(number_of_journals):
        target_shard, target = NUMBER_PAIR.unpack_from(data, position)
        queue = None if target_shard else state.queues.get(target)
        journals.append(_Journal(target_shard, target, queue is not None and queue.is_mirror))
        position += NUMBER_PAIR.size
    try:
        return _apply_decisions(state, position, end, count, sequence, journals)
    finally:
        for journal in journals:
            if journal.records:
                note_run(state, journal.records, journal.target_shard, journal.target)


def _apply_decisions(
    state: State, position: int, end: int, count: int, sequence: int, journals: list[_Journal]
) -> int:
    """The decisions, of which those about records gather in their journals; where they end."""
    data = state.data
    head_bytes = NOTE_HEAD.size
    # Many in a row refer to one entry: they are counted off together.
    index = -1
    noted = 0
    try:
        for number_of_death in range(sequence, sequence + count):
            if position >= end:
                raise ShardError(f"ROUTE_NOTED is cut off at {position}")
            number = data[position]
            if not number:
                position = apply_decision(state, position + 1, end)
                continue
            if position + head_bytes > end:
                raise ShardError(f"ROUTE_NOTED is cut off at {position}")
            _, key_length, header_length = NOTE_HEAD.unpack_from(data, position)
            offset = position + head_bytes
            position = offset + key_length + header_length
            if position > end or number > len(journals):
                raise ShardError(
                    f"record for journal {number} of {len(journals)} reaches to {position}, its batch to {end}"
                )
            death = next_death(state, number_of_death)
            if death is None:
                continue
            journal = journals[number - 1]
            if journal.is_mirror:
                _do_without(state, death)
                continue
            journal.records.append((offset, key_length, header_length, 0, False))
            if death.message.index != index:
                if noted:
                    state.release(index, noted)
                index = death.message.index
                noted = 0
            noted += 1
    finally:
        if noted:
            state.release(index, noted)
    return position


def _do_without(state: State, death: Death) -> None:
    """The record has no journal."""
    if without_route(death) == PARKED:
        state.outbox.parked[death.sequence] = death
    else:
        state.outbox.dropped_unroutable += 1
        state.release(death.message.index, 1)
