"""A snapshot as it travels between nodes: the state and the entries it refers to, as a sequence of bytes of which
neither end ever holds more than a piece.

Layout, big-endian: magic "MFS2", state length u64, number of entries u32, the state, then per entry term u64, index
u64, type u8, data length u32, data. Length and SHA-256 of the whole are told beforehand; they are its name, and equal
names mean equal bytes, whoever sends them.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Final

from mayfly.cluster.log.batch import CorruptStore, LiveEntries, LogError
from mayfly.cluster.raft import Entry, Snapshot

MAGIC: Final = b"MFS2"
STEP_BYTES: Final = 1 << 22
"""About how much is read between two moments at which a caller may stop."""

_HEAD: Final = struct.Struct(">4sQI")
_ENTRY: Final = struct.Struct(">QQBI")

EntryReader = Callable[[int, int], Entry]
"""The entry of a group with an index: `LogStore.read_entry`."""
Read = Callable[[int, int], bytes]
"""So many bytes from an offset on, fewer only at the end."""


class SnapshotGivenUp(LogError):
    """A snapshot was given up by who made it while it was being sent: what it refers to is not kept any more."""


class OutgoingSnapshot:
    """The `Snapshot.body` of a snapshot that this node made: its entries are read from the log when they are needed.

    Whoever made it keeps those entries in the log meanwhile. `prepare` goes first; both may run in any thread that may
    read the log.
    """

    def __init__(self, group: int, state: bytes, indices: Sequence[int], reader: EntryReader) -> None:
        """`indices` ascending."""
        self.total_bytes: int = 0
        self.digest: bytes = b""
        self.failed: str = ""
        """Why it can't be sent: an entry can't be read any more, or it was given up. A new one has to be made."""
        self._group = group
        self._indices = indices
        self._reader = reader
        self._head = _HEAD.pack(MAGIC, len(state), len(indices))
        self._state = state
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[Entry]:
        """The entries. Raises what reading the log raises, and `SnapshotGivenUp`."""
        for index in self._indices:
            yield self._entry(index)

    def _entry(self, index: int) -> Entry:
        self._check()
        try:
            return self._reader(self._group, index)
        except LogError as error:
            self.failed = str(error)
            raise

    def give_up(self, why: str) -> None:
        """It will not be read from now on: who is sending it, or is about to, stops at once."""
        self.failed = self.failed or why

    def _check(self) -> None:
        if self.failed:
            raise SnapshotGivenUp(self.failed)

    def prepare(self) -> Iterator[None]:
        """Find out length and digest, in steps; at once if they are known. Raises what reading the log raises, and
        `SnapshotGivenUp`."""
        self._check()
        if self.digest:
            return
        digest = sha256(self._head)
        digest.update(self._state)
        end = len(self._head) + len(self._state)
        ends: list[int] = []
        pause_at = end + STEP_BYTES
        for entry in self:
            digest.update(_entry_head(entry))
            digest.update(entry.data)
            end += _ENTRY.size + len(entry.data)
            ends.append(end)
            if end >= pause_at:
                pause_at = end + STEP_BYTES
                yield
        self._ends = ends
        self.total_bytes = end
        self.digest = digest.digest()

    def pieces(self, offset: int, piece_bytes: int) -> Iterator[bytes]:
        """The bytes from an offset on, in pieces of this size, the last one shorter. Raises what reading raises, and
        `SnapshotGivenUp`."""
        gathered: list[bytes] = []
        size = 0
        for part in self._parts(offset):
            start = 0
            while size + len(part) - start >= piece_bytes:
                end = start + piece_bytes - size
                gathered.append(part[start:end])
                self._check()
                yield b"".join(gathered)
                gathered.clear()
                start, size = end, 0
            if start < len(part):
                gathered.append(part[start:])
                size += len(part) - start
        if size:
            self._check()
            yield b"".join(gathered)

    def _parts(self, offset: int) -> Iterator[bytes]:
        start = len(self._head) + len(self._state)
        if offset < start:
            yield (self._head + self._state)[offset:]
        number = bisect_right(self._ends, offset)
        for position in range(number, len(self._indices)):
            entry = self._entry(self._indices[position])
            part = _entry_head(entry) + entry.data
            begin = start if position == 0 else self._ends[position - 1]
            yield part[max(0, offset - begin) :]


class ReceivedSnapshot:
    """The `Snapshot.body` of a snapshot that came whole; `check` goes first, then `state` and the entries are there."""

    def __init__(self, read: Read, total_bytes: int, digest: bytes, index: int) -> None:
        """`index` is the snapshot's: no entry lies above it."""
        self.state: bytes = b""
        self._read = read
        self._total_bytes = total_bytes
        self._digest = digest
        self._index = index
        self._count = 0
        self._first = 0

    def __len__(self) -> int:
        return self._count

    def check(self) -> Iterator[None]:
        """Compare all with the digest, and look through the layout, in steps. Raises `CorruptStore`."""
        digest = sha256()
        for offset in range(0, self._total_bytes, STEP_BYTES):
            digest.update(self._read(offset, min(STEP_BYTES, self._total_bytes - offset)))
            yield
        if digest.digest() != self._digest:
            raise CorruptStore("snapshot doesn't match its digest")
        head = self._read(0, _HEAD.size)
        if len(head) < _HEAD.size:
            raise CorruptStore("snapshot is cut off")
        magic, state_bytes, count = _HEAD.unpack(head)
        if magic != MAGIC:
            raise CorruptStore("not a snapshot, or one of another version")
        offset = _HEAD.size + state_bytes
        if offset > self._total_bytes:
            raise CorruptStore("snapshot is cut off")
        pause_at = offset + STEP_BYTES
        previous = 0
        for _ in range(count):
            if offset + _ENTRY.size > self._total_bytes:
                raise CorruptStore("snapshot is cut off")
            _, index, _, length = _ENTRY.unpack(self._read(offset, _ENTRY.size))
            if not previous < index <= self._index:
                raise CorruptStore(f"snapshot of {self._index} with entry {index} after {previous}")
            previous = index
            offset += _ENTRY.size + length
            if offset >= pause_at:
                pause_at = offset + STEP_BYTES
                yield
        if offset != self._total_bytes:
            raise CorruptStore("snapshot is cut off, or has bytes left over")
        self.state = self._read(_HEAD.size, state_bytes)
        self._count, self._first = count, _HEAD.size + state_bytes

    def __iter__(self) -> Iterator[Entry]:
        """The entries. Raises `CorruptStore` when what was checked is not there any more."""
        offset = self._first
        for _ in range(self._count):
            head = self._read(offset, _ENTRY.size)
            if len(head) < _ENTRY.size:
                raise CorruptStore("snapshot is cut off since it was checked")
            term, index, entry_type, length = _ENTRY.unpack(head)
            data = self._read(offset + _ENTRY.size, length)
            if len(data) < length:
                raise CorruptStore("snapshot is cut off since it was checked")
            offset += _ENTRY.size + length
            yield Entry(term, index, entry_type, data)


def _entry_head(entry: Entry) -> bytes:
    return _ENTRY.pack(entry.term, entry.index, entry.type, len(entry.data))


def outgoing(group: int, snapshot: Snapshot) -> OutgoingSnapshot:
    """What is sent of a snapshot that this node made."""
    body = snapshot.body
    return body if isinstance(body, OutgoingSnapshot) else OutgoingSnapshot(group, snapshot.data, (), _no_entry)


def _no_entry(group: int, index: int) -> Entry:
    raise AssertionError(f"a snapshot of group {group} without entries was asked for entry {index}")


def live_entries(snapshot: Snapshot) -> LiveEntries:
    """The entries that come with a snapshot."""
    body = snapshot.body
    return body if isinstance(body, (OutgoingSnapshot, ReceivedSnapshot)) else []
