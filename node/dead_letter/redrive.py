"""Where a message of a dead-letter queue goes when it is redriven, and what its headers say then (RULES R1).

`x-death` stays as it is. Where the message came from is the newest death in it of another queue than the one it is in:
it goes to that queue, and to no other that its old exchange may lead to; exchange and routing key are shown to its
consumers as they were when it died there. A named queue is the same; to a named exchange it is published anew, with the
key that it had, or with another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mayfly.node.amqp.content import Content, property_span, replace_properties, short_string
from mayfly.node.amqp.field_table import (
    ARRAY,
    BOOLEAN,
    LONG_STRING,
    TABLE,
    FieldTable,
    FieldValue,
    long_integer,
    long_string,
    table_to_python,
)
from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.catalog.routing_steps import TooManySteps
from mayfly.node.content_header import HEADERS
from mayfly.node.dead_letter.death_headers import (
    REDRIVE_COUNT,
    REDRIVE_DEATHS,
    REDRIVEN_FROM,
    PublishedContent,
    count_of,
    deaths_in,
)
from mayfly.node.dead_letter.publisher_headers import BCC, as_shown

_GREATEST_COUNT: Final = 2**63 - 1
_REMEMBERED: Final = 4096
_LONGEST_NAME: Final = 255


class RedriveTerms(msgspec.Struct, array_like=True, frozen=True):
    """Which messages are redriven, and where to: None, and no headers, for any.

    ``queue`` or ``exchange`` name the target, in the vhost of the dead-letter queue; without either a message goes back
    to where it came from. ``routing_key`` goes with an exchange: instead of that which the message had.
    ``reason`` is that of the death by which it came here, ``origin`` the queue in which it died, ``key`` one of the
    routing keys that it had there, ``headers`` what its headers have (numbers as decimals, booleans as `true` and
    `false`). ``min_age_ms`` and ``max_age_ms``: how long it had been in this queue when the redrive began.
    """

    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    reason: str | None = None
    origin: str | None = None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    min_age_ms: int | None = None
    max_age_ms: int | None = None

    @property
    def to_source(self) -> bool:
        """Whether messages go back to where they came from."""
        return self.queue is None and self.exchange is None

    def encoded(self) -> bytes:
        """As a shard keeps it."""
        return _encoder.encode(self)

    def is_of_age(self, age_ms: int) -> bool:
        """Whether a message that had been in the queue for so long is meant."""
        if self.min_age_ms is not None and age_ms < self.min_age_ms:
            return False
        return self.max_age_ms is None or age_ms <= self.max_age_ms


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(RedriveTerms)


def terms_of(encoded: bytes) -> RedriveTerms:
    """What `RedriveTerms.encoded` has made. Raises msgspec.MsgspecError."""
    return _decoder.decode(encoded)


class Origin:
    """The death by which a message came to a queue: where it died and why, and how it had been published."""

    __slots__ = ("exchange", "keys", "queue", "reason")

    def __init__(self, queue: str, reason: str, exchange: str, keys: list[str]) -> None:
        self.queue = queue
        self.reason = reason
        self.exchange = exchange
        self.keys = keys


class RedriveDecision:
    """What is to become of one message: nothing if it is not ``meant``, nor if it has no route (no ``targets``).
    ``content`` is it as it goes there; ``origin`` is None of one that never died."""

    __slots__ = ("content", "meant", "origin", "targets")

    def __init__(
        self, meant: bool, origin: Origin | None = None, content: Content | None = None,
        targets: tuple[QueueRecord, ...] = (),
    ) -> None:
        self.meant = meant
        self.origin = origin
        self.content = content
        self.targets = targets


_NOT_MEANT: Final = RedriveDecision(False)


class RedriveRouter:
    """Decides with the local replica of the catalog, as of now. No part of the replicated state: its decisions are."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._version = -1
        self._routed: dict[tuple[str, str, tuple[str, ...]], tuple[QueueRecord, ...]] = {}

    def decide(
        self, vhost: str, queue: str, terms: RedriveTerms, content: PublishedContent, with_content: bool = True
    ) -> RedriveDecision:
        """About a message of a queue; its age is not looked at. Without ``with_content`` the decision may have none:
        who counts alone need not wait for it."""
        start, stop = property_span(content.header, HEADERS)
        headers = FieldTable() if start < 0 else FieldTable.of_checked(content.header[start:stop])
        origin = origin_of(headers, queue)
        published = Content(content.exchange_and_key, content.header, content.body)
        keys = [published.routing_key, *_copies(headers)] if origin is None else origin.keys
        if not _is_meant(terms, origin, keys, headers):
            return _NOT_MEANT
        exchange = published.exchange if origin is None else origin.exchange
        if terms.exchange is not None:
            exchange = terms.exchange
            keys = keys if terms.routing_key is None else [terms.routing_key]
        content_now: Content | None = None
        if with_content or (terms.exchange is not None and self._catalog.looks_at_headers(vhost, terms.exchange)):
            _mark(headers, queue)
            content_now = Content(
                short_string(_octets(exchange)) + short_string(_octets(keys[0])),
                replace_properties(content.header, {HEADERS: headers.encode()}),
                content.body,
            )
        try:
            targets = self._targets(vhost, terms, origin, keys, content_now)
        except TooManySteps:
            targets = ()
        return RedriveDecision(True, origin, content_now, targets)

    def _targets(
        self, vhost: str, terms: RedriveTerms, origin: Origin | None, keys: list[str], content: Content | None
    ) -> tuple[QueueRecord, ...]:
        if terms.exchange is None:
            name = terms.queue if terms.queue is not None else origin.queue if origin is not None else ""
            record = self._catalog.queue(vhost, name)
            return () if record is None or record.settings.mirror is not None else (record,)
        if content is not None and self._catalog.looks_at_headers(vhost, terms.exchange):
            header = as_shown(content.header)
            start, stop = property_span(header, HEADERS)
            return self._catalog.route(vhost, terms.exchange, keys[0], table_to_python(header[start:stop]), keys[1:])
        if self._version != self._catalog.routing_version or len(self._routed) >= _REMEMBERED:
            self._routed.clear()
            self._version = self._catalog.routing_version
        asked = (vhost, terms.exchange, tuple(keys))
        found = self._routed.get(asked)
        if found is None:
            found = self._routed[asked] = self._catalog.route(vhost, terms.exchange, keys[0], None, keys[1:])
        return found


