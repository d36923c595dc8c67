"""AMQP field tables (AMQP 0-9-1 section 4.2.5.5, with RabbitMQ's types) read and written without loss.  HOT.

A value is kept as its type tag and its octets, so what is not touched is written back bit for bit: order,
repeated keys, integer widths, floats and odd booleans included.  `to_python` gives the plain values that
pamqp would give.
"""

import datetime
import decimal
import struct
from typing import Final

from pamqp.common import FieldValue as PythonValue

MAX_DEPTH: Final = 100
"""How many tables and arrays may be nested; more is malformed.  Keeps recursion bounded."""

BOOLEAN: Final = 0x74
BYTE: Final = 0x62
UNSIGNED_BYTE: Final = 0x42
SHORT: Final = 0x73
UNSIGNED_SHORT: Final = 0x75
INTEGER: Final = 0x49
UNSIGNED_INTEGER: Final = 0x69
LONG: Final = 0x6C
LONG_TOO: Final = 0x4C
FLOAT: Final = 0x66
DOUBLE: Final = 0x64
DECIMAL: Final = 0x44
LONG_STRING: Final = 0x53
ARRAY: Final = 0x41
TIMESTAMP: Final = 0x54
TABLE: Final = 0x46
VOID: Final = 0x56
BINARY: Final = 0x78

TYPE_NAMES: Final[dict[int, str]] = {
    BOOLEAN: "bool",
    BYTE: "byte",
    UNSIGNED_BYTE: "unsignedbyte",
    SHORT: "short",
    UNSIGNED_SHORT: "unsignedshort",
    INTEGER: "signedint",
    UNSIGNED_INTEGER: "unsignedint",
    LONG: "long",
    LONG_TOO: "long",
    FLOAT: "float",
    DOUBLE: "double",
    DECIMAL: "decimal",
    LONG_STRING: "longstr",
    ARRAY: "array",
    TIMESTAMP: "timestamp",
    TABLE: "table",
    VOID: "void",
    BINARY: "binary",
}
"""RabbitMQ's names of the types, as its error texts print them."""

_SIZES: Final[dict[int, int]] = {
    BOOLEAN: 1,
    BYTE: 1,
    UNSIGNED_BYTE: 1,
    SHORT: 2,
    UNSIGNED_SHORT: 2,
    INTEGER: 4,
    UNSIGNED_INTEGER: 4,
    LONG: 8,
    LONG_TOO: 8,
    FLOAT: 4,
    DOUBLE: 8,
    DECIMAL: 5,
    TIMESTAMP: 8,
    VOID: 0,
}
_SIGNED: Final = frozenset((BYTE, SHORT, INTEGER, LONG, LONG_TOO))
_INTEGERS: Final = frozenset(
    (BYTE, UNSIGNED_BYTE, SHORT, UNSIGNED_SHORT, INTEGER, UNSIGNED_INTEGER, LONG, LONG_TOO)
)
_LENGTH: Final = struct.Struct(">I")
_FLOAT: Final = struct.Struct(">f")
_DOUBLE: Final = struct.Struct(">d")
_LAST_SECOND: Final = 0xFFFFFFFF
_LAST_MOMENT: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
_LONGEST_KEY_BYTES: Final = 255

EMPTY_TABLE_BYTES: Final = 4
"""A table without entries: its length octets."""


class MalformedTableError(ValueError):
    """Octets that are not a field table: cut short, of an unknown type, or nested too deeply."""


def check_table(data: bytes, start: int, end: int, depth: int = 0) -> None:
    """Assure that data[start:end] (without a length prefix) is a sequence of table entries.

    Raises MalformedTableError.  Takes time linear in its length.
    """
    at = start
    while at < end:
        at += 1 + data[at]
        if at >= end:
            raise MalformedTableError("a field name runs past the end of its table")
        at = _checked_end(data, at, end, depth)


def _check_array(data: bytes, start: int, end: int, depth: int) -> None:
    at = start
    while at < end:
        at = _checked_end(data, at, end, depth)


