"""The record of a death in a journal: what it says, and where it goes (RULES R4).

It is a message without body and without properties but headers, for the stream that the queue names as its journal. Its
routing key is the queue's name, so a stream with an index of keys has each queue's records by themselves. HOT for
queues with a journal: a record is put together from octets, not by way of a table.
"""

from __future__ import annotations

import struct
from typing import Final

from mayfly.node.amqp.content import id_and_headers, property_span, short_string
from mayfly.node.amqp.field_table import LONG, LONG_STRING, FieldTable
from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.catalog.journals import journal_fault
from mayfly.node.content_header import HEADERS
from mayfly.node.shard.outbox import RECORD_OF_EXPIRED, RECORD_OF_QUEUE, RECORD_OF_QUEUE_EXPIRED, Death
from mayfly.node.shard.settings import ShardQueueSettings

TRACE: Final = "traceparent"
"""The header of W3C Trace Context, by which a trace goes from publish to death to redrive."""
LONGEST_TRACE_OCTETS: Final = 255
"""One that is longer, or no string, is none."""
LONGEST_RECORD_OCTETS: Final = 4096
"""Of the header of a record: names, keys and ids have 255 octets at most."""
NOWHERE: Final = "nowhere"
TO_EXCHANGE: Final = "dead-letter-exchange"
_SAYS: Final = {
    RECORD_OF_EXPIRED: ("message", "expired"),
    RECORD_OF_QUEUE_EXPIRED: ("message", "queue_expired"),
    RECORD_OF_QUEUE: ("queue", "expired"),
}
"""What has gone, and why."""
_NO_BODY: Final = struct.pack(">HHQH", 60, 0, 0, HEADERS)
_LENGTH: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">q")
_TRACE_OCTETS: Final = TRACE.encode()


class JournalRecords:
    """Makes the records of one shard's deaths. Most deaths in a row have much in common: what that is is put together
    once, and compared with what comes next."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._settings = ShardQueueSettings()
        self._reason = ""
        self._went_ms = -1
        self._beginning = b""
        """Of a record, for these settings, this reason and this time."""
        self._names = b""
        self._body_length = -1
        self._how = b""
        """How messages with these names and so many bytes were published, for these settings and this reason."""
        self._due_ms = -1
        self._enqueued_ms = -1
        self._recurs = False
        self._common = b""
        """What is in front of id and trace, for messages with all this and these times."""
        self._fields_length = -1
        self._opening = b""
        """The same as a content header begins that has so long a table, up to the id if there is one."""
        self._has_id = False

    def journal(self, settings: ShardQueueSettings) -> tuple[QueueRecord | None, str]:
        """The stream that is the queue's journal; None, and why, where nothing can be noted there."""
        found = self._catalog.queue(settings.vhost, settings.journal or "")
        fault = journal_fault(found)
        return (None, fault) if fault else (found, "")

    def record(self, death: Death, names: bytes, header: bytes) -> bytes:
        """The content header of the record, which has no body and goes by `exchange_and_key`: `death` is one of
        RECORDS, the rest the exchange and key, and the content header, of the message that died; without any for a
        queue."""
        return b"".join(self.parts(death, names, header))

    def parts(self, death: Death, names: bytes, header: bytes) -> tuple[bytes, bytes, bytes]:
        """`record` in three parts, to be put together once with what is around them."""
        message = death.message
        if (
            death.settings is not self._settings or death.time_ms != self._went_ms
            or message.body_length != self._body_length or message.deadline_ms != self._due_ms
            or message.enqueued_ms != self._enqueued_ms or message.recurs != self._recurs
            or death.reason != self._reason or names != self._names or death.reason == RECORD_OF_QUEUE
        ):
            self._common = self._in_common(death, names)
            self._fields_length = -1
            if death.reason == RECORD_OF_QUEUE:
                return _opening(len(self._common)) + self._common, b"", b""
        id_at, id_stop, headers_at, headers_stop = id_and_headers(header)
        trace = _trace_field(header, headers_at, headers_stop)
        has_id = id_at >= 0
        # The length octet in front of an id there is the last of the four here.
        identity = header[id_at:id_stop] if has_id else b""
        length = len(identity) + len(trace)
        if length != self._fields_length or has_id != self._has_id:
            self._fields_length, self._has_id = length, has_id
            name = _SHORT_MESSAGE_ID if has_id else b""
            self._opening = _opening(len(self._common) + len(name) + length) + self._common + name
        return self._opening, identity, trace

    def _in_common(self, death: Death, names: bytes) -> bytes:
        """What a record says, but for id and trace."""
        message = death.message
        reason, went_ms = death.reason, death.time_ms
        self._due_ms, self._enqueued_ms, self._recurs = message.deadline_ms, message.enqueued_ms, message.recurs
        if death.settings is not self._settings or reason != self._reason:
            self._settings, self._reason, self._went_ms = death.settings, reason, -1
            self._body_length = -1
        if went_ms != self._went_ms:
            self._went_ms = went_ms
            self._beginning = _beginning(self._settings, reason) + _number(_WENT, went_ms)
        if reason == RECORD_OF_QUEUE:
            return b"".join((
                self._beginning, _number(_DUE, message.deadline_ms), _number(_LAST_USED, message.enqueued_ms),
                _number(_MESSAGES, message.delivery_count),
            ))  # fmt: skip
        if message.body_length != self._body_length or names != self._names:
            self._names, self._body_length = names, message.body_length
            self._how = _how(self._settings, reason, names, message.body_length)
        if reason == RECORD_OF_EXPIRED and not message.recurs:
            times = _TIMES.pack(_DUE, message.deadline_ms, _ENQUEUED, message.enqueued_ms)
        else:
            # When a message that recurs was enqueued is no time at which it came, but its next one.
            times = b"" if reason != RECORD_OF_EXPIRED else _number(_DUE, message.deadline_ms)
            times += b"" if message.recurs else _number(_ENQUEUED, message.enqueued_ms)
        return b"".join((self._beginning, times, self._how))


