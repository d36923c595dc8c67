"""A snapshot as it travels between nodes: the state and the entries it refers to, in one checksummed blob.

Layout, big-endian: magic "MFS1", crc32 of all that follows, state length u64, number of entries u32, the
state, then per entry term u64, index u64, type u8, data length u32, data.
"""

import struct
import zlib
from collections.abc import Iterable
from typing import Final

from cluster.log.batch import CorruptStore
from cluster.raft.messages import Entry

MAGIC: Final = b"MFS1"
_PREFIX: Final = struct.Struct(">4sI")
_COUNTS: Final = struct.Struct(">QI")
_ENTRY: Final = struct.Struct(">QQBI")


def encode_snapshot(state: bytes, live_entries: Iterable[Entry]) -> bytes:
    """The blob for `Snapshot.data`; `live_entries` in ascending order of their indices."""
    parts: list[bytes] = [b"", b"", state]
    count = 0
    for entry in live_entries:
        parts.append(_ENTRY.pack(entry.term, entry.index, entry.type, len(entry.data)))
        parts.append(entry.data)
        count += 1
    parts[1] = _COUNTS.pack(len(state), count)
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    parts[0] = _PREFIX.pack(MAGIC, checksum)
    return b"".join(parts)


def decode_snapshot(data: bytes) -> tuple[bytes, list[Entry]]:
    """State and live entries of a blob. Raises `CorruptStore` when it isn't exactly what was encoded."""
    view = memoryview(data)
    if len(view) < _PREFIX.size + _COUNTS.size:
        raise CorruptStore("snapshot is cut off")
    magic, checksum = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise CorruptStore("not a snapshot, or one of another version")
    if zlib.crc32(view[_PREFIX.size :]) != checksum:
        raise CorruptStore("snapshot doesn't match its checksum")
    state_length, count = _COUNTS.unpack_from(view, _PREFIX.size)
    offset = _PREFIX.size + _COUNTS.size
    if offset + state_length > len(view):
        raise CorruptStore("snapshot is cut off")
    state = bytes(view[offset : offset + state_length])
    offset += state_length
    entries: list[Entry] = []
    for _ in range(count):
        if offset + _ENTRY.size > len(view):
            raise CorruptStore("snapshot is cut off")
        term, index, entry_type, length = _ENTRY.unpack_from(view, offset)
        offset += _ENTRY.size
        if offset + length > len(view):
            raise CorruptStore("snapshot is cut off")
        entries.append(Entry(term, index, entry_type, bytes(view[offset : offset + length])))
        offset += length
    if offset != len(view):
        raise CorruptStore("snapshot has bytes left over")
    return state, entries