def _checked_end(data: bytes, at: int, end: int, depth: int) -> int:
    """Where the value whose tag stands at `at` ends, everything inside it checked."""
    tag = data[at]
    start = at + 1
    size = _SIZES.get(tag, -1)
    if size >= 0:
        stop = start + size
        if stop > end:
            raise MalformedTableError("a field value runs past the end of its table")
        return stop
    if start + 4 > end:
        raise MalformedTableError("a field value runs past the end of its table")
    length: int = _LENGTH.unpack_from(data, start)[0]
    start += 4
    stop = start + length
    if stop > end:
        raise MalformedTableError("a field value runs past the end of its table")
    if tag in (TABLE, ARRAY):
        if depth >= MAX_DEPTH:
            raise MalformedTableError(f"tables nested more than {MAX_DEPTH} deep")
        if tag == TABLE:
            check_table(data, start, stop, depth + 1)
        else:
            _check_array(data, start, stop, depth + 1)
    elif tag != LONG_STRING and tag != BINARY:
        raise MalformedTableError(f"unknown field type {tag}")
    return stop


def value_end(data: bytes, at: int) -> int:
    """Where the value whose tag stands at `at` ends, in data that was checked."""
    size = _SIZES.get(data[at], -1)
    if size >= 0:
        return at + 1 + size
    length: int = _LENGTH.unpack_from(data, at + 1)[0]
    return at + 5 + length


class FieldValue:
    """One typed value: `tag` is the type octet, `raw` the octets after it, exactly as on the wire."""

    __slots__ = ("raw", "tag")

    def __init__(self, tag: int, raw: bytes) -> None:
        self.tag: int = tag
        self.raw: bytes = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldValue) and self.tag == other.tag and self.raw == other.raw

    def __hash__(self) -> int:
        return hash((self.tag, self.raw))

    def __repr__(self) -> str:
        return f"FieldValue({chr(self.tag)!r}, {self.raw!r})"

    def type_name(self) -> str:
        """RabbitMQ's name of the type: longstr, signedint, long, bool ..."""
        return TYPE_NAMES[self.tag]

    def is_integer(self) -> bool:
        """Whether this is any of the integer types."""
        return self.tag in _INTEGERS

    def integer(self) -> int:
        """The number of an integer, boolean or timestamp value; TypeError for another type."""
        if self.tag in _INTEGERS:
            return int.from_bytes(self.raw, "big", signed=self.tag in _SIGNED)
        if self.tag == TIMESTAMP or self.tag == BOOLEAN:
            return int.from_bytes(self.raw, "big")
        raise TypeError(f"{self.type_name()} is not a number")

    def octets(self) -> bytes:
        """The octets of a long string or binary value; TypeError for another type."""
        if self.tag != LONG_STRING and self.tag != BINARY:
            raise TypeError(f"{self.type_name()} is not a string")
        return self.raw[4:]

    def text(self) -> str:
        """A long string as text; what is not UTF-8 in it survives `long_string(text)`."""
        return self.octets().decode("utf-8", "surrogateescape")

    def table(self) -> "FieldTable":
        """A table value; TypeError for another type."""
        if self.tag != TABLE:
            raise TypeError(f"{self.type_name()} is not a table")
        return FieldTable.of_checked(self.raw)

    def array(self) -> list["FieldValue"]:
        """The elements of an array value; TypeError for another type."""
        if self.tag != ARRAY:
            raise TypeError(f"{self.type_name()} is not an array")
        elements: list[FieldValue] = []
        raw = self.raw
        at = 4
        end = len(raw)
        while at < end:
            stop = value_end(raw, at)
            elements.append(FieldValue(raw[at], raw[at + 1 : stop]))
            at = stop
        return elements

    def python(self) -> PythonValue:
        """The plain value that pamqp would decode (see `to_python`)."""
        return to_python(self.tag, self.raw)


