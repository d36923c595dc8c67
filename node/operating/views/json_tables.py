"""Field tables and properties from JSON, with the types that RabbitMQ's management API gives them, and back."""

import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from mayfly.node.amqp import content
from mayfly.node.amqp.field_table import (
    DOUBLE,
    FieldTable,
    FieldValue,
    array,
    boolean,
    long_integer,
    long_string,
    table,
    timestamp,
)
from mayfly.node.content_header import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    MESSAGE_TYPE,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    USER_ID,
)
from mayfly.node.operating.views.json_values import json_value

_DOUBLE: Final = struct.Struct(">d")
_DEEPEST: Final = 32
_HEADER_START: Final = (60).to_bytes(2, "big") + bytes(2)
_SHORT_STRINGS: Final[dict[str, int]] = {
    "content_type": CONTENT_TYPE,
    "content_encoding": CONTENT_ENCODING,
    "correlation_id": CORRELATION_ID,
    "reply_to": REPLY_TO,
    "expiration": EXPIRATION,
    "message_id": MESSAGE_ID,
    "type": MESSAGE_TYPE,
    "user_id": USER_ID,
    "app_id": APP_ID,
    "cluster_id": CLUSTER_ID,
}
_OCTETS: Final[dict[str, int]] = {"delivery_mode": DELIVERY_MODE, "priority": PRIORITY}
_FLAGS: Final[dict[str, int]] = {
    **_SHORT_STRINGS, **_OCTETS, "timestamp": TIMESTAMP, "headers": HEADERS
}  # fmt: skip


def field_table(values: Mapping[str, Any], depth: int = 0) -> FieldTable:
    """Numbers are 64 bits long, texts are long strings. Raises ValueError with a text for the client."""
    if depth > _DEEPEST:
        raise ValueError(f"tables nested more than {_DEEPEST} deep")
    return FieldTable([(str(name), _field_value(value, depth)) for name, value in values.items()])


def _field_value(value: object, depth: int) -> FieldValue:
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{value} does not fit into 64 bits")
        return long_integer(value)
    if isinstance(value, float):
        return FieldValue(DOUBLE, _DOUBLE.pack(value))
    if isinstance(value, str | bytes):
        return long_string(value)
    if isinstance(value, datetime):
        return timestamp(int(value.timestamp()))
    if isinstance(value, list):
        if depth > _DEEPEST:
            raise ValueError(f"lists nested more than {_DEEPEST} deep")
        return array([_field_value(each, depth + 1) for each in value])
    if isinstance(value, dict):
        return table(field_table(value, depth + 1))
    if value is None:
        raise ValueError("null_not_allowed: a null has no type that a client could expect")
    raise ValueError(f"a {type(value).__name__} is not known in field tables")


def content_header(properties: Mapping[str, Any], body_bytes: int) -> bytes:
    """The payload of a content header; properties that class basic does not have are left out, as in RabbitMQ. Raises
    ValueError with a text for the client."""
    changes: dict[int, bytes | None] = {}
    for name, value in properties.items():
        if value is None:
            continue
        if name in _SHORT_STRINGS:
            changes[_SHORT_STRINGS[name]] = _short(name, value)
        elif name in _OCTETS:
            changes[_OCTETS[name]] = _number(name, value, 1)
        elif name == "timestamp":
            changes[TIMESTAMP] = _number(name, value, 8)
        elif name == "headers":
            if not isinstance(value, dict):
                raise ValueError("properties.headers takes an object")
            changes[HEADERS] = field_table(value).encode()
    bare = _HEADER_START + body_bytes.to_bytes(8, "big") + bytes(2)
    return content.replace_properties(bare, changes)


def _short(name: str, value: object) -> bytes:
    # Tools send an expiration as a number.
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"properties.{name} takes a string")
    return content.short_string(value)


def _number(name: str, value: object, size: int) -> bytes:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << (8 * size):
        raise ValueError(f"properties.{name} takes a number of {size * 8} bits")
    return value.to_bytes(size, "big")


def shown_properties(header: bytes) -> dict[str, Any]:
    """Those in the payload of a content header, as RabbitMQ shows them; a timestamp is in seconds."""
    given = content.Content(b"", header, b"")
    properties = given.properties()
    shown: dict[str, Any] = {}
    for name, flag in _FLAGS.items():
        value = getattr(properties, "message_type" if name == "type" else name)
        if given.has_property(flag) and value is not None:
            shown[name] = int(value.timestamp()) if isinstance(value, datetime) else json_value(value)
    return shown
