"""Frames and snapshots to bytes and back; and what no honest peer sends."""

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import ConfState, Entry, MessageType, RaftMessage, Snapshot, SnapshotMetadata
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.codec import PeerRefused
from mayfly.cluster.transport.local_peer import LocalPeer
from tests.cluster.transport.protobuf_frames import read_alike, written_by_protobuf

SENDER, RECEIVER = 3, 8

groups = st.integers(0, limits.MAX_GROUP)
terms = st.integers(0, limits.MAX_TERM)
indices = st.integers(0, limits.MAX_INDEX)
payloads = st.binary(max_size=30)

OTHER_TYPES = sorted(codec._BETWEEN_NODES - {MessageType.APP})

other_messages = st.builds(
    RaftMessage,
    st.sampled_from(OTHER_TYPES),
    st.just(RECEIVER),
    st.just(SENDER),
    terms,
    terms,
    indices,
    indices,
    st.integers(0, 2**63 - 1),
    st.booleans(),
    indices,
    st.lists(st.builds(Entry, terms, st.integers(0, 1000), st.integers(0, 2), payloads), max_size=2),
    st.none(),
    payloads,
)


@st.composite
def appends(draw: st.DrawFn) -> RaftMessage:
    index = draw(st.integers(0, limits.MAX_INDEX - 10))
    log_term = draw(st.integers(0, 100))
    entries: list[Entry] = []
    term = log_term
    for offset in range(draw(st.integers(0, 4))):
        term += draw(st.integers(0, 2))
        entries.append(Entry(term, index + 1 + offset, draw(st.integers(0, 2)), draw(payloads)))
    newest = term + draw(st.integers(0, 2))
    return RaftMessage(
        MessageType.APP, RECEIVER, SENDER, newest, log_term, index, draw(indices), entries=entries
    )


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    frame = Frame(draw(terms))
    frame.raft = draw(st.lists(st.tuples(groups, st.one_of(other_messages, appends())), max_size=4))
    frame.group_clocks = draw(st.lists(st.tuples(groups, terms, terms), max_size=3))
    frame.proposals = draw(st.lists(st.tuples(groups, payloads), max_size=3))
    frame.notices = draw(st.lists(st.tuples(st.integers(0, (1 << 32) - 1), payloads), max_size=3))
    return frame


@given(frames())
def test_a_frame_comes_back(frame: Frame) -> None:
    assert codec.decode_frame(codec.encode_frame(frame), SENDER, RECEIVER) == frame


@given(frames())
def test_what_is_written_without_protobuf_is_what_protobuf_writes(frame: Frame) -> None:
    data = codec.encode_frame(frame)
    assert data == written_by_protobuf(frame)
    assert codec.decode_frame(data, SENDER, RECEIVER) == frame


@given(frames(), st.data())
@settings(max_examples=500)
def test_what_is_read_without_protobuf_is_what_protobuf_reads(frame: Frame, data: st.DataObject) -> None:
    """Damaged frames as well."""
    blob = bytearray(codec.encode_frame(frame))
    for _ in range(data.draw(st.integers(0, 3))):
        if blob:
            blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del blob[data.draw(st.integers(0, len(blob))) :]
    read_alike(bytes(blob), SENDER, RECEIVER)


@given(frames(), st.integers(7, 1 << 28), st.binary(max_size=20), st.integers(0, 1 << 64))
def test_what_a_newer_release_may_add_is_passed_over(frame: Frame, field: int, octets: bytes, number: int) -> None:
    added = [
        varint(field << 3) + varint(number % (1 << 64)),
        varint(field << 3 | 1) + bytes(8),
        varint(field << 3 | 2) + varint(len(octets)) + octets,
        varint(field << 3 | 5) + bytes(4),
    ]
    data = b"".join(added) + codec.encode_frame(frame) + b"".join(added)
    assert codec.decode_frame(data, SENDER, RECEIVER) == frame
    for each in added:
        read_alike(data + each[:-1], SENDER, RECEIVER)


@pytest.mark.parametrize("tag", [0x00, 0x07, 0x7B, 0x7C, 0x7E, 0x7F])
def test_what_is_no_field_is_refused(tag: int) -> None:
    with pytest.raises(PeerRefused, match="not a message of this protocol"):
        codec.decode_frame(codec.encode_frame(Frame(5)) + bytes((tag, 1)), SENDER, RECEIVER)


