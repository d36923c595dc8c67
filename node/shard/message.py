"""A message as the queue state knows it: where its content stands in the log, and its times. HOT."""

from typing import Final

from mypy_extensions import mypyc_attr

from mayfly.node.shard.dialect import FIRST_RULE, NEVER_TTL, deadline_by

NO_DEADLINE: Final = -1
NO_TTL: Final = -1
DELIVERED_ELSEWHERE: Final = -1
"""An ``acquired_count``: never delivered from this queue, but from one in which it died, and that delivery failed."""

# The ways in which a message comes back.
NOT_SENT: Final = 0
"""Its client was never sent it: as if it had not been delivered."""
FAILED: Final = 1
"""The delivery failed, which counts towards the delivery limit (RULES Q1)."""
GIVEN_BACK: Final = 2
"""Its client, or the cluster, has given it back."""

OVERHEAD_BYTES: Final = 256
"""What a message counts for in a consumer's window besides its content: about what its frames and its place in memory
take. It is part of what the log means: another number comes with a feature level."""


def deadline_ms(enqueued_ms: int, ttl_ms: int, queue_ttl_ms: int) -> int:
    """The deadline of a message with this TTL of its own in a queue with that one, -1 for none (RULES T3, T4), or with
    that TTL rule (`node.shard.dialect`)."""
    if queue_ttl_ms >= FIRST_RULE:
        return deadline_by(queue_ttl_ms, enqueued_ms, ttl_ms)
    if ttl_ms < 0 or 0 <= queue_ttl_ms < ttl_ms:
        ttl_ms = queue_ttl_ms
    return enqueued_ms + ttl_ms if ttl_ms >= 0 else NO_DEADLINE


# Why a marker is in a stream (RULES J3).
NO_MARKER: Final = 0
"""Of what is no marker."""
MAX_AGE: Final = 1
REMOVE: Final = 2
PURGE: Final = 3
_REASON_BITS: Final = 2
_REASON: Final = (1 << _REASON_BITS) - 1


def mark_of(key_number: int, reason: int) -> int:
    """The ``mark`` of a message in a stream with keys: the number of its key, and why it is there if it is a marker, 0
    for any other."""
    return key_number << _REASON_BITS | reason


def key_number_of(mark: int) -> int:
    """The number of the key, 0 where the stream has none."""
    return mark >> _REASON_BITS


def marker_reason_of(mark: int) -> int:
    """MAX_AGE, REMOVE or PURGE; 0 for a message that is not a marker."""
    return mark & _REASON


def is_own_ttl(ttl_ms: int) -> bool:
    """Whether a message of a stream with this TTL has a deadline of its own."""
    return 0 <= ttl_ms < NEVER_TTL


