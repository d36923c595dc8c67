"""A snapshot on its way between nodes: everything comes back, from whatever offset, and damage is found."""

from collections.abc import Iterator, Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.log.batch import CorruptStore, MissingEntry
from mayfly.cluster.log.snapshot_codec import OutgoingSnapshot, ReceivedSnapshot, SnapshotGivenUp
from mayfly.cluster.raft import Entry, MessageType, RaftMessage, Snapshot, SnapshotMetadata
from simulation.cluster.carried import carried

GROUP = 5
HIGHEST = 1000

entries = st.builds(Entry, st.integers(0, 2**63), st.integers(1, HIGHEST), st.integers(0, 2), st.binary(max_size=50))
ascending = st.lists(entries, max_size=10, unique_by=lambda entry: entry.index).map(
    lambda unsorted: sorted(unsorted, key=lambda entry: entry.index)
)


def source(state: bytes, live: Sequence[Entry]) -> OutgoingSnapshot:
    stored = {entry.index: entry for entry in live}

    def read(group: int, index: int) -> Entry:
        assert group == GROUP
        if index not in stored:
            raise MissingEntry(group, index)
        return stored[index]

    return OutgoingSnapshot(GROUP, state, [entry.index for entry in live], read)


def ready(state: bytes, live: Sequence[Entry]) -> tuple[OutgoingSnapshot, bytes]:
    made = source(state, live)
    end(made.prepare())
    return made, b"".join(made.pieces(0, 1 << 20))


def end(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def received(made: OutgoingSnapshot, blob: bytes) -> ReceivedSnapshot:
    return ReceivedSnapshot(lambda offset, size: blob[offset : offset + size], made.total_bytes, made.digest, HIGHEST)


@given(st.binary(max_size=200), ascending)
def test_what_was_sent_comes_back(state: bytes, live: list[Entry]) -> None:
    made, blob = ready(state, live)
    assert len(blob) == made.total_bytes
    body = received(made, blob)
    end(body.check())
    assert (body.state, list(body), list(body), len(body)) == (state, live, live, len(live))


@given(st.binary(max_size=200), ascending, st.data())
def test_pieces_go_on_from_any_offset(state: bytes, live: list[Entry], data: st.DataObject) -> None:
    made, blob = ready(state, live)
    offset = data.draw(st.integers(0, len(blob)))
    size = data.draw(st.integers(1, 100))
    pieces = list(made.pieces(offset, size))
    assert b"".join(pieces) == blob[offset:]
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(0 < len(piece) <= size for piece in pieces)


@given(st.binary(min_size=1, max_size=100), ascending, st.data())
def test_damage_is_found(state: bytes, live: list[Entry], data: st.DataObject) -> None:
    made, blob = ready(state, live)
    damaged = bytearray(blob)
    place = data.draw(st.integers(0, len(blob) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    for wrong in (bytes(damaged), blob[:place]):
        with pytest.raises(CorruptStore):
            end(received(made, wrong).check())


@given(st.binary(max_size=100))
def test_what_is_no_snapshot_is_refused_though_its_digest_is_right(blob: bytes) -> None:
    body = ReceivedSnapshot(
        lambda offset, size: blob[offset : offset + size], len(blob), sha256(blob).digest(), HIGHEST
    )
    with pytest.raises(CorruptStore):
        end(body.check())


@pytest.mark.parametrize("indices", [[3, 3], [4, 3], [0], [HIGHEST + 1]])
def test_entries_out_of_order_or_above_the_snapshot_are_refused(indices: list[int]) -> None:
    made = OutgoingSnapshot(GROUP, b"state", indices, lambda _, index: Entry(1, index, 0, b"x"))
    end(made.prepare())
    with pytest.raises(CorruptStore, match=r"snapshot of 1000 with entry"):
        end(received(made, b"".join(made.pieces(0, 100))).check())


def test_an_entry_that_is_gone_is_told_and_noted() -> None:
    live = [Entry(1, 2, 0, b"two"), Entry(1, 3, 0, b"three")]
    made, blob = ready(b"state", live)
    made._reader = source(b"", live[:1])._reader
    pieces = made.pieces(0, 10)
    with pytest.raises(MissingEntry):
        list(pieces)
    assert made.failed == "entry 3 of group 5 is not stored"
    assert blob.endswith(b"three")


@pytest.mark.parametrize("live", [[], [Entry(1, 2, 0, b"two")]])
def test_what_was_given_up_is_not_sent_on(live: list[Entry]) -> None:
    """Not even what could be read still: nothing comes of it."""
    made, _ = ready(b"a large state", live)
    pieces = made.pieces(0, 4)
    next(pieces)
    made.give_up("a newer one is there")
    made.give_up("nobody asks")
    with pytest.raises(SnapshotGivenUp, match="a newer one is there"):
        next(pieces)
    with pytest.raises(SnapshotGivenUp):
        next(made.pieces(0, 1000))
    with pytest.raises(SnapshotGivenUp):
        end(made.prepare())


def test_checked_entries_that_are_cut_off_later_are_told() -> None:
    made, blob = ready(b"state", [Entry(1, 2, 0, b"two"), Entry(1, 3, 0, b"three")])
    holder = [blob]
    body = ReceivedSnapshot(
        lambda offset, size: holder[0][offset : offset + size], made.total_bytes, made.digest, HIGHEST
    )
    end(body.check())
    holder[0] = blob[:-1]
    with pytest.raises(CorruptStore, match="cut off since it was checked"):
        list(body)


def test_a_message_is_carried_without_a_wire() -> None:
    live = [Entry(1, 2, 0, b"two")]
    snapshot = Snapshot(SnapshotMetadata(9, 1), b"state", source(b"state", live))
    message = RaftMessage(MessageType.SNAP, 2, 1, 7, snapshot=snapshot)
    arrived = carried(GROUP, message)
    assert arrived == message
    assert arrived.snapshot is not None
    assert isinstance(arrived.snapshot.body, ReceivedSnapshot)
    assert list(arrived.snapshot.body) == live
