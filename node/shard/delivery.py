"""Service of a queue: consumers with room are given what is live, expired heads leave, and what is too much. HOT."""

from typing import Final

from mayfly.node.shard.anywhere import expire_anywhere
from mayfly.node.shard.consumers import NO_WINDOW, Band, Holder
from mayfly.node.shard.departing import drain, put_late_in_lane, take_in_lane
from mayfly.node.shard.effects import Deliver
from mayfly.node.shard.errors import BrokenInvariant
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.outbox import DUE, MAXLEN
from mayfly.node.shard.portion import Portion
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.recurring import come, forget_undecided
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.state import State
from mayfly.node.shard.stream_delivery import deliver_stream
from mayfly.node.shard.stream_expiry import drop_oldest, expire

_FEW_CONSUMERS: Final = 32
_WORTH_COUNTING_BYTES: Final = 1024
_NO_ENTRY: Final = -1


def serve(state: State, queue: Queue) -> None:
    """Deliver what can be delivered, expire the heads that are due, drop what is too much, set the queue's timer.

    What is scheduled and due becomes ready before that. All within the entry's bounds (RULES C4); a queue left with
    messages and willing consumers is ``unserved``, one with more than its limit ``overfull``. Of a queue that has left
    all goes to where it is.
    """
    queue.active_ms = state.time_ms
    if queue.moving is not None:
        if queue.has_left:
            drain(state, queue)
            return
        if queue.returns:
            _end_return(state, queue)
    if queue.stream is not None:
        _serve_stream(state, queue)
        return
    if queue.brake is not None:
        judge_brake(state, queue)
    if queue.schedule is not None and queue.schedule.is_due(state.time_ms):
        if queue.settings.delays:
            _send_due(state, queue)
        else:
            _release_due(state, queue)
    if queue.consumers.bands and not ((queue.moving is not None or queue.brake is not None) and queue.holds_back):
        if queue.expires_anywhere:
            # What was due before now dies in order; what is due this very moment may be delivered first (T8).
            expire_anywhere(state, queue, state.time_ms - 1)
        _deliver(state, queue)
    if queue.expires_anywhere:
        expire_anywhere(state, queue, state.time_ms)
    elif not queue.is_lazy:
        _expire_heads(state, queue)
    if queue.drops:
        _drop_heads(state, queue)
    note_due(state, queue)


def judge_brake(state: State, queue: Queue) -> None:
    """If what has failed is no more than may be by now, a queue on brake delivers again (RULES R5)."""
    if queue.brake is not None and queue.brake.goes_on(state.time_ms):
        state.note_brake(queue)


def _expire_heads(state: State, queue: Queue) -> None:
    """What is due at the heads of the queue's lines leaves, in their order."""
    if queue.levels:
        for line in queue.lines():
            if line.timed:
                _expire_head(state, queue, line)
        return
    if queue.returned.timed:
        _expire_head(state, queue, queue.returned)
    if queue.ready.timed:
        _expire_head(state, queue, queue.ready)


def _release_due(state: State, queue: Queue) -> None:
    """What is scheduled and due becomes ready (RULES S2, S3), in order: behind what is ready, or, if it was delivered
    before, among what came back."""
    digests: list[bytes] = []
    for message, digest in zip(_take_due(state, queue, digests), digests, strict=True):
        if message.recurs:
            _release_recurring(state, queue, message, digest)
            continue
        queue.ready_bytes += message.body_length
        if message.acquired_count > 0:
            put_back(state, queue, message)
        else:
            queue.ready_line(message.priority).append(message)


def _release_recurring(state: State, queue: Queue, message: Message, digest: bytes) -> None:
    """What comes of a message that recurs is ready (RULES S6); a queue that refuses what is too much refuses it."""
    made = come(state, queue, message, digest)
    if made is None:
        return
    is_wanted = (
        queue.ready_count() == 0 and queue.consumers.top_band() is not None and not queue.is_braked
        and state.delivery_budget > 0
    )
    if queue.refuses and not (queue.fits(made.body_length) or is_wanted):
        queue.refused += 1
        if queue.refusals_die:
            state.died(queue, made, MAXLEN)
        else:
            state.release(made.index, 1)
        return
    state.due_lag.observe(state.time_ms - made.enqueued_ms)
    queue.enqueued += 1
    queue.ready_bytes += made.body_length
    queue.ready_line(made.priority).append(made)


