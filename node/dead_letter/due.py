"""Where a message goes that has waited for a delayed exchange, and what its headers say then (RULES S1)."""

from __future__ import annotations

import math
from typing import Final, cast

from mayfly.node.amqp.content import Content, property_span, replace_properties
from mayfly.node.amqp.field_table import (
    ARRAY,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    LONG_STRING,
    SHORT,
    UNSIGNED_BYTE,
    UNSIGNED_INTEGER,
    UNSIGNED_SHORT,
    FieldTable,
    FieldValue,
    table_to_python,
)
from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.catalog.routing_steps import TooManySteps
from mayfly.node.content_header import HEADERS
from mayfly.node.dead_letter.death_headers import PublishedContent
from mayfly.node.dead_letter.publisher_headers import BCC, as_shown

DELAY: Final = "x-delay"

_SIGNED_INSTEAD: Final = {UNSIGNED_BYTE: SHORT, UNSIGNED_SHORT: INTEGER, UNSIGNED_INTEGER: LONG}
"""Types that have no negative numbers -> the next larger one that has."""
_MOST_DIGITS: Final = 18
_SIZES: Final = {SHORT: 2, INTEGER: 4, LONG: 8}


def delay_ms_of(value: FieldValue) -> int | None:
    """The ms in an `x-delay`: an integer, a text of decimal digits, or a float without its fraction; below 0 where the
    value is. None for what is no number."""
    if value.is_integer():
        return value.integer()
    if value.tag == LONG_STRING:
        digits = value.octets()
        return int(digits) if len(digits) <= _MOST_DIGITS and digits.isdigit() else None
    if value.tag == DOUBLE or value.tag == FLOAT:
        number = cast(float, value.python())
        return math.floor(number) if math.isfinite(number) else None
    return None


class DueDecision:
    """Where a message goes that is due: none of `targets` where it has no route. `content` is it, as it goes there."""

    __slots__ = ("content", "targets")

    def __init__(self, content: Content, targets: tuple[QueueRecord, ...]) -> None:
        self.content = content
        self.targets = targets


def decide_due(
    catalog: Catalog, vhost: str, exchange: str, queue_id: int, content: PublishedContent
) -> DueDecision:
    """Route it from the delayed exchange by the bindings that there are; nowhere if that is another one by now than the
    one with this queue, in which it has waited. Its keys and headers are what they were; `x-delay` is negated."""
    headers = _headers(content.header)
    shown = _with_negated_delay(content.header, headers)
    due = Content(content.exchange_and_key, shown, content.body)
    record = catalog.delay_queue(vhost, exchange)
    if record is None or record.id != queue_id:
        return DueDecision(due, ())
    seen = None
    if catalog.looks_at_headers(vhost, exchange):
        header = as_shown(shown)
        start, stop = property_span(header, HEADERS)
        seen = table_to_python(header[start:stop])
    copies = [key for name in ("CC", BCC) for key in _keys(headers, name)]
    try:
        return DueDecision(due, catalog.route(vhost, exchange, due.routing_key, seen, copies))
    except TooManySteps:
        return DueDecision(due, ())


def _headers(header: bytes) -> FieldTable:
    start, stop = property_span(header, HEADERS)
    return FieldTable() if start < 0 else FieldTable.of_checked(header[start:stop])


def _with_negated_delay(header: bytes, headers: FieldTable) -> bytes:
    """The content header with the delay that is over, so that who publishes it again as it is does not wait again."""
    delay = headers.get(DELAY)
    delay_ms = None if delay is None else delay_ms_of(delay)
    if delay is None or delay_ms is None:
        return header
    headers.set(DELAY, _negated(delay, delay_ms))
    return replace_properties(header, {HEADERS: headers.encode()})


def _negated(value: FieldValue, number: int) -> FieldValue:
    """The number of the other sign: of the same type if that is one of integers and has such."""
    if not value.is_integer():
        return FieldValue(LONG, (-number).to_bytes(_SIZES[LONG], "big", signed=True))
    tag = _SIGNED_INSTEAD.get(value.tag, value.tag)
    size = _SIZES[tag] if tag != value.tag else len(value.raw)
    return FieldValue(tag, (-number).to_bytes(size, "big", signed=True))


def _keys(headers: FieldTable, name: str) -> list[str]:
    """The routing keys in CC or BCC."""
    value = headers.get(name)
    if value is None or value.tag != ARRAY:
        return []
    return [each.text() for each in value.array() if each.tag == LONG_STRING]
