"""The log of a node in memory, for tests and the simulator: `MemoryStore`, and a disk that loses power."""

from contextlib import suppress

from cluster.log.batch import (
    CorruptEntry,
    DiskFailed,
    DiskFull,
    GroupWrite,
    MissingEntry,
    StoredGroup,
    StoredSnapshot,
    WriteBatch,
)
from cluster.raft.messages import Entry, HardState

ENTRY_OVERHEAD_BYTES = 26
"""What an entry takes on disk besides its payload."""


class _MemoryGroup:
    """One group as stored."""

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.snapshot: StoredSnapshot | None = None
        self.entries: dict[int, Entry] = {}
        self.last_index = 0
        self.damaged: set[int] = set()

    def snapshot_index(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.metadata.index

    def apply(self, write: GroupWrite) -> None:
        if write.install:
            self.damaged.clear()
            self.entries = {entry.index: entry for entry in write.live_entries}
        if write.snapshot is not None:
            self.snapshot = write.snapshot
            if write.install:
                self.last_index = write.snapshot.metadata.index
        if write.entries:
            for index in range(write.entries[0].index, self.last_index + 1):
                self.entries.pop(index, None)
            for entry in write.entries:
                self.entries[entry.index] = entry
            self.last_index = write.entries[-1].index
        for index in write.release:
            self.entries.pop(index, None)
        if write.hard_state is not None:
            self.hard_state = write.hard_state

    def stored(self) -> StoredGroup:
        floor = self.snapshot_index()
        indices = sorted(self.entries)
        stored = StoredGroup(
            self.hard_state,
            self.snapshot,
            [(index, self.entries[index].term) for index in indices if index > floor],
            [index for index in indices if index <= floor],
        )
        if self.damaged:
            stored.damage = f"entries {sorted(self.damaged)} are corrupt"
        return stored


class MemoryStore:
    """A `LogStore` without a disk: what `write` took is there, until the object goes.

    `capacity_bytes` limits what it holds; `full` makes every write that adds data raise `DiskFull`,
    `failed` every write `DiskFailed`.
    """

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.full = False
        self.failed = False
        self._groups: dict[int, _MemoryGroup] = {}
        self._meta: dict[str, bytes] = {}

    def load(self) -> dict[int, StoredGroup]:
        """All groups as stored."""
        return {group: stored.stored() for group, stored in sorted(self._groups.items())}

    def check(self, batch: WriteBatch) -> None:
        """Raise what `write` would raise for this batch."""
        if self.failed:
            raise DiskFailed("the disk failed earlier")
        added = 0
        for number, write in batch.groups.items():
            group = self._groups.get(number)
            if group is None:
                write.validate(0, 0)
            else:
                write.validate(group.snapshot_index(), group.last_index)
            for entry in (*write.entries, *write.live_entries):
                added += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if write.snapshot is not None:
                added += len(write.snapshot.state)
        if added and (self.full or self.used_bytes() + added > self.capacity_bytes):
            raise DiskFull(f"no room for {added} bytes")

    def write(self, batch: WriteBatch) -> None:
        """Write the batch. Raises `DiskFull`, `DiskFailed`, `ValueError`, and has then written nothing."""
        self.check(batch)
        for number, write in batch.groups.items():
            group = self._groups.get(number)
            if group is None:
                group = self._groups[number] = _MemoryGroup()
            group.apply(write)

    def read_entry(self, group: int, index: int) -> Entry:
        """One entry. Raises `MissingEntry`."""
        stored = self._groups.get(group)
        entry = None if stored is None else stored.entries.get(index)
        if stored is None or entry is None:
            raise MissingEntry(group, index)
        if index in stored.damaged:
            raise CorruptEntry(group, index, "its bits have rotted")
        return entry

    def mark_damaged(self, group: int, text: str) -> None:
        """The damage that `rot` did is known without a mark."""

    def rot(self, group: int, index: int) -> None:
        """Damage an entry: it can't be read any more, and `load` tells of it."""
        self._groups[group].damaged.add(index)

    def get_meta(self, key: str) -> bytes | None:
        """A value of the node's own, None when it was never put."""
        return self._meta.get(key)

    def put_meta(self, key: str, value: bytes) -> None:
        """Store a value of the node's own. Raises `DiskFull`, `DiskFailed`."""
        if self.failed:
            raise DiskFailed("the disk failed earlier")
        if self.full:
            raise DiskFull("no room")
        self._meta[key] = value

    def free_bytes(self) -> int:
        """How many bytes can still be written."""
        return 0 if self.full else max(0, self.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        """How many bytes the stored data takes."""
        total = 0
        for group in self._groups.values():
            total += sum(len(entry.data) + ENTRY_OVERHEAD_BYTES for entry in group.entries.values())
            if group.snapshot is not None:
                total += len(group.snapshot.state)
        return total

    def close(self) -> None:
        """Nothing to give up."""


class SimulatedDisk(MemoryStore):
    """A disk under the simulator's control: between `begin_write` and `complete` the power may go.

    The simulator calls `begin_write` where a node hands a batch to its writer thread, `complete` when
    it lets the sync end, and `crash` when it kills the node. A node that starts again gets the same object.
    There is one write at a time. Reads show completed writes alone, as LMDB's do.

    A batch is one transaction, so a crash tears between batches, never inside one.
    """

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        super().__init__(capacity_bytes)
        self._pending: WriteBatch | None = None

    def begin_write(self, batch: WriteBatch) -> None:
        """Take a batch, from here on not to be changed; it is not durable yet.

        Raises `DiskFull`, `DiskFailed` like a write that failed, and `RuntimeError` when the write before
        is still under way.
        """
        if self._pending is not None:
            raise RuntimeError("a write is under way already")
        self.check(batch)
        self._pending = batch

    def complete(self) -> None:
        """The sync ended well: from here on the write survives every crash.

        Raises `DiskFull` or `DiskFailed` when the disk became full or failed since; the write is then lost.
        """
        batch, self._pending = self._pending, None
        if batch is None:
            raise RuntimeError("no write is under way")
        super().write(batch)

    def write(self, batch: WriteBatch) -> None:
        """Begin and complete at once."""
        self.begin_write(batch)
        self.complete()

    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._pending is not None

    def crash(self, pending_survives: bool = False) -> None:
        """Lose power. A write under way is lost; or it is there, but nobody was told that the sync ended."""
        batch, self._pending = self._pending, None
        if batch is not None and pending_survives:
            with suppress(DiskFull, DiskFailed):
                super().write(batch)
