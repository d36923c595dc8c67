"""How one Raft group reads its log: terms in memory, payloads in a node-wide cache, the rest from disk.

HOT: compiled by mypyc where that is possible.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from mayfly.cluster.log.batch import StoredGroup
from mayfly.cluster.raft import (
    Compacted,
    ConfState,
    Entry,
    HardState,
    Snapshot,
    SnapshotMetadata,
    SnapshotTemporarilyUnavailable,
    Unavailable,
)

CACHED_ENTRY_OVERHEAD_BYTES: Final = 200
"""About what an entry costs in the cache besides its payload: the objects around it."""

GROUP_SHIFT: Final = 47
"""Group and index share one integer as the cache's key (see MAX_GROUP and MAX_INDEX in cluster.limits)."""

_INDEX_MASK: Final = (1 << GROUP_SHIFT) - 1

Piece = tuple[int, int, int]
"""Octets of another entry's payload: its index, where they begin, how many."""


def part_of(pieces: Sequence[Piece], start: int, length: int) -> list[Piece]:
    """So many octets of what the pieces have together, from there on; nothing if they have less."""
    part: list[Piece] = []
    for index, first, size in pieces:
        if start < size and length:
            taken = min(size - start, length)
            part.append((index, first + start, taken))
            length -= taken
        start = max(start - size, 0)
    return [] if length else part


EntryReader = Callable[[int, int], Entry]
"""Fetches the entry of a group from disk: `LogStore.read_entry`."""


class EntryCache:
    """Entries of all groups of a node, within a budget; what came first goes first.

    Whatever is here is on disk as well: any entry may go at any time, and costs a read when it is wanted again.

    First in, first out is enough: consumers read what is recent, and what is read back from disk is
    read in order, entry by entry, so each comes in once and is used until the next one does.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes: int = budget_bytes
        self.used_bytes: int = 0
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._joined_key: int = -1
        self._joined: bytes = b""

    def joined(self, group: int, index: int) -> bytes | None:
        """The last payload that was put together from several entries, if it is this one."""
        return self._joined if (group << GROUP_SHIFT) | index == self._joined_key else None

    def keep_joined(self, group: int, index: int, data: bytes) -> None:
        """Keep it until another one takes its place: several consumers may be given it, one after the other."""
        self._joined_key, self._joined = (group << GROUP_SHIFT) | index, data

    def drop_joined(self) -> None:
        """It is not needed any more, or not what it was."""
        self._joined_key, self._joined = -1, b""

    def get(self, group: int, index: int) -> Entry | None:
        """The entry, or None when it isn't cached."""
        return self._entries.get((group << GROUP_SHIFT) | index)

    def put(self, group: int, entry: Entry) -> None:
        """Keep an entry, in place of one with the same index, and drop the oldest beyond the budget."""
        key = (group << GROUP_SHIFT) | entry.index
        entries = self._entries
        earlier = entries.pop(key, None)
        if earlier is not None:
            self.used_bytes -= len(earlier.data) + CACHED_ENTRY_OVERHEAD_BYTES
        entries[key] = entry
        self.used_bytes += len(entry.data) + CACHED_ENTRY_OVERHEAD_BYTES
        while self.used_bytes > self.budget_bytes and entries:
            oldest = entries.popitem(last=False)[1]
            self.used_bytes -= len(oldest.data) + CACHED_ENTRY_OVERHEAD_BYTES

    def discard(self, group: int, index: int) -> None:
        """Drop an entry if it is there."""
        key = (group << GROUP_SHIFT) | index
        if key == self._joined_key:
            self.drop_joined()
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.used_bytes -= len(entry.data) + CACHED_ENTRY_OVERHEAD_BYTES

    def drop_spent(self, is_spent: Callable[[int, int], bool]) -> None:
        """Drop the oldest entries as long as nobody needs them any more: `is_spent(group, index)`.

        The first one that is needed ends this, however much is spent behind it: what comes often must not look at
        everything. The budget moves such an entry out in the end."""
        self.drop_joined()
        entries = self._entries
        while entries:
            key = next(iter(entries))
            if not is_spent(key >> GROUP_SHIFT, key & _INDEX_MASK):
                break
            entry = entries.pop(key)
            self.used_bytes -= len(entry.data) + CACHED_ENTRY_OVERHEAD_BYTES

    def discard_group(self, group: int) -> None:
        """Drop all entries of a group; takes time in proportion to the whole cache."""
        self.drop_joined()
        for key in [key for key in self._entries if key >> GROUP_SHIFT == group]:
            entry = self._entries.pop(key)
            self.used_bytes -= len(entry.data) + CACHED_ENTRY_OVERHEAD_BYTES

    def __len__(self) -> int:
        return len(self._entries)


