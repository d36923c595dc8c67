"""The priority of a message, where it stands in its content header (AMQP 0-9-1, 4.2.6.1 and 1.8.1), and its place among
the priorities of a queue. HOT for queues with priorities; nobody else asks.

A place is 0 for what most messages have: the priority of those that name none. In queues where that is 0, places are
priorities. In others, as RabbitMQ's quorum queues, in which it is 4 (RULES Q2), the place of any other priority is one
more than it is. So messages that name none stand in the lines that queues without priorities have, and cost the same.
"""

from typing import Final

_FLAGS_AT: Final = 12
_PROPERTIES_AT: Final = 14
# In the first octet of the flags, which come in the order of the properties.
_CONTENT_TYPE: Final = 0x80
_CONTENT_ENCODING: Final = 0x40
_HEADERS: Final = 0x20
_DELIVERY_MODE: Final = 0x10
_PRIORITY: Final = 0x08


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
    if header_length <= _PROPERTIES_AT:
        return default
    flags = data[header_at + _FLAGS_AT]
    if not flags & _PRIORITY:
        return default
    at = header_at + _PROPERTIES_AT
    if flags & _CONTENT_TYPE and at < end:
        at += 1 + data[at]
    if flags & _CONTENT_ENCODING and at < end:
        at += 1 + data[at]
    if flags & _HEADERS and at + 4 <= end:
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    if flags & _DELIVERY_MODE:
        at += 1
    return data[at] if at < end else default
