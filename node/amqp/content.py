"""A message as the wire carries it, and quick looks into its content header.  HOT.

How a content header is laid out: `node.content_header`. Nothing here decodes more than what is asked for.
"""

import struct
from typing import Final

from pamqp.commands import Basic

from mayfly.node.amqp.field_table import (
    FieldTable,
    FieldValue,
    MalformedTableError,
    check_table,
    table_to_python,
    timestamp_to_python,
    value_in,
)
from mayfly.node.content_header import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    FLAGS_AT,
    HEADERS,
    MESSAGE_ID,
    MESSAGE_TYPE,
    MORE_FLAGS,
    PRIORITY,
    PROPERTIES_AT,
    REPLY_TO,
    TIMESTAMP,
    USER_ID,
)

BASIC_CLASS_ID: Final = 60

_NO_PROPERTY: Final = 0x0002

_SHORT_STRING: Final = -1
_TABLE: Final = -2

# Every property in wire order: its flag, and its size in octets or how to find it.
_LAYOUT: Final[list[tuple[int, int]]] = [
    (CONTENT_TYPE, _SHORT_STRING),
    (CONTENT_ENCODING, _SHORT_STRING),
    (HEADERS, _TABLE),
    (DELIVERY_MODE, 1),
    (PRIORITY, 1),
    (CORRELATION_ID, _SHORT_STRING),
    (REPLY_TO, _SHORT_STRING),
    (EXPIRATION, _SHORT_STRING),
    (MESSAGE_ID, _SHORT_STRING),
    (TIMESTAMP, 8),
    (MESSAGE_TYPE, _SHORT_STRING),
    (USER_ID, _SHORT_STRING),
    (APP_ID, _SHORT_STRING),
    (CLUSTER_ID, _SHORT_STRING),
]
_NAMES: Final[dict[int, str]] = {
    CONTENT_TYPE: "content_type",
    CONTENT_ENCODING: "content_encoding",
    HEADERS: "headers",
    DELIVERY_MODE: "delivery_mode",
    PRIORITY: "priority",
    CORRELATION_ID: "correlation_id",
    REPLY_TO: "reply_to",
    EXPIRATION: "expiration",
    MESSAGE_ID: "message_id",
    TIMESTAMP: "timestamp",
    MESSAGE_TYPE: "message_type",
    USER_ID: "user_id",
    APP_ID: "app_id",
    CLUSTER_ID: "cluster_id",
}
_PRESENT: Final[dict[int, list[tuple[int, int]]]] = {}
"""Those of a header with these flags."""
_MOST_REMEMBERED: Final = 256
_BEFORE_EXPIRATION: Final = 0xFE00
_LENGTH: Final = struct.Struct(">I")


class MalformedHeaderError(ValueError):
    """A content header whose properties do not fill it exactly, or whose headers are no field table."""


def check_header(header: bytes) -> None:
    """Assure that the properties of a content header payload are well formed.

    Raises MalformedHeaderError.  A header that passes never makes another function of this module raise.
    """
    end = len(header)
    if end < PROPERTIES_AT:
        raise MalformedHeaderError("the content header is too short")
    flags = header[FLAGS_AT] << 8 | header[FLAGS_AT + 1]
    at = PROPERTIES_AT
    if flags:
        if flags & MORE_FLAGS:
            raise MalformedHeaderError("properties that class basic does not have")
        for flag, size in _LAYOUT:
            if not flags & flag:
                continue
            if at >= end:
                raise MalformedHeaderError("a property runs past the end of the content header")
            if size == _SHORT_STRING:
                at += 1 + header[at]
            elif size == _TABLE:
                start = at + 4
                if start > end:
                    raise MalformedHeaderError("a property runs past the end of the content header")
                length: int = _LENGTH.unpack_from(header, at)[0]
                at = start + length
                if at > end:
                    raise MalformedHeaderError("a property runs past the end of the content header")
                try:
                    check_table(header, start, at)
                except MalformedTableError as error:
                    raise MalformedHeaderError(str(error)) from error
            else:
                at += size
    if at != end:
        raise MalformedHeaderError("the properties do not fill the content header")


