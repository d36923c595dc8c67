"""The log of a node in one LMDB environment.

A `WriteBatch` is one transaction, whose commit is whole or nothing whatever happens (`lmdb_tables`).

The commit lets go of the interpreter lock, so the event loop goes on while the disk syncs; so does, shortly,
every entry put. A writer thread that wants the lock back waits up to `sys.getswitchinterval()` for an event
loop that computes. A process does well to set it to 0.5 ms: at the usual 5 ms a write beside a busy loop
takes 5 to 20 ms instead of 1 to 3 (tests/bench/log_store.py).
"""

import errno
import os
import shutil
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import lmdb

from mayfly.cluster import limits
from mayfly.cluster.log import records
from mayfly.cluster.log.batch import (
    CorruptStore,
    DiskFailed,
    DiskFull,
    GroupWrite,
    LogError,
    MissingEntry,
    StoredGroup,
    StoreRefused,
    WriteBatch,
)
from mayfly.cluster.log.records import ENTRY_KEY, GROUP_KEY
from mayfly.cluster.raft import Entry, HardState
from mayfly.cluster.store.folder import DATA_FILE, MARKER_FILE, OUT_OF_ROOM, StoreFolder, make_folder, sync_folder
from mayfly.cluster.store.layouts import USER_PREFIX
from mayfly.cluster.store.lmdb_room import LmdbRoom
from mayfly.cluster.store.lmdb_tables import LmdbTables
from mayfly.cluster.store.map_pages import NEIGHBOURS_BYTES, MapPages

_TURN_KEY: Final = b"\x00turn"
MOVED_KEY: Final = b"\x00moved"
RELIEVED_KEY: Final = b"\x00relieved"
_MOVED: Final = struct.Struct(">Q")
_DAMAGED_PREFIX: Final = b"\x00damaged"
_END_UNKNOWN_PREFIX: Final = b"\x00end unknown"
"""Before the groups of which it is not known how far their logs had come."""
_STEPS_BEFORE_SEEK: Final = 8
_RELEASES_AT_ONCE: Final = 256
"""Deleting needs pages as well, neighbouring ones to note many that became free: on a full disk, little by little."""

_Pairs = list[tuple[bytes, bytes]]


