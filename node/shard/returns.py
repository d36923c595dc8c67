"""The way back of messages that nobody holds any more. HOT."""

from node.shard.message import Message
from node.shard.outbox import DELIVERY_LIMIT
from node.shard.queue import Queue
from node.shard.state import State


def come_back(
    state: State, queue: Queue, messages: list[Message], to_back: bool, counted: bool = True
) -> None:
    """Messages no longer held come back: the return is counted (unless they were not sent), and they are judged now
    (RULES T10).

    ``to_back``: to the end of the queue instead of before what was never delivered. An expired one that the
    entry's bound leaves for later goes among the returned ones, where it is due.

    With ``State.returns_to_place`` they are in the order in which they were enqueued, else in that of their return.
    """
    now_ms = state.time_ms
    limit = queue.delivery_limit
    retiming = queue.retiming
    for message in messages:
        if retiming is not None:
            message = retiming.of(message)
        body_bytes = message.body_length
        queue.held_bytes -= body_bytes
        back = message.returned() if counted else message
        late = 0 <= back.deadline_ms <= now_ms
        if 0 <= limit < back.delivery_count:
            queue.delivery_limited += 1
            state.died(queue, back, DELIVERY_LIMIT)
        elif late and state.expiry_budget > 0:
            state.expiry_budget -= 1
            state.expired(queue, back)
        else:
            queue.ready_bytes += body_bytes
            if to_back and not late:
                queue.ready_line(back.priority).append(back)
            elif state.returns_to_place:
                queue.returned_line(back.priority).put_back(back)
            else:
                queue.returned_line(back.priority).append(back)
    state.touch(queue)
