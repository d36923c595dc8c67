"""Frames and snapshots as bytes of `proto/peer.proto`, and back.

What comes from the network is checked before anyone else sees it: what no honest peer sends raises
`PeerRefused`, and nothing else does.
"""

import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import (
    MAX_NODE_ID,
    ConfState,
    Entry,
    EntryType,
    MessageType,
    RaftMessage,
    Snapshot,
    SnapshotMetadata,
)
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import frame_octets
from mayfly.cluster.transport.peer_text import address_fault, name_fault
from mayfly.cluster.versions import VersionRange, range_of_peer

_BETWEEN_NODES: Final = frozenset(
    (
        MessageType.PROP,
        MessageType.APP,
        MessageType.APP_RESP,
        MessageType.VOTE,
        MessageType.VOTE_RESP,
        MessageType.HEARTBEAT,
        MessageType.HEARTBEAT_RESP,
        MessageType.TRANSFER_LEADER,
        MessageType.TIMEOUT_NOW,
        MessageType.READ_INDEX,
        MessageType.READ_INDEX_RESP,
        MessageType.PRE_VOTE,
        MessageType.PRE_VOTE_RESP,
        MessageType.FORGET_LEADER,
    )
)
"""Types that may stand in a frame. Snapshots have a call of their own, the others never leave a node."""

_ENTRY_TYPES: Final = frozenset((EntryType.NORMAL, EntryType.CONF_CHANGE, EntryType.CONF_CHANGE_V2))
_MAX_TERM: Final = limits.MAX_TERM
_MAX_INDEX: Final = limits.MAX_INDEX


class PeerRefused(Exception):
    """A peer sent what can't be. The text says what, for the log and for the peer."""


class DamagedOnTheWay(PeerRefused):
    """What came is not what the peer had sent, by its checksum: it is to be sent again."""


# --- hello --------------------------------------------------------------------------------------------


def encode_hello(hello: peer_pb2.Hello) -> bytes:
    """The first message of an Exchange."""
    return peer_pb2.Frame(hello=hello).SerializeToString()


def decode_hello(data: bytes) -> peer_pb2.Hello:
    """The greeting in the first message of an Exchange. Raises `PeerRefused`."""
    frame = _parse_frame(data)
    if not frame.HasField("hello"):
        raise PeerRefused("the first message is not a hello")
    return checked_hello(frame.hello)


def checked_hello(hello: peer_pb2.Hello) -> peer_pb2.Hello:
    """The greeting itself, if its values can be. Raises `PeerRefused`."""
    names = {"node_name": hello.node_name, "cluster_id": hello.cluster_id, "store": hello.store}
    fault = next(filter(None, (name_fault(key, name) for key, name in names.items())), "")
    fault = fault or address_fault(hello.address)
    if fault:
        raise PeerRefused(f"hello with {fault}")
    protocols_of(hello)
    levels_of(hello)
    return hello


def protocols_of(hello: peer_pb2.Hello) -> VersionRange:
    """The protocol versions that its sender speaks. Raises `PeerRefused`."""
    return _range("protocol versions", hello.protocol_version, hello.highest_protocol_version)


def levels_of(hello: peer_pb2.Hello) -> VersionRange:
    """The feature levels that its sender knows. Raises `PeerRefused`."""
    return _range("feature levels", hello.lowest_level, hello.highest_level)


def _range(what: str, lowest: int, highest: int) -> VersionRange:
    known = range_of_peer(lowest, highest)
    if known is None:
        raise PeerRefused(f"hello with {what} from {lowest} to {highest}")
    return known


# --- frames -------------------------------------------------------------------------------------------


def encode_frame(frame: Frame) -> bytes:
    """A frame without snapshots as the bytes of one gRPC message."""
    return frame_octets.encode(frame)


def encode_pieces(frame: Frame) -> list[bytes]:
    """The same bytes: as one piece, or as several with what is large in it as it is."""
    return frame_octets.encode_pieces(frame)