class FieldTable:
    """A table as an ordered list of (name, value); `encode` of an untouched one gives the same octets."""

    __slots__ = ("entries",)

    def __init__(self, entries: list[tuple[str, FieldValue]] | None = None) -> None:
        self.entries: list[tuple[str, FieldValue]] = [] if entries is None else entries

    @staticmethod
    def decode(data: bytes) -> "FieldTable":
        """Read a table with its four length octets, nothing before or after.  Raises MalformedTableError."""
        if len(data) < 4 or _LENGTH.unpack_from(data)[0] != len(data) - 4:
            raise MalformedTableError("the length of the table is not that of its octets")
        check_table(data, 4, len(data))
        return FieldTable.of_checked(data)

    @staticmethod
    def of_checked(data: bytes) -> "FieldTable":
        """`decode` for octets already known to be well formed."""
        entries: list[tuple[str, FieldValue]] = []
        at = 4
        end = len(data)
        while at < end:
            value_at = at + 1 + data[at]
            key = data[at + 1 : value_at].decode("utf-8", "surrogateescape")
            at = value_end(data, value_at)
            entries.append((key, FieldValue(data[value_at], data[value_at + 1 : at])))
        return FieldTable(entries)

    def encode(self) -> bytes:
        """The octets, length prefix included.  ValueError if a name is longer than 255 octets."""
        parts: list[bytes] = [b""]
        size = 0
        for key, value in self.entries:
            name = key.encode("utf-8", "surrogateescape")
            if len(name) > _LONGEST_KEY_BYTES:
                raise ValueError(f"the field name {key!r} is longer than {_LONGEST_KEY_BYTES} octets")
            part = b"%c%b%c%b" % (len(name), name, value.tag, value.raw)
            parts.append(part)
            size += len(part)
        parts[0] = _LENGTH.pack(size)
        return b"".join(parts)

    def get(self, key: str) -> FieldValue | None:
        """The first value of that name, or None."""
        for name, value in self.entries:
            if name == key:
                return value
        return None

    def set(self, key: str, value: FieldValue) -> None:
        """Replace the first value of that name where it stands, or append it."""
        for position, (name, _) in enumerate(self.entries):
            if name == key:
                self.entries[position] = (key, value)
                return
        self.entries.append((key, value))

    def remove(self, key: str) -> bool:
        """Remove every value of that name; whether there was one."""
        kept = [entry for entry in self.entries if entry[0] != key]
        changed = len(kept) != len(self.entries)
        self.entries = kept
        return changed

    def python(self) -> dict[str, PythonValue]:
        """The plain dict that pamqp would decode."""
        return {key: to_python(value.tag, value.raw) for key, value in self.entries}

    def __contains__(self, key: object) -> bool:
        return any(name == key for name, _ in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldTable) and self.entries == other.entries

    def __hash__(self) -> int:
        raise TypeError("a FieldTable can change and has no hash")

    def __repr__(self) -> str:
        return f"FieldTable({self.entries!r})"


def boolean(value: bool) -> FieldValue:
    """A `t` value."""
    return FieldValue(BOOLEAN, b"\x01" if value else b"\x00")


def integer(value: int) -> FieldValue:
    """An `I` value: 32 bits, signed.  OverflowError if it does not fit."""
    return FieldValue(INTEGER, value.to_bytes(4, "big", signed=True))


def long_integer(value: int) -> FieldValue:
    """An `l` value: 64 bits, signed.  OverflowError if it does not fit."""
    return FieldValue(LONG, value.to_bytes(8, "big", signed=True))


def timestamp(seconds: int) -> FieldValue:
    """A `T` value: seconds since 1970.  OverflowError if it does not fit in 64 bits unsigned."""
    return FieldValue(TIMESTAMP, seconds.to_bytes(8, "big"))


def long_string(value: str | bytes) -> FieldValue:
    """An `S` value."""
    octets = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return FieldValue(LONG_STRING, _LENGTH.pack(len(octets)) + octets)


def array(elements: list[FieldValue]) -> FieldValue:
    """An `A` value."""
    octets = b"".join([b"%c%b" % (element.tag, element.raw) for element in elements])
    return FieldValue(ARRAY, _LENGTH.pack(len(octets)) + octets)


