"""The priority of a message, where it stands in its content header (AMQP 0-9-1, 4.2.6.1 and 1.8.1). HOT for queues with
priorities; nobody else asks.
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


def priority_of(data: bytes, header_at: int, header_length: int) -> int:
    """The priority property in the content header at ``header_at``; 0 when it has none, or is no whole header."""
    end = header_at + header_length
    if header_length <= _PROPERTIES_AT:
        return 0
    flags = data[header_at + _FLAGS_AT]
    if not flags & _PRIORITY:
        return 0
    at = header_at + _PROPERTIES_AT
    if flags & _CONTENT_TYPE and at < end:
        at += 1 + data[at]
    if flags & _CONTENT_ENCODING and at < end:
        at += 1 + data[at]
    if flags & _HEADERS and at + 4 <= end:
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    if flags & _DELIVERY_MODE:
        at += 1
    return data[at] if at < end else 0
