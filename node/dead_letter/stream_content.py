"""Content headers of what is in streams, as receivers see them and other streams get them (RULES J3, J4).

A shard keeps of a marker its key, its TTL and why it is there; its headers, from which receivers know it, are made
here. NATS ADR-43 has the names.
"""

import struct
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from mayfly.node.amqp.content import property_span, replace_properties
from mayfly.node.amqp.field_table import LONG_STRING, FieldTable, long_string
from mayfly.node.content_header import HEADERS
from mayfly.node.shard.message import MAX_AGE, PURGE, REMOVE, Message
from mayfly.node.shard.settings import MAX_NUMBER
from mayfly.node.shard.stream_ttls import duration_text

REASON: Final = "x-marker-reason"
NATS_REASON: Final = "Nats-Marker-Reason"
SOURCE: Final = "x-stream-source"
"""From which stream a message has come, and at which offset it is there: "NAME OFFSET"."""
PLACE: Final = "x-stream-place"
"""For a mirror in another cluster: which stream a message is in, at which offset, since when, and why as a marker:
"ID OFFSET MS REASON", with the ID of `stream_id`."""
_TTLS: Final = ("Nats-TTL", "x-ttl")
REASONS: Final = {MAX_AGE: "MaxAge", REMOVE: "Remove", PURGE: "Purge"}
_BASIC: Final = 60
_HEAD: Final = struct.Struct(">HHQH")
_FEW: Final = 64
_LENGTH_BYTES: Final = 4
_MOST_DIGITS: Final = 19
_HIGHEST: Final = 1 << 61
_ID_BYTES: Final = 8
_SPARE_BITS: Final = 3
"""An id of eight octets without them is below `_HIGHEST`."""


class StreamPlace(NamedTuple):
    """Where a message of a stream is: the stream's id (`stream_id`), the offset, since when
    it has been there (ms since 1970, by the clock of the stream's shard), and the reason of a marker, 0 of others."""

    stream: int
    offset: int
    enqueued_ms: int
    reason: int


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


def stream_id(cluster: str, queue_id: int, created_ms: int) -> int:
    """Which stream it is, for mirrors in other clusters: none that is declared anew has it, nor one of another cluster.

    A queue's id is unique within its cluster alone; a cluster that is founded anew by the same seeds is called as the
    one before, but its streams were not created in the same millisecond."""
    digest = sha256(f"{cluster}/{queue_id}/{created_ms}".encode()).digest()
    return int.from_bytes(digest[:_ID_BYTES], "big") >> _SPARE_BITS


def with_place(header: bytes, stream: int, message: Message) -> bytes:
    """The content header of a message of the stream with this id, as a mirror in another cluster is given it."""
    start, stop = property_span(header, HEADERS)
    table = FieldTable() if start < 0 else FieldTable.of_checked(header[start:stop])
    place = (stream, message.stream_offset, message.enqueued_ms, message.marker_reason)
    table.set(PLACE, long_string(" ".join([str(number) for number in place])))
    return replace_properties(header, {HEADERS: table.encode()})


def without_place(header: bytes) -> tuple[bytes, StreamPlace | None]:
    """A checked content header as it was before `with_place`, and what that has said; None if it says no such thing, or
    what no shard could hold."""
    start, stop = property_span(header, HEADERS)
    if start < 0:
        return header, None
    table = FieldTable.of_checked(header[start:stop])
    said = table.get(PLACE)
    numbers = [] if said is None or said.tag != LONG_STRING else said.raw[_LENGTH_BYTES:].split(b" ")
    if len(numbers) != len(StreamPlace._fields) or not all(_is_number(number) for number in numbers):
        return header, None
    table.remove(PLACE)
    stream, offset, enqueued_ms, reason = [int(number) for number in numbers]
    if (reason and reason not in REASONS) or enqueued_ms > MAX_NUMBER:
        return header, None
    left = table.encode() if len(table) else None
    return replace_properties(header, {HEADERS: left}), StreamPlace(stream, offset, enqueued_ms, reason)


def _is_number(octets: bytes) -> bool:
    return octets.isdigit() and len(octets) <= _MOST_DIGITS and int(octets) < _HIGHEST
