"""How brokers count message TTL otherwise than RabbitMQ: the dialects of queues (RULES X1).

    rabbitmq   the lower of the queue's TTL and the message's counts, from when it was enqueued
    lavinmq    the same, rounded down to 100 ms; TTL 0 has no end while somebody consumes
    ottermq    the message's TTL counts, else the queue's; nothing expires but when it is looked at

Streams have a rule of their own: as RabbitMQ's, but what is to stay for ever has no deadline.

A queue's dialect and its TTL are one number wherever deadlines are worked out, its *TTL rule*: so what is packed, held
or moved needs nothing besides. Without a dialect that is the TTL, -1 for none. HOT.
"""

from typing import Final

RABBITMQ: Final = 0
LAVINMQ: Final = 1
OTTERMQ: Final = 2
OF_STREAMS: Final = 3
"""No dialect that a queue can have, and counted as one: how all streams count (RULES J1, J2)."""

DIALECTS: Final = ("rabbitmq", "lavinmq", "ottermq")
"""Their names, by number."""

NEVER_TTL: Final = 1 << 48
"""The TTL of a message that no stream is ever too old for."""

_SHIFT: Final = 50
FIRST_RULE: Final = 1 << _SHIFT
"""A TTL rule from here on has a dialect; no TTL is so long (`node.shard.settings.MAX_NUMBER`)."""
_TTL: Final = FIRST_RULE - 1
LAST_RULE: Final = (OF_STREAMS + 1 << _SHIFT) - 1
_ROUNDED_MS: Final = 100
_NONE: Final = -1


def ttl_rule(dialect: int, queue_ttl_ms: int) -> int:
    """The rule of a queue with this TTL, -1 for none."""
    return queue_ttl_ms if dialect == RABBITMQ else (dialect << _SHIFT) + queue_ttl_ms + 1


def queue_ttl_of(rule: int) -> int:
    """The queue's TTL in a rule, -1 for none."""
    return (rule & _TTL) - 1 if rule >= FIRST_RULE else rule


def deadline_by(rule: int, enqueued_ms: int, ttl_ms: int) -> int:
    """The deadline of a message with this TTL of its own, -1 for none, by a rule with a dialect."""
    queue_ttl_ms = (rule & _TTL) - 1
    dialect = rule >> _SHIFT
    if dialect == OF_STREAMS:
        if ttl_ms == NEVER_TTL:
            return _NONE
        counts_ms = queue_ttl_ms if ttl_ms < 0 or 0 <= queue_ttl_ms < ttl_ms else ttl_ms
        return enqueued_ms + counts_ms if counts_ms >= 0 else _NONE
    if dialect == OTTERMQ:
        counts_ms = ttl_ms if ttl_ms >= 0 else queue_ttl_ms
        return enqueued_ms + counts_ms if counts_ms >= 0 else _NONE
    counts_ms = queue_ttl_ms if ttl_ms < 0 or 0 <= queue_ttl_ms < ttl_ms else ttl_ms
    if counts_ms < 0:
        return _NONE
    due_ms = enqueued_ms + counts_ms
    # Never before it was there: an earlier end would be seen by nobody.
    return max(enqueued_ms, due_ms - due_ms % _ROUNDED_MS)