def _send_due(state: State, queue: Queue) -> None:
    """What waited for a delayed exchange and is due leaves, in order, to be routed (RULES S1); while earlier ones may
    still be on their way to here, nothing does."""
    if queue.waits_for_earlier:
        return
    for message in _take_due(state, queue, None):
        state.outbox.add(queue.queue_id, message, DUE, state.time_ms, queue.settings)


def _take_due(state: State, queue: Queue, digests: list[bytes] | None) -> list[Message]:
    """What is scheduled and due leaves, in order, within the entry's bound; the digests of its ids go into
    ``digests``."""
    due = queue.take_scheduled(state.time_ms, state.due_budget, digests)
    state.due_budget -= len(due)
    for message in due:
        if not message.recurs:
            state.due_lag.observe(state.time_ms - message.enqueued_ms)
    return due


def put_back(state: State, queue: Queue, message: Message) -> None:
    """A message that came back is ready, before what was never delivered."""
    if state.returns_to_place:
        queue.returned_line(message.priority).put_back(message)
    else:
        queue.returned_line(message.priority).append(message)


def _serve_stream(state: State, queue: Queue) -> None:
    """The same of a stream: what is too old leaves before anything is delivered (RULES T5), what is too much after."""
    expire(state, queue)
    if queue.consumers.bands:
        deliver_stream(state, queue)
    if queue.drops:
        drop_oldest(state, queue)
    note_due(state, queue)


def _end_return(state: State, queue: Queue) -> None:
    """A queue that returns goes on as if it had never been elsewhere once all is here, within the entry's bounds."""
    put_late_in_lane(state, queue)
    if not queue.is_arriving and take_in_lane(state, queue, state.returned_per_entry):
        assert queue.moving is not None
        queue.moving.returns = False
        queue.forget_move()


def catch_up(state: State, queue: Queue) -> None:
    """Before somebody looks at a queue: what its entry has put into it up to now goes to the consumers that wait, or
    makes the oldest leave. Else one entry with more publishes than a queue may hold would show a longer one."""
    if queue.touched and (queue.consumers.bands or (queue.drops and queue.is_over_limit())):
        serve(state, queue)


def note_due(state: State, queue: Queue) -> None:
    """Note what is left to do for a queue as its state says it: its next deadline, whether a bound cut it short,
    and whether a lease that waited for it to be empty goes on.
    """
    if queue.has_left:
        return
    queue_id = queue.queue_id
    due_ms = queue.next_due_ms()
    if due_ms >= 0:
        state.message_timers.arm(queue_id, due_ms)
    else:
        state.message_timers.cancel(queue_id)
    if (queue.ready_count() and queue.consumers.top_band() is not None and not queue.holds_back) or (
        queue.returns and not queue.is_arriving
    ):
        state.unserved.add(queue)
    else:
        state.unserved.remove(queue_id)
    if queue.drops and queue.is_over_limit():
        state.overfull.add(queue)
    else:
        state.overfull.remove(queue_id)
    if queue.kept:
        resume_lease(state, queue)


def resume_lease(state: State, queue: Queue) -> None:
    """A queue whose lease has run out, and that was kept for its messages, may go once it has none (RULES L11).

    Only the timer: ``kept`` is in no snapshot, so nothing that is may depend on it.
    """
    if queue.is_empty() or not queue.settings.expires_if_empty:
        queue.kept = False
        if queue.expires_ms >= 0 and queue.lease.suspended_by == 0:
            state.lease_timers.arm(queue.queue_id, queue.lease.started_ms + queue.expires_ms)


def take(state: State, queue: Queue, portion: Portion, fresh_index: int) -> list[Message]:
    """Take live messages off the queue, at most the portion, which has what is left of it then: the highest priority
    first and in each the returned ones; expired heads leave on the way (T5).

    A message whose deadline is this very moment is live only if it was enqueued by the entry ``fresh_index``:
    TTL 0 gives it this one chance (RULES T8). Fewer than the portion come when the queue or the bound of expiries ends.
    """
    messages: list[Message] = []
    if queue.levels:
        for line in queue.lines():
            if line.items:
                _take_from(state, queue, line, portion, fresh_index, messages)
                if line.items:
                    return messages
        return messages
    if queue.returned.items:
        _take_from(state, queue, queue.returned, portion, fresh_index, messages)
        if queue.returned.items:
            # There are more, or what heads the line is expired and the bound is reached: order is kept.
            return messages
    _take_from(state, queue, queue.ready, portion, fresh_index, messages)
    return messages


