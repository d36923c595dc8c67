"""ROUTE_NOTED applied: decisions about deaths of which some are records of journals (RULES R4, D6-D8). HOT."""

from mayfly.node.shard.commands import NUMBER_PAIR, PARKED
from mayfly.node.shard.dead_letters import apply_decision, next_death, note_run, takes_straight, without_route
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import NO_DEADLINE, NO_TTL, Message
from mayfly.node.shard.noted_commands import NOTE_HEAD, NOTED_HEAD
from mayfly.node.shard.outbox import Death
from mayfly.node.shard.packing import u16_at, u32_at
from mayfly.node.shard.state import State


class _Journal:
    """Where records of the command go, and those that do."""

    __slots__ = ("deadline_ms", "is_mirror", "place", "records", "step", "target", "target_shard")

    def __init__(self, state: State, target_shard: int, target: int) -> None:
        self.target_shard = target_shard
        self.target = target
        queue = None if target_shard else state.queues.get(target)
        self.is_mirror = queue is not None and queue.is_mirror
        """Nothing but its stream's messages goes into it (RULES J4)."""
        self.records: list[Message] = []
        self.deadline_ms = NO_DEADLINE
        self.place = 0
        """Of the next record, in a stream that takes it as it is, and..."""
        self.step = 0
        """...how much further the one behind that is."""
        if queue is not None and queue.stream is not None and takes_straight(queue):
            self.deadline_ms = queue.deadline_ms(state.time_ms, NO_TTL)
            self.place, self.step = queue.stream.next_offset, 1


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
        journals.append(_Journal(state, target_shard, target))
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
    entry, now_ms = state.index, state.time_ms
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
            # As NOTE_HEAD has them.
            key_length, header_length = u16_at(data, position + 1), u32_at(data, position + 3)
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
            journal.records.append(
                Message(entry, offset, key_length, header_length, 0, now_ms, journal.deadline_ms, journal.place)
            )
            journal.place += journal.step
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