def table(content: FieldTable) -> FieldValue:
    """An `F` value."""
    return FieldValue(TABLE, content.encode())


def to_python(tag: int, raw: bytes) -> PythonValue:
    """The plain value of well-formed octets, as pamqp decodes them, in time linear in their length.

    Strings that are not UTF-8 are bytes, timestamps are datetimes in UTC (pamqp reads those beyond 2106 as
    milliseconds), the last one there is where a datetime cannot hold them; names that are not UTF-8 get
    replacement characters.
    """
    if tag == LONG_STRING:
        try:
            return raw[4:].decode("utf-8")
        except UnicodeDecodeError:
            return raw[4:]
    if tag in _INTEGERS:
        return int.from_bytes(raw, "big", signed=tag in _SIGNED)
    if tag == BOOLEAN:
        return raw != b"\x00"
    if tag == TABLE:
        return table_to_python(raw)
    if tag == ARRAY:
        return [to_python(element.tag, element.raw) for element in FieldValue(ARRAY, raw).array()]
    if tag == TIMESTAMP:
        moment = timestamp_to_python(int.from_bytes(raw, "big"))
        return _LAST_MOMENT if isinstance(moment, int) else moment
    if tag == DOUBLE:
        number: float = _DOUBLE.unpack(raw)[0]
        return number
    if tag == FLOAT:
        short_number: float = _FLOAT.unpack(raw)[0]
        return short_number
    if tag == DECIMAL:
        scaled = decimal.Decimal(int.from_bytes(raw[1:], "big", signed=True))
        return scaled * (decimal.Decimal(10) ** -raw[0])
    if tag == BINARY:
        return bytearray(raw[4:])
    return None


def table_to_python(raw: bytes) -> dict[str, PythonValue]:
    """A well-formed table, with its length octets, as a dict; of repeated names the last one counts."""
    values: dict[str, PythonValue] = {}
    at = 4
    end = len(raw)
    while at < end:
        value_at = at + 1 + raw[at]
        key = raw[at + 1 : value_at].decode("utf-8", "replace")
        at = value_end(raw, value_at)
        values[key] = to_python(raw[value_at], raw[value_at + 1 : at])
    return values


def value_in(data: bytes, start: int, end: int, name: bytes) -> FieldValue | None:
    """The first value of that name in data[start:end], a well-formed table with its length octets, or None; nothing
    else of it is decoded."""
    at = start + 4
    while at < end:
        value_at = at + 1 + data[at]
        stop = value_end(data, value_at)
        if data[at + 1 : value_at] == name:
            return FieldValue(data[value_at], data[value_at + 1 : stop])
        at = stop
    return None


def values_in(raw: bytes) -> int:
    """How many values a well-formed table with its length octets has, those inside of tables and arrays as well; 0 for
    b""."""
    return _values_in(raw, 4, len(raw), True)


def _values_in(data: bytes, start: int, end: int, named: bool) -> int:
    count = 0
    at = start
    while at < end:
        if named:
            at += 1 + data[at]
        tag = data[at]
        stop = value_end(data, at)
        count += 1
        if tag in (TABLE, ARRAY):
            count += _values_in(data, at + 5, stop, tag == TABLE)
        at = stop
    return count


def types_of(raw: bytes) -> dict[str, str]:
    """RabbitMQ's names for the types of the values in a well-formed table with its length octets; none for b""."""
    types: dict[str, str] = {}
    at = 4
    end = len(raw)
    while at < end:
        value_at = at + 1 + raw[at]
        types[raw[at + 1 : value_at].decode("utf-8", "replace")] = TYPE_NAMES[raw[value_at]]
        at = value_end(raw, value_at)
    return types


def timestamp_to_python(seconds: int) -> datetime.datetime | int:
    """A timestamp as pamqp reads it; the number itself where no datetime can hold it."""
    try:
        if seconds > _LAST_SECOND:
            return datetime.datetime.fromtimestamp(seconds / 1000.0, tz=datetime.UTC)
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return seconds
