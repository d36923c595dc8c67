"""The log of a node in memory, for tests and the simulator: `MemoryStore`, and a disk that fails: `SimulatedDisk`.

Records are kept as objects. One whose bits rotted is kept as the octets that `LmdbLogStore` would have on its disk,
with one bit flipped; it is read back through the same decoder, whose checksum finds the damage.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mayfly.cluster.log import records
from mayfly.cluster.log.batch import (
    CorruptStore,
    DiskFailed,
    DiskFull,
    GroupWrite,
    MissingEntry,
    StoredGroup,
    StoredSnapshot,
    WriteBatch,
)
from mayfly.cluster.log.records import ENTRY_KEY, GROUP_KEY
from mayfly.cluster.raft import Entry, HardState
from simulation.cluster.simulated_ahead import SimulatedAhead

STORED_ENTRY_OVERHEAD_BYTES: Final = 26
"""What an entry takes on disk besides its payload."""

UNLIMITED_BYTES: Final = 1 << 40
"""A capacity at which nobody counts what is stored."""

ROT_ENTRY: Final = "entry"
ROT_SNAPSHOT: Final = "snapshot"
ROT_HARD_STATE: Final = "hard state"


class _MemoryGroup:
    """One group as stored."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.hard_state = HardState()
        self.snapshot: StoredSnapshot | None = None
        self.entries: dict[int, Entry] = {}
        self.last_index = 0
        self.marked = ""
        """What `mark_damaged` noted."""
        self.rotten: dict[int, bytes] = {}
        """The octets of damaged entries, in place of those that `entries` shows to whoever looks from outside."""
        self.rotten_snapshot = b""
        self.rotten_hard_state = b""

    def copy(self) -> "_MemoryGroup":
        other = _MemoryGroup(self.number)
        other.hard_state, other.snapshot = self.hard_state, self.snapshot
        other.entries, other.last_index = dict(self.entries), self.last_index
        other.marked, other.rotten = self.marked, dict(self.rotten)
        other.rotten_snapshot, other.rotten_hard_state = self.rotten_snapshot, self.rotten_hard_state
        return other

    def snapshot_index(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.metadata.index

    def apply(self, write: GroupWrite) -> None:
        if write.install:
            self.marked = ""
            self.rotten.clear()
            self.entries = {entry.index: entry for entry in write.live_entries}
        if write.snapshot is not None:
            self.snapshot = write.snapshot
            self.rotten_snapshot = b""
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
            self.rotten_hard_state = b""
        if self.rotten:
            replaced = {entry.index for entry in write.entries}
            self.rotten = {i: octets for i, octets in self.rotten.items() if i in self.entries and i not in replaced}

    def stored(self) -> StoredGroup:
        """As `LmdbLogStore.load` tells it: entries at or below the snapshot are not looked into."""
        hard_state = self.hard_state
        if self.rotten_hard_state:
            hard_state = records.decode_hard_state(GROUP_KEY.pack(self.number), self.rotten_hard_state)
        snapshot, damage = self.snapshot, self.marked
        if self.rotten_snapshot:
            snapshot = None
            with suppress(CorruptStore):
                snapshot = records.decode_snapshot_record(GROUP_KEY.pack(self.number), self.rotten_snapshot)
            if snapshot is None:
                damage = damage or f"snapshot of group {self.number} is corrupt: it doesn't match its checksum"
        floor = 0 if snapshot is None else snapshot.metadata.index
        indices = sorted(self.entries)
        sound: list[tuple[int, int]] = []
        for index in indices:
            if index <= floor:
                continue
            if not damage and index in self.rotten:
                try:
                    self.read(index)
                except CorruptStore as error:
                    damage = str(error)
            if damage:
                break
            sound.append((index, self.entries[index].term))
        stored = StoredGroup(hard_state, snapshot, sound, [index for index in indices if index <= floor])
        stored.damage = damage
        if indices:
            stored.last_index = max(stored.last_index, indices[-1])
        return stored

    def read(self, index: int) -> Entry:
        """An entry that is stored. Raises CorruptEntry."""
        octets = self.rotten.get(index)
        if octets is None:
            return self.entries[index]
        return records.decode_entry(ENTRY_KEY.pack(self.number, index), octets)


class MemoryStore:
    """A `LogStore` without a disk: what `write` took is there, until the object goes.

    `capacity_bytes` limits what it holds; `full` makes every write that adds data raise `DiskFull`,
    `failed` every write `DiskFailed`.
    """

    def __init__(self, capacity_bytes: int = UNLIMITED_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.full = False
        self.failed = False
        self.written: Callable[[WriteBatch], None] = _nobody_watches
        """Told of every batch that is stored."""
        self._groups: dict[int, _MemoryGroup] = {}
        self._meta: dict[str, bytes] = {}

    def load(self) -> dict[int, StoredGroup]:
        """All groups as stored. Raises `CorruptStore` for a damaged hard state."""
        return {group: stored.stored() for group, stored in sorted(self._groups.items())}

    def check(self, batch: WriteBatch) -> None:
        """Raise what `write` would raise for this batch."""
        if self.failed:
            raise DiskFailed("the disk failed earlier")
        for number, write in batch.groups.items():
            group = self._groups.get(number)
            if group is None:
                write.validate(0, 0)
            else:
                write.validate(group.snapshot_index(), group.last_index)
        if not self.full and self.capacity_bytes >= UNLIMITED_BYTES:
            return
        added = 0
        for write in batch.groups.values():
            for entry in (*write.entries, *write.live_entries):
                added += len(entry.data) + STORED_ENTRY_OVERHEAD_BYTES
            if write.snapshot is not None:
                added += len(write.snapshot.state)
        if added and (self.full or self.used_bytes() + added > self.capacity_bytes):
            raise DiskFull(f"no room for {added} bytes")

    def write(self, batch: WriteBatch) -> None:
        """Write the batch. Raises `DiskFull`, `DiskFailed`, `ValueError`, and has then written nothing."""
        self.check(batch)
        _apply(self._groups, batch)
        self.written(batch)

    def term(self, group: int, index: int) -> int:
        """The term that is stored at an index, 0 when none is: for those who watch."""
        stored = self._groups.get(group)
        if stored is None:
            return 0
        entry = stored.entries.get(index)
        if entry is not None:
            return entry.term
        snapshot = stored.snapshot
        return snapshot.metadata.term if snapshot is not None and snapshot.metadata.index == index else 0

    def covers(self, group: int, index: int, term: int) -> bool:
        """Whether an entry is stored, or was and is behind the snapshot: for those who watch."""
        stored = self._groups.get(group)
        return stored is not None and (index <= stored.snapshot_index() or self.term(group, index) == term)

    def read_entry(self, group: int, index: int) -> Entry:
        """One entry. Raises `MissingEntry`, `CorruptEntry`."""
        stored = self._groups.get(group)
        if stored is None or index not in stored.entries:
            raise MissingEntry(group, index)
        return stored.read(index)

    def mark_damaged(self, group: int, text: str) -> None:
        """See `LogStore.mark_damaged`."""
        stored = self._groups.get(group)
        if stored is not None:
            stored.marked = text

    def rot(self, group: int, index: int, bit: int = 0) -> None:
        """Flip a bit of a stored entry: reading it raises, and `load` tells of it if it is above the snapshot."""
        stored = self._groups[group]
        octets = stored.rotten.get(index)
        if octets is None:
            octets = records.encode_entry(ENTRY_KEY.pack(group, index), stored.entries[index])
        stored.rotten[index] = _flipped(octets, bit)

    def rot_snapshot(self, group: int, bit: int = 0) -> None:
        """Flip a bit of a group's stored snapshot: `load` tells of it."""
        stored = self._groups[group]
        if stored.snapshot is None:
            raise ValueError(f"group {group} has no snapshot that could rot")
        stored.rotten_snapshot = _flipped(
            records.encode_snapshot_record(GROUP_KEY.pack(group), stored.snapshot), bit
        )

    def rot_hard_state(self, group: int, bit: int = 0) -> None:
        """Flip a bit of a group's stored term and vote: `load` raises `CorruptStore`."""
        stored = self._groups[group]
        stored.rotten_hard_state = _flipped(records.encode_hard_state(GROUP_KEY.pack(group), stored.hard_state), bit)

    def rotten(self) -> bool:
        """Whether anything stored is damaged, be it known to anybody or not."""
        return any(
            group.rotten or group.marked or group.rotten_snapshot or group.rotten_hard_state
            for group in self._groups.values()
        )

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
            total += sum(len(entry.data) + STORED_ENTRY_OVERHEAD_BYTES for entry in group.entries.values())
            if group.snapshot is not None:
                total += len(group.snapshot.state)
        return total

    def close(self) -> None:
        """Nothing to give up."""


def _apply(groups: dict[int, _MemoryGroup], batch: WriteBatch) -> None:
    for number, write in batch.groups.items():
        group = groups.get(number)
        if group is None:
            group = groups[number] = _MemoryGroup(number)
        group.apply(write)


def _nobody_watches(batch: WriteBatch) -> None:
    """What is stored matters to the store alone."""


def _flipped(octets: bytes, bit: int) -> bytes:
    """The octets with one bit flipped; `bit` counts round and round."""
    changed = bytearray(octets)
    place = bit % (8 * len(changed))
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


class SimulatedDisk(MemoryStore):
    """A disk under the simulator's control: between `begin_write` and `complete` the power may go.

    The simulator calls `begin_write` where a node hands a batch to its writer thread, and then one of `complete` (the
    sync ended well), `refuse` (there was no room), `fail_sync` (the sync failed) and `crash` (the node is killed).
    A node that starts again gets the same object, whose records may have decayed meanwhile (`decay`), or all be gone
    (`wipe`). There is one write at a time. Reads show completed writes alone, as LMDB's do.

    Batches are in write-ahead files first, in octets (`simulated_ahead`), and are moved from there, later, into the
    log file. A crash tears the record that is being written, and forgets all that was in memory: what is shown after it
    was read out of those files. A transaction of the log file is lost whole or kept whole, never in part
    (`tests/cluster/store/test_torn_writes.py` shows it with torn images of the real file).
    """

    def __init__(self, capacity_bytes: int = UNLIMITED_BYTES) -> None:
        super().__init__(capacity_bytes)
        self._pending: WriteBatch | None = None
        self._log_file: dict[int, _MemoryGroup] = {}
        """What was moved out of the write-ahead files."""
        self._ahead = SimulatedAhead(self._move)

    def _move(self, batch: WriteBatch) -> None:
        _apply(self._log_file, batch)

    def _store(self, batch: WriteBatch) -> None:
        super().write(batch)
        self._ahead.write(batch)

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
        self._store(batch)

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
                self._store(batch)
        elif batch is not None:
            self._ahead.tear(batch)
        self._ahead.replay()
        self._groups = {number: group.copy() for number, group in self._log_file.items()}

    def refuse(self, batch: WriteBatch) -> None:
        """There is no room for this batch: what it gives up is given up all the same, as `LmdbLogStore.write` does."""
        if self._pending is not None:
            raise RuntimeError("a write is under way already")
        relief = batch.relief()
        if not relief.empty():
            self._store(relief)

    def fail_sync(self, survives: bool) -> None:
        """The sync failed: the batch is on the disk or it is not, and nobody can know. Whoever asked for it has to
        stop at once and to start again from what `load` shows (`LogStore.write` raises `DiskFailed`)."""
        self.crash(survives)

    def mark_damaged(self, group: int, text: str) -> None:
        """See `LogStore.mark_damaged`."""
        super().mark_damaged(group, text)
        self._all_is_in_the_log_file()

    def rot(self, group: int, index: int, bit: int = 0) -> None:
        """See `MemoryStore.rot`."""
        super().rot(group, index, bit)
        self._all_is_in_the_log_file()

    def rot_snapshot(self, group: int, bit: int = 0) -> None:
        """See `MemoryStore.rot_snapshot`."""
        super().rot_snapshot(group, bit)
        self._all_is_in_the_log_file()

    def rot_hard_state(self, group: int, bit: int = 0) -> None:
        """See `MemoryStore.rot_hard_state`."""
        super().rot_hard_state(group, bit)
        self._all_is_in_the_log_file()

    def _all_is_in_the_log_file(self) -> None:
        """What rots is in the log file; the damage of write-ahead files is for `tests/log` alone."""
        self._ahead.settle()
        self._log_file = {number: group.copy() for number, group in self._groups.items()}

    def decay(self, what: str, below: Callable[[int], int]) -> str:
        """Let a bit of one stored record rot: of an entry, a snapshot or a hard state (`ROT_ENTRY`, ...). What was hit
        is told, "" when nothing of the kind is stored. `below(n)` draws a number from 0 to n - 1."""
        groups = [group for group in sorted(self._groups) if _may_rot(self._groups[group], what)]
        if not groups:
            return ""
        group, bit = groups[below(len(groups))], below(1 << 30)
        if what == ROT_ENTRY:
            indices = sorted(self._groups[group].entries)
            # The oldest ones are those that are read again.
            count = min(5, len(indices)) if below(2) else len(indices)
            index = indices[below(count)]
            self.rot(group, index, bit)
            return f"entry {index} of group {group}"
        if what == ROT_SNAPSHOT:
            self.rot_snapshot(group, bit)
        else:
            self.rot_hard_state(group, bit)
        return f"{what} of group {group}"

    def wipe(self) -> None:
        """All that was stored is gone, as on a new disk. No process may be using it."""
        self._pending = None
        self._groups.clear()
        self._log_file.clear()
        self._ahead.forget()
        self._meta.clear()


def _may_rot(group: _MemoryGroup, what: str) -> bool:
    """Whether a group has a record of this kind that is sound so far."""
    if what == ROT_ENTRY:
        return bool(group.entries) and not group.rotten
    if what == ROT_SNAPSHOT:
        return group.snapshot is not None and not group.rotten_snapshot
    return not group.rotten_hard_state
