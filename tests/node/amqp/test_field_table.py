"""Field tables: types kept, octets kept, pamqp's values."""

import datetime
import decimal
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import decode, encode

from mayfly.node.amqp import field_table as ft
from mayfly.node.amqp.field_table import FieldTable, FieldValue, MalformedTableError

_FIXED = dict(zip("tbBsuIilLfdDT", (1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 5, 8), strict=True))


def _value_octets() -> st.SearchStrategy[bytes]:
    """Tag and octets of any value, odd ones (boolean 7, NaN with a payload) included."""
    fixed = st.sampled_from(sorted(_FIXED.items())).flatmap(
        lambda kind: st.binary(min_size=kind[1], max_size=kind[1]).map(lambda raw: kind[0].encode() + raw)
    )
    text = st.tuples(st.sampled_from([b"S", b"x"]), st.binary(max_size=20)).map(
        lambda pair: pair[0] + struct.pack(">I", len(pair[1])) + pair[1]
    )

    def nested(children: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        array = (
            st.lists(children, max_size=4)
            .map(b"".join)
            .map(lambda body: b"A" + struct.pack(">I", len(body)) + body)
        )
        return array | _entries(children).map(lambda body: b"F" + struct.pack(">I", len(body)) + body)

    return st.recursive(fixed | text | st.just(b"V"), nested, max_leaves=12)


def _entries(value_strategy: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    entry = st.tuples(st.binary(max_size=12), value_strategy).map(
        lambda pair: bytes([len(pair[0])]) + pair[0] + pair[1]
    )
    return st.lists(entry, max_size=5).map(b"".join)


def _walk(value: FieldValue) -> FieldValue:
    """The value taken apart and put together again, all the way down."""
    if value.tag == ft.TABLE:
        return ft.table(FieldTable([(key, _walk(item)) for key, item in value.table().entries]))
    if value.tag == ft.ARRAY:
        return ft.array([_walk(item) for item in value.array()])
    return FieldValue(value.tag, value.raw)


@given(_entries(_value_octets()))
@settings(max_examples=300, deadline=None)
def test_any_table_comes_back_bit_for_bit(body: bytes) -> None:
    octets = struct.pack(">I", len(body)) + body
    table = FieldTable.decode(octets)
    assert table.encode() == octets
    assert FieldTable([(key, _walk(value)) for key, value in table.entries]).encode() == octets
    table.python()


@given(_entries(_value_octets()), st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_table_is_refused_or_read_but_nothing_else(body: bytes, data: st.DataObject) -> None:
    damaged = bytearray(struct.pack(">I", len(body)) + body)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    octets = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        table = FieldTable.decode(octets)
    except MalformedTableError:
        return
    assert table.encode() == octets
    table.python()


_PYTHON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=20)
    | st.floats(width=32, allow_nan=False)
    | st.binary(max_size=10).map(bytearray)
    | st.integers(-(2**31), 2**31 - 1).map(lambda number: decimal.Decimal(number).scaleb(-3))
    | st.datetimes(min_value=datetime.datetime(1970, 1, 1), max_value=datetime.datetime(2100, 1, 1)).map(  # noqa: DTZ001
        lambda moment: moment.replace(microsecond=0, tzinfo=datetime.UTC)
    ),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=20), _PYTHON_VALUES, max_size=6))
@settings(max_examples=300, deadline=None)
def test_the_plain_values_are_those_of_pamqp(values: dict[str, Any]) -> None:
    octets = encode.field_table(values)
    assert FieldTable.decode(octets).python() == decode.field_table(octets)[1]


def test_types_that_pamqp_cannot_tell_apart_are_told_apart() -> None:
    table = FieldTable(
        [
            ("byte", FieldValue(ft.BYTE, b"\x05")),
            ("unsignedbyte", FieldValue(ft.UNSIGNED_BYTE, b"\x05")),
            ("short", FieldValue(ft.SHORT, b"\x00\x05")),
            ("unsignedshort", FieldValue(ft.UNSIGNED_SHORT, b"\x00\x05")),
            ("signedint", ft.integer(5)),
            ("unsignedint", FieldValue(ft.UNSIGNED_INTEGER, b"\x00\x00\x00\x05")),
            ("long", ft.long_integer(5)),
        ]
    )
    again = FieldTable.decode(table.encode())
    assert [value.type_name() for _, value in again.entries] == [key for key, _ in again.entries]
    assert {value.integer() for _, value in again.entries} == {5}
    assert all(value.is_integer() for _, value in again.entries)
    assert set(again.python().values()) == {5}


