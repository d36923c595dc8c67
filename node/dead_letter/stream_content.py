"""Content headers of what is in streams, as receivers see them and other streams get them (RULES J3, J4).

A shard keeps of a marker its key, its TTL and why it is there; its headers, from which receivers know it, are made
here. NATS ADR-43 has the names.
"""

import struct
from functools import lru_cache
from typing import Final

from mayfly.node.amqp.content import property_span, replace_properties
from mayfly.node.amqp.field_table import FieldTable, long_string
from mayfly.node.content_header import HEADERS
from mayfly.node.shard.message import MAX_AGE, PURGE, REMOVE, Message
from mayfly.node.shard.stream_ttls import duration_text

REASON: Final = "x-marker-reason"
NATS_REASON: Final = "Nats-Marker-Reason"
SOURCE: Final = "x-stream-source"
"""From which stream a message has come, and at which offset it is there: "NAME OFFSET"."""
_TTLS: Final = ("Nats-TTL", "x-ttl")
REASONS: Final = {MAX_AGE: "MaxAge", REMOVE: "Remove", PURGE: "Purge"}
_BASIC: Final = 60
_HEAD: Final = struct.Struct(">HHQH")
_FEW: Final = 64


def header_of(message: Message, data: bytes) -> bytes:
    """The content header of a message of a stream, whose entry has this data."""
    if message.marker_reason and not message.header_length:
        return _marker_header(message.marker_reason, message.ttl_ms)
    header_at = message.offset + message.key_length
    return data[header_at : header_at + message.header_length]


@lru_cache(_FEW)
def _marker_header(reason: int, ttl_ms: int) -> bytes:
    """A content header without body, with nothing but the headers of a marker."""
    headers = FieldTable()
    for name in (NATS_REASON, REASON):
        headers.set(name, long_string(REASONS[reason]))
    for name in _TTLS:
        headers.set(name, long_string(duration_text(ttl_ms)))
    return _HEAD.pack(_BASIC, 0, 0, HEADERS) + headers.encode()


def with_source(header: bytes, stream: str, offset: int) -> bytes:
    """The content header of a message that comes from this offset of another stream, instead of what it says of an
    earlier one."""
    start, stop = property_span(header, HEADERS)
    table = FieldTable() if start < 0 else FieldTable.of_checked(header[start:stop])
    table.set(SOURCE, long_string(f"{stream} {offset}"))
    return replace_properties(header, {HEADERS: table.encode()})