def _fill_message(wire: peer_pb2.GroupMessage, group: int, message: RaftMessage) -> None:
    # Unset fields cost nothing, and most are unset in most messages.
    wire.group = group
    wire.type = message.type
    wire.term = message.term
    wire.index = message.index
    if message.log_term:
        wire.log_term = message.log_term
    if message.commit:
        wire.commit = message.commit
    if message.vote:
        wire.vote = message.vote
    if message.reject:
        wire.reject = True
    if message.reject_hint:
        wire.reject_hint = message.reject_hint
    if message.context:
        wire.context = message.context
    if message.entries:
        add_entry = wire.entries.add
        for entry in message.entries:
            add_entry(term=entry.term, index=entry.index, type=entry.type, data=entry.data)


def decode_frame(data: bytes, sender: int, receiver: int) -> Frame:
    """The frame that `sender` sent to `receiver`. Raises `PeerRefused`."""
    try:
        frame = frame_octets.decode(data, sender, receiver)
    except ValueError as error:
        raise PeerRefused(str(error)) from None
    for _, message in frame.raft:
        if message.type not in _BETWEEN_NODES:
            raise PeerRefused(f"Raft message of type {message.type}")
        if message.entries:
            _check_entries(message)
    return frame


def _read_message(wire: peer_pb2.GroupMessage, sender: int, receiver: int) -> RaftMessage:
    term, log_term, index, commit = wire.term, wire.log_term, wire.index, wire.commit
    vote, hint, context, entries = wire.vote, wire.reject_hint, wire.context, wire.entries
    message = RaftMessage(wire.type, receiver, sender, term, log_term, index, commit, vote, wire.reject, hint)
    if term > _MAX_TERM or log_term > _MAX_TERM:
        raise PeerRefused(f"term {max(term, log_term)}")
    if index > _MAX_INDEX or commit > _MAX_INDEX or hint > _MAX_INDEX:
        raise PeerRefused(f"log index {max(index, commit, hint)}")
    if vote > MAX_NODE_ID:
        raise PeerRefused(f"vote for node {vote}")
    if context:
        message.context = context
        if len(context) > limits.MAX_CONTEXT_BYTES:
            raise PeerRefused(f"Raft message with a context of {len(context)} bytes")
    if entries:
        if len(entries) > limits.MAX_ENTRIES_PER_MESSAGE:
            raise PeerRefused(f"Raft message with {len(entries)} entries")
        message.entries = [Entry(entry.term, entry.index, entry.type, entry.data) for entry in entries]
        _check_entries(message)
    return message


def _check_entries(message: RaftMessage) -> None:
    """Entries of an append follow its index without a gap, in terms that don't fall (Raft section 5.3)."""
    appended = message.type == MessageType.APP
    index = message.index
    term = message.log_term
    for entry in message.entries:
        index += 1
        if entry.type not in _ENTRY_TYPES:
            raise PeerRefused(f"entry of type {entry.type}")
        if entry.index > limits.MAX_INDEX or entry.term > limits.MAX_TERM:
            raise PeerRefused(f"entry {entry.term}/{entry.index}")
        if appended and (entry.index != index or not term <= entry.term <= message.term):
            raise PeerRefused(
                f"entry {entry.term}/{entry.index} where {index} was due, in terms {term} to {message.term}"
            )
        term = entry.term


# --- snapshots ----------------------------------------------------------------------------------------


DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """What tells a snapshot from others: equal names mean equal bytes."""

    group: int
    index: int
    term: int
    total_bytes: int
    digest: bytes


def encode_snapshot_header(
    hello: peer_pb2.Hello, message: RaftMessage, metadata: SnapshotMetadata, name: SnapshotName
) -> bytes:
    """The first piece of a snapshot that `message` carries; it has no data."""
    chunk = peer_pb2.SnapshotChunk()
    header = chunk.header
    header.hello.CopyFrom(hello)
    _fill_message(header.message, name.group, message)
    conf_state = metadata.conf_state
    header.metadata.index = metadata.index
    header.metadata.term = metadata.term
    wire = header.metadata.conf_state
    wire.voters.extend(conf_state.voters)
    wire.learners.extend(conf_state.learners)
    wire.voters_outgoing.extend(conf_state.voters_outgoing)
    wire.learners_next.extend(conf_state.learners_next)
    wire.auto_leave = conf_state.auto_leave
    header.total_bytes = name.total_bytes
    header.digest = name.digest
    return chunk.SerializeToString()


def encode_snapshot_data(offset: int, data: bytes) -> bytes:
    """A further piece: the bytes from this offset on."""
    return peer_pb2.SnapshotChunk(data=data, offset=offset, checksum=zlib.crc32(data)).SerializeToString()