def test_constructors_are_read_by_pamqp() -> None:
    table = FieldTable()
    table.set("n", ft.long_integer(-7))
    table.set("s", ft.long_string("h\u00e9"))
    table.set("t", ft.timestamp(1_700_000_000))
    table.set("b", ft.boolean(True))
    table.set("a", ft.array([ft.long_string(b"x"), ft.integer(3)]))
    table.set("f", ft.table(FieldTable([("in", ft.boolean(False))])))
    assert decode.field_table(table.encode())[1] == {
        "n": -7,
        "s": "h\u00e9",
        "t": datetime.datetime.fromtimestamp(1_700_000_000, tz=datetime.UTC),
        "b": True,
        "a": ["x", 3],
        "f": {"in": False},
    }


def test_order_repetition_and_replacement() -> None:
    table = FieldTable([("a", ft.integer(1)), ("b", ft.integer(2)), ("a", ft.integer(3))])
    first = table.get("a")
    assert first is not None
    assert first.integer() == 1
    table.set("a", ft.integer(9))
    assert [(key, value.integer()) for key, value in table.entries] == [("a", 9), ("b", 2), ("a", 3)]
    table.set("b", ft.integer(4))
    assert table.remove("a")
    assert not table.remove("a")
    assert "b" in table
    assert "a" not in table
    assert len(table) == 1
    assert table == FieldTable([("b", ft.integer(4))])


@pytest.mark.parametrize(
    "value", [ft.long_string("x"), ft.table(FieldTable()), ft.array([]), FieldValue(ft.VOID, b"")]
)
def test_asking_for_the_wrong_type(value: FieldValue) -> None:
    with pytest.raises(TypeError):
        value.integer()
    wrong = ft.integer(1)
    for ask in (wrong.octets, wrong.text, wrong.table, wrong.array):
        with pytest.raises(TypeError):
            ask()


def test_text_that_is_not_utf_8_survives() -> None:
    value = ft.long_string(b"\xff\xfe")
    assert ft.long_string(value.text()) == value
    assert value.python() == b"\xff\xfe"
    table = FieldTable.decode(struct.pack(">I", 4) + b"\x02\xff\xfeV")
    assert table.encode() == struct.pack(">I", 4) + b"\x02\xff\xfeV"


def test_timestamps_that_no_datetime_can_hold() -> None:
    """As plain values they are the last one there is, and no numbers: a number would do where a time must not."""
    value = ft.timestamp(2**64 - 1)
    assert value.integer() == 2**64 - 1
    assert value.python() == datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


def test_nesting_is_bounded() -> None:
    def nest(depth: int) -> bytes:
        body = b""
        for _ in range(depth):
            body = b"\x01aF" + struct.pack(">I", len(body)) + body
        return struct.pack(">I", len(body)) + body

    FieldTable.decode(nest(ft.MAX_DEPTH)).python()
    for depth in (ft.MAX_DEPTH + 1, 10_000):
        with pytest.raises(MalformedTableError):
            FieldTable.decode(nest(depth))


def test_a_large_hostile_table_takes_linear_time() -> None:
    """pamqp copies the rest of the table for each entry: quadratic."""
    body = b"\x00V" * 60_000
    octets = struct.pack(">I", len(body)) + body
    assert FieldTable.decode(octets).python() == {"": None}


def test_random_octets_are_no_table() -> None:
    chance = random.Random(7)
    for _ in range(3_000):
        body = chance.randbytes(chance.randrange(40))
        try:
            FieldTable.decode(struct.pack(">I", len(body)) + body)
        except MalformedTableError:
            continue


def test_a_name_that_is_too_long() -> None:
    with pytest.raises(ValueError):
        FieldTable([("x" * 256, ft.integer(1))]).encode()
