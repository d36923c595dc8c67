"""TRANSACTION: publishes and settlements of one client that this shard applies together or not at all."""

from mayfly.node.shard.commands import (
    DISCARD,
    GIVE_BACK,
    LIST,
    NUMBER,
    NUMBER_PAIR,
    PUBLISH,
    RANGE,
    REJECT,
    SETTLE,
    SETTLE_HEAD,
    TRANSACTION_HEAD,
    UP_TO,
)
from mayfly.node.shard.delivery import has_room_for
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.holders import find
from mayfly.node.shard.packing import unpack_numbers
from mayfly.node.shard.publish import OnePublish, apply_publish_later, apply_publishes
from mayfly.node.shard.results import FULL, NOT_HELD, Applied, Refused
from mayfly.node.shard.settle import apply_settle
from mayfly.node.shard.state import State


def apply_transaction(state: State, session: tuple[int, int], position: int, end: int, results: list[object]) -> int:
    """Apply the TRANSACTION at ``position``; where it ends. Appends its answer, Applied or Refused.

    Everything is read before anything is done: ShardError for what does not fit, and nothing of it is applied.

    A node whose session ends while this is on its way sends it again in its next session. What it settles has been
    taken back then, and goes to others, who may give for it as well: the publishes must not count either.
    """
    _, publishes, size_bytes = TRANSACTION_HEAD.unpack_from(state.data, position)
    first = position + TRANSACTION_HEAD.size
    stop: int = first + size_bytes
    if stop > end:
        raise ShardError(f"TRANSACTION at {position} reaches to {stop}, its batch to {end}")
    asked: dict[int, tuple[int, int, int]] = {}
    nowhere: list[int] = []
    settles_at = first
    for number in range(publishes):
        one = OnePublish(state, settles_at, stop)
        settles_at = one.stop
        _ask(state, one, asked)
        if state.queues.keys().isdisjoint(one.queue_ids):
            nowhere.append(number)
    after = settles_at
    is_held = True
    while after < stop:
        settle_at = after
        after = _end_of_settle(state.data, settle_at, stop)
        is_held = is_held and _is_held(state, session, settle_at, after)
    if not is_held:
        results.append(Refused(NOT_HELD))
        return stop
    if _is_too_much(state, asked):
        results.append(Refused(FULL))
        return stop
    after = first
    while after < settles_at:
        later = state.data[after] != PUBLISH
        after = apply_publish_later(state, after, settles_at) if later else apply_publishes(state, after, settles_at)
    while after < stop:
        after = apply_settle(state, session, after, stop)
    results.append(Applied(nowhere))
    return stop


def _ask(state: State, one: OnePublish, asked: dict[int, tuple[int, int, int]]) -> None:
    """Add a publish to what is asked of each queue that may refuse: messages, bytes of bodies, and what they count for
    in a consumer's window."""
    content = one.content
    for queue_id in one.queue_ids:
        queue = state.queues.get(queue_id)
        if queue is not None and (queue.refuses or queue.is_mirror):
            messages, body_bytes, counted_bytes = asked.get(queue_id, (0, 0, 0))
            asked[queue_id] = (messages + 1, body_bytes + content.body_length, counted_bytes + content.counted_bytes)


def _end_of_settle(data: bytes, position: int, stop: int) -> int:
    """Where the SETTLE at ``position`` ends."""
    if position + SETTLE_HEAD.size > stop or data[position] != SETTLE:
        raise ShardError(f"SETTLE of a TRANSACTION expected at {position}")
    _, outcome, form, count, _, _ = SETTLE_HEAD.unpack_from(data, position)
    lengths: dict[int, int] = {LIST: count * NUMBER.size, UP_TO: NUMBER.size, RANGE: NUMBER_PAIR.size}
    if form not in lengths or (outcome > REJECT and outcome not in (GIVE_BACK, DISCARD)):
        raise ShardError(f"SETTLE of unknown form {form} or outcome {outcome}")
    after: int = position + SETTLE_HEAD.size + lengths[form]
    if after > stop:
        raise ShardError(f"SETTLE at {position} reaches to {after} of {stop}")
    return after


def _is_held(state: State, session: tuple[int, int], position: int, end: int) -> bool:
    """Whether the session holds all that the SETTLE at ``position`` names. What went with its queue comes to nobody
    any more: that counts as held. Of UP_TO only the last is looked at."""
    _, _, form, count, queue_id, holder_id = SETTLE_HEAD.unpack_from(state.data, position)
    if queue_id not in state.queues:
        return True
    holder = find(state, session, queue_id, holder_id)
    if holder is None:
        return False
    held = holder.held
    names_at = position + SETTLE_HEAD.size
    if form == LIST:
        return all(number in held for number in unpack_numbers(state.data, names_at, count, end))
    if form == UP_TO:
        return NUMBER.unpack_from(state.data, names_at)[0] in held
    first, last = NUMBER_PAIR.unpack_from(state.data, names_at)
    return last - first < len(held) and all(number in held for number in range(first, last + 1))


def _is_too_much(state: State, asked: dict[int, tuple[int, int, int]]) -> bool:
    """Whether a queue has no room for all of its publishes, as a mirror never has (RULES J4); those that have none
    count them as refused."""
    refused = False
    for queue_id, (messages, body_bytes, counted_bytes) in asked.items():
        queue = state.queues[queue_id]
        if queue.is_mirror or not has_room_for(state, queue, messages, body_bytes, counted_bytes):
            queue.refused += messages
            refused = True
    return refused
