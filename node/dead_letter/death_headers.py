"""What dead-lettering does to a message: its death history, its expiration, its keys (RULES D3, D4).

The history is the header `x-death`, an array of tables, newest first, one for each queue and reason;
`x-first-death-*` and `x-last-death-*` sum it up. All are written with RabbitMQ's types (goldens dlx.*):
`count` is a long, `time` a timestamp (in the dialect of OtterMQ a string), the rest strings. Everything else of the
message stays bit for bit.
"""
from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final, Protocol

from mayfly.node.amqp.content import Content, property_span, replace_properties, short_string
from mayfly.node.amqp.field_table import (
    ARRAY,
    LONG_STRING,
    TABLE,
    FieldTable,
    FieldValue,
    array,
    long_integer,
    long_string,
    table,
    timestamp,
)
from mayfly.node.content_header import EXPIRATION, HEADERS
from mayfly.node.dead_letter.publisher_headers import BCC, X_DEATH, mark, marked

EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
QUEUE_EXPIRED: Final = "queue_expired"
REASONS: Final = (EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT, QUEUE_EXPIRED)
"""The causes of death (D2, L11)."""

REDRIVE_COUNT: Final = "x-redrive-count"
"""How often a message was redriven (RULES R1),"""
REDRIVEN_FROM: Final = "x-redriven-from"
"""the queue from which it was redriven last,"""
REDRIVE_DEATHS: Final = "x-redrive-deaths"
"""and how many deaths it had had by then."""

_CACHED_MESSAGES: Final = 2048
_LONGEST_CACHED_HEADER_BYTES: Final = 1024
_GREATEST_COUNT: Final = 2**63 - 1

DeathHistory = tuple[tuple[str | None, str | None], ...]
"""Queue and reason of each death, newest first; None where a client wrote no string there."""