class SnapshotHeader:
    """What the first piece of a snapshot says; `message.snapshot` has no data yet."""

    __slots__ = ("hello", "message", "name", "snapshot")

    def __init__(
        self, hello: peer_pb2.Hello, message: RaftMessage, snapshot: Snapshot, name: SnapshotName
    ) -> None:
        self.hello = hello
        self.message = message
        self.snapshot = snapshot
        self.name = name


def decode_snapshot_header(data: bytes, receiver: int) -> SnapshotHeader:
    """The first piece of a snapshot. Raises `PeerRefused`."""
    chunk = _parse_chunk(data)
    if not chunk.HasField("header") or chunk.data:
        raise PeerRefused("the first piece of a snapshot is not its header")
    wire = chunk.header
    if wire.message.type != MessageType.SNAP or wire.message.entries:
        raise PeerRefused(f"snapshot in a Raft message of type {wire.message.type}")
    if wire.total_bytes > limits.MAX_SNAPSHOT_BYTES:
        raise PeerRefused(f"snapshot of {wire.total_bytes} bytes, at most {limits.MAX_SNAPSHOT_BYTES} are taken")
    if len(wire.digest) != DIGEST_BYTES:
        raise PeerRefused(f"snapshot with a digest of {len(wire.digest)} bytes instead of {DIGEST_BYTES}")
    hello = checked_hello(wire.hello)
    conf_state = ConfState(
        _members(wire.metadata.conf_state.voters),
        _members(wire.metadata.conf_state.learners),
        _members(wire.metadata.conf_state.voters_outgoing),
        _members(wire.metadata.conf_state.learners_next),
        wire.metadata.conf_state.auto_leave,
    )
    metadata = SnapshotMetadata(_index(wire.metadata.index), _term(wire.metadata.term), conf_state)
    message = _read_message(wire.message, hello.node_id, receiver)
    message.snapshot = Snapshot(metadata)
    name = SnapshotName(
        _group(wire.message.group), metadata.index, metadata.term, wire.total_bytes, wire.digest
    )
    return SnapshotHeader(hello, message, message.snapshot, name)


def decode_snapshot_data(data: bytes, offset: int, total_bytes: int) -> bytes:
    """The data of a further piece, which has to begin at `offset` and to end at `total_bytes` at the latest. Raises
    `PeerRefused`."""
    chunk = _parse_chunk(data)
    if chunk.HasField("header") or not chunk.data:
        raise PeerRefused("a piece of a snapshot without data")
    if chunk.offset != offset:
        raise PeerRefused(f"a piece of a snapshot for offset {chunk.offset} where {offset} was due")
    if offset + len(chunk.data) > total_bytes:
        raise PeerRefused("snapshot is longer than its header says")
    if zlib.crc32(chunk.data) != chunk.checksum:
        raise DamagedOnTheWay(f"the piece of a snapshot at offset {offset} doesn't match its checksum")
    return chunk.data


# --- values -------------------------------------------------------------------------------------------


def _parse_frame(data: bytes) -> peer_pb2.Frame:
    try:
        return peer_pb2.Frame.FromString(data)
    except DecodeError:
        raise PeerRefused("not a message of this protocol") from None


def _parse_chunk(data: bytes) -> peer_pb2.SnapshotChunk:
    try:
        return peer_pb2.SnapshotChunk.FromString(data)
    except DecodeError:
        raise PeerRefused("not a message of this protocol") from None


def _group(group: int) -> int:
    if group > limits.MAX_GROUP:
        raise PeerRefused(f"group {group}")
    return group


def _index(index: int) -> int:
    if index > limits.MAX_INDEX:
        raise PeerRefused(f"log index {index}")
    return index


def _term(term: int) -> int:
    if term > limits.MAX_TERM:
        raise PeerRefused(f"term {term}")
    return term


def _members(ids: Collection[int]) -> list[int]:
    if len(ids) > limits.MAX_MEMBERS:
        raise PeerRefused(f"membership of {len(ids)} nodes")
    members = list(ids)
    if any(not 0 < member <= MAX_NODE_ID for member in members):
        raise PeerRefused("membership with an impossible node id")
    return members