def _take_from(
    state: State, queue: Queue, line: Line, portion: Portion, fresh_index: int, messages: list[Message]
) -> None:
    """Move live messages from the line to ``messages``, at most the portion."""
    while portion.is_open() and line.items:
        if line.timed:
            if not _take_timed_from(state, queue, line, portion, fresh_index, messages):
                break
            continue
        taken = line.items[line.head : line.head + portion.messages]
        number = portion.add(taken)
        if number < len(taken):
            del taken[number:]
        line.advance(number)
        messages.extend(taken)


def _take_timed_from(
    state: State, queue: Queue, line: Line, portion: Portion, fresh_index: int, messages: list[Message]
) -> bool:
    """As ``_take_from``, of those that are at hand in the line; False when the bound of expiries is in the way."""
    items = line.items
    head = line.head
    now_ms = state.time_ms
    position = head
    end = len(items)
    timed = 0
    bounded = False
    while position < end and portion.is_open():
        message = items[position]
        deadline_ms = message.deadline_ms
        if deadline_ms >= 0:
            if deadline_ms < now_ms or (deadline_ms == now_ms and message.index != fresh_index):
                if state.expiry_budget <= 0:
                    bounded = True
                    break
                _expire(state, queue, message)
                timed += 1
                position += 1
                continue
            timed += 1
        messages.append(message)
        portion.messages -= 1
        portion.body_bytes -= message.body_length
        portion.counted_bytes -= message.counted_bytes
        position += 1
    line.timed -= timed
    line.advance(position - head)
    return not bounded


def _expire_head(state: State, queue: Queue, line: Line) -> None:
    """Expired messages at the head of a line leave (RULES T6), those with TTL 0 that nobody took among them
    (T8).
    """
    now_ms = state.time_ms
    more = True
    while more:
        items = line.items
        position = line.head
        end = len(items)
        while position < end:
            message = items[position]
            if not 0 <= message.deadline_ms <= now_ms or state.expiry_budget <= 0:
                break
            _expire(state, queue, message)
            position += 1
        gone = position - line.head
        # All that were at hand have left: others may have come to their place.
        more = gone > 0 and position == end
        if gone:
            line.timed -= gone
            line.advance(gone)


def _drop_heads(state: State, queue: Queue) -> None:
    """The oldest messages leave while the queue is over its limit: drop-head (RULES D2, reason maxlen)."""
    while state.expiry_budget > 0 and queue.is_over_limit():
        if not queue.has_ready():
            _drop_scheduled(state, queue)
            return
        line = _first_line(queue)
        message = line.first()
        if message.deadline_ms >= 0:
            line.timed -= 1
        line.advance(1)
        state.expiry_budget -= 1
        queue.ready_bytes -= message.body_length
        queue.overflowed += 1
        state.died(queue, message, MAXLEN)


def _drop_scheduled(state: State, queue: Queue) -> None:
    """The same of what is scheduled, which is all that there is: what is due first leaves first (RULES S3)."""
    while state.expiry_budget > 0 and queue.is_over_limit():
        digests: list[bytes] = []
        for message in queue.take_scheduled(MAX_NUMBER, 1, digests):
            forget_undecided(state, queue, digests[0])
            state.expiry_budget -= 1
            queue.overflowed += 1
            state.died(queue, message, MAXLEN)


def _first_line(queue: Queue) -> Line:
    """The line at whose head is the head of the queue, which is not empty."""
    if queue.levels:
        for line in queue.lines():
            if line.items:
                return line
    return queue.returned if queue.returned.items else queue.ready


def has_room(state: State, queue: Queue, body_bytes: int) -> bool:
    """Whether a queue that refuses what is too much takes a message with such a body now.

    Its consumers come first, and what has expired leaves: what one of them would be given at once always fits. Into a
    queue that has left, which is judged elsewhere, all fits.
    """
    if queue.fits(body_bytes) or queue.has_left:
        return True
    serve(state, queue)
    return queue.fits(body_bytes) or (
        queue.ready_count() == 0 and queue.consumers.top_band() is not None and not queue.is_braked
        and state.delivery_budget > 0
    )


def has_room_for(state: State, queue: Queue, messages: int, body_bytes: int, counted_bytes: int) -> bool:
    """Whether a queue that refuses what is too much takes so many messages together, with bodies of so many bytes, that
    count for so many in a consumer's window.

    As with `has_room`, what its consumers would be given at once does not count.
    """
    if queue.has_left:
        return True
    waiting = queue.waiting_count() + messages
    if waiting > queue.max_length or queue.waiting_bytes() + body_bytes > queue.max_length_bytes:
        serve(state, queue)
    waiting = queue.waiting_count() + messages
    if waiting <= queue.max_length and queue.waiting_bytes() + body_bytes <= queue.max_length_bytes:
        return True
    if queue.ready_count() or queue.is_braked or messages > state.delivery_budget:
        return False
    return queue.consumers.credit(messages, counted_bytes) >= messages


