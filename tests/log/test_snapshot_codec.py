"""A snapshot on its way between nodes: everything comes back, and damage is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.log.batch import CorruptStore
from cluster.log.snapshot_codec import decode_snapshot, encode_snapshot
from cluster.raft import Entry

entries = st.builds(
    Entry, st.integers(0, 2**63), st.integers(0, 2**47), st.integers(0, 2), st.binary(max_size=50)
)


@given(st.binary(max_size=200), st.lists(entries, max_size=10))
def test_what_was_encoded_comes_back(state: bytes, live: list[Entry]) -> None:
    assert decode_snapshot(encode_snapshot(state, iter(live))) == (state, live)


@given(st.binary(min_size=1, max_size=100), st.lists(entries, max_size=4), st.data())
def test_damage_is_found(state: bytes, live: list[Entry], data: st.DataObject) -> None:
    blob = bytearray(encode_snapshot(state, live))
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptStore):
        decode_snapshot(bytes(blob))


@given(st.binary(max_size=100))
def test_anything_else_is_refused(blob: bytes) -> None:
    with pytest.raises(CorruptStore):
        decode_snapshot(blob)


def test_a_snapshot_that_was_cut_off_is_refused() -> None:
    blob = encode_snapshot(b"state", [Entry(1, 2, 0, b"entry")])
    for length in range(len(blob)):
        with pytest.raises(CorruptStore):
            decode_snapshot(blob[:length])
    with pytest.raises(CorruptStore):
        decode_snapshot(blob + b"x")