@pytest.mark.parametrize("in_what", [0x12, 0x1A, 0x22, 0x2A])
def test_what_is_added_within_a_part_is_passed_over(in_what: int) -> None:
    part = bytes((0x78, 1))
    known = bytes((0x10, MessageType.HEARTBEAT)) if in_what == 0x12 else b""
    data = bytes((in_what, len(known + part))) + known + part
    without = bytes((in_what, len(known))) + known
    assert codec.decode_frame(data, SENDER, RECEIVER) == codec.decode_frame(without, SENDER, RECEIVER)


def varint(number: int) -> bytes:
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    octets.append(number)
    return bytes(octets)


@pytest.mark.parametrize("tag", [0x12, 0x1A, 0x22, 0x2A])
def test_a_part_that_is_longer_than_what_it_is_in_is_refused(tag: int) -> None:
    longer = {0x12: bytes((0x52, 4)), 0x1A: bytes((8,)), 0x22: bytes((0x12, 4)), 0x2A: bytes((0x12, 4))}[tag]
    data = bytes((tag, len(longer))) + longer + bytes((0x2A, 2, 8, 1))
    with pytest.raises(PeerRefused, match="not a message of this protocol"):
        codec.decode_frame(data, SENDER, RECEIVER)


@pytest.mark.parametrize("clock_ms", [-1, 1 << 63])
def test_a_number_without_a_place_is_not_written(clock_ms: int) -> None:
    with pytest.raises(ValueError, match=f"number {clock_ms} in a frame"):
        codec.encode_frame(Frame(clock_ms))


@given(st.binary(max_size=300))
@settings(max_examples=500)
def test_bytes_of_any_kind_are_decoded_or_refused(data: bytes) -> None:
    decoders: list[Callable[[], object]] = [
        lambda: codec.decode_frame(data, SENDER, RECEIVER),
        lambda: codec.decode_hello(data),
        lambda: codec.decode_snapshot_header(data, RECEIVER),
        lambda: codec.decode_snapshot_data(data, 0, 1000),
    ]
    for decode in decoders:
        with suppress(PeerRefused):
            decode()


@given(frames(), st.data())
def test_a_damaged_frame_is_decoded_or_refused(frame: Frame, data: st.DataObject) -> None:
    blob = bytearray(codec.encode_frame(frame))
    for _ in range(data.draw(st.integers(1, 3))):
        if blob:
            blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = codec.decode_frame(bytes(blob), SENDER, RECEIVER)
    except PeerRefused:
        return
    for _, message in decoded.raft:
        assert (message.from_, message.to) == (SENDER, RECEIVER)
        assert message.term <= limits.MAX_TERM
        assert message.index <= limits.MAX_INDEX


def wire_append(**values: int) -> peer_pb2.Frame:
    frame = peer_pb2.Frame()
    message = frame.raft.add(group=1, type=MessageType.APP, term=5, log_term=3, index=10)
    for name, value in values.items():
        setattr(message, name, value)
    return frame


def absurd() -> dict[str, peer_pb2.Frame]:
    huge = (1 << 64) - 1
    frames = {
        "clock": peer_pb2.Frame(clock_ms=-1),
        "group": wire_append(group=limits.MAX_GROUP + 1),
        "type 7": wire_append(type=MessageType.SNAP),
        "type 0": wire_append(type=MessageType.HUP),
        "type 19": wire_append(type=MessageType.STORAGE_APPEND),
        "type 99": wire_append(type=99),
        "term": wire_append(term=huge),
        "log index": wire_append(commit=huge),
        "vote": wire_append(vote=huge),
        "context": peer_pb2.Frame(),
        "was due": wire_append(),
        "entry of type": wire_append(),
        "entry 2/": wire_append(),
        "entry 6/": wire_append(),
        "items": peer_pb2.Frame(),
    }
    frames["context"].raft.add(type=MessageType.HEARTBEAT, context=bytes(limits.MAX_CONTEXT_BYTES + 1))
    frames["was due"].raft[0].entries.add(term=5, index=12)
    frames["entry of type"].raft[0].entries.add(term=5, index=11, type=3)
    frames["entry 2/"].raft[0].entries.add(term=2, index=11)
    frames["entry 6/"].raft[0].entries.add(term=6, index=11)
    for _ in range(limits.MAX_ITEMS_PER_FRAME + 1):
        frames["items"].notices.add()
    return frames


@pytest.mark.parametrize("what", list(absurd()))
def test_absurd_values_are_refused(what: str) -> None:
    with pytest.raises(PeerRefused, match=what):
        codec.decode_frame(absurd()[what].SerializeToString(), SENDER, RECEIVER)


