"""What consumers of a stream are given: each what is behind its own place, in the order of the offsets. HOT.

A message that was delivered is held until it is acknowledged, as a queue's is, and holds on to its entry of the log: so
it can be told again to a node that missed it. Whatever else a consumer says of it means the same.
"""

from typing import Final

from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.effects import Deliver
from mayfly.node.shard.errors import BrokenInvariant
from mayfly.node.shard.message import Message
from mayfly.node.shard.portion import Portion
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.state import State
from mayfly.node.shard.stream import Start, Stream
from mayfly.node.shard.stream_line import find, read

_LOOKED_AT_AS_ONE: Final = 8
"""So many messages that are passed over count as one that is delivered."""
_TURN: Final = 512
"""Messages that a consumer is given before it is the next one's turn."""


def begin(state: State, queue: Queue, holder: Holder, start: Start, key: bytes | None) -> None:
    """A consumer that is being attached gets its place; with a ``key``, among the messages with that routing key."""
    stream = queue.stream
    assert stream is not None
    stream.places[holder.order] = stream.start(queue.ready, start, state.time_ms)
    if key is not None:
        stream.filters[holder.order] = key


def deliver_stream(state: State, queue: Queue) -> None:
    """Give consumers with room what there is behind their places, in turns, within the entry's bounds (RULES C4)."""
    stream = queue.stream
    assert stream is not None
    consumers = queue.consumers
    if stream.next_offset > stream.woken_offset:
        _wake(queue, stream)
    while state.delivery_budget > 0:
        band = consumers.top_band()
        if band is None:
            return
        holder = band.first
        if holder is None:
            raise BrokenInvariant(f"nobody waits in a band of stream {queue.queue_id}")
        place = max(stream.places[holder.order], stream.first_offset(queue.ready))
        if place >= stream.next_offset:
            stream.places[holder.order] = place
            consumers.suspend(holder)
            stream.idle[holder.order] = holder
            continue
        window_left = holder.window_left()
        portion = Portion(min(holder.room(), state.delivery_budget, _TURN), state.delivery_bytes, window_left)
        messages = _next_messages(queue, stream, holder, place, portion.messages)
        # What has no more time is passed over: it leaves when the bound of an entry lets it (RULES T5, C4).
        looked_at = len(messages)
        next_place = messages[-1].stream_offset + 1 if messages else stream.next_offset
        messages = [each for each in messages if not 0 <= each.deadline_ms <= state.time_ms]
        number = portion.add(messages)
        if number < len(messages):
            next_place = messages[number].stream_offset
            del messages[number:]
        stream.places[holder.order] = next_place
        state.delivery_budget -= max(number, -(-looked_at // _LOOKED_AT_AS_ONE))
        if not messages:
            continue
        state.delivery_bytes = portion.body_bytes
        if state.delivery_bytes <= 0:
            state.delivery_budget = 0
        queue.delivered += number
        if holder.window_bytes:
            holder.given_bytes += window_left - portion.counted_bytes
        _hand_over(state, queue, holder, messages)
        consumers.suspend(holder)
        consumers.admit(holder)


def _next_messages(queue: Queue, stream: Stream, holder: Holder, place: int, most: int) -> list[Message]:
    """What comes next for the holder from this place on, at most so many: none only where nothing does."""
    key = stream.filters.get(holder.order)
    if key is None:
        return read(queue.ready, stream.unpacked, place, most)
    offsets = None if stream.keys is None else stream.keys.keys.get(key)
    found: list[Message] = []
    if offsets is not None:
        for offset in offsets.some_from(place, most):
            message = find(queue.ready, offset)
            if message is None:
                raise BrokenInvariant(f"no message is at offset {offset} of stream {queue.queue_id}")
            found.append(message)
    return found


def _wake(queue: Queue, stream: Stream) -> None:
    """Something was published: those that were idle look at it, in the order in which they were attached."""
    stream.woken_offset = stream.next_offset
    if not stream.idle:
        return
    idle = stream.idle
    stream.idle = {}
    for order in sorted(idle):
        queue.consumers.admit(idle[order])


def _hand_over(state: State, queue: Queue, holder: Holder, messages: list[Message]) -> None:
    """These messages are the holder's as well, until it has settled them."""
    first = holder.last_delivery_id + 1
    holder.last_delivery_id += len(messages)
    holder.held.update(zip(range(first, first + len(messages)), messages, strict=True))
    body_bytes = _retain_all(state, messages)
    queue.held_bytes += body_bytes
    holder.held_bytes += body_bytes
    queue.held_count += len(messages)
    if holder.session[0] in state.listeners:
        state.effects.append(Deliver(holder.holder_id, first, messages, holder.session))


def _retain_all(state: State, messages: list[Message]) -> int:
    """One reference more to the entry of each; their bodies' bytes."""
    live = state.live
    total_bytes = 0
    for message in messages:
        total_bytes += message.body_length
        live[message.index] += 1
    return total_bytes


def let_go(state: State, queue: Queue, messages: list[Message]) -> None:
    """What a consumer held that is gone: it stays in the stream, if it is there still."""
    queue.held_bytes -= state.release_all(messages)
