"""The next times of messages that recur by a cron expression (RULES S6): the leader of their shard decides them.

Time zones may be other ones on another machine, so what is decided here is carried in the log. Nothing here is state: a
message says itself that it waits for this and from which time on the next one counts, so the same answer given twice
does no harm.
"""

import logging
from collections.abc import Callable
from typing import Final

from mayfly.node.amqp.content import Content
from mayfly.node.recurrence.headers import BadRecurrence, recurrence_of
from mayfly.node.shard import commands
from mayfly.node.shard.message import Message
from mayfly.node.shard.message_id import digest_at
from mayfly.node.shard.recurring import recurring_digest, undecided_from
from mayfly.node.shard.shard import Shard

logger = logging.getLogger(__name__)

DECIDED_PER_LOOK: Final = 100
"""Next times that are computed in one go: some milliseconds."""
AGAIN_MS: Final = 1000
"""A decision without effect for so long is made again."""


class Recurrences:
    """Those of one shard."""

    def __init__(
        self, shard: Shard, give: Callable[[bytes], object], entry: Callable[[int], bytes]
    ) -> None:
        """`give` and `entry` as of `ShardDuties`."""
        self._shard = shard
        self._give = give
        self._entry = entry
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was given before may never have arrived."""
        self._given_ms: dict[tuple[int, int, int, int], int] = {}
        self._told: set[tuple[int, int, int]] = set()

    def perform(self, now_ms: int) -> None:
        """Decide what is to be decided."""
        # Behind those that were given, or that can't be decided here, there may be others.
        waiting = self._shard.undecided(DECIDED_PER_LOOK + len(self._given_ms))
        if not waiting:
            self._given_ms.clear()
            return
        times: list[tuple[int, bytes, int, int]] = []
        looked_at = 0
        given_ms: dict[tuple[int, int, int, int], int] = {}
        for queue_id, message in waiting:
            which = (queue_id, message.index, message.offset, message.enqueued_ms)
            before_ms = self._given_ms.get(which, now_ms - AGAIN_MS)
            if now_ms - before_ms < AGAIN_MS:
                given_ms[which] = before_ms
                continue
            if looked_at == DECIDED_PER_LOOK:
                continue
            looked_at += 1
            given_ms[which] = now_ms
            decided = self._decide(queue_id, message)
            if decided is not None:
                times.append(decided)
        self._given_ms = given_ms
        if times:
            self._give(commands.encode_next_times(times))

    def _decide(self, queue_id: int, message: Message) -> tuple[int, bytes, int, int] | None:
        """As `encode_next_times` takes it; None for one that can't be decided here."""
        data = self._entry(message.index)
        header_at = message.offset + message.key_length
        key, header = data[message.offset : header_at], data[header_at : header_at + message.header_length]
        after_ms = undecided_from(message)
        next_ms = None
        try:
            recurrence = recurrence_of(Content(key, header, b""))
            if recurrence is not None and recurrence.cron is not None:
                next_ms = recurrence.cron.next_ms(after_ms, recurrence.zone)
                if next_ms is None:
                    self._tell(queue_id, message, "its expression names no time within ten years")
        except BadRecurrence as fault:
            self._tell(queue_id, message, str(fault))
        if next_ms is None:
            return None
        return queue_id, recurring_digest(digest_at(header, 0, len(header))), after_ms, next_ms

    def _tell(self, queue_id: int, message: Message, fault: str) -> None:
        """Its publisher's node took it, so this one has other time zones; the next leader may know it again."""
        which = (queue_id, message.index, message.offset)
        if which not in self._told:
            self._told.add(which)
            queue = self._shard.queue(queue_id)
            logger.warning(
                "a message that recurs in queue %r can't be given its next time here: %s",
                "" if queue is None else queue.name, fault,
            )  # fmt: skip
