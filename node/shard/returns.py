"""The way back of messages that nobody holds any more. HOT."""

from typing import Final

from mayfly.node.shard.delivery import put_back
from mayfly.node.shard.dialect import LAVINMQ
from mayfly.node.shard.message import FAILED, GIVEN_BACK, NOT_SENT, Message
from mayfly.node.shard.outbox import DELIVERY_LIMIT
from mayfly.node.shard.queue import UNLIMITED, Queue
from mayfly.node.shard.returning import ReturningMessages
from mayfly.node.shard.state import State

_MORE_THAN_FEW: Final = 100


def come_back(
    state: State, queue: Queue, messages: list[Message], to_back: bool, way: int
) -> None:
    """Messages no longer held come back, in one of the ways of `node.shard.message`, and are judged now (RULES T10).

    ``to_back``: to the end of the queue instead of before what was never delivered. An expired one that the
    entry's bound leaves for later goes among the returned ones, where it is due.

    With ``State.returns_to_place`` they are in the order in which they were enqueued, else in that of their return.
    Where the queue has ``retries`` for them they wait first, at most until their deadline, when they die (RULES S5).
    """
    way = _way_in(queue, way)
    state.return_budget -= len(messages)
    now_ms = state.time_ms
    limit = queue.delivery_limit
    retiming = queue.retiming
    retries = queue.retries
    if retries is not None and not retries.wait(way):
        retries = None
    for message in messages:
        if retiming is not None:
            message = retiming.of(message)
        body_bytes = message.body_length
        queue.held_bytes -= body_bytes
        back = message.returned(way)
        late = 0 <= back.deadline_ms <= now_ms
        if 0 <= limit < back.delivery_count:
            queue.delivery_limited += 1
            state.died(queue, back, DELIVERY_LIMIT)
        elif late and state.expiry_budget > 0:
            state.expiry_budget -= 1
            state.expired(queue, back)
        elif retries is not None and not late:
            due_ms = now_ms + retries.delay_ms(back, state.index)
            if 0 <= back.deadline_ms < due_ms:
                due_ms = back.deadline_ms
            queue.wait(back.waiting_until(due_ms))
        else:
            queue.ready_bytes += body_bytes
            if to_back and not late:
                queue.ready_line(back.priority).append(back)
            else:
                put_back(state, queue, back)
    state.touch(queue)


def come_back_together(
    state: State, queue: Queue, held: dict[int, Message], held_bytes: int, to_back: bool, way: int
) -> bool:
    """Very many messages come back: what was held, its ``held_bytes``, stands in line as it is.

    False, and nothing has happened, where each has to be judged or put in its own place: with priorities, with
    ``State.returns_to_place``, where they wait, and when some come back too often. Those that are late die when they
    are next (T6).
    """
    way = _way_in(queue, way)
    retries = queue.retries
    if state.returns_to_place or (retries is not None and retries.wait(way)):
        return False
    limit = queue.delivery_limit if way != NOT_SENT and queue.delivery_limit >= 0 else UNLIMITED
    if way == FAILED:
        limit -= 1
    by_priority = to_back or not queue.default_priority
    for message in held.values():
        if (message.priority and by_priority) or message.delivery_count > limit:
            return False
    line = queue.ready if to_back else queue.returned
    line.append_returning(ReturningMessages(held, way, queue.retiming))
    queue.held_bytes -= held_bytes
    queue.ready_bytes += held_bytes
    state.returning.add(queue)
    state.touch(queue)
    return True


def _way_in(queue: Queue, way: int) -> int:
    """In the dialect of LavinMQ every return counts towards the delivery limit (RULES X1)."""
    return FAILED if way == GIVEN_BACK and queue.dialect == LAVINMQ else way


def are_too_many(state: State, count: int) -> bool:
    """Whether so many come back together, if they can: more than this entry may still deal with one by one."""
    return count > max(state.return_budget, state.returned_per_entry // _MORE_THAN_FEW)


def settle_returning(state: State) -> None:
    """Some of what is still returning arrives, in the order of the queues (RULES C4)."""
    left = state.returned_per_entry
    while left > 0:
        queue = state.returning.take()
        if queue is None:
            break
        for line in (queue.returned, queue.ready):
            while left > 0 and line.returning:
                left -= line.settle_returning()
        if not queue.is_returning():
            state.returning.remove(queue.queue_id)
    state.returning.put_back()
