"""The TTL for streams that a message's own headers say (RULES J2), where nobody can be told that it is none: of what
was due or is dead, and of what comes from another stream. HOT for those; of publishes the publisher's node has read it.

Read by the state machine from the content header in the log: what counts there is part of what the log means.
"""

from struct import Struct
from typing import Final

from mayfly.node.shard.message import NO_TTL
from mayfly.node.shard.stream_ttls import message_ttl_ms

_NAMES: Final = (b"\x08Nats-TTL", b"\x05x-ttl")
_FLAGS_AT: Final = 12
_PROPERTIES_AT: Final = 14
# In the first octet of the flags (AMQP 0-9-1, 4.2.6.1 and 1.8.1).
_CONTENT_TYPE: Final = 0x80
_CONTENT_ENCODING: Final = 0x40
_HEADERS: Final = 0x20
_LENGTH: Final = Struct(">I")
_STRING: Final = 0x53
_SIGNED: Final = b"bsIlL"
_UNSIGNED: Final = b"Bui"
_SIZES: Final[dict[int, int]] = {
    0x74: 1, 0x62: 1, 0x42: 1, 0x73: 2, 0x75: 2, 0x49: 4, 0x69: 4, 0x6C: 8, 0x4C: 8, 0x66: 4, 0x64: 8, 0x44: 5, 0x54: 8,
    0x56: 0,
}  # fmt: skip
"""Octets of values by their tags (4.2.5.5, with RabbitMQ's); those of all others have a length before them."""


def said_ttl_ms(data: bytes, header_at: int, header_length: int) -> int:
    """In the content header at ``header_at``: that of `Nats-TTL`, else of `x-ttl`; NO_TTL where there is neither, or
    the one that counts says 0 or is no TTL."""
    header = data[header_at : header_at + header_length]
    if _NAMES[0] not in header and _NAMES[1] not in header:
        return NO_TTL
    start, end = _table(header)
    for name in _NAMES:
        at = _value_of(header, name, start, end)
        if at >= 0:
            value = _read(header, at, end)
            ttl_ms = None if value is None else message_ttl_ms(value)
            return NO_TTL if ttl_ms is None else ttl_ms
    return NO_TTL


def _table(header: bytes) -> tuple[int, int]:
    """Where the entries of the headers begin and end."""
    if len(header) <= _PROPERTIES_AT or not header[_FLAGS_AT] & _HEADERS:
        return 0, 0
    at = _PROPERTIES_AT
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if header[_FLAGS_AT] & flag and at < len(header):
            at += 1 + header[at]
    start = at + _LENGTH.size
    if start > len(header):
        return 0, 0
    length: int = _LENGTH.unpack_from(header, at)[0]
    return start, min(start + length, len(header))


def _value_of(header: bytes, name: bytes, start: int, end: int) -> int:
    """Where the tag of the first value of this name stands, -1 for none."""
    at = start
    while at < end:
        value_at = at + 1 + header[at]
        stop = _end_of(header, value_at, end) if value_at < end else end + 1
        if stop > end:
            break
        if header[at:value_at] == name:
            return value_at
        at = stop
    return -1


def _end_of(header: bytes, at: int, end: int) -> int:
    size = _SIZES.get(header[at], -1)
    if size >= 0:
        return at + 1 + size
    if at + 1 + _LENGTH.size > end:
        return end + 1
    length: int = _LENGTH.unpack_from(header, at + 1)[0]
    return at + 1 + _LENGTH.size + length


def _read(header: bytes, at: int, end: int) -> object:
    """The value, if it is an integer or a string; None if it is anything else."""
    tag = header[at]
    value = header[at + 1 : _end_of(header, at, end)]
    if tag in _SIGNED or tag in _UNSIGNED:
        return int.from_bytes(value, "big", signed=tag in _SIGNED)
    return value[_LENGTH.size :].decode("utf-8", "replace") if tag == _STRING else None
