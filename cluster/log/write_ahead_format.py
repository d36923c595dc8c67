"""The octets of a write-ahead file: what a batch looks like in it, and what a crash or a bad disk left of one (pure).

A file begins with a header of one sector: a magic, the version, the file's
size, a salt, a checksum. Records follow without gaps, each a
batch (without snapshots); their numbers count up by one. What was never written is zeros. All numbers are big-endian.

    record   magic u32, number u64, bytes of the table u32, of the payload u32, checksum of the table u32, of this u32
    table    for each group: group u32, flags u8 (1: it has a hard state), term u64, vote u64, commit u64, count of
             entries u32, of releases u32; if there are entries, the first one's index u64;
             for each entry: type u8, term u64, checksum u32 (as in the log, of the payload too), length u32;
             for each release: index u64
    payload  of all entries, in the table's order
    end      a magic u32

The salt goes into the first two checksums: nobody who sends messages can make a payload that looks like a record.

A record is written and synced before the next one begins. So only the last one can be torn by a crash, and then at
least one sector of it was never written: it is cut off. Anything else that does not fit is damage.
"""

import struct
import zlib
from typing import Final

from mayfly.cluster.log import records
from mayfly.cluster.log.batch import CorruptStore, WriteBatch
from mayfly.cluster.log.records import ENTRY_KEY
from mayfly.cluster.raft import Entry, HardState

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""

FILE_HEADER_BYTES: Final = SECTOR_BYTES
WRITE_AHEAD_VERSION: Final = 1

_FILE_MAGIC: Final = b"mayfly ahead\0\0\0\0"
_FILE_HEADER: Final = struct.Struct(">16sIQQ")
_CHECKSUM: Final = struct.Struct(">I")
_RECORD_MAGIC: Final = 0xA4EAD5E7
_RECORD_MAGIC_BYTES: Final = _CHECKSUM.pack(_RECORD_MAGIC)
_RECORD: Final = struct.Struct(">IQIII")
_RECORD_BYTES: Final = _RECORD.size + _CHECKSUM.size
_END: Final = b"\xe0\xd9\xe0\xd9"
_GROUP: Final = struct.Struct(">IBQQQII")
_INDEX: Final = struct.Struct(">Q")
_ENTRY: Final = struct.Struct(">BQII")
_SALT: Final = struct.Struct(">Q")
_HAS_HARD_STATE: Final = 1


class Record:
    """A record as it was found: `start` and `end` are where it is in the file."""

    __slots__ = ("end", "number", "payload_at", "start", "table_at")

    def __init__(self, number: int, start: int, table_at: int, payload_at: int, end: int) -> None:
        self.number: int = number
        self.start: int = start
        self.table_at: int = table_at
        self.payload_at: int = payload_at
        self.end: int = end


def file_header(size_bytes: int, salt: int) -> bytes:
    """The first sector of a file; `salt` is random, 64 bits."""
    head = _FILE_HEADER.pack(_FILE_MAGIC, WRITE_AHEAD_VERSION, size_bytes, salt)
    return (head + _CHECKSUM.pack(zlib.crc32(head))).ljust(FILE_HEADER_BYTES, b"\0")


def file_salt(image: bytes, name: str) -> int:
    """The salt of a file. Raises `CorruptStore` when it is not one of ours, or of a newer version."""
    if len(image) < FILE_HEADER_BYTES:
        raise CorruptStore(f"{name} is cut off: it has {len(image)} bytes")
    magic, version, size_bytes, salt = _FILE_HEADER.unpack_from(image)
    if magic != _FILE_MAGIC:
        raise CorruptStore(f"{name} is not a write-ahead file of a MayflyMQ node")
    if _CHECKSUM.unpack_from(image, _FILE_HEADER.size)[0] != zlib.crc32(image[: _FILE_HEADER.size]):
        raise CorruptStore(f"{name} is damaged: its header doesn't match its checksum")
    if version > WRITE_AHEAD_VERSION:
        raise CorruptStore(
            f"{name} has version {version}, written by a newer MayflyMQ; this one reads up to {WRITE_AHEAD_VERSION}"
        )
    if len(image) != size_bytes:
        raise CorruptStore(f"{name} is cut off: it has {len(image)} bytes of {size_bytes}")
    return int(salt)


def is_clear(image: bytes) -> bool:
    """Whether there is nothing behind the header of a file."""
    return image.count(0, FILE_HEADER_BYTES) == len(image) - FILE_HEADER_BYTES


def may_be_recorded(batch: WriteBatch, most_bytes: int) -> bool:
    """Whether a batch fits a record: no snapshots, and not more payload than this."""
    size = 0
    for write in batch.groups.values():
        if write.snapshot is not None or write.install:
            return False
        size += 8 * len(write.release)
        for entry in write.entries:
            size += len(entry.data) + _ENTRY.size
    return size <= most_bytes


