"""The TTL in a message's own headers, as a shard reads it, is what the publisher's node would read (RULES J2)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands as amqp
from pamqp.header import ContentHeader

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.field_table import FieldTable, FieldValue, long_string
from mayfly.node.broker.stream_ttls import RefusedTtl, stream_ttl_ms
from mayfly.node.shard.dialect import NEVER_TTL
from mayfly.node.shard.message import NO_TTL
from mayfly.node.shard.said_ttls import said_ttl_ms
from mayfly.node.shard.stream_ttls import LEAST_MS


def header_of(**properties: Any) -> bytes:
    return ContentHeader(0, 5, amqp.Basic.Properties(**properties)).marshal()


def read_by_the_node(header: bytes) -> int:
    try:
        return stream_ttl_ms(Content(b"\x00\x00", header, b"12345"), LEAST_MS)
    except RefusedTtl:
        return NO_TTL


def read_by_the_shard(header: bytes) -> int:
    return said_ttl_ms(b"before" + header + b"\xff" * 9, 6, len(header))


@pytest.mark.parametrize(
    ("headers", "ttl_ms"),
    [
        ({"Nats-TTL": 5}, 5_000), ({"x-ttl": "1h30m"}, 5_400_000), ({"x-ttl": "never"}, NEVER_TTL),
        ({"x-ttl": 7, "Nats-TTL": "6"}, 6_000), ({"Nats-TTL": "soon", "x-ttl": 7}, NO_TTL), ({"Nats-TTL": 0}, NO_TTL),
        ({"nested": {"Nats-TTL": 5}}, NO_TTL), ({"a": ["Nats-TTL", 1], "x-ttl": True}, NO_TTL), ({}, NO_TTL),
    ],
)  # fmt: skip
def test_j2_what_counts(headers: dict[str, Any], ttl_ms: int) -> None:
    for properties in ({}, {"content_type": "text/plain", "content_encoding": "x", "priority": 3}):
        assert read_by_the_shard(header_of(headers=headers, **properties)) == ttl_ms


_VALUES = st.one_of(
    st.text(max_size=8), st.sampled_from(["5", "1h", "1.5s", "never", "NEVER", "0s", "999ms", "\u00b5s"]),
    st.integers(-(2**63), 2**63 - 1), st.integers(0, 400_000_000), st.booleans(), st.floats(-1e9, 1e9), st.none(),
    st.binary(max_size=5).map(bytearray), st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from(["Nats-TTL", "b"]), st.integers(0, 9), max_size=2),
)  # fmt: skip
_NAMES = st.sampled_from(["Nats-TTL", "x-ttl", "x", "nats-ttl", "Nats-TTL2", ""])


@given(st.dictionaries(_NAMES, _VALUES, max_size=5), st.sampled_from([None, "t"]), st.sampled_from([None, "gzip"]))
def test_j2_a_shard_reads_what_a_node_reads(headers: dict[str, Any], kind: str | None, encoding: str | None) -> None:
    header = header_of(headers=headers or None, content_type=kind, content_encoding=encoding)
    assert read_by_the_shard(header) == read_by_the_node(header)


@given(st.binary(max_size=60), st.integers(0, 255))
def test_j2_octets_that_are_no_header_do_no_harm(octets: bytes, flags: int) -> None:
    for header in (octets, b"\x00" * 12 + bytes((flags, 0)) + octets + b"\x08Nats-TTL" + octets):
        read_by_the_shard(header)


def test_j2_of_two_of_a_name_the_first_counts() -> None:
    table = FieldTable([("x-ttl", long_string("5")), ("x-ttl", long_string("9"))]).encode()
    header = b"\x00\x3c" + b"\x00" * 10 + b"\x20\x00" + table
    assert read_by_the_shard(header) == read_by_the_node(header) == 5_000
    broken = FieldTable([("x-ttl", FieldValue(0x53, b"\xff\xff\xff\xff"))]).encode()
    assert read_by_the_shard(b"\x00" * 12 + b"\x20\x00" + broken) == NO_TTL