@given(indices, terms, st.lists(st.integers(1, 2**63 - 1), max_size=4), st.booleans(), st.binary(max_size=9))
def test_a_snapshot_comes_back(
    index: int, term: int, members: list[int], auto_leave: bool, data: bytes
) -> None:
    conf_state = ConfState(members, [5], members[:1], [6], auto_leave)
    snapshot = Snapshot(SnapshotMetadata(index, term, conf_state), data)
    message = RaftMessage(MessageType.SNAP, RECEIVER, SENDER, 9, snapshot=snapshot)
    hello = LocalPeer(SENDER, "node-3", "blue").hello()
    name = codec.SnapshotName(4, index, term, len(data), sha256(data).digest())
    header = codec.decode_snapshot_header(
        codec.encode_snapshot_header(hello, message, snapshot.metadata, name), RECEIVER
    )
    assert header.hello == hello
    assert header.name == name
    header.snapshot.data = data
    assert header.message == message


def absurd_snapshots() -> dict[str, peer_pb2.SnapshotChunk]:
    def header(**values: int) -> peer_pb2.SnapshotChunk:
        chunk = peer_pb2.SnapshotChunk()
        chunk.header.hello.CopyFrom(LocalPeer(SENDER, "", "").hello())
        chunk.header.message.type = values.get("type", MessageType.SNAP)
        chunk.header.metadata.index = values.get("index", 1)
        chunk.header.total_bytes = values.get("total_bytes", 1)
        chunk.header.digest = bytes(values.get("digest_bytes", codec.DIGEST_BYTES))
        return chunk

    chunks = {
        "not its header": peer_pb2.SnapshotChunk(data=b"x"),
        "of type 3": header(type=MessageType.APP),
        "log index": header(index=limits.MAX_INDEX + 1),
        "snapshot of": header(total_bytes=limits.MAX_SNAPSHOT_BYTES + 1),
        "digest of 31 bytes": header(digest_bytes=31),
        "impossible node id": header(),
        "membership of": header(),
        "node_name that is too long": header(),
    }
    chunks["impossible node id"].header.metadata.conf_state.voters.append(0)
    chunks["membership of"].header.metadata.conf_state.learners.extend(range(1, limits.MAX_MEMBERS + 2))
    chunks["node_name that is too long"].header.hello.node_name = "n" * (limits.MAX_NAME_LENGTH + 1)
    return chunks


@pytest.mark.parametrize("what", list(absurd_snapshots()))
def test_absurd_snapshots_are_refused(what: str) -> None:
    with pytest.raises(PeerRefused, match=what):
        codec.decode_snapshot_header(absurd_snapshots()[what].SerializeToString(), RECEIVER)


def test_a_piece_without_data_is_refused() -> None:
    with pytest.raises(PeerRefused):
        codec.decode_snapshot_data(b"", 0, 10)


@given(st.binary(min_size=1, max_size=20), st.integers(0, 1 << 40))
def test_a_piece_of_a_snapshot_comes_back_where_it_belongs(data: bytes, offset: int) -> None:
    wire = codec.encode_snapshot_data(offset, data)
    assert codec.decode_snapshot_data(wire, offset, offset + len(data)) == data
    for due, total_bytes in ((offset + 1, 1 << 41), (offset - 1, 1 << 41), (offset, offset + len(data) - 1)):
        with pytest.raises(PeerRefused):
            codec.decode_snapshot_data(wire, due, total_bytes)


@given(st.binary(min_size=1, max_size=20), st.data())
def test_a_damaged_piece_of_a_snapshot_is_refused(data: bytes, draw: st.DataObject) -> None:
    chunk = peer_pb2.SnapshotChunk.FromString(codec.encode_snapshot_data(0, data))
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    chunk.data = bytes(damaged)
    with pytest.raises(PeerRefused, match="checksum"):
        codec.decode_snapshot_data(chunk.SerializeToString(), 0, 100)


def test_what_is_large_is_sent_as_it_is() -> None:
    """Not copied for each peer; the octets are the same, and what is small is one piece."""
    body = bytes(range(256)) * 1_024
    large = Frame(7)
    message = RaftMessage(type=MessageType.APP, to=RECEIVER, from_=SENDER, term=3, index=9, log_term=3, commit=9)
    message.entries = [Entry(3, 10, data=b"small"), Entry(3, 11, data=body)]
    large.raft.append((4, message))
    large.proposals.append((5, body))
    pieces = codec.encode_pieces(large)
    assert sum(piece is body for piece in pieces) == 2
    assert b"".join(pieces) == codec.encode_frame(large)
    assert codec.decode_frame(b"".join(pieces), SENDER, RECEIVER) == large
    small = Frame(7)
    small.proposals.append((5, b"x" * 1_000))
    assert codec.encode_pieces(small) == [codec.encode_frame(small)]