# It refers to nothing, so the garbage collector need not look at it: millions wait, and a look at all of them in one go
# keeps a node silent for as long as an election takes (docs/decisions/memory.md, 1). That holds once it is compiled.
@mypyc_attr(acyclic=True)
class Message:
    """A reference to content in the log (the log is the message store), never changed once made.

    ``index`` is the log entry, ``offset`` where the content starts in that entry's data. The content is
    ``key_length`` bytes of exchange and routing key as on the wire, then ``header_length`` bytes of content
    header, then ``body_length`` bytes of body. ``deadline_ms`` is shard time, -1 for none (RULES T4);
    ``ttl_ms`` is the TTL the publisher asked for, -1 for none. ``acquired_count`` counts
    how often it came back, ``delivery_count`` how often because its delivery failed (RULES Q1). A message that comes
    back is a new object. ``priority`` is its place among the priorities of the queue it is in (`node.shard.priority`),
    0 where the queue has none.
    Below 0 ``delivery_count`` says that the message recurs, and how.
    To a stream nothing comes back, so there ``delivery_count`` is free for the message's offset, and ``priority`` for
    its mark (`mark_of`). A marker has the content of the message whose place it takes, but for header and body.
    """

    __slots__ = (
        "acquired_count",
        "body_length",
        "deadline_ms",
        "delivery_count",
        "enqueued_ms",
        "header_length",
        "index",
        "key_length",
        "offset",
        "priority",
        "ttl_ms",
    )

    def __init__(
        self, index: int, offset: int, key_length: int, header_length: int, body_length: int,
        enqueued_ms: int, deadline_ms: int, delivery_count: int, ttl_ms: int = NO_TTL, priority: int = 0,
        acquired_count: int = 0,
    ) -> None:
        self.index = index
        self.offset = offset
        self.key_length = key_length
        self.header_length = header_length
        self.body_length = body_length
        self.enqueued_ms = enqueued_ms
        self.deadline_ms = deadline_ms
        self.delivery_count = delivery_count
        self.ttl_ms = ttl_ms
        self.priority = priority
        self.acquired_count = acquired_count

    @property
    def redelivered(self) -> bool:
        """True when it has been delivered before: it came back, or died of a delivery that failed."""
        return self.acquired_count != 0

    @property
    def recurs(self) -> bool:
        """Whether it waits in a queue for others to be made of it (`node.shard.recurring`)."""
        return self.delivery_count < 0

    @property
    def stream_offset(self) -> int:
        """Its offset, in a stream."""
        return self.delivery_count

    @property
    def marker_reason(self) -> int:
        """MAX_AGE, REMOVE or PURGE, of a marker in a stream; 0 for any other message of one."""
        return marker_reason_of(self.priority)

    @property
    def has_failed(self) -> bool:
        """Whether a delivery of it failed, from this queue or before."""
        return self.delivery_count > 0 or self.acquired_count == DELIVERED_ELSEWHERE

    @property
    def content_length(self) -> int:
        """Bytes of the whole content in the entry's data, from ``offset`` on."""
        return self.key_length + self.header_length + self.body_length

    @property
    def counted_bytes(self) -> int:
        """What it counts for in a consumer's window."""
        return OVERHEAD_BYTES + self.key_length + self.header_length + self.body_length

    def returned(self, way: int) -> "Message":
        """The same message after it came back, FAILED, GIVEN_BACK or NOT_SENT: same content and deadline (T4)."""
        if way == NOT_SENT:
            return self
        acquired_count = self.acquired_count + 1 if self.acquired_count > 0 else 1
        delivery_count = self.delivery_count + 1 if way == FAILED else self.delivery_count
        return Message(
            self.index, self.offset, self.key_length, self.header_length, self.body_length,
            self.enqueued_ms, self.deadline_ms, delivery_count, self.ttl_ms, self.priority, acquired_count,
        )

    def enqueued_at(self, enqueued_ms: int, deadline_ms: int) -> "Message":
        """The same content as a message of a queue, not delivered there, with a deadline of its own (RULES T9)."""
        return Message(
            self.index, self.offset, self.key_length, self.header_length, self.body_length,
            enqueued_ms, deadline_ms, 0, self.ttl_ms, 0, self.acquired_count,
        )

    def with_deadline(self, deadline_ms: int) -> "Message":
        """The same message with another deadline (RULES T12)."""
        return Message(
            self.index, self.offset, self.key_length, self.header_length, self.body_length,
            self.enqueued_ms, deadline_ms, self.delivery_count, self.ttl_ms, self.priority, self.acquired_count,
        )

    def waiting_until(self, due_ms: int) -> "Message":
        """The same message, to count as enqueued when it is due (`node.shard.schedule`), with its deadline."""
        return Message(
            self.index, self.offset, self.key_length, self.header_length, self.body_length,
            due_ms, self.deadline_ms, self.delivery_count, self.ttl_ms, self.priority, self.acquired_count,
        )

    def recurring(self, mark: int) -> "Message":
        """The same content as one that recurs, marked so (`node.shard.recurring`)."""
        return Message(
            self.index, self.offset, self.key_length, self.header_length, self.body_length,
            self.enqueued_ms, NO_DEADLINE, mark, self.ttl_ms, self.priority, 0,
        )

    def with_priority(self, priority: int) -> "Message":
        """The same message in a queue with priorities."""
        return Message(
            self.index, self.offset, self.key_length, self.header_length, self.body_length,
            self.enqueued_ms, self.deadline_ms, self.delivery_count, self.ttl_ms, priority, self.acquired_count,
        )

    def __repr__(self) -> str:
        return (
            f"Message(index={self.index}, offset={self.offset}, "
            f"lengths={self.key_length}+{self.header_length}+{self.body_length}, "
            f"enqueued_ms={self.enqueued_ms}, deadline_ms={self.deadline_ms}, "
            f"delivery_count={self.delivery_count}, ttl_ms={self.ttl_ms}, priority={self.priority}, "
            f"acquired_count={self.acquired_count})"
        )


def is_before(one: Message, other: Message) -> bool:
    """Whether one was enqueued before the other. (Entries alone do not tell: a dead letter keeps the entry it has its
    content in. Of those enqueued in the same ms the contents' order counts.)"""
    if one.enqueued_ms != other.enqueued_ms:
        return one.enqueued_ms < other.enqueued_ms
    if one.index != other.index:
        return one.index < other.index
    return one.offset < other.offset
