"""Records of a journal among what else is in its stream (RULES R4)."""

import random
import struct
from typing import Any

import pytest
from pamqp import commands, header

from mayfly.node.amqp.content import check_header, property_span, short_string
from mayfly.node.amqp.field_table import FieldTable
from mayfly.node.catalog import Catalog
from mayfly.node.content_header import CORRELATION_ID, HEADERS, MESSAGE_ID, REPLY_TO
from mayfly.node.dead_letter.journal import (
    LONGEST_RECORD_OCTETS,
    LONGEST_TRACE_OCTETS,
    TRACE,
    JournalRecords,
    is_record,
)
from mayfly.node.shard.message import Message
from mayfly.node.shard.outbox import RECORD_OF_EXPIRED, RECORD_OF_QUEUE, RECORD_OF_QUEUE_EXPIRED, Death
from mayfly.node.shard.settings import ShardQueueSettings


def content_header(**headers: Any) -> bytes:
    """As a client makes it."""
    properties = commands.Basic.Properties(headers=headers)
    return header.ContentHeader(body_size=0, properties=properties).marshal()


@pytest.mark.parametrize("reason", [RECORD_OF_EXPIRED, RECORD_OF_QUEUE, RECORD_OF_QUEUE_EXPIRED])
def test_r4_a_record_is_known_by_how_it_begins(reason: str) -> None:
    settings = ShardQueueSettings(name="q" * 255, dead_letter_exchange="x" * 255, dead_letter_routing_key="k" * 255)
    death = Death(1, 1, Message(1, 0, 0, 0, 5, 1000, 2000, 0, -1), reason, 3000, settings)
    died = commands.Basic.Properties(message_id="m" * 255, headers={"traceparent": "t" * 255})
    names = b"\xff" + b"e" * 255 + b"\xff" + b"k" * 255
    made = JournalRecords(Catalog(1)).record(death, names, header.ContentHeader(0, 5, died).marshal())
    assert is_record(made) and len(made) < LONGEST_RECORD_OCTETS


@pytest.mark.parametrize("headers", [
    {}, {"what": "else"}, {"queue": "q", "what": "message"}, {"what": 5}, {"what": "message", "more": "x" * 5000},
])  # fmt: skip
def test_r4_what_clients_publish_is_none(headers: dict[str, Any]) -> None:
    """It is not read any further: a page of records looks at much that is none."""
    assert not is_record(content_header(**headers))
    assert not is_record(header.ContentHeader(0, 5, commands.Basic.Properties(message_id="m")).marshal())


def test_r4_a_trace_is_found_in_headers_alone() -> None:
    """Other properties that look like a field behind an empty table are none: the record can be read in any case."""
    reply_to = b"\0\0\0\xff" + b"x" * 79
    table, correlation_id = b"\0\0\0\0", short_string("traceparent")
    flags = HEADERS | CORRELATION_ID | REPLY_TO
    published = struct.pack(">HHQH", 60, 0, 3, flags) + table + correlation_id + bytes([len(reply_to)]) + reply_to
    assert bytes([len(reply_to)]) == b"S", "the type of a long string"
    check_header(published)
    message = Message(5, 0, 3, len(published), 3, 1000, 2000, 0)
    death = Death(1, 7, message, RECORD_OF_EXPIRED, 2001, ShardQueueSettings())
    made = JournalRecords(Catalog(1)).record(death, b"\0\1q", published)
    check_header(made)
    assert is_record(made) and b"traceparent" not in made


def any_death(chance: random.Random, settings: list[ShardQueueSettings]) -> tuple[Death, bytes, bytes]:
    """One of few kinds in each respect, with its names and header: much of it is often what it was before."""
    given: dict[str, Any] = {}
    for name in ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id"):
        if chance.random() < 0.5:
            given[name] = "i" * chance.choice([0, 9, 9, 255])
    for name in ("delivery_mode", "priority"):
        if chance.random() < 0.5:
            given[name] = 2
    if chance.random() < 0.7:
        given["headers"] = chance.choice([
            {}, {"traceparent": "t" * 55}, {"x": "y", "traceparent": "u" * 255}, {"traceparent": "v" * 256}, {"z": 1},
        ])  # fmt: skip
    message = Message(
        1, 0, 0, 0, chance.choice([5, 6]), chance.choice([1, 2]), chance.choice([3, 4]), chance.choice([0, 0, -2])
    )
    reason = chance.choice([RECORD_OF_EXPIRED, RECORD_OF_EXPIRED, RECORD_OF_QUEUE_EXPIRED, RECORD_OF_QUEUE])
    death = Death(1, 1, message, reason, chance.choice([3000, 3001]), chance.choice(settings))
    published = header.ContentHeader(0, 5, commands.Basic.Properties(**given)).marshal()
    return death, chance.choice([b"\0\1q", b"\1e\1k"]), b"" if reason == RECORD_OF_QUEUE else published


def test_r4_a_record_is_the_same_whatever_came_before_it() -> None:
    chance = random.Random(5)
    settings = [
        ShardQueueSettings(name="q"), ShardQueueSettings(name="r", dead_letter_exchange=""),
        ShardQueueSettings(name="s", dead_letter_exchange="x", dead_letter_routing_key="k", expires_dead_letter=True),
    ]  # fmt: skip
    records = JournalRecords(Catalog(1))
    for _ in range(3000):
        death, names, published = any_death(chance, settings)
        made = records.record(death, names, published)
        assert made == JournalRecords(Catalog(1)).record(death, names, published)
        check_header(made)
        assert is_record(made)
        said = FieldTable.of_checked(made[property_span(made, HEADERS)[0] :])
        start, stop = property_span(published, MESSAGE_ID) if published else (-1, -1)
        identity = said.get("message-id")
        assert (identity and identity.octets()) == (published[start + 1 : stop] if start >= 0 else None)
        given = FieldTable.of_checked(published[slice(*property_span(published, HEADERS))]) if published else None
        trace = given.get(TRACE) if given else None
        assert said.get(TRACE) == (trace if trace and len(trace.octets()) <= LONGEST_TRACE_OCTETS else None)


def test_r4_a_record_without_an_id_is_no_other_behind_one_as_long_that_has_one() -> None:
    death = Death(1, 1, Message(1, 0, 0, 0, 5, 1000, 2000, 0), RECORD_OF_EXPIRED, 3000, ShardQueueSettings(name="q"))
    with_id = commands.Basic.Properties(message_id="i" * 9, headers={"traceparent": "t" * 55})
    without = header.ContentHeader(0, 5, commands.Basic.Properties(headers={"traceparent": "t" * 65})).marshal()
    records = JournalRecords(Catalog(1))
    records.record(death, b"\0\1q", header.ContentHeader(0, 5, with_id).marshal())
    assert records.record(death, b"\0\1q", without) == JournalRecords(Catalog(1)).record(death, b"\0\1q", without)