def encode_record(number: int, batch: WriteBatch, salt: int) -> bytes:
    """The record of a batch without snapshots. The checksums of its entries are noted in the batch."""
    table: list[bytes] = []
    payload: list[bytes] = []
    for group, write in batch.groups.items():
        state = write.hard_state
        term, vote, commit = (0, 0, 0) if state is None else (state.term, state.vote, state.commit)
        flags = 0 if state is None else _HAS_HARD_STATE
        entries, release = write.entries, write.release
        table.append(_GROUP.pack(group, flags, term, vote, commit, len(entries), len(release)))
        if entries:
            table.append(_INDEX.pack(entries[0].index))
        write.checksums = []
        for entry in entries:
            checksum = records.entry_checksum(ENTRY_KEY.pack(group, entry.index), entry)
            write.checksums.append(checksum)
            table.append(_ENTRY.pack(entry.type, entry.term, checksum, len(entry.data)))
            payload.append(entry.data)
        if release:
            table.append(struct.pack(f">{len(release)}Q", *release))
    table_bytes = b"".join(table)
    seed = zlib.crc32(_SALT.pack(salt))
    head = _RECORD.pack(
        _RECORD_MAGIC, number, len(table_bytes), sum(map(len, payload)), zlib.crc32(table_bytes, seed)
    )
    return b"".join([head, _CHECKSUM.pack(zlib.crc32(head, seed)), table_bytes, *payload, _END])


def scan(image: bytes, name: str, moved: int) -> list[Record]:
    """The records of a file, in order, without one that was torn. Raises `CorruptStore` for damage.

    Records numbered up to `moved` are of no account any more: the file may have been in the middle of being cleared.
    The payload of the last record alone is looked into; an entry's own checksum stays with it.
    """
    seed = zlib.crc32(_SALT.pack(file_salt(image, name)))
    found: list[Record] = []
    at = FILE_HEADER_BYTES
    while True:
        record = _record_at(image, at, seed)
        if record is None or (found and record.number != found[-1].number + 1):
            break
        found.append(record)
        at = record.end
    if found and not _is_whole(image, found[-1]) and _misses_a_sector(image, found[-1].start, found[-1].end):
        at = found.pop().start
    later = _later_record(image, at, seed, moved)
    if later is not None:
        raise CorruptStore(
            f"{name} is damaged: no record can be read at byte {at}, but there is record {later.number} "
            f"at byte {later.start}"
        )
    end = min(_claimed_end(image, at, seed), len(image))
    if at + _RECORD_BYTES <= len(image) and not _misses_a_sector(image, at, end):
        raise CorruptStore(f"{name} is damaged: the record at byte {at} doesn't match its checksum")
    return found


def decode_record(image: bytes, record: Record) -> WriteBatch:
    """The batch of a record. Entries come with the checksums they had, whatever became of their payload since."""
    batch = WriteBatch()
    at, payload_at = record.table_at, record.payload_at
    while at < record.payload_at:
        number, flags, term, vote, commit, entry_count, release_count = _GROUP.unpack_from(image, at)
        at += _GROUP.size
        write = batch.group(number)
        if flags & _HAS_HARD_STATE:
            write.hard_state = HardState(term, vote, commit)
        if entry_count:
            index = _INDEX.unpack_from(image, at)[0]
            at += _INDEX.size
            for position in range(entry_count):
                entry_type, entry_term, checksum, length = _ENTRY.unpack_from(image, at)
                at += _ENTRY.size
                data = image[payload_at : payload_at + length]
                payload_at += length
                write.entries.append(Entry(entry_term, index + position, entry_type, data))
                write.checksums.append(checksum)
        write.release = list(struct.unpack_from(f">{release_count}Q", image, at))
        at += _INDEX.size * release_count
    return batch


def _claimed_end(image: bytes, at: int, seed: int) -> int:
    """Where the record that begins here ends, as its head says; where the head ends, if that can't be trusted."""
    head_end = at + _RECORD_BYTES
    if head_end > len(image):
        return len(image)
    magic, _, table_bytes, payload_bytes, _ = _RECORD.unpack_from(image, at)
    checksum = _CHECKSUM.unpack_from(image, at + _RECORD.size)[0]
    if magic != _RECORD_MAGIC or checksum != zlib.crc32(image[at : at + _RECORD.size], seed):
        return head_end
    return head_end + int(table_bytes) + int(payload_bytes) + len(_END)


def _record_at(image: bytes, at: int, seed: int) -> Record | None:
    """The record that begins here, its head and table verified."""
    end = _claimed_end(image, at, seed)
    table_at = at + _RECORD_BYTES
    if end <= table_at or end > len(image):
        return None
    _, number, table_bytes, _, checksum = _RECORD.unpack_from(image, at)
    payload_at = table_at + table_bytes
    if zlib.crc32(image[table_at:payload_at], seed) != checksum:
        return None
    return Record(number, at, table_at, payload_at, end)


def _is_whole(image: bytes, record: Record) -> bool:
    """Whether a record is there to its last octet."""
    if image[record.end - len(_END) : record.end] != _END:
        return False
    for number, write in decode_record(image, record).groups.items():
        for entry, checksum in zip(write.entries, write.checksums, strict=True):
            if records.entry_checksum(ENTRY_KEY.pack(number, entry.index), entry) != checksum:
                return False
    return True


def _misses_a_sector(image: bytes, start: int, end: int) -> bool:
    """Whether some sector's part of a record is still as it was before anything was written."""
    while start < end:
        sector_end = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if image.count(0, start, sector_end) == sector_end - start:
            return True
        start = sector_end
    return False


def _later_record(image: bytes, at: int, seed: int, moved: int) -> Record | None:
    """The first record that can be read behind this place, and that still counts."""
    place = image.find(_RECORD_MAGIC_BYTES, at + 1)
    while place >= 0:
        record = _record_at(image, place, seed)
        if record is not None and record.number > moved:
            return record
        place = image.find(_RECORD_MAGIC_BYTES, place + 1)
    return None
