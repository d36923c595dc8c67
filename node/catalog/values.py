"""Values of AMQP tables: their stored form, whether two are the same, and how RabbitMQ prints them.

The values are what pamqp decodes. It keeps no integer widths, so 1000 as an octet and as a long-long are
the same here, as they are for RabbitMQ's redeclare check (golden args.redeclare_ttl).
"""
from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

_ordered_encoder = msgspec.msgpack.Encoder(order="deterministic")

MAX_DEPTH: Final = 64

_SIGNED_INT_MIN: Final = -(2**31)
_SIGNED_INT_MAX: Final = 2**31 - 1


class NestedTooDeepError(ValueError):
    """A table within a table within a table, and so on, beyond MAX_DEPTH."""


def storable(value: Any, depth: int = 0) -> Any:
    """The value in the form it has after a round trip through a command or snapshot.

    Byte arrays become bytes, decimals strings, and times without a zone are taken as UTC. Raises
    NestedTooDeepError beyond MAX_DEPTH, long before the stack ends, which is not the same on every replica.
    """
    if depth > MAX_DEPTH:
        raise NestedTooDeepError(f"a table is nested more than {MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return {str(key): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(item, depth + 1) for item in value]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def table_key(table: Mapping[str, Any]) -> bytes:
    """Bytes that are equal for equal tables, whatever the order of their fields."""
    if not table:
        return b""
    return _ordered_encoder.encode(storable(table))


def same_value(one: Any, other: Any) -> bool:
    """Equal in type and value: 1, 1.0 and true are three different things."""
    if type(one) is type(other) and isinstance(one, (str, int)):
        return bool(one == other)
    try:
        return _ordered_encoder.encode(storable(one)) == _ordered_encoder.encode(storable(other))
    except (TypeError, ValueError, OverflowError):
        return False


def value_key(value: Any) -> bytes | None:
    """Bytes that are equal for values that are the same (see `same_value`); None for one that has none."""
    try:
        return _ordered_encoder.encode(storable(value))
    except (TypeError, ValueError, OverflowError):
        return None


def type_name(value: Any) -> str:
    """RabbitMQ's name of the field type a client most likely sent the value as."""
    if value is None:
        return "void"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if _SIGNED_INT_MIN <= value <= _SIGNED_INT_MAX else "long"
    if isinstance(value, (str, bytes)):
        return "longstr"
    if isinstance(value, float):
        return "double"
    if isinstance(value, (bytearray, memoryview)):
        return "binary"
    if isinstance(value, Decimal):
        return "decimal"
    if isinstance(value, datetime):
        return "timestamp"
    if isinstance(value, Mapping):
        return "table"
    return "array"


def plain(value: Any) -> str:
    """As Erlang's ~s for strings and ~p for the rest."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return erlang_term(value)


def erlang_term(value: Any, depth: int = 0) -> str:
    """As Erlang's ~p prints the decoded field value; what is nested more than MAX_DEPTH deep is left out."""
    if depth > MAX_DEPTH:
        return "..."
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    if isinstance(value, str):
        return f'<<"{_escaped(value)}">>' if value else "<<>>"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f'<<"{_escaped(bytes(value).decode("latin-1"))}">>' if value else "<<>>"
    if isinstance(value, datetime):
        return str(int(storable(value).timestamp()))
    if isinstance(value, Mapping):
        fields = (
            f"{{{erlang_term(str(key))},{type_name(item)},{erlang_term(item, depth + 1)}}}"
            for key, item in value.items()
        )
        return f"[{','.join(fields)}]"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(f'{{{type_name(item)},{erlang_term(item, depth + 1)}}}' for item in value)}]"
    return str(value)


def json_term(value: Any, depth: int = 0) -> str:
    """As Erlang's ~p prints a decoded JSON value; what is nested more than MAX_DEPTH deep is left out."""
    if depth > MAX_DEPTH:
        return "..."
    if value is None:
        return "null"
    if isinstance(value, str) and not value.isascii():
        return f'<<"{_escaped(value)}"/utf8>>'
    if isinstance(value, Mapping):
        fields = (f"{json_term(key)} => {json_term(value[key], depth + 1)}" for key in sorted(value))
        return f"#{{{','.join(fields)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(json_term(item, depth + 1) for item in value)}]"
    return erlang_term(value)


def erlang_string(text: str) -> str:
    """As Erlang's ~p prints a list of characters: quoted if all are printable, else a list of numbers."""
    if all(character in "\n\r\t\v\b\f\x1b" or 32 <= ord(character) <= 126 or 160 <= ord(character) <= 255
           for character in text):
        return f'"{_escaped(text)}"'
    return f"[{','.join(str(ord(character)) for character in text)}]"


_ESCAPES: Final = {
    "\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\b": "\\b", "\f": "\\f",
    "\x1b": "\\e",
}


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)
