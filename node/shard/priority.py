"""The priority of a message, where it stands in its content header (AMQP 0-9-1, 4.2.6.1 and 1.8.1), and its place among
the priorities of a queue. HOT for queues with priorities; nobody else asks.

A place is 0 for what most messages have: the priority of those that name none. In queues where that is 0, places are
priorities. In others, as RabbitMQ's quorum queues, in which it is 4 (RULES Q2), the place of any other priority is one
more than it is. So messages that name none stand in the lines that queues without priorities have, and cost the same.
"""

from typing import Final

from mayfly.node.content_header import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    DELIVERY_MODE,
    FLAGS_AT,
    HEADERS,
    PRIORITY,
    PROPERTIES_AT,
)

_LENGTH_BYTES: Final = 4


def place_of(data: bytes, header_at: int, header_length: int, max_priority: int, default_priority: int) -> int:
    """The place of a message in a queue with priorities up to this one; ``default_priority`` is that of messages which
    name none."""
    priority = min(priority_of(data, header_at, header_length, default_priority), max_priority)
    if not default_priority:
        return priority
    return 0 if priority == default_priority else priority + 1


def place_of_default(default_priority: int) -> int:
    """Between which places place 0 comes: before those below this number, behind those above it."""
    return default_priority + 1 if default_priority else 0


def priority_of(data: bytes, header_at: int, header_length: int, default: int = 0) -> int:
    """The priority property in the content header at ``header_at``; ``default`` when it has none, or is no whole
    header."""
    end = header_at + header_length
    if header_length <= PROPERTIES_AT or not data[header_at + FLAGS_AT] << 8 & PRIORITY:
        return default
    at = priority_at(data, header_at, end)
    return data[at] if at < end else default


def priority_at(data: bytes, header_at: int, end: int) -> int:
    """Where the priority stands, or would stand, in the content header from ``header_at`` to ``end``, which has
    properties; ``end`` or behind it in one that is not whole."""
    flags = data[header_at + FLAGS_AT] << 8
    at = header_at + PROPERTIES_AT
    if flags & CONTENT_TYPE and at < end:
        at += 1 + data[at]
    if flags & CONTENT_ENCODING and at < end:
        at += 1 + data[at]
    if flags & HEADERS and at + _LENGTH_BYTES <= end:
        at += _LENGTH_BYTES + (data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3])
    if flags & DELIVERY_MODE:
        at += 1
    return at
