"""Messages as the wire carries them: looks into the header, and changes of it, against pamqp."""

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from mayfly.node import content_header
from mayfly.node.amqp.content import Content, MalformedHeaderError, check_header, replace_properties, short_string
from mayfly.node.amqp.field_table import FieldTable, long_integer
from tests.node.amqp.contents import make_exchange_and_key
from tests.node.amqp.headers import build_header

_SHORT_TEXT = st.text(min_size=1, max_size=40)
_PROPERTIES: dict[str, st.SearchStrategy[Any]] = {
    "content_type": _SHORT_TEXT,
    "content_encoding": _SHORT_TEXT,
    "headers": st.dictionaries(
        st.text(max_size=9), st.integers(-(2**40), 2**40) | st.text(max_size=9), min_size=1
    ),
    "delivery_mode": st.sampled_from([1, 2]),
    "priority": st.integers(0, 255),
    "correlation_id": _SHORT_TEXT,
    "reply_to": _SHORT_TEXT,
    "expiration": st.integers(0, 10**12).map(str),
    "message_id": _SHORT_TEXT,
    "timestamp": st.integers(0, 2**32 - 1).map(lambda s: datetime.datetime.fromtimestamp(s, tz=datetime.UTC)),
    "message_type": _SHORT_TEXT,
    "user_id": _SHORT_TEXT,
    "app_id": _SHORT_TEXT,
}
_SOME_PROPERTIES = st.fixed_dictionaries({}, optional=_PROPERTIES)


def content_with(body: bytes = b"", **properties: Any) -> Content:
    header = build_header(Basic.Properties(**properties), len(body))
    return Content(make_exchange_and_key("x", "key"), header, body)


def by_pamqp(header: bytes) -> Basic.Properties:
    decoded = ContentHeader()
    decoded.unmarshal(header)
    return decoded.properties


@given(_SOME_PROPERTIES)
@settings(max_examples=300, deadline=None)
def test_properties_are_those_of_pamqp(properties: dict[str, Any]) -> None:
    content = content_with(**properties)
    check_header(content.header)
    assert content.header == ContentHeader(0, 0, Basic.Properties(**properties)).marshal()
    assert content.properties() == by_pamqp(content.header) == Basic.Properties(**properties)
    expiration = properties.get("expiration")
    assert content.expiration_bytes() == (None if expiration is None else expiration.encode())
    headers = content.headers_table()
    assert (None if headers is None else headers.python()) == properties.get("headers")
    for name in ("user_id", "reply_to", "message_id"):
        flag = getattr(content_header, name.upper())
        octets = content.short_property(flag)
        assert (None if octets is None else octets.decode()) == properties.get(name)
        assert content.has_property(flag) == (name in properties)


@given(_SOME_PROPERTIES, st.sets(st.sampled_from(sorted(_PROPERTIES))), _SHORT_TEXT)
@settings(max_examples=300, deadline=None)
def test_replacing_properties_leaves_the_others(
    properties: dict[str, Any], removed: set[str], reply_to: str
) -> None:
    """RULES D4: dead-lettering removes `expiration` and rewrites the headers, nothing else."""
    header = content_with(**properties).header
    flags = Basic.Properties.flags
    table = FieldTable([("n", long_integer(1))])
    changes: dict[int, bytes | None] = {flags[name]: None for name in removed}
    changes[content_header.HEADERS] = table.encode()
    changes[content_header.REPLY_TO] = short_string(reply_to)
    changed = replace_properties(header, changes)
    check_header(changed)
    expected = {name: value for name, value in properties.items() if name not in removed}
    expected |= {"headers": {"n": 1}, "reply_to": reply_to}
    assert by_pamqp(changed) == Basic.Properties(**expected)
    assert replace_properties(header, {}) == header


@given(_SOME_PROPERTIES, st.data())
@settings(max_examples=400, deadline=None)
def test_a_damaged_header_is_refused_or_harmless(properties: dict[str, Any], data: st.DataObject) -> None:
    header = bytearray(content_with(**properties).header)
    for _ in range(data.draw(st.integers(1, 3))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    octets = bytes(header[: data.draw(st.integers(0, len(header)))])
    try:
        check_header(octets)
    except MalformedHeaderError:
        return
    content = Content(b"\x00\x00", octets, b"")
    content.properties()
    content.expiration_bytes()
    table = content.headers_table()
    assert table is None or table.encode() == content.headers_bytes()
    # The two lowest bits are no properties and are not kept.
    again = replace_properties(octets, {})
    assert again[:12] == octets[:12]
    assert again[14:] == octets[14:]


def test_names() -> None:
    content = Content(make_exchange_and_key("amq.direct", "k\u00e9y"), b"", b"12345")
    assert content.exchange_and_key == b"\x0aamq.direct\x04k\xc3\xa9y"
    assert (content.exchange, content.routing_key) == ("amq.direct", "k\u00e9y")
    assert content.size_bytes == len(content.exchange_and_key) + 5
    assert "routing_key='key'" in repr(content_with())
    with pytest.raises(ValueError):
        short_string("x" * 256)


def test_the_expiration_is_kept_as_the_client_wrote_it() -> None:
    """RULES T2, T11: also what is no number, so that the refusal can quote it."""
    assert content_with(expiration="10 minutes").expiration_bytes() == b"10 minutes"
    assert content_with(content_type="a", headers={"b": 1}, expiration="0").expiration_bytes() == b"0"


def test_more_flags_than_class_basic_has() -> None:
    header = bytearray(content_with().header)
    header[13] |= 1
    with pytest.raises(MalformedHeaderError):
        check_header(bytes(header))


def test_the_flag_of_no_property_stays() -> None:
    """The last bit but one stands for nothing; RabbitMQ takes it as well."""
    header = bytearray(content_with(expiration="7").header)
    header[13] |= 2
    check_header(bytes(header))
    assert replace_properties(bytes(header), {}) == header


def test_a_timestamp_beyond_any_date_is_left_out() -> None:
    header = replace_properties(content_with(app_id="a").header, {content_header.TIMESTAMP: b"\xff" * 8})
    check_header(header)
    properties = Content(b"\x00\x00", header, b"").properties()
    assert properties.timestamp is None
    assert properties.app_id == "a"