def property_span(header: bytes, wanted: int) -> tuple[int, int]:
    """Start and end of one property's octets (with their length octets) in a header; (-1, -1) if absent."""
    flags = header[FLAGS_AT] << 8 | header[FLAGS_AT + 1]
    if not flags & wanted:
        return -1, -1
    at = PROPERTIES_AT
    for flag, size in _present(flags):
        if size == _SHORT_STRING:
            stop = at + 1 + header[at]
        elif size == _TABLE:
            length: int = _LENGTH.unpack_from(header, at)[0]
            stop = at + 4 + length
        else:
            stop = at + size
        if flag == wanted:
            return at, stop
        at = stop
    return -1, -1


def id_and_headers(header: bytes) -> tuple[int, int, int, int]:
    """`property_span` of `message-id` and of the headers, at one look."""
    flags = header[FLAGS_AT] << 8 | header[FLAGS_AT + 1]
    at = PROPERTIES_AT
    if flags & CONTENT_TYPE:
        at += 1 + header[at]
    if flags & CONTENT_ENCODING:
        at += 1 + header[at]
    headers_at = headers_stop = -1
    if flags & HEADERS:
        headers_at = at
        at += 4 + (header[at] << 24 | header[at + 1] << 16 | header[at + 2] << 8 | header[at + 3])
        headers_stop = at
    if not flags & MESSAGE_ID:
        return -1, -1, headers_at, headers_stop
    if flags & DELIVERY_MODE:
        at += 1
    if flags & PRIORITY:
        at += 1
    if flags & CORRELATION_ID:
        at += 1 + header[at]
    if flags & REPLY_TO:
        at += 1 + header[at]
    if flags & EXPIRATION:
        at += 1 + header[at]
    return at, at + 1 + header[at], headers_at, headers_stop


def _present(flags: int) -> list[tuple[int, int]]:
    """Of `_LAYOUT` what headers with these flags have. Those in use are few."""
    found = _PRESENT.get(flags)
    if found is None:
        if len(_PRESENT) >= _MOST_REMEMBERED:
            _PRESENT.clear()
        found = _PRESENT[flags] = [each for each in _LAYOUT if flags & each[0]]
    return found


def replace_properties(header: bytes, changes: dict[int, bytes | None]) -> bytes:
    """The header with some properties set, replaced or (None) removed; all others stay bit for bit.

    `changes` maps a property's flag to its octets as on the wire: `short_string(...)`, `FieldTable.encode()`,
    one octet for delivery mode and priority, eight for the timestamp.
    """
    flags = header[FLAGS_AT] << 8 | header[FLAGS_AT + 1]
    parts: list[bytes] = [b""]
    new_flags = flags & _NO_PROPERTY
    at = PROPERTIES_AT
    for flag, size in _LAYOUT:
        start = at
        if flags & flag:
            if size == _SHORT_STRING:
                at += 1 + header[at]
            elif size == _TABLE:
                length: int = _LENGTH.unpack_from(header, at)[0]
                at += 4 + length
            else:
                at += size
        value: bytes | None = changes[flag] if flag in changes else header[start:at] if flags & flag else None
        if value is not None:
            new_flags |= flag
            parts.append(value)
    parts[0] = header[:FLAGS_AT] + new_flags.to_bytes(2, "big")
    return b"".join(parts)


def short_string(text: str | bytes) -> bytes:
    """A short string as on the wire.  ValueError if it is longer than 255 octets."""
    octets = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    if len(octets) > 255:
        raise ValueError("a short string has at most 255 octets")
    return b"%c%b" % (len(octets), octets)


