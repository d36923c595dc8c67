"""The bytes of what a log store keeps: entries, hard states, snapshots. Each has a version and a checksum.

The checksum covers the key as well, so that a value that turns up in the wrong place is found. All
numbers are big-endian, so that keys sort by group, then index.
"""

import struct
import zlib
from typing import Final

from mayfly.cluster.log.batch import CorruptEntry, CorruptStore, StoredSnapshot
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata

Buffer = bytes | memoryview

FORMAT_VERSION: Final = 1
"""Version of each record."""

ENTRY_KEY: Final = struct.Struct(">IQ")
GROUP_KEY: Final = struct.Struct(">I")

_ENTRY_HEAD: Final = struct.Struct(">BBQ")  # version, type, term
_ENTRY_HEADER: Final = struct.Struct(">BBQI")  # the same, checksum
ENTRY_HEADER_BYTES: Final = _ENTRY_HEADER.size
_HARD_STATE: Final = struct.Struct(">BQQQ")  # version, term, vote, commit
_CHECKSUM: Final = struct.Struct(">I")
_SNAPSHOT_HEAD: Final = struct.Struct(">BQQIIII?")  # version, index, term, four counts of ids, auto_leave
_IDS_BYTES: Final = 8

_KEEPS_INTERPRETER_BYTES: Final = 5 * 1024
_PIECEWISE_UP_TO_BYTES: Final = 128 * 1024


def crc32(data: Buffer, start: int = 0) -> int:
    """The checksum of zlib, in pieces: for more than 5 KB at once it lets go of the interpreter lock.

    The writer thread would have to wait for the event loop to get it back, entry after entry. Large data is
    worth the wait.
    """
    size = len(data)
    if size <= _KEEPS_INTERPRETER_BYTES or size > _PIECEWISE_UP_TO_BYTES:
        return zlib.crc32(data, start)
    view = memoryview(data)
    for offset in range(0, size, _KEEPS_INTERPRETER_BYTES):
        start = zlib.crc32(view[offset : offset + _KEEPS_INTERPRETER_BYTES], start)
    return start


def entry_checksum(key: bytes, entry: Entry) -> int:
    """The checksum of an entry stored under `key`."""
    head = _ENTRY_HEAD.pack(FORMAT_VERSION, entry.type, entry.term)
    return crc32(entry.data, zlib.crc32(head, zlib.crc32(key)))


def encode_entry(key: bytes, entry: Entry, checksum: int = -1) -> bytes:
    """The value of an entry stored under `key`; `checksum` is the entry's, -1 if it is not known yet."""
    if checksum < 0:
        checksum = entry_checksum(key, entry)
    return _ENTRY_HEADER.pack(FORMAT_VERSION, entry.type, entry.term, checksum) + entry.data


def check_entry(key: Buffer, value: Buffer) -> tuple[int, int]:
    """Type and term of a stored entry, once its checksum is verified. Raises `CorruptEntry`."""
    if len(value) < ENTRY_HEADER_BYTES:
        raise _corrupt_entry(key, f"only {len(value)} bytes long")
    version, entry_type, term, checksum = _ENTRY_HEADER.unpack_from(value)
    payload = memoryview(value)[ENTRY_HEADER_BYTES:]
    if crc32(payload, zlib.crc32(value[: _ENTRY_HEAD.size], zlib.crc32(key))) != checksum:
        raise _corrupt_entry(key, "it doesn't match its checksum")
    if version != FORMAT_VERSION:
        raise _corrupt_entry(key, f"version {version}, {FORMAT_VERSION} expected")
    return entry_type, term


def decode_entry(key: bytes, value: Buffer) -> Entry:
    """A stored entry, its checksum verified; the payload is copied out of `value`. Raises `CorruptEntry`."""
    entry_type, term = check_entry(key, value)
    return Entry(term, ENTRY_KEY.unpack(key)[1], entry_type, bytes(value[ENTRY_HEADER_BYTES:]))


def _corrupt_entry(key: Buffer, reason: str) -> CorruptEntry:
    group, index = ENTRY_KEY.unpack(key)
    return CorruptEntry(group, index, reason)


def encode_hard_state(key: bytes, state: HardState) -> bytes:
    """The value of a hard state stored under `key`."""
    body = _HARD_STATE.pack(FORMAT_VERSION, state.term, state.vote, state.commit)
    return body + _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(key)))


def decode_hard_state(key: bytes, value: bytes) -> HardState:
    """A stored hard state. Raises `CorruptStore`."""
    name = f"hard state of group {GROUP_KEY.unpack(key)[0]}"
    if len(value) != _HARD_STATE.size + _CHECKSUM.size:
        raise CorruptStore(f"{name} is corrupt: {len(value)} bytes long")
    checksum = _CHECKSUM.unpack_from(value, _HARD_STATE.size)[0]
    if zlib.crc32(value[: _HARD_STATE.size], zlib.crc32(key)) != checksum:
        raise CorruptStore(f"{name} is corrupt: it doesn't match its checksum")
    version, term, vote, commit = _HARD_STATE.unpack_from(value)
    if version != FORMAT_VERSION:
        raise CorruptStore(f"{name} has version {version}, {FORMAT_VERSION} expected")
    return HardState(term, vote, commit)


def encode_snapshot_record(key: bytes, snapshot: StoredSnapshot) -> bytes:
    """The value of a snapshot stored under `key`."""
    metadata = snapshot.metadata
    conf = metadata.conf_state
    lists = (conf.voters, conf.learners, conf.voters_outgoing, conf.learners_next)
    ids = [id_ for ids in lists for id_ in ids]
    head = _SNAPSHOT_HEAD.pack(
        FORMAT_VERSION, metadata.index, metadata.term, *[len(ids) for ids in lists], conf.auto_leave
    ) + struct.pack(f">{len(ids)}Q", *ids)
    checksum = zlib.crc32(snapshot.state, zlib.crc32(head, zlib.crc32(key)))
    return b"".join((_CHECKSUM.pack(checksum), head, snapshot.state))


def decode_snapshot_record(key: bytes, value: bytes) -> StoredSnapshot:
    """A stored snapshot. Raises `CorruptStore`."""
    name = f"snapshot of group {GROUP_KEY.unpack(key)[0]}"
    start = _CHECKSUM.size
    if len(value) < start + _SNAPSHOT_HEAD.size:
        raise CorruptStore(f"{name} is corrupt: only {len(value)} bytes long")
    if zlib.crc32(memoryview(value)[start:], zlib.crc32(key)) != _CHECKSUM.unpack_from(value)[0]:
        raise CorruptStore(f"{name} is corrupt: it doesn't match its checksum")
    version, index, term, *counts, auto_leave = _SNAPSHOT_HEAD.unpack_from(value, start)
    if version != FORMAT_VERSION:
        raise CorruptStore(f"{name} has version {version}, {FORMAT_VERSION} expected")
    offset = start + _SNAPSHOT_HEAD.size
    lists: list[list[int]] = []
    for count in counts:
        lists.append(list(struct.unpack_from(f">{count}Q", value, offset)))
        offset += _IDS_BYTES * count
    voters, learners, voters_outgoing, learners_next = lists
    conf_state = ConfState(voters, learners, voters_outgoing, learners_next, auto_leave)
    metadata = SnapshotMetadata(index, term, conf_state)
    return StoredSnapshot(metadata, value[offset:])


def snapshot_record_index(value: Buffer) -> int:
    """The index of a stored snapshot, unverified, without touching its state."""
    index: int = _SNAPSHOT_HEAD.unpack_from(value, _CHECKSUM.size)[1]
    return index