class PublishedContent(Protocol):
    """A message as it was published: see `node.amqp.content.Content`, whose octets it has."""

    @property
    def exchange_and_key(self) -> bytes: ...
    @property
    def header(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...


class DeadMessage:
    """A message as it goes to the dead-letter exchange, without its body; never changed.

    `exchange_and_key` and `header` are those of the new Content. `keys` are all the keys to route it by: the
    first is the one consumers see, the others come from CC and BCC. `history` includes the new death, and none before
    the last redrive (RULES R1).
    """

    __slots__ = ("exchange_and_key", "header", "history", "keys")

    def __init__(
        self, exchange_and_key: bytes, header: bytes, keys: tuple[str, ...], history: DeathHistory
    ) -> None:
        self.exchange_and_key = exchange_and_key
        self.header = header
        self.keys = keys
        self.history = history

    def content(self, body: bytes) -> Content:
        """The message with its body."""
        return Content(self.exchange_and_key, self.header, body)


class _Death:
    """One death of one message, as it is to be recorded."""

    __slots__ = ("exchange", "expiration", "keys", "queue", "reason", "time")

    def __init__(
        self, queue: str, reason: str, time: FieldValue, exchange: bytes, keys: list[bytes],
        expiration: bytes | None,
    ) -> None:
        self.queue = queue
        self.reason = reason
        self.time = time
        self.exchange = exchange
        self.keys = keys
        self.expiration = expiration

    def record(self) -> FieldTable:
        """The table in x-death (D3)."""
        entries = [
            ("count", long_integer(1)),
            ("reason", long_string(self.reason)),
            ("queue", long_string(self.queue)),
            ("time", self.time),
            ("exchange", long_string(self.exchange)),
            ("routing-keys", array([long_string(key) for key in self.keys])),
        ]
        if self.expiration is not None:
            entries.append(("original-expiration", long_string(self.expiration)))
        return FieldTable(entries)


def text_time(seconds: int) -> FieldValue:
    """A time as OtterMQ's documents show it: "2025-11-16T15:30:00Z", in UTC (RULES X1)."""
    return long_string(datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


class DeathWriter:
    """Writes deaths into messages.

    Messages of one queue tend to be alike and to die together: what was written for one is kept for the next
    with the same header, keys and second. Holds at most a few megabytes; its answers do not depend on it.
    """

    def __init__(self, time_of: Callable[[int], FieldValue] = timestamp) -> None:
        """`time_of` is how a time, seconds since 1970, is written."""
        self._time_of = time_of
        self._written: dict[tuple[str, str, int, str, str | None, bytes, bytes], DeadMessage] = {}
        self._first_tables: dict[tuple[str, str, int, bytes, bytes | None], bytes] = {}

    def write(
        self,
        content: PublishedContent,
        queue: str,
        reason: str,
        time_s: int,
        dead_letter_exchange: str,
        dead_letter_routing_key: str | None,
    ) -> DeadMessage:
        """The message after its death in the queue.

        `time_s` is seconds since 1970; an x-death that a client wrote does not count. With a
        `dead_letter_routing_key` it replaces all keys and the headers CC and BCC go; without one the message keeps
        its key, CC and BCC and is routed by all of them.
        """
        header = content.header
        key = (
            queue, reason, time_s, dead_letter_exchange, dead_letter_routing_key,
            content.exchange_and_key, header,
        )
        found = self._written.get(key)
        if found is None:
            found = self._write(
                content.exchange_and_key, header, queue, reason, time_s, dead_letter_exchange,
                dead_letter_routing_key,
            )
            if len(header) <= _LONGEST_CACHED_HEADER_BYTES:
                if len(self._written) >= _CACHED_MESSAGES:
                    self._written.clear()
                self._written[key] = found
        return found

    def _write(
        self, exchange_and_key: bytes, header: bytes, queue: str, reason: str, time_s: int,
        dead_letter_exchange: str, dead_letter_routing_key: str | None,
    ) -> DeadMessage:
        start, stop = property_span(header, EXPIRATION)
        expiration = None if start < 0 else header[start + 1 : stop]
        key_at = 1 + exchange_and_key[0]
        exchange, key = exchange_and_key[1:key_at], exchange_and_key[key_at + 1 :]
        start, stop = property_span(header, HEADERS)
        copies: list[bytes] = []
        if start < 0:
            new_table = self._first_table(exchange_and_key, exchange, key, queue, reason, time_s, expiration)
            history: DeathHistory = ((queue, reason),)
        else:
            headers = FieldTable.of_checked(header[start:stop])
            if X_DEATH in marked(headers):
                headers.remove(X_DEATH)
            carbon = _strings(headers, "CC")
            copies = carbon + _strings(headers, BCC)
            death = _Death(queue, reason, self._time_of(time_s), exchange, [key, *carbon], expiration)
            history = _record_death(headers, death)
            if dead_letter_routing_key is not None:
                headers.remove("CC")
                headers.remove(BCC)
            mark(headers, [BCC] if BCC in headers else [])
            new_table = headers.encode()
        if dead_letter_routing_key is None:
            key_octets = exchange_and_key[key_at:]
            keys = tuple([each.decode("utf-8", "surrogateescape") for each in (key, *copies)])
        else:
            key_octets = short_string(dead_letter_routing_key)
            keys = (dead_letter_routing_key,)
        return DeadMessage(
            short_string(dead_letter_exchange) + key_octets,
            replace_properties(header, {HEADERS: new_table, EXPIRATION: None}),
            keys,
            history,
        )

    def _first_table(
        self, exchange_and_key: bytes, exchange: bytes, key: bytes, queue: str, reason: str, time_s: int,
        expiration: bytes | None,
    ) -> bytes:
        """The headers of a message that had none."""
        cached_as = (queue, reason, time_s, exchange_and_key, expiration)
        found = self._first_tables.get(cached_as)
        if found is None:
            headers = FieldTable()
            _record_death(headers, _Death(queue, reason, self._time_of(time_s), exchange, [key], expiration))
            found = headers.encode()
            if len(self._first_tables) >= _CACHED_MESSAGES:
                self._first_tables.clear()
            self._first_tables[cached_as] = found
        return found


def _record_death(headers: FieldTable, death: _Death) -> DeathHistory:
    """Write a death into a message's headers, which are sorted by it as RabbitMQ sorts them."""
    earlier = headers.get(X_DEATH)
    if earlier is None:
        records = [death.record()]
        _set_summary(headers, "x-first-death-", death)
    elif earlier.tag != ARRAY:
        # A client's, stored before level LEVEL_PUBLISHER_HEADERS.
        records = [death.record()]
    else:
        records = _with_earlier(death, earlier)
    _set_summary(headers, "x-last-death-", death)
    headers.set(X_DEATH, array([table(record) for record in records]))
    headers.entries.sort(key=_entry_name)
    return tuple([
        (_string(record, "queue"), _string(record, "reason"))
        for record in records[: _since_redrive(headers, records)]
    ])


def _since_redrive(headers: FieldTable, records: list[FieldTable]) -> int:
    """How many of the deaths, newest first, may have been since the message was redriven: all, if it was not.

    Each death since then is in one of the first so many tables. Where one has happened twice there are fewer, and
    earlier ones count as well; but then somebody has rejected the message since, and no cycle goes past that (D5). A
    client that writes this header itself has its message go in a circle so many times more, and then no longer.
    """
    before = headers.get(REDRIVE_DEATHS)
    if before is None or not before.is_integer():
        return len(records)
    since = count_of(records) - before.integer()
    return since if 0 < since < len(records) else len(records)


def _with_earlier(death: _Death, earlier: FieldValue) -> list[FieldTable]:
    """The history with one death more: at the front, the earlier ones in their order (D3).

    Anything a client put there that is not a table is left out. An earlier death in the same queue for the same
    reason keeps its fields, counts one more and moves to the front. Tables that a client repeated are taken
    together.
    """
    newest: FieldTable | None = None
    others: list[FieldTable] = []
    count = 0
    for value in earlier.array():
        if value.tag != TABLE:
            continue
        record = value.table()
        if _string(record, "queue") == death.queue and _string(record, "reason") == death.reason:
            newest = newest or record
            count += _count(record)
        else:
            others.append(record)
    if newest is None:
        newest = death.record()
    else:
        newest.set("count", long_integer(min(count + 1, _GREATEST_COUNT)))
    # RabbitMQ sorts the fields of the newest one as soon as there are others.
    newest.entries.sort(key=_entry_name)
    return [newest, *others]


def _set_summary(headers: FieldTable, prefix: str, death: _Death) -> None:
    headers.set(prefix + "exchange", long_string(death.exchange))
    headers.set(prefix + "queue", long_string(death.queue))
    headers.set(prefix + "reason", long_string(death.reason))


def deaths_in(headers: FieldTable) -> list[FieldTable]:
    """The tables of x-death, newest first, unless a client wrote it."""
    value = headers.get(X_DEATH)
    if value is None or value.tag != ARRAY or X_DEATH in marked(headers):
        return []
    return [each.table() for each in value.array() if each.tag == TABLE]


def count_of(records: list[FieldTable]) -> int:
    """How many deaths these tables stand for."""
    return sum([_count(record) for record in records])


def _count(record: FieldTable) -> int:
    """How often the death occurred; a table without a sensible count stands for one."""
    value = record.get("count")
    return max(value.integer(), 0) if value is not None and value.is_integer() else 1


def _string(record: FieldTable, name: str) -> str | None:
    value = record.get(name)
    return value.text() if value is not None and value.tag == LONG_STRING else None


def _strings(headers: FieldTable, name: str) -> list[bytes]:
    """The strings in an array header such as CC; none if it is something else."""
    value = headers.get(name)
    if value is None or value.tag != ARRAY:
        return []
    return [element.octets() for element in value.array() if element.tag == LONG_STRING]


def _entry_name(entry: tuple[str, FieldValue]) -> bytes:
    return entry[0].encode("utf-8", "surrogateescape")
