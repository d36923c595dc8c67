"""Going through MessagePack without making objects of it."""
from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.node.catalog.message_pack import NotMessagePack, Walk, array_head

EXTENSIONS = [b"e" * octets for octets in (0, 1, 2, 4, 8, 16, 300)]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=40),
    st.binary(max_size=40), st.sampled_from(["x" * 300, "y" * 70_000, b"z" * 300, b"z" * 70_000]),
    st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.sampled_from(EXTENSIONS)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=20), st.dictionaries(st.text(max_size=3), inner, max_size=20)
    ),
    max_leaves=40,
)


@given(st.lists(VALUES, max_size=30), st.integers(1, 5), st.integers(1, 500))
def test_items_are_found_one_behind_the_other(items: list[object], most: int, octets: int) -> None:
    data = msgspec.msgpack.encode(items)
    walk = Walk(data, 0)
    left = walk.enter_array()
    assert left == len(items)
    assert data[: walk.position] == array_head(len(items))
    while left:
        start = walk.position
        count = walk.skip(min(most, left), octets)
        assert 1 <= count <= most
        first = len(items) - left
        assert walk.taken(start) == b"".join(map(msgspec.msgpack.encode, items[first : first + count]))
        left -= count
    assert walk.position == len(data)


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_the_head_of_an_array_of_any_length(count: int) -> None:
    data = msgspec.msgpack.encode([None] * count)
    assert array_head(count) == data[: len(data) - count]
    walk = Walk(data, 0)
    assert walk.enter_array() == count
    assert walk.skip(count, len(data)) == count


def one_item(octets: bytes) -> bytes:
    walk = Walk(octets, 0)
    walk.skip(1, 1)
    return walk.taken(0)


@given(VALUES, st.data())
def test_what_is_cut_short_is_refused(value: object, data: st.DataObject) -> None:
    whole = msgspec.msgpack.encode(value)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(NotMessagePack):
        one_item(cut)


@pytest.mark.parametrize("octets", [b"", b"\x80", b"\xc0", b"\x01", b"\xa1a"])
def test_what_is_no_array_is_refused(octets: bytes) -> None:
    with pytest.raises(NotMessagePack, match="no array at octet 0"):
        Walk(octets, 0).enter_array()


def test_what_is_nothing_at_all_is_refused() -> None:
    with pytest.raises(NotMessagePack, match="no item begins with 0xc1, at octet 1"):
        Walk(b"\x01\xc1", 0).skip(2, 10)
