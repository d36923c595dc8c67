"""Messages that recur (RULES S6): one waits for the next time, and each time another is made of the same content.

The one that waits is in its queue's schedule, like all that waits for its time, and says with its ``delivery_count``,
below 0, that it recurs and how (`mark_of`). It has the digest of its id (`node.shard.message_id`) turned into another
one: so there is one for each id in a queue, and it is found beside what waits under the id once.

After so many seconds the next time is computed here, from the clock of the log. Any other the leader of the shard
decides, from the message's headers and its time zones, and says in a NEXT_TIMES. Until then the message is *undecided*:
it waits behind all times that are, by the time from which on the next one counts.
"""

from typing import Final

from mayfly.node.shard.commands import LIST_HEAD, NEXT_TIME
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.message_id import NO_DIGEST, digest_at
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.run import place_from
from mayfly.node.shard.state import PAUSE_MS, State

UNDECIDED_MS: Final = 1 << 47
"""Behind all times: in the year 6429."""
MOST_EVERY_S: Final = (1 << 30) - 1
"""Seconds between two times: with its mark it is a number of 32 bits, as lanes between shards have it."""
_SECOND_MS: Final = 1000


def mark_of(every_s: int, missed_one: bool) -> int:
    """The ``delivery_count`` of a message that recurs: every so many seconds, or, with 0, when the leader says;
    ``missed_one``: one message comes for all times that were missed together."""
    return -1 - (every_s << 1 | (1 if missed_one else 0))


def is_told_when(mark: int) -> bool:
    """Whether the leader says when: these are times of the clock on the wall, the same ones in whichever shard."""
    return mark in (mark_of(0, False), mark_of(0, True))


def every_ms_of(message: Message) -> int:
    """Of one that recurs; 0 where the leader says when."""
    return (-1 - message.delivery_count >> 1) * _SECOND_MS


def misses_one(message: Message) -> bool:
    """Of one that recurs, whether one comes for what was missed."""
    return (-1 - message.delivery_count) & 1 == 1


def recurring_digest(digest: bytes) -> bytes:
    """Under what one that recurs is filed; for NO_DIGEST that."""
    return digest[:1] + bytes((digest[1] ^ 0xFF,)) + digest[2:] if digest else NO_DIGEST


def undecided_from(message: Message) -> int:
    """The time from which on the next one counts, of one that is undecided; -1 for any other."""
    return message.enqueued_ms - UNDECIDED_MS if message.recurs and message.enqueued_ms >= UNDECIDED_MS else -1


def begin(state: State, queue: Queue, content: Message, mark: int) -> bool:
    """A message of the current entry recurs in a queue from now on, instead of the one that does under its id; the
    caller retains the entry. False, and nothing is done, for one without an id."""
    digest = recurring_digest(digest_at(state.data, content.offset + content.key_length, content.header_length))
    if not digest:
        return False
    for before in take_recurring(state, queue, digest):
        state.release(before.index, 1)
    recurring = state.prioritized(queue, content).recurring(mark)
    _wait_for_next(state, queue, recurring, digest, state.time_ms)
    state.applied_messages += 1
    state.touch(queue)
    return True


def put_recurring(state: State, queue: Queue, message: Message, digest: bytes) -> None:
    """One that has come from another shard waits in the queue, instead of any that does under its id."""
    for before in take_recurring(state, queue, digest):
        state.release(before.index, 1)
    wait_on(state, queue, message, digest)
    state.touch(queue)


def take_recurring(state: State, queue: Queue, digest: bytes) -> list[Message]:
    """The one that recurs under this digest, if there is one, leaves."""
    if state.undecided:
        forget_undecided(state, queue, digest)
    return queue.take_named(digest, 1)


def wait_on(state: State, queue: Queue, message: Message, digest: bytes) -> None:
    """One that recurs waits until its ``enqueued_ms``; if it is undecided, the leader sees it."""
    queue.wait(message, digest)
    if message.enqueued_ms >= UNDECIDED_MS and not queue.has_left:
        state.undecided.setdefault(queue.queue_id, {})[digest] = message


