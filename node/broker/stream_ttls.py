"""How long a publish lives in streams: the headers `Nats-TTL` and `x-ttl` (RULES J2).

They mean something only where a message goes to a stream; then one that is no TTL, or that the stream does not allow,
is refused, and nothing is stored.
"""

from __future__ import annotations

from typing import Final

from mayfly.node.amqp.content import Content, property_span, replace_properties
from mayfly.node.amqp.field_table import FieldTable, FieldValue, long_string, to_python
from mayfly.node.content_header import HEADERS
from mayfly.node.shard.dialect import NEVER_TTL
from mayfly.node.shard.message import NO_TTL
from mayfly.node.shard.stream_ttls import message_ttl_ms

NATS_TTL: Final = "Nats-TTL"
TTL: Final = "x-ttl"
NO_FLOOR: Final = -1
"""The floor of a route: none of its streams says that publishes may have TTLs, or one does not."""
_SECOND_MS: Final = 1_000
_SHOWN_CHARACTERS: Final = 100


class RefusedTtl(Exception):
    """Why the message is not taken."""


def stream_ttl_ms(content: Content, floor_ms: int) -> int:
    """The TTL that the message is to have in streams; NO_TTL for one that says nothing of it, or 0. Below the floor it
    is the floor. Raises RefusedTtl for what is none, and with NO_FLOOR."""
    found = _said(content)
    if found is None:
        return NO_TTL
    name, value = found
    ttl_ms = message_ttl_ms(_readable(value))
    if ttl_ms is None:
        shown = repr(_readable(value))[:_SHOWN_CHARACTERS]
        raise RefusedTtl(
            f"{name} = {shown}: seconds, a duration such as 1h30m, at least 1 second and at most ten years, or never "
            "is expected"
        )
    if ttl_ms == NO_TTL:
        return NO_TTL
    if floor_ms == NO_FLOOR:
        raise RefusedTtl(f"{name} is there, and the stream was not declared with x-allow-msg-ttl = true")
    return max(ttl_ms, floor_ms)


def with_ttl(header: bytes, ttl_ms: int) -> bytes:
    """The content header that says how long the message lives, as it does: in seconds, where that is longer than it
    said."""
    start, stop = property_span(header, HEADERS)
    table = FieldTable.of_checked(header[start:stop])
    for name in (NATS_TTL, TTL):
        value = table.get(name)
        if value is None:
            continue
        said_ms = message_ttl_ms(_readable(value))
        if said_ms is not None and NO_TTL < said_ms < ttl_ms != NEVER_TTL:
            table.set(name, long_string(str(-(-ttl_ms // _SECOND_MS))))
            header = replace_properties(header, {HEADERS: table.encode()})
    return header


def _said(content: Content) -> tuple[str, FieldValue] | None:
    """The header that says it, and its value: `Nats-TTL` where both are there."""
    table = content.headers_table()
    if table is None:
        return None
    for name in (NATS_TTL, TTL):
        value = table.get(name)
        if value is not None:
            return name, value
    return None


def _readable(value: FieldValue) -> object:
    return value.integer() if value.is_integer() else to_python(value.tag, value.raw)