def _expire(state: State, queue: Queue, message: Message) -> None:
    """One message that was ready dies of its deadline."""
    state.expiry_budget -= 1
    queue.ready_bytes -= message.body_length
    if not queue.is_lazy:
        state.expiry_lag.observe(state.time_ms - message.deadline_ms)
    state.expired(queue, message)


def _deliver(state: State, queue: Queue) -> None:
    """Give messages to waiting consumers, the highest band first, until either side has no more."""
    consumers = queue.consumers
    while state.delivery_budget > 0 and queue.has_ready():
        band = consumers.top_band()
        if band is None:
            break
        first = band.first
        if first is None:
            break
        waiting = band.count
        window_left = NO_WINDOW
        if waiting == 1:
            room = first.room()
            window_left = first.window_left()
        elif waiting <= _FEW_CONSUMERS:
            room = 0
            holder: Holder | None = first
            while holder is not None:
                room += holder.room()
                # Up to here nobody's window is full: all go on taking their turns.
                window_left = min(window_left, holder.window_left())
                holder = holder.following
            if window_left < waiting * _WORTH_COUNTING_BYTES:
                # Everybody who waits may have one: small portions would cost more than they save.
                room, window_left = waiting, NO_WINDOW
        else:
            room = waiting
        portion = Portion(min(room, state.delivery_budget), state.delivery_bytes, window_left)
        messages = take(state, queue, portion, state.index)
        if not messages:
            break
        state.delivery_budget -= len(messages)
        state.delivery_bytes = portion.body_bytes
        if state.delivery_bytes <= 0:
            state.delivery_budget = 0
        queue.delivered += len(messages)
        if waiting == 1:
            if first.window_bytes:
                first.given_bytes += window_left - portion.counted_bytes
            hand_over(state, queue, first, messages)
            if first.room() <= 0:
                consumers.suspend(first)
        else:
            _share_out(state, queue, band, messages)


def _share_out(state: State, queue: Queue, band: Band, messages: list[Message]) -> None:
    """One message each in turn; who has no room left leaves the band."""
    served: list[Holder] = []
    for message in messages:
        holder = band.first
        if holder is None:
            raise BrokenInvariant(f"queue {queue.queue_id} gives more than those who wait for it can take")
        pending = holder.pending
        if not pending:
            served.append(holder)
        pending.append(message)
        if holder.window_bytes:
            holder.given_bytes += message.counted_bytes
        band.leave(holder)
        if holder.room() > len(pending):
            band.join(holder)
    if band.count == 0:
        queue.consumers.row_ends(band.priority)
    for each in served:
        pending = each.pending
        each.pending = []
        hand_over(state, queue, each, pending)


def hand_over(state: State, queue: Queue, holder: Holder, messages: list[Message]) -> None:
    """These messages, taken off the queue, are the holder's: held until settled, or gone at once without
    acks.
    """
    count = len(messages)
    first = holder.last_delivery_id + 1
    holder.last_delivery_id += count
    if holder.no_ack:
        queue.ready_bytes -= state.release_all(messages)
        queue.acknowledged += count
    else:
        holder.held.update(zip(range(first, first + count), messages, strict=True))
        body_bytes = 0
        for message in messages:
            body_bytes += message.body_length
        queue.ready_bytes -= body_bytes
        queue.held_bytes += body_bytes
        holder.held_bytes += body_bytes
        queue.held_count += count
    if holder.is_consumer and holder.session[0] in state.listeners:
        state.effects.append(Deliver(holder.holder_id, first, messages, holder.session))


def get_one(state: State, queue: Queue) -> Message | None:
    """Take the first live message for a basic.get; None when there is none."""
    if queue.expires_anywhere:
        expire_anywhere(state, queue, state.time_ms)
    messages = take(state, queue, Portion(1, NO_WINDOW, NO_WINDOW), _NO_ENTRY)
    return messages[0] if messages else None


def expiry_is_behind(state: State, queue: Queue) -> bool:
    """Whether an expired head stands in the way because the entry's bound is reached."""
    return state.expiry_budget <= 0 and 0 <= queue.next_due_ms() <= state.time_ms

