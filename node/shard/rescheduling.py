"""CHANGE_SCHEDULED: what waits under a message id is cancelled, or is due at another time (RULES S4). HOT.

The log decides: before it in the log is what it may change, and what was due by then has become ready and stays so. A
message is meant by the digest of its id (`node.shard.message_id`). Two that wait under one id are both meant, and one
that recurs beside them: cancelled it does not come again, and if it is due at another time those that follow count from
there (S6). Of more than an entry may change as many are cancelled, and none is rescheduled (C4).
"""

from typing import Final

from mayfly.node.shard.commands import AFTER, AT, CANCEL, CHANGE_HEAD
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.packing import NUMBER_BYTES, unpack_numbers
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.recurring import UNDECIDED_MS, recurring_digest, take_recurring, wait_on
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.state import State

NOT_WAITING: Final = 0
CHANGED: Final = 1
UNDECIDED: Final = 2


def apply_change_scheduled(state: State, position: int, end: int) -> tuple[int, int]:
    """Apply the CHANGE_SCHEDULED at ``position``: where it ends, and NOT_WAITING, CHANGED or UNDECIDED. CHANGED where
    one of its queues had something under the id; UNDECIDED where one can't tell, or has more than the entry may change
    (C4): the same command is to be given again then."""
    further_at = position + CHANGE_HEAD.size
    if further_at > end:
        raise ShardError(f"CHANGE_SCHEDULED at {position} is cut off")
    _, form, further, first, asked_ms, digest = CHANGE_HEAD.unpack_from(state.data, position)
    due_ms = -1 if form == CANCEL else due_at(state, form, asked_ms)
    outcome = NOT_WAITING
    for queue_id in [first, *unpack_numbers(state.data, further_at, further, end)]:
        queue = state.queues.get(queue_id)
        if queue is None:
            state.missing_targets += 1
        else:
            outcome = max(outcome, _change(state, queue, digest, due_ms))
    return further_at + further * NUMBER_BYTES, outcome


def due_at(state: State, form: int, due_ms: int) -> int:
    """The shard time at which something is due: AFTER or AT. ShardError for another form, or a time too late."""
    if form > AT or due_ms > MAX_NUMBER:
        raise ShardError(f"due in the form {form} at {due_ms}, at most {MAX_NUMBER} expected")
    return state.time_ms + due_ms if form == AFTER else due_ms


def _change(state: State, queue: Queue, digest: bytes, due_ms: int) -> int:
    if queue.is_between_shards:
        return UNDECIDED
    most = 1 + state.change_budget
    if due_ms >= 0 and queue.has_more_named(digest, most):
        # What is put back would be among those that the same command finds when it is given again.
        return UNDECIDED
    recurring = take_recurring(state, queue, recurring_digest(digest))
    taken = queue.take_named(digest, most)
    if not taken and not recurring:
        return NOT_WAITING
    state.change_budget -= max(0, len(taken) - 1)
    schedule = queue.schedule
    more = schedule is not None and len(taken) == most and schedule.has(digest)
    state.touch(queue)
    if due_ms < 0:
        state.release_all(recurring)
        state.release_all(taken)
    else:
        for message in recurring:
            # Due now it comes at the end of the entry, as what is due does.
            due_ms = min(max(due_ms, state.time_ms), UNDECIDED_MS - 1)
            wait_on(state, queue, message.waiting_until(due_ms), recurring_digest(digest))
        for message in taken:
            _put_again(state, queue, message, digest, max(due_ms, state.time_ms))
    return UNDECIDED if more else CHANGED


def _put_again(state: State, queue: Queue, message: Message, digest: bytes, due_ms: int) -> None:
    """Due at another time: its TTL counts from there (RULES S3). What is due now is ready, behind what is; in a delayed
    exchange it leaves as all that is due (S1)."""
    message = message.waiting_until(due_ms).with_deadline(queue.deadline_ms(due_ms, message.ttl_ms))
    if due_ms > state.time_ms or queue.settings.delays:
        queue.wait(message, digest)
        return
    queue.ready_bytes += message.body_length
    queue.ready_line(message.priority).append(message)
