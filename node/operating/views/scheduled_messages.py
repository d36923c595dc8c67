"""What waits for its time in a queue, message by message (RULES S4). Pure: reads the replica here.

Ids and routing keys stand in the log, and are read from there for those that are shown.
"""

from typing import Final, NamedTuple

from mayfly.node.amqp.content import Content
from mayfly.node.duties.contents import content_of
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.schedules import MOST_LISTED, ScheduledWish
from mayfly.node.operating.views.log_entries import LogEntries
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.shard_clocks import shard_now
from mayfly.node.recurrence.headers import said_in
from mayfly.node.shard.message import Message
from mayfly.node.shard.message_id import digest_of, message_id_at
from mayfly.node.shard.recurring import recurring_digest, undecided_from
from mayfly.node.shard.run import place_from, place_of
from mayfly.node.shard.settings import MAX_NUMBER

BYTES_READ: Final = 16 * 1024 * 1024
"""Of log entries that one listing reads; the last one may go beyond."""
_PLACE_PARTS: Final = 3


class Scheduled(NamedTuple):
    """One message that waits. ``retries``: how often it came back from a consumer; what did can't be cancelled. Of one
    that recurs the ``schedule`` and ``time_zone`` that its headers say, and when it comes next: None while that is
    still to be decided (RULES S6)."""

    message_id: str
    due_ms: int | None
    due_in_ms: int | None
    exchange: str
    routing_key: str
    body_bytes: int
    retries: int
    schedule: str = ""
    time_zone: str = ""


class ScheduledPart(NamedTuple):
    """Some of what waits in a queue, in order; ``next`` is the place of the last one if there may be more, else "".
    ``is_moving``: some of it is on the way between shards, and not listed."""

    rows: list[Scheduled]
    next: str
    is_moving: bool


def place_in(text: str) -> int:
    """A place as `ScheduledPart.next` has it. Raises ValueError."""
    parts = text.split("-")
    if len(parts) != _PLACE_PARTS or not all(part.isdecimal() and int(part) <= MAX_NUMBER for part in parts):
        raise ValueError(f"after = '{text}': the 'next' of a listing is expected")
    return place_from(*map(int, parts))


def scheduled_in(
    engine: Engine, shard_id: int, queue_id: int, wish: ScheduledWish, now_ms: int
) -> ScheduledPart | None:
    """As much of it as one listing has; None where this node has no replica of the shard, or the queue is not there."""
    shard = shard_here(engine, shard_id)
    queue = None if shard is None else shard.queue(queue_id)
    if shard is None or queue is None:
        return None
    is_moving = queue.moving is not None and (queue.has_left or queue.is_arriving or queue.returns)
    count = min(wish.most, MOST_LISTED)
    after = place_in(wish.after) if wish.after else -1
    if wish.from_ms > 0:
        after = max(after, place_from(wish.from_ms, 0, 0) - 1)
    until_ms = MAX_NUMBER if wish.until_ms < 0 else wish.until_ms
    found: list[Message] = []
    if queue.schedule is not None and wish.message_id:
        digest = digest_of(wish.message_id.encode("utf-8", "surrogateescape"))
        recurring = queue.schedule.find(recurring_digest(digest), 1, after, until_ms)
        found = sorted([*recurring, *queue.schedule.find(digest, count, after, until_ms)], key=place_of)[:count]
    elif queue.schedule is not None:
        found = queue.schedule.behind(after, until_ms, count)
    time_ms = shard_now(engine, shard, now_ms).time_ms
    rows: list[Scheduled] = []
    read = LogEntries(engine, shard_id)
    for message in found:
        if read.bytes_read > BYTES_READ:
            break
        rows.append(_row(read.data(message.index), message, time_ms))
    last = found[len(rows) - 1] if rows else None
    more = last is not None and (len(rows) < len(found) or len(found) == count)
    next_place = f"{last.enqueued_ms}-{last.index}-{last.offset}" if more and last is not None else ""
    return ScheduledPart(rows, next_place, is_moving)


def _row(data: bytes, message: Message, time_ms: int) -> Scheduled:
    letter = content_of(data, message)
    content = Content(letter.exchange_and_key, letter.header, letter.body)
    message_id = message_id_at(letter.header, 0, len(letter.header)).decode("utf-8", "replace")
    due_ms = None if undecided_from(message) >= 0 else message.enqueued_ms
    said = said_in(content) if message.recurs else ("", "")
    return Scheduled(
        message_id, due_ms, None if due_ms is None else due_ms - time_ms, content.exchange, content.routing_key,
        message.body_length, max(0, message.acquired_count), *said,
    )  # fmt: skip