def forget_undecided(state: State, queue: Queue, digest: bytes) -> None:
    """One that recurs has left the schedule, undecided or not."""
    undecided = state.undecided.get(queue.queue_id)
    if undecided is not None and undecided.pop(digest, None) is not None and not undecided:
        del state.undecided[queue.queue_id]


def _wait_for_next(state: State, queue: Queue, message: Message, digest: bytes, after_ms: int) -> None:
    """It waits for the first time later than this."""
    every_ms = every_ms_of(message)
    next_ms = after_ms + every_ms if every_ms else UNDECIDED_MS + after_ms
    wait_on(state, queue, message.waiting_until(next_ms), digest)


def come(state: State, queue: Queue, message: Message, digest: bytes) -> Message | None:
    """One that recurs is due, and has left the schedule: it waits again, for the next time that was not missed. The
    message that comes of it, which refers to its entry as well; None if this time was missed."""
    due_ms = message.enqueued_ms
    if state.time_ms - due_ms <= PAUSE_MS or not state.pause_from_ms < due_ms <= state.pause_until_ms:
        _wait_for_next(state, queue, message, digest, due_ms)
        return _occurrence(state, queue, message, due_ms)
    every_ms = every_ms_of(message)
    after_ms = state.pause_until_ms
    if every_ms:
        after_ms = due_ms + (after_ms - due_ms) // every_ms * every_ms
    _wait_for_next(state, queue, message, digest, after_ms)
    return _occurrence(state, queue, message, state.time_ms) if misses_one(message) else None


def _occurrence(state: State, queue: Queue, message: Message, due_ms: int) -> Message:
    """What comes of it at this time, from which its TTL counts (RULES S3)."""
    state.live[message.index] += 1
    state.applied_messages += 1
    made = message.enqueued_at(due_ms, queue.deadline_ms(due_ms, message.ttl_ms))
    return made.with_priority(message.priority) if message.priority else made


def apply_next_times(state: State, position: int, end: int) -> int:
    """Apply the NEXT_TIMES at ``position``; where it ends. Nothing happens to one that is no longer undecided by the
    same time."""
    count: int = LIST_HEAD.unpack_from(state.data, position)[1]
    position += LIST_HEAD.size
    if position + count * NEXT_TIME.size > end:
        raise ShardError(f"NEXT_TIMES at {position} with {count} times reaches behind its batch, to {end}")
    for _ in range(count):
        queue_id, digest, after_ms, next_ms = NEXT_TIME.unpack_from(state.data, position)
        position += NEXT_TIME.size
        if not after_ms < next_ms < UNDECIDED_MS:
            raise ShardError(f"NEXT_TIMES with {next_ms} behind {after_ms}")
        queue = state.queues.get(queue_id)
        if queue is None or queue.has_left:
            continue
        for message in take_recurring(state, queue, digest):
            if undecided_from(message) == after_ms:
                message = message.waiting_until(next_ms)
            wait_on(state, queue, message, digest)
            state.touch(queue)
    return position


def find_undecided(state: State, queue: Queue) -> None:
    """Note those of a queue that was read from a snapshot: they are the last in its schedule."""
    schedule = queue.schedule
    if schedule is None or queue.has_left:
        return
    place = place_from(UNDECIDED_MS, 0, 0) - 1
    found = list(zip(schedule.young, schedule.digests, strict=True))
    for run in schedule.runs:
        if run.digests:
            last = run.behind(place, run.count())
            found += zip(last, run.digest_list()[run.count() - len(last) :], strict=True)
    undecided = {digest: message for message, digest in found if message.recurs and message.enqueued_ms >= UNDECIDED_MS}
    if undecided:
        state.undecided[queue.queue_id] = undecided