def origin_of(headers: FieldTable, queue: str) -> Origin | None:
    """The newest death of a message in another queue than this; None for one that has no death that the broker knows
    of."""
    for record in deaths_in(headers):
        died_in, reason = _text(record, "queue"), _text(record, "reason")
        if died_in is None or died_in == queue:
            continue
        keys = _strings(record.get("routing-keys"))
        return Origin(died_in, reason or "", _text(record, "exchange") or "", keys or [died_in])
    return None


def _is_meant(terms: RedriveTerms, origin: Origin | None, keys: Sequence[str], headers: FieldTable) -> bool:
    if origin is None:
        if terms.to_source or terms.reason is not None or terms.origin is not None:
            return False
    elif terms.reason not in (None, origin.reason) or terms.origin not in (None, origin.queue):
        return False
    if terms.key is not None and terms.key not in keys:
        return False
    return all(_is_said(headers.get(name), text) for name, text in terms.headers)


def _is_said(value: FieldValue | None, text: str) -> bool:
    """Whether a header has this value, as one writes it."""
    if value is None or value.tag in (ARRAY, TABLE):
        return False
    if value.tag == LONG_STRING:
        return value.text() == text
    found = value.python()
    return (str(found).lower() if value.tag == BOOLEAN else str(found)) == text


def _mark(headers: FieldTable, queue: str) -> None:
    """Say in a message's headers that it is redriven from the queue, how often it was, and how many deaths it had had
    by then: from there on it may die anew in the same queues (RULES D5)."""
    before = headers.get(REDRIVE_COUNT)
    count = before.integer() if before is not None and before.is_integer() else 0
    headers.set(REDRIVE_COUNT, long_integer(min(max(count, 0) + 1, _GREATEST_COUNT)))
    headers.set(REDRIVEN_FROM, long_string(_octets(queue)))
    headers.set(REDRIVE_DEATHS, long_integer(min(count_of(deaths_in(headers)), _GREATEST_COUNT)))


def _copies(headers: FieldTable) -> list[str]:
    """The routing keys in CC and BCC."""
    return [key for name in ("CC", BCC) for key in _strings(headers.get(name))]


def _strings(value: FieldValue | None) -> list[str]:
    if value is None or value.tag != ARRAY:
        return []
    return [each.text() for each in value.array() if _is_short(each)]


def _text(record: FieldTable, name: str) -> str | None:
    value = record.get(name)
    return value.text() if value is not None and _is_short(value) else None


def _is_short(value: FieldValue) -> bool:
    """Whether it may be a name. (A client's x-death, stored before level LEVEL_PUBLISHER_HEADERS, has anything.)"""
    return value.tag == LONG_STRING and len(value.octets()) <= _LONGEST_NAME


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