def decode_properties(header: bytes) -> Basic.Properties:
    """All properties of a well-formed header as pamqp's object, as pamqp would decode them.

    A timestamp that no datetime can hold is left out; text that is not UTF-8 gets replacement characters.
    """
    properties = Basic.Properties()
    flags = header[FLAGS_AT] << 8 | header[FLAGS_AT + 1]
    at = PROPERTIES_AT
    for flag, size in _LAYOUT:
        if not flags & flag:
            continue
        if size == _SHORT_STRING:
            stop = at + 1 + header[at]
            setattr(properties, _NAMES[flag], header[at + 1 : stop].decode("utf-8", "replace"))
        elif size == _TABLE:
            length: int = _LENGTH.unpack_from(header, at)[0]
            stop = at + 4 + length
            properties.headers = table_to_python(header[at:stop])
        elif size == 8:
            stop = at + 8
            moment = timestamp_to_python(int.from_bytes(header[at:stop], "big"))
            if not isinstance(moment, int):
                properties.timestamp = moment
        else:
            stop = at + 1
            setattr(properties, _NAMES[flag], header[at])
        at = stop
    return properties


class Content:
    """One published message, in the octets it arrived in.

    exchange_and_key: exchange and routing key as two short strings, as in basic.publish and basic.deliver.
    header: the payload of the content header frame, well formed.
    body: the whole body.
    """

    __slots__ = ("body", "exchange_and_key", "header")

    def __init__(self, exchange_and_key: bytes, header: bytes, body: bytes) -> None:
        self.exchange_and_key: bytes = exchange_and_key
        self.header: bytes = header
        self.body: bytes = body

    @property
    def exchange(self) -> str:
        """Name of the exchange it was published to."""
        octets = self.exchange_and_key
        return octets[1 : 1 + octets[0]].decode("utf-8", "surrogateescape")

    @property
    def routing_key(self) -> str:
        """Its routing key."""
        octets = self.exchange_and_key
        return octets[2 + octets[0] :].decode("utf-8", "surrogateescape")

    @property
    def size_bytes(self) -> int:
        """Octets of names, header and body together."""
        return len(self.exchange_and_key) + len(self.header) + len(self.body)

    def properties(self) -> Basic.Properties:
        """All properties, decoded anew at each call; see `decode_properties`."""
        return decode_properties(self.header)

    def has_property(self, flag: int) -> bool:
        """Whether a property (one of the flags of this module) is present."""
        header = self.header
        return (header[FLAGS_AT] << 8 | header[FLAGS_AT + 1]) & flag != 0

    def short_property(self, flag: int) -> bytes | None:
        """The octets of a property that is a short string (user_id, reply_to, message_id ...), or None."""
        start, stop = property_span(self.header, flag)
        return None if start < 0 else self.header[start + 1 : stop]

    def expiration_bytes(self) -> bytes | None:
        """The `expiration` property as the client wrote it (RULES T2), or None."""
        header = self.header
        flags = header[FLAGS_AT] << 8 | header[FLAGS_AT + 1]
        if not flags & EXPIRATION:
            return None
        if flags & _BEFORE_EXPIRATION:
            start, stop = property_span(header, EXPIRATION)
            return header[start + 1 : stop]
        return header[PROPERTIES_AT + 1 : PROPERTIES_AT + 1 + header[PROPERTIES_AT]]

    def headers_bytes(self) -> bytes | None:
        """The headers table with its length octets, as on the wire, or None."""
        start, stop = property_span(self.header, HEADERS)
        return None if start < 0 else self.header[start:stop]

    def headers_table(self) -> FieldTable | None:
        """The headers table with its types, or None."""
        octets = self.headers_bytes()
        return None if octets is None else FieldTable.of_checked(octets)

    def header_value(self, name: bytes) -> FieldValue | None:
        """The first value of that name in the headers table, or None; nothing else is decoded."""
        start, stop = property_span(self.header, HEADERS)
        return None if start < 0 else value_in(self.header, start, stop, name)

    def __repr__(self) -> str:
        return (
            f"Content(exchange={self.exchange!r}, routing_key={self.routing_key!r},"
            f" header={self.header.hex()}, body={len(self.body)} bytes)"
        )
