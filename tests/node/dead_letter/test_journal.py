"""Records of a journal among what else is in its stream (RULES R4)."""

import struct
from typing import Any

import pytest
from pamqp import commands, header

from mayfly.node.amqp.content import check_header, short_string
from mayfly.node.catalog import Catalog
from mayfly.node.content_header import CORRELATION_ID, HEADERS, REPLY_TO
from mayfly.node.dead_letter.journal import LONGEST_RECORD_OCTETS, JournalRecords, is_record
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