class LmdbLogStore:
    """A `LogStore` in a folder. See `LogStore` for what may be called from which thread.

    A batch that adds data is refused
    (`DiskFull`) when a small reserve would be touched, so that releasing is always possible; what such
    a batch releases is released nevertheless.
    """

    def __init__(
        self,
        path: Path | str,
        map_size_bytes: int = limits.DEFAULT_MAP_SIZE_BYTES,
        node_identity: str = "",
    ) -> None:
        """Open the store, or create it in an empty folder.

        `node_identity` (such as "cluster-id/3") is stored at first use, and must be the same from then on.
        Raises `StoreRefused`: folder in use; file foreign, cut off, unreadable, newer, or another node's.
        """
        self._folder = StoreFolder(Path(path))
        self._lock = threading.Lock()
        self._failed = ""
        self._extents: dict[int, tuple[int, int]] = {}
        try:
            self._folder.check_not_emptied()
            self._folder.clear_unfinished_start()
            self._tables = LmdbTables(self._folder, map_size_bytes, node_identity)
            self._environment = self._tables.environment
            try:
                self._pages = MapPages(self._folder.data_file, limits.LOG_MAP_HELD_BYTES)
                self._moved = self._noted(MOVED_KEY)
                self.relieved: int = self._noted(RELIEVED_KEY) or 0
                """The `number` of the last `relieve`; 0 when there was none."""
                self._room = LmdbRoom(self._tables, self._folder.data_file)
            except BaseException:
                self._tables.close()
                raise
        except OSError as error:
            self._folder.close()
            raise StoreRefused(f"can't open {self._folder.data_file}: {error.strerror}") from error
        except BaseException:
            self._folder.close()
            raise

    # --- reading --------------------------------------------------------------------------------------

    def load(self) -> dict[int, StoredGroup]:
        """All groups as stored; checksums of all entries above the snapshots verified.

        Raises `CorruptStore` for a damaged hard state. Takes about 0.2 s for 100 000 entries.
        """
        groups: dict[int, StoredGroup] = {}
        try:
            with self._environment.begin() as transaction:
                for key, value in transaction.cursor(self._tables.states):
                    groups[_group_of(key)] = StoredGroup(records.decode_hard_state(key, value), None, [], [])
                for key, value in transaction.cursor(self._tables.snapshots):
                    stored = groups.setdefault(_group_of(key), StoredGroup(HardState(), None, [], []))
                    try:
                        stored.snapshot = records.decode_snapshot_record(key, value)
                        stored.last_index = stored.snapshot.metadata.index
                    except CorruptStore as error:
                        stored.damage = str(error)
                unknown: list[int] = []
                for key, value in transaction.cursor(self._tables.meta):
                    if key.startswith(_DAMAGED_PREFIX):
                        number = _group_of(key[len(_DAMAGED_PREFIX) :])
                        groups.setdefault(number, StoredGroup(HardState(), None, [], [])).damage = value.decode()
                    elif key.startswith(_END_UNKNOWN_PREFIX):
                        unknown.append(_group_of(key[len(_END_UNKNOWN_PREFIX) :]))
            self._load_entries(groups)
            for number in unknown:
                # A release that does not know this mark leaves it where it has rebuilt a group.
                if number in groups and groups[number].damage:
                    groups[number].last_index = limits.MAX_INDEX
        except lmdb.Error as error:
            raise CorruptStore(f"{self._folder.data_file} is damaged: {error}") from error
        return dict(sorted(groups.items()))

    def _load_entries(self, groups: dict[int, StoredGroup]) -> None:
        current, floor, expected = -1, 0, 0
        stored = StoredGroup(HardState(), None, [], [])
        unpack, check = ENTRY_KEY.unpack, records.check_entry
        term = -1
        with self._environment.begin(buffers=True) as transaction:
            for key, value in transaction.cursor(self._tables.entries):
                group, index = unpack(key)
                if group != current:
                    current = group
                    stored = groups.setdefault(group, StoredGroup(HardState(), None, [], []))
                    floor = 0 if stored.snapshot is None else stored.snapshot.metadata.index
                    expected = floor + 1
                if index <= floor:
                    stored.retained.append(index)
                    continue
                stored.last_index = index
                if stored.damage:
                    continue
                if index != expected:
                    stored.damage = f"log of group {group} has entry {index} where {expected} was due"
                    continue
                expected += 1
                try:
                    its_term = check(key, value)[1]
                except CorruptStore as error:
                    stored.damage = str(error)
                    continue
                if its_term != term:
                    # One object for a run of equal terms, not one an entry.
                    term = its_term
                stored.entries.append((index, term))

    def read_entry(self, group: int, index: int) -> Entry:
        """One entry, its checksum verified. Raises `MissingEntry`, `CorruptEntry`, `CorruptStore`."""
        key = ENTRY_KEY.pack(group, index)
        try:
            with self._environment.begin(buffers=True) as transaction:
                value = transaction.get(key, db=self._tables.entries)
                if value is None:
                    raise MissingEntry(group, index)
                self._pages.touched(len(value))
                return records.decode_entry(key, value)
        except lmdb.Error as error:
            raise CorruptStore(f"{self._folder.data_file} is damaged: {error}") from error

    def get_meta(self, key: str) -> bytes | None:
        """A value of the node's own, None when it was never put."""
        with self._environment.begin(db=self._tables.meta) as transaction:
            value: bytes | None = transaction.get(USER_PREFIX + key.encode())
        return value

    # --- writing --------------------------------------------------------------------------------------

    def write(self, batch: WriteBatch) -> None:
        """Write the batch in one transaction with one sync.

        Raises `DiskFull` (the store goes on, try again), `DiskFailed` (stop the node), and `ValueError`.
        """
        with self._lock:
            self._refuse_after_failure()
            try:
                self._write([batch], self._room.reserve_bytes)
            except DiskFull:
                self._make_room(batch)
                raise

    def write_together(self, batches: Sequence[WriteBatch], moved: int, keep_reserve: bool) -> None:
        """Write these batches one after the other in one transaction, and that the write-ahead file's records are in
        the store up to number `moved`. Raises what `write` does, and has then written nothing at all.

        `keep_reserve`: refuse when the reserve would be touched."""
        with self._lock:
            self._refuse_after_failure()
            overtaken = (self._moved or 0) < self.relieved
            noted = {MOVED_KEY: _MOVED.pack(moved)}
            self._write(batches, self._room.reserve_bytes if keep_reserve else 0, noted, overtaken)
            self._moved = moved

    def moved(self) -> int | None:
        """The `moved` of the last `write_together`; None when there was none."""
        return self._moved

    def _noted(self, key: bytes) -> int | None:
        with self._environment.begin(db=self._tables.meta) as transaction:
            value: bytes | None = transaction.get(key)
        return None if value is None else _MOVED.unpack(value)[0]

    def release(self, batches: Sequence[WriteBatch]) -> None:
        """Delete what these batches release, whose snapshots are stored, as far as there is room for that, and let
        what was freed be of use."""
        with self._lock:
            self._refuse_after_failure()
            for batch in batches:
                self._release(batch)
            self._turn()

    def extend(self, batch: WriteBatch) -> None:
        """Let the log become larger than its limit, by what this acknowledged batch needs, until it is opened again.
        No other call may be under way."""
        self._tables.extend(2 * self.needed_bytes(batch) + self._room.reserve_bytes)
        self._room.look_again()
        # The map is elsewhere now.
        self._pages = MapPages(self._folder.data_file, limits.LOG_MAP_HELD_BYTES)

    def relieve(self, relief: WriteBatch, number: int) -> None:
        """Write a batch's relief before the write-ahead records up to `number`, for which there is no room.

        Its snapshots may overtake entries of those records. Until `moved` has reached `number`, `write_together` takes
        entries at or below the snapshot, too, and keeps the commit index that came with the relief."""
        with self._lock:
            self._refuse_after_failure()
            with suppress(DiskFull):
                self._write_relief(relief, number)
            self._turn()

    def needed_bytes(self, batch: WriteBatch) -> int:
        """About what a batch will take on disk."""
        return sum(self._room.needed_bytes(write) for write in batch.groups.values())

    def demand_room(self, added_bytes: int, waiting_bytes: int) -> None:
        """Raise `DiskFull` unless so much can be written later, after what waits already."""
        self._room.demand(added_bytes, self._room.reserve_bytes, waiting_bytes, later=True)

    def _make_room(self, batch: WriteBatch) -> None:
        """Give up what a batch that doesn't fit gives up, so that it fits the next time."""
        with suppress(DiskFull):
            self._write_relief(batch.relief())
        self._turn()

    def _write_relief(self, relief: WriteBatch, overtakes: int = 0) -> None:
        """What allows the releases first. `overtakes`: the last of the write-ahead records that are still to come."""
        if relief.empty():
            return
        allowing = WriteBatch()
        for number, write in relief.groups.items():
            allowing.group(number).snapshot = write.snapshot
            allowing.group(number).hard_state = write.hard_state
        noted = {RELIEVED_KEY: _MOVED.pack(overtakes)} if overtakes else {}
        self._write([allowing], 0, noted, overtaking=bool(overtakes))
        self.relieved = max(self.relieved, overtakes)
        self._release(relief)

    def _release(self, batch: WriteBatch) -> None:
        """Delete what a batch releases, as far as there is room for that."""
        at_once = _RELEASES_AT_ONCE
        for number, write in batch.groups.items():
            indices = sorted(set(write.release))
            while indices:
                part = WriteBatch()
                part.group(number).release = indices[:at_once]
                try:
                    self._write([part], 0)
                except DiskFull:
                    if at_once == 1:
                        return
                    at_once //= 2
                else:
                    del indices[:at_once]

    def _turn(self) -> None:
        """Pages can be used again when two more transactions have changed something."""
        with suppress(DiskFull):
            for turn in (b"1", b"2"):
                self._put_meta(_TURN_KEY, turn)

    def _write(
        self,
        batches: Sequence[WriteBatch],
        reserve_bytes: int,
        noted: dict[bytes, bytes] | None = None,
        overtaking: bool = False,
    ) -> None:
        extents: dict[int, tuple[int, int]] = {}
        added_bytes = 0
        touched_bytes = 0
        for batch in batches:
            for number, write in batch.groups.items():
                extent = extents.get(number) or self.extent(number)
                write.validate(*extent, overtaking)
                extents[number] = extent_after(write, extent)
                added_bytes += self._room.needed_bytes(write)
                touched_bytes += len(write.release) * NEIGHBOURS_BYTES
        self._room.demand(added_bytes, reserve_bytes)
        try:
            with self._environment.begin(write=True) as transaction:
                for batch in batches:
                    self._apply(transaction, batch, overtaking)
                for key, value in (noted or {}).items():
                    transaction.put(key, value, db=self._tables.meta)
            self._tables.note_commit()
        except (lmdb.Error, OSError) as error:
            raise self._write_failure(error) from error
        self._extents.update(extents)
        self._pages.touched(added_bytes + touched_bytes)
        self._pages.let_go_if_due()

    def put_meta(self, key: str, value: bytes) -> None:
        """Store a value of the node's own durably. Raises `DiskFull`, `DiskFailed`."""
        with self._lock:
            self._refuse_after_failure()
            self._room.demand(len(value) + self._tables.page_bytes, 0)
            self._put_meta(USER_PREFIX + key.encode(), value)

    def mark_damaged(self, group: int, text: str) -> None:
        """See `LogStore.mark_damaged`. Raises `DiskFull`, `DiskFailed`."""
        with self._lock:
            self._refuse_after_failure()
            self._put_meta(_DAMAGED_PREFIX + GROUP_KEY.pack(group), text.encode())

    def put_promises(
        self, states: Mapping[int, HardState], own: Mapping[bytes, bytes], moved: int, damage: str
    ) -> None:
        """Begin with these hard states and values of the table `meta`, with logs that are damaged and of which it is
        not known how far they had come (`cluster.store.salvage`). Raises `DiskFull`, `DiskFailed`."""
        values = dict(own)
        values[MOVED_KEY] = _MOVED.pack(moved)
        for number in states:
            values[_DAMAGED_PREFIX + GROUP_KEY.pack(number)] = damage.encode()
            values[_END_UNKNOWN_PREFIX + GROUP_KEY.pack(number)] = b""
        batch = WriteBatch()
        for number, state in states.items():
            batch.group(number).hard_state = state
        with self._lock:
            self._write([batch], 0, values)

    def _put_meta(self, key: bytes, value: bytes) -> None:
        try:
            with self._environment.begin(write=True, db=self._tables.meta) as transaction:
                transaction.put(key, value)
            self._tables.note_commit()
        except (lmdb.Error, OSError) as error:
            raise self._write_failure(error) from error

    def _refuse_after_failure(self) -> None:
        if self._failed:
            raise DiskFailed(f"{self._folder.data_file}: refused after an earlier failure: {self._failed}")

    def _write_failure(self, error: lmdb.Error | OSError) -> LogError:
        """What a failed transaction, or a failed note of it, means. LMDB has rolled it back, as far as it could."""
        # LMDB calls it an input/output error, too, when the room ended in the middle of what it wrote.
        ended_midway = _is(error, errno.EIO) and self._room.file_system_is_short()
        full = isinstance(error, (lmdb.MapFullError, lmdb.DiskError)) or _is(error, *OUT_OF_ROOM)
        if full or ended_midway:
            self._room.look_again()
            return DiskFull(f"{self._folder.data_file}: no room ({error})")
        # After a failed sync nobody knows what is on disk (the system forgets dirty pages): no second try.
        self._failed = str(error)
        return DiskFailed(f"{self._folder.data_file}: {error}")

    def _apply(self, transaction: "lmdb.Transaction[bytes]", batch: WriteBatch, overtaking: bool) -> None:
        entries: _Pairs = []
        states: _Pairs = []
        snapshots: _Pairs = []
        cursor = transaction.cursor(self._tables.entries)
        for number in sorted(batch.groups):
            write = batch.groups[number]
            group_key = GROUP_KEY.pack(number)
            if write.install:
                _delete_range(cursor, number, 0, limits.MAX_INDEX)
                transaction.delete(_DAMAGED_PREFIX + group_key, db=self._tables.meta)
                transaction.delete(_END_UNKNOWN_PREFIX + group_key, db=self._tables.meta)
                behind = not cursor.last() or cursor.key() < ENTRY_KEY.pack(number, 0)
                cursor.putmulti(_live_pairs(write), append=behind)
            else:
                if write.entries:
                    _delete_range(cursor, number, write.entries[-1].index + 1, limits.MAX_INDEX)
                if write.release:
                    _delete_each(cursor, number, sorted(set(write.release)))
            checksums = write.checksums or [-1] * len(write.entries)
            for entry, checksum in zip(write.entries, checksums, strict=True):
                key = ENTRY_KEY.pack(number, entry.index)
                entries.append((key, records.encode_entry(key, entry, checksum)))
            if write.snapshot is not None:
                snapshots.append((group_key, records.encode_snapshot_record(group_key, write.snapshot)))
            state = write.hard_state
            if state is not None:
                stored = transaction.get(group_key, db=self._tables.states) if overtaking else None
                if stored is not None:
                    commit = max(state.commit, records.decode_hard_state(group_key, stored).commit)
                    state = HardState(state.term, state.vote, commit)
                states.append((group_key, records.encode_hard_state(group_key, state)))
        if entries:
            # Appending fills pages to the brim, but is only allowed behind everything else.
            behind = not cursor.last() or cursor.key() < entries[0][0]
            cursor.putmulti(entries, append=behind)
        if snapshots:
            transaction.cursor(self._tables.snapshots).putmulti(snapshots)
        if states:
            transaction.cursor(self._tables.states).putmulti(states)

    def extent(self, group: int) -> tuple[int, int]:
        """Index of the snapshot and of the last entry of a group as stored; (0, 0) for one that is not."""
        known = self._extents.get(group)
        if known is not None:
            return known
        snapshot_index = 0
        last_index = 0
        with self._environment.begin(buffers=True) as transaction:
            value = transaction.get(GROUP_KEY.pack(group), db=self._tables.snapshots)
            if value is not None:
                snapshot_index = records.snapshot_record_index(value)
            cursor = transaction.cursor(self._tables.entries)
            found = cursor.set_range(ENTRY_KEY.pack(group + 1, 0))
            if cursor.prev() if found else cursor.last():
                its_group, index = ENTRY_KEY.unpack(cursor.key())
                if its_group == group:
                    last_index = index
        extent = self._extents[group] = (snapshot_index, max(snapshot_index, last_index))
        return extent

    def free_bytes(self) -> int:
        """How many bytes can surely be written: what map and file system allow, and free pages in the file."""
        return self._room.free_bytes()

    def copy(self, folder: Path) -> None:
        """A copy of the log as it was at one moment of this call, which writes meanwhile do not change, as a folder
        that a store opens. The folder must not be there. From any thread; takes as long as writing all of it.

        Raises OSError.
        """
        make_folder(folder, may_exist=False)
        try:
            self._environment.copy(str(folder))
        except lmdb.Error as error:
            raise OSError(f"the log can't be copied to {folder}: {error}") from error
        shutil.copy(self._folder.path / MARKER_FILE, folder / MARKER_FILE)
        for name in (DATA_FILE, MARKER_FILE):
            with (folder / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(folder)

    def close(self) -> None:
        """Close the file and let others use the folder. No reading may be under way in another thread; a writing is
        waited for, and refused later."""
        with self._lock:
            self._failed = self._failed or "the store is closed"
            self._room.close()
            self._tables.close()
            self._folder.close()


def _is(error: lmdb.Error | OSError, *numbers: int) -> bool:
    """Whether a system error is behind this one. The C binding gives its text away, not its number."""
    text = str(error)
    return any(text.endswith(os.strerror(number)) for number in numbers)


def _group_of(key: bytes) -> int:
    group: int = GROUP_KEY.unpack(key)[0]
    return group


def _live_pairs(write: GroupWrite) -> Iterator[tuple[bytes, bytes]]:
    """What is stored of an install's live entries, one after the other: all of them may be more than memory holds."""
    released = set(write.release)
    for entry in write.live_entries:
        if entry.index not in released:
            key = ENTRY_KEY.pack(write.group, entry.index)
            yield key, records.encode_entry(key, entry)


def extent_after(write: GroupWrite, extent: tuple[int, int]) -> tuple[int, int]:
    """Index of the snapshot and of the last entry of a group that had `extent`, once this is written."""
    snapshot_index, last_index = extent
    if write.snapshot is not None:
        snapshot_index = write.snapshot.metadata.index
        if write.install:
            last_index = snapshot_index
    if write.entries:
        last_index = write.entries[-1].index
    return snapshot_index, last_index


def _delete_range(cursor: "lmdb.Cursor[bytes]", group: int, first: int, last: int) -> None:
    """Delete the entries `first` to `last` of a group, as far as they exist."""
    if first > last:
        return
    end = ENTRY_KEY.pack(group, last)
    found = cursor.set_range(ENTRY_KEY.pack(group, first))
    while found and cursor.key() <= end:
        cursor.delete()
        found = bool(cursor.key())


def _delete_each(cursor: "lmdb.Cursor[bytes]", group: int, indices: list[int]) -> None:
    """Delete these entries of a group, as far as they exist; `indices` ascending.

    Most are neighbours: stepping to the next entry is much cheaper than a search.
    """
    key = b""
    for index in indices:
        wanted = ENTRY_KEY.pack(group, index)
        steps = 0
        while b"" < key < wanted and steps < _STEPS_BEFORE_SEEK:
            key = cursor.key() if cursor.next() else b"\xff"
            steps += 1
        if key < wanted:
            if not cursor.set_range(wanted):
                return
            key = cursor.key()
        if key == wanted:
            cursor.delete()
            key = cursor.key() or b"\xff"