class GroupLog:
    """The `Storage` of one Raft group, and the payloads of the entries its state machine still needs.

    The log in the sense of Raft is ``[first_index(), last_index()]``. Entries below it stay readable
    through `data` until they are released. `make_snapshot` is set by the group's owner, and asked when a
    member lags behind the log: it answers with the state as of now.
    """

    def __init__(self, group: int, reader: EntryReader, cache: EntryCache) -> None:
        """An empty log; `load` fills it."""
        self.group: int = group
        self.make_snapshot: Callable[[], Snapshot] | None = None
        self.snapshot_metadata: SnapshotMetadata = SnapshotMetadata()
        self.hard_state: HardState = HardState()
        """As it was when the group was loaded: Raft keeps what it is now."""
        self.reader: EntryReader = reader
        """Fetches what is not in the cache."""
        self.rests: dict[int, list[Piece]] = {}
        """Of entries whose payload goes on in others: where. Whoever applies the log keeps it."""
        self._cache: EntryCache = cache
        # Terms of the entries from _offset on; the first one stands for the entry before the log.
        self._offset: int = 0
        self._terms: list[int] = [0]

    def load(self, stored: StoredGroup) -> None:
        """Become what was stored."""
        self.hard_state = stored.hard_state
        metadata = SnapshotMetadata() if stored.snapshot is None else stored.snapshot.metadata
        self.snapshot_metadata = metadata
        self._offset = metadata.index
        self._terms = [metadata.term]
        self._terms.extend([term for _, term in stored.entries])

    # --- Storage --------------------------------------------------------------------------------------

    def initial_state(self) -> tuple[HardState, ConfState]:
        """The hard state as loaded, and the membership as of the snapshot."""
        return self.hard_state, self.snapshot_metadata.conf_state

    def first_index(self) -> int:
        """Index of the first entry of the log."""
        return self._offset + 1

    def last_index(self) -> int:
        """Index of the last entry of the log."""
        return self._offset + len(self._terms) - 1

    def term(self, index: int) -> int:
        """Term of an entry in ``[first_index() - 1, last_index()]``. Raises `Compacted`, `Unavailable`."""
        position = index - self._offset
        if position < 0:
            raise Compacted
        if position >= len(self._terms):
            raise Unavailable
        return self._terms[position]

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry]:
        """Entries of ``[low, high)``, as many as fit in ``max_bytes`` of payload but at least one.

        Raises `Compacted`, `Unavailable`; and what the reader raises when a payload has to come from disk.
        """
        if low <= self._offset:
            raise Compacted
        if high > self._offset + len(self._terms):
            raise Unavailable
        found: list[Entry] = []
        size = 0
        index = low
        while index < high:
            entry = self._entry(index)
            size += len(entry.data)
            if size > max_bytes and found:
                break
            found.append(entry)
            index += 1
        return found

    def snapshot(self) -> Snapshot:
        """A snapshot for a member that is behind the log. Raises `SnapshotTemporarilyUnavailable`."""
        if self.make_snapshot is None:
            raise SnapshotTemporarilyUnavailable
        snapshot = self.make_snapshot()
        if snapshot.metadata.index < self._offset:
            # Entries after it are gone already: with this one the member would be no better off.
            raise SnapshotTemporarilyUnavailable
        return snapshot

    def snapshot_index(self) -> int:
        """Index of the snapshot that the log starts after; 0 when there is none."""
        return self._offset

    # --- reading for the state machine ----------------------------------------------------------------

    def data(self, index: int) -> bytes:
        """The payload of an entry in the log or live below it.

        Raises `MissingEntry` for one that was never there or was released, `CorruptEntry`.
        """
        if self.rests and index in self.rests:
            return self._join(index)
        return self._entry(index).data

    def data_once(self, index: int) -> bytes:
        """As `data`, for who looks at much and will not come back: what is not in the cache is not put there."""
        if self.rests and index in self.rests:
            return self._join(index)
        return self._own_data(index)

    def head(self, index: int) -> bytes:
        """The payload of an entry as far as it stands in that entry itself."""
        return self._entry(index).data

    def elsewhere(self, index: int, start: int) -> int:
        """Where in what an entry has of its payload in others that begins which begins at ``start`` of the whole; -1 if
        that stands in the entry itself."""
        return start - len(self._own_data(index)) if index in self.rests else -1

    def octets(self, index: int, start: int, length: int) -> bytes:
        """Of the payload of an entry so many octets, which stand in the entry itself or all elsewhere. They are not
        kept: for who needs much, once."""
        own = self._own_data(index)
        if start < len(own) or index not in self.rests:
            return own[start : start + length]
        rest = part_of(self.rests[index], start - len(own), length)
        return b"".join([memoryview(self._own_data(at))[first : first + size] for at, first, size in rest])

    def containing(self, index: int, start: int, length: int) -> tuple[bytes, int]:
        """Data with so many octets of the payload of an entry, and where in it they begin: the payload, or they alone
        if they stand elsewhere with more."""
        if self.elsewhere(index, start) >= 0:
            return self.octets(index, start, length), 0
        return self.data(index), start

    def views(self, index: int, start: int, length: int) -> list[memoryview]:
        """So many octets of the payload of an entry, where they stand. For who needs much, once: nothing is put
        together, and what is not in the cache is not put there."""
        own = self._own_data(index)
        pieces = [(index, 0, len(own)), *self.rests.get(index, ())]
        return [
            memoryview(own if at == index else self._own_data(at))[first : first + size]
            for at, first, size in part_of(pieces, start, length)
        ]

    def _own_data(self, index: int) -> bytes:
        entry = self._cache.get(self.group, index)
        return self.reader(self.group, index).data if entry is None else entry.data

    def _join(self, index: int) -> bytes:
        cache = self._cache
        joined = cache.joined(self.group, index)
        if joined is None:
            parts: list[bytes | memoryview] = [self._own_data(index)]
            for at, start, length in self.rests[index]:
                parts.append(memoryview(self._own_data(at))[start : start + length])
            joined = b"".join(parts)
            cache.keep_joined(self.group, index, joined)
        return joined

    def _entry(self, index: int) -> Entry:
        entry = self._cache.get(self.group, index)
        if entry is None:
            entry = self.reader(self.group, index)
            self._cache.put(self.group, entry)
        return entry

    # --- following what is written --------------------------------------------------------------------

    def append(self, entries: list[Entry]) -> None:
        """These entries are on disk: they replace what is there from the first one's index on.

        Raises `ValueError` when they leave a gap or reach below the log.
        """
        if not entries:
            return
        first = entries[0].index
        keep = first - self._offset
        terms = self._terms
        if not 0 < keep <= len(terms):
            raise ValueError(
                f"group {self.group}: entry {first} doesn't fit the log {self._offset}..{self.last_index()}"
            )
        if keep < len(terms):
            for index in range(first + len(entries), self._offset + len(terms)):
                self._cache.discard(self.group, index)
            del terms[keep:]
        for entry in entries:
            terms.append(entry.term)
            self._cache.put(self.group, entry)

    def install_snapshot(self, metadata: SnapshotMetadata) -> None:
        """The leader's snapshot was written in place of the whole log, with the entries that are live below it."""
        self._cache.discard_group(self.group)
        self.snapshot_metadata = metadata
        self._offset = metadata.index
        self._terms = [metadata.term]

    def compact(self, metadata: SnapshotMetadata, live: set[int]) -> None:
        """A snapshot of our own is being written: the log now starts after it, only `live` entries stay.

        Raises `ValueError` when the snapshot is not within the log.
        """
        index = metadata.index
        if not self._offset <= index <= self.last_index():
            raise ValueError(f"group {self.group}: no log to compact at {index}")
        for dead in range(self._offset + 1, index + 1):
            if dead not in live:
                self._cache.discard(self.group, dead)
        del self._terms[: index - self._offset]
        self._offset = index
        self.snapshot_metadata = metadata

    def release(self, index: int) -> None:
        """An entry at or below the snapshot is being deleted: forget its payload."""
        self._cache.discard(self.group, index)
