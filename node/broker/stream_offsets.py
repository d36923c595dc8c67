"""The header that says at which offset of its stream a message is (RULES J1). HOT."""

import struct
from typing import Final

from mayfly.node.amqp.content import property_span, replace_properties
from mayfly.node.amqp.field_table import FieldTable, long_integer
from mayfly.node.content_header import HEADERS

OFFSET: Final = "x-stream-offset"
_NAME: Final = OFFSET.encode()
_ENTRY: Final = struct.Struct(f">B{len(_NAME)}scq")
_LENGTH: Final = struct.Struct(">I")


def with_offset(header: bytes, offset: int) -> bytes:
    """The content header with this offset among its headers, instead of one that the publisher has put there."""
    start, stop = property_span(header, HEADERS)
    entry = _ENTRY.pack(len(_NAME), _NAME, b"l", offset)
    if start < 0:
        return replace_properties(header, {HEADERS: _LENGTH.pack(len(entry)) + entry})
    table = header[start:stop]
    if _NAME in table:
        fields = FieldTable.of_checked(table)
        fields.set(OFFSET, long_integer(offset))
        return replace_properties(header, {HEADERS: fields.encode()})
    length = _LENGTH.pack(stop - start - _LENGTH.size + len(entry))
    return b"%b%b%b%b%b" % (header[:start], length, table[_LENGTH.size :], entry, header[stop:])