def exchange_and_key(settings: ShardQueueSettings) -> bytes:
    """Of all records of a queue: no exchange, and its name."""
    return b"\x00" + short_string(settings.name)


def is_record(header: bytes) -> bool:
    """Whether the content header is one that a record has: a quick look, which counts on `what` being its first."""
    start, _ = property_span(header, HEADERS)
    if start < 0 or len(header) > LONGEST_RECORD_OCTETS:
        return False
    return header.startswith(_BEGINNINGS, start + _LENGTH.size)


def _opening(table_length: int) -> bytes:
    """The content header in front of the fields of a record."""
    return _NO_BODY + _LENGTH.pack(table_length)


def _how(settings: ShardQueueSettings, reason: str, names: bytes, body_length: int) -> bytes:
    """How a message had been published, and how large it was."""
    key_at = 1 + names[0]
    exchange, key = names[1:key_at], names[key_at + 1 :]
    parts = [_text(_EXCHANGE, exchange), _text(_KEY, key), _number(_BYTES, body_length)]
    if _goes_on(settings, reason) and settings.dead_letter_routing_key is None:
        # It goes on by the key that it had.
        parts.append(_text(_TO_KEY, key))
    return b"".join(parts)


def _trace_field(header: bytes, start: int, stop: int) -> bytes:
    """The field with the `traceparent` in a content header with these headers, as it stands there; empty for none."""
    if start < 0:
        return b""
    start += _LENGTH.size
    length_at = start + len(_TRACE)
    if header[start:length_at] == _TRACE and length_at < stop:
        # It is the first: no look at the others.
        value_at = length_at + _LENGTH.size
        if header[length_at] or header[length_at + 1] or header[length_at + 2]:
            return b""  # It is longer than LONGEST_TRACE_OCTETS.
        return header[start : value_at + header[value_at - 1]]
    if _TRACE_OCTETS not in header:
        return b""
    value = FieldTable.of_checked(header[start - _LENGTH.size : stop]).get(TRACE)
    if value is None or value.tag != LONG_STRING:
        return b""
    octets = value.octets()
    return _text(_TRACE, octets) if len(octets) <= LONGEST_TRACE_OCTETS else b""


def _goes_on(settings: ShardQueueSettings, reason: str) -> bool:
    """Whether what dies so is dead-lettered."""
    if settings.dead_letter_exchange is None or reason == RECORD_OF_QUEUE:
        return False
    return reason == RECORD_OF_EXPIRED or settings.expires_dead_letter


def _beginning(settings: ShardQueueSettings, reason: str) -> bytes:
    """What all records of the queue say that have this reason."""
    what, why = _SAYS[reason]
    parts = [_text(_WHAT, what.encode()), _text(_REASON, why.encode()), _text(_QUEUE, _octets(settings.name))]
    exchange = settings.dead_letter_exchange
    if exchange is None or not _goes_on(settings, reason):
        return b"".join([*parts, _text(_TO, NOWHERE.encode())])
    parts += (_text(_TO, TO_EXCHANGE.encode()), _text(_TO_EXCHANGE, _octets(exchange)))
    if settings.dead_letter_routing_key is not None:
        parts.append(_text(_TO_KEY, _octets(settings.dead_letter_routing_key)))
    return b"".join(parts)


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _field(name: str, tag: int) -> bytes:
    return short_string(name) + bytes((tag,))


def _text(field: bytes, octets: bytes) -> bytes:
    return field + _LENGTH.pack(len(octets)) + octets


def _number(field: bytes, value: int) -> bytes:
    return field + _NUMBER.pack(value)


_WHAT: Final = _field("what", LONG_STRING)
_REASON: Final = _field("reason", LONG_STRING)
_QUEUE: Final = _field("queue", LONG_STRING)
_TO: Final = _field("to", LONG_STRING)
_TO_EXCHANGE: Final = _field(TO_EXCHANGE, LONG_STRING)
_TO_KEY: Final = _field("dead-letter-routing-key", LONG_STRING)
_WENT: Final = _field("went-ms", LONG)
_DUE: Final = _field("due-ms", LONG)
_ENQUEUED: Final = _field("enqueued-ms", LONG)
_LAST_USED: Final = _field("last-used-ms", LONG)
_MESSAGES: Final = _field("messages", LONG)
_BYTES: Final = _field("body-bytes", LONG)
_EXCHANGE: Final = _field("exchange", LONG_STRING)
_KEY: Final = _field("routing-key", LONG_STRING)
_MESSAGE_ID: Final = _field("message-id", LONG_STRING)
_SHORT_MESSAGE_ID: Final = _MESSAGE_ID + bytes(_LENGTH.size - 1)
"""In front of an id as properties have it, with an octet of its length: that is the last one of the length here."""
_TRACE: Final = _field(TRACE, LONG_STRING)
_BEGINNINGS: Final = (_text(_WHAT, b"message"), _text(_WHAT, b"queue"))
"""Of the headers of all records."""
_TIMES: Final = struct.Struct(f">{len(_DUE)}sq{len(_ENQUEUED)}sq")
"""When a message was due, and when it came, with their names."""
