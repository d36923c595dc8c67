"""The log of a node in one LMDB environment.

Four tables: `entries` (group u32, index u64), `states` (group u32), `snapshots` (group u32), `meta` (text).
A `WriteBatch` is one transaction, whose commit syncs once (LMDB's default mode: data pages, then the page
that makes them count). LMDB never overwrites pages that the last commit refers to, so a crash at any
moment leaves the state of some commit, and nothing has to be repaired at start.

The commit lets go of the interpreter lock, so the event loop goes on while the disk syncs; so does, shortly,
every entry put. A writer thread that wants the lock back waits up to `sys.getswitchinterval()` for an event
loop that computes. A process does well to set it to 0.5 ms: at the usual 5 ms a write beside a busy loop
takes 5 to 20 ms instead of 1 to 3 (tests/bench/log_store.py).
"""

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import lmdb

from cluster import limits
from cluster.log import records
from cluster.log.batch import (
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
from cluster.log.folder import StoreFolder
from cluster.log.records import ENTRY_KEY, GROUP_KEY
from cluster.raft.messages import Entry, HardState

_FORMAT_KEY: Final = b"\x00format"
_IDENTITY_KEY: Final = b"\x00identity"
_TURN_KEY: Final = b"\x00turn"
_DAMAGED_PREFIX: Final = b"\x00damaged"
_USER_PREFIX: Final = b"u"
_FORMAT_MAGIC: Final = b"mayfly log "
_OUT_OF_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_STEPS_BEFORE_SEEK: Final = 8

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
        self._unchecked_bytes = 0
        try:
            self._folder.check_not_emptied()
            self._open_environment(map_size_bytes)
            try:
                self._open_tables(node_identity)
                self._data_file = os.open(self._folder.data_file, os.O_RDWR | os.O_CLOEXEC)
            except BaseException:
                self._environment.close()
                raise
        except BaseException:
            self._folder.close()
            raise
        self._file_bytes = os.fstat(self._data_file).st_size
        reserve = self._map_bytes // limits.LOG_RESERVE_DIVISOR
        self._reserve_bytes = max(limits.LOG_RESERVE_MIN_BYTES, min(limits.LOG_RESERVE_MAX_BYTES, reserve))

    def _open_environment(self, map_size_bytes: int) -> None:
        file = self._folder.data_file
        try:
            self._environment = lmdb.open(str(self._folder.path), map_size=map_size_bytes, max_dbs=4)
        except lmdb.VersionMismatchError as error:
            raise StoreRefused(f"{file} was written by another version of LMDB") from error
        except (lmdb.InvalidError, lmdb.CorruptedError) as error:
            raise StoreRefused(f"{file} is damaged, or not the log of a MayflyMQ node ({error})") from error
        except (lmdb.Error, OSError) as error:
            raise StoreRefused(f"can't open {file}: {error}") from error
        info = self._environment.info()
        self._page_bytes = self._environment.stat()["psize"]
        self._map_bytes = info["map_size"]
        # LMDB maps the file; a page that should be there and isn't would end the process with SIGBUS.
        needed_bytes = (info["last_pgno"] + 1) * self._page_bytes
        actual_bytes = file.stat().st_size
        if actual_bytes < needed_bytes:
            self._environment.close()
            raise StoreRefused(f"{file} is cut off: it has {actual_bytes} bytes of at least {needed_bytes}")

    def _open_tables(self, node_identity: str) -> None:
        environment, file = self._environment, self._folder.data_file
        fresh = environment.stat()["entries"] == 0
        try:
            self._meta = environment.open_db(b"meta", create=fresh)
            with environment.begin(db=self._meta) as transaction:
                written_format = transaction.get(_FORMAT_KEY)
                identity = transaction.get(_IDENTITY_KEY)
        except lmdb.Error as error:
            raise StoreRefused(f"{file} is not the log of a MayflyMQ node ({error})") from error
        if written_format is not None:
            if not written_format.startswith(_FORMAT_MAGIC):
                raise StoreRefused(f"{file} is not the log of a MayflyMQ node")
            version = int(written_format[len(_FORMAT_MAGIC) :])
            if version > records.FORMAT_VERSION:
                raise StoreRefused(
                    f"{file} has format {version}, written by a newer MayflyMQ; "
                    f"this one reads up to format {records.FORMAT_VERSION}"
                )
        elif environment.stat()["entries"] > 1:
            raise StoreRefused(f"{file} is not the log of a MayflyMQ node")
        if identity is not None and node_identity and identity.decode() != node_identity:
            raise StoreRefused(f"{file} belongs to node {identity.decode()}, this is node {node_identity}")
        try:
            self._entries = environment.open_db(b"entries")
            self._states = environment.open_db(b"states")
            self._snapshots = environment.open_db(b"snapshots")
            written = _FORMAT_MAGIC + str(records.FORMAT_VERSION).encode()
            if written_format is None or (identity is None and node_identity):
                with environment.begin(write=True, db=self._meta) as transaction:
                    transaction.put(_FORMAT_KEY, written)
                    if node_identity:
                        transaction.put(_IDENTITY_KEY, node_identity.encode())
            self._folder.mark(written.decode() + "\n")
        except (lmdb.Error, OSError) as error:
            raise StoreRefused(f"can't set up {file}: {error}") from error

    # --- reading --------------------------------------------------------------------------------------

    def load(self) -> dict[int, StoredGroup]:
        """All groups as stored; checksums of all entries above the snapshots verified.

        Raises `CorruptStore` for a damaged hard state. Takes about 0.2 s for 100 000 entries.
        """
        groups: dict[int, StoredGroup] = {}
        try:
            with self._environment.begin() as transaction:
                for key, value in transaction.cursor(self._states):
                    groups[_group_of(key)] = StoredGroup(records.decode_hard_state(key, value), None, [], [])
                for key, value in transaction.cursor(self._snapshots):
                    stored = groups.setdefault(_group_of(key), StoredGroup(HardState(), None, [], []))
                    try:
                        stored.snapshot = records.decode_snapshot_record(key, value)
                        stored.last_index = stored.snapshot.metadata.index
                    except CorruptStore as error:
                        stored.damage = str(error)
                for key, value in transaction.cursor(self._meta):
                    if key.startswith(_DAMAGED_PREFIX):
                        number = _group_of(key[len(_DAMAGED_PREFIX) :])
                        groups.setdefault(number, StoredGroup(HardState(), None, [], [])).damage = value.decode()
            self._load_entries(groups)
        except lmdb.Error as error:
            raise CorruptStore(f"{self._folder.data_file} is damaged: {error}") from error
        return dict(sorted(groups.items()))

    def _load_entries(self, groups: dict[int, StoredGroup]) -> None:
        current, floor, expected = -1, 0, 0
        stored = StoredGroup(HardState(), None, [], [])
        unpack, check = ENTRY_KEY.unpack, records.check_entry
        term = -1
        with self._environment.begin(buffers=True) as transaction:
            for key, value in transaction.cursor(self._entries):
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
                value = transaction.get(key, db=self._entries)
                if value is None:
                    raise MissingEntry(group, index)
                return records.decode_entry(key, value)
        except lmdb.Error as error:
            raise CorruptStore(f"{self._folder.data_file} is damaged: {error}") from error

    def get_meta(self, key: str) -> bytes | None:
        """A value of the node's own, None when it was never put."""
        with self._environment.begin(db=self._meta) as transaction:
            value: bytes | None = transaction.get(_USER_PREFIX + key.encode())
        return value

    # --- writing --------------------------------------------------------------------------------------

    def write(self, batch: WriteBatch) -> None:
        """Write the batch in one transaction with one sync.

        Raises `DiskFull` (the store goes on, try again), `DiskFailed` (stop the node), and `ValueError`.
        """
        with self._lock:
            self._refuse_after_failure()
            try:
                self._write(batch, self._reserve_bytes)
            except DiskFull:
                self._make_room(batch)
                raise

    def _make_room(self, batch: WriteBatch) -> None:
        """Give up what a batch that doesn't fit gives up, so that it fits the next time."""
        with suppress(DiskFull):
            relief = batch.relief()
            if not relief.empty():
                self._write(relief, 0)
        with suppress(DiskFull):
            # Pages can be used again when two more transactions have changed something.
            for turn in (b"1", b"2"):
                self._put_meta(_TURN_KEY, turn)

    def _write(self, batch: WriteBatch, reserve_bytes: int) -> None:
        extents: dict[int, tuple[int, int]] = {}
        added_bytes = 0
        for number, write in batch.groups.items():
            extent = self._extent(number)
            write.validate(*extent)
            extents[number] = _extent_after(write, extent)
            added_bytes += self._added_bytes(write)
        self._demand_room(added_bytes, reserve_bytes)
        try:
            with self._environment.begin(write=True) as transaction:
                self._apply(transaction, batch)
        except lmdb.Error as error:
            raise self._write_failure(error) from error
        self._extents.update(extents)

    def put_meta(self, key: str, value: bytes) -> None:
        """Store a value of the node's own durably. Raises `DiskFull`, `DiskFailed`."""
        with self._lock:
            self._refuse_after_failure()
            self._demand_room(len(value) + self._page_bytes, 0)
            self._put_meta(_USER_PREFIX + key.encode(), value)

    def mark_damaged(self, group: int, text: str) -> None:
        """See `LogStore.mark_damaged`. Raises `DiskFull`, `DiskFailed`."""
        with self._lock:
            self._refuse_after_failure()
            self._put_meta(_DAMAGED_PREFIX + GROUP_KEY.pack(group), text.encode())

    def _put_meta(self, key: bytes, value: bytes) -> None:
        try:
            with self._environment.begin(write=True, db=self._meta) as transaction:
                transaction.put(key, value)
        except lmdb.Error as error:
            raise self._write_failure(error) from error

    def _refuse_after_failure(self) -> None:
        if self._failed:
            raise DiskFailed(f"{self._folder.data_file}: refused after an earlier failure: {self._failed}")

    def _write_failure(self, error: lmdb.Error) -> LogError:
        """What a failed transaction means. LMDB has rolled it back, as far as it could."""
        # LMDB calls it an input/output error, too, when the room ended in the middle of what it wrote.
        ended_midway = _is(error, errno.EIO) and self._file_system_bytes() < self._reserve_bytes
        full = isinstance(error, (lmdb.MapFullError, lmdb.DiskError)) or _is(error, *_OUT_OF_ROOM)
        if full or ended_midway:
            self._unchecked_bytes = 0
            return DiskFull(f"{self._folder.data_file}: no room ({error})")
        # After a failed sync nobody knows what is on disk (the system forgets dirty pages): no second try.
        self._failed = str(error)
        return DiskFailed(f"{self._folder.data_file}: {error}")

    def _apply(self, transaction: "lmdb.Transaction[bytes]", batch: WriteBatch) -> None:
        entries: _Pairs = []
        states: _Pairs = []
        snapshots: _Pairs = []
        cursor = transaction.cursor(self._entries)
        for number in sorted(batch.groups):
            write = batch.groups[number]
            group_key = GROUP_KEY.pack(number)
            live = write.live_entries
            if write.install:
                _delete_range(cursor, number, 0, limits.MAX_INDEX)
                transaction.delete(_DAMAGED_PREFIX + group_key, db=self._meta)
                if write.release:
                    released = set(write.release)
                    live = [entry for entry in live if entry.index not in released]
            else:
                if write.entries:
                    _delete_range(cursor, number, write.entries[-1].index + 1, self._extents[number][1])
                if write.release:
                    _delete_each(cursor, number, sorted(set(write.release)))
            for entry in (*live, *write.entries) if live else write.entries:
                key = ENTRY_KEY.pack(number, entry.index)
                entries.append((key, records.encode_entry(key, entry)))
            if write.snapshot is not None:
                snapshots.append((group_key, records.encode_snapshot_record(group_key, write.snapshot)))
            if write.hard_state is not None:
                states.append((group_key, records.encode_hard_state(group_key, write.hard_state)))
        if entries:
            # Appending fills pages to the brim, but is only allowed behind everything else.
            behind = not cursor.last() or cursor.key() < entries[0][0]
            cursor.putmulti(entries, append=behind)
        if snapshots:
            transaction.cursor(self._snapshots).putmulti(snapshots)
        if states:
            transaction.cursor(self._states).putmulti(states)

    def _extent(self, group: int) -> tuple[int, int]:
        """Index of the snapshot and of the last entry of a group as stored; (0, 0) for one that is not."""
        known = self._extents.get(group)
        if known is not None:
            return known
        snapshot_index = 0
        last_index = 0
        with self._environment.begin(buffers=True) as transaction:
            value = transaction.get(GROUP_KEY.pack(group), db=self._snapshots)
            if value is not None:
                snapshot_index = records.snapshot_record_index(value)
            cursor = transaction.cursor(self._entries)
            found = cursor.set_range(ENTRY_KEY.pack(group + 1, 0))
            if cursor.prev() if found else cursor.last():
                its_group, index = ENTRY_KEY.unpack(cursor.key())
                if its_group == group:
                    last_index = index
        extent = self._extents[group] = (snapshot_index, max(snapshot_index, last_index))
        return extent

    # --- room -----------------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """How many bytes can surely be written: what map and file system allow, and free pages in the file.

        Values above 2 KB need neighbouring pages. What lies free between them is in pieces: by the fifty-percent
        rule (Knuth, The Art of Computer Programming, 2.5) up to half as much as they take themselves may be of no
        use to others of their kind. So much of the free pages is not counted.
        """
        splintered_bytes = self._pages()[1] * self._page_bytes // 2
        return self._ahead_bytes() + max(0, self._inside_bytes() - splintered_bytes)

    def _ahead_bytes(self) -> int:
        """Room behind what LMDB has ever used: all of one piece."""
        used_up_bytes = self._used_up_bytes()
        file_bytes = max(self._file_bytes, used_up_bytes)
        return max(0, min(self._map_bytes, file_bytes + self._file_system_bytes()) - used_up_bytes)

    def _inside_bytes(self) -> int:
        """Free pages within what LMDB has used, of any size."""
        return max(0, self._used_up_bytes() - self.used_bytes())

    def _used_up_bytes(self) -> int:
        """How far into the file LMDB has come."""
        return (self._environment.info()["last_pgno"] + 1) * self._page_bytes

    def _file_system_bytes(self) -> int:
        file_system = os.fstatvfs(self._data_file)
        return file_system.f_bavail * file_system.f_frsize

    def used_bytes(self) -> int:
        """How many bytes of the file hold data; the rest of it is free for use."""
        return sum(self._pages()) * self._page_bytes

    def _pages(self) -> tuple[int, int]:
        """How many pages hold data: single ones, and those of values that take several."""
        tables = (self._entries, self._states, self._snapshots, self._meta)
        with self._environment.begin() as transaction:
            stats = [self._environment.stat(), *[transaction.stat(table) for table in tables]]
        single = 2 + sum(stat["branch_pages"] + stat["leaf_pages"] for stat in stats)
        return single, sum(stat["overflow_pages"] for stat in stats)

    def _added_bytes(self, write: GroupWrite) -> int:
        """About what the data of a write takes on disk, page borders included."""
        page = self._page_bytes
        total = 0
        for entry in (*write.live_entries, *write.entries):
            size = len(entry.data) + 64
            total += 2 * size if 2 * size < page else size + page
        if write.snapshot is not None:
            total += len(write.snapshot.state) + page
        return total

    def _demand_room(self, added_bytes: int, reserve_bytes: int) -> None:
        """Raise `DiskFull` when there is no room for so much, with this reserve left over.

        How much is free is looked at only after a quarter of what was free is gone.
        """
        if added_bytes:
            self._unchecked_bytes -= added_bytes
            if self._unchecked_bytes < 0:
                # All of it: what does not fit in the end, LMDB will say.
                spare_bytes = self._ahead_bytes() + self._inside_bytes() - reserve_bytes - added_bytes
                if spare_bytes < 0:
                    raise DiskFull(f"{self._folder.data_file}: no room for {added_bytes} bytes")
                self._unchecked_bytes = spare_bytes // 4 if reserve_bytes else 0
        needed_bytes = min(self._map_bytes, self._used_up_bytes() + 2 * added_bytes + self._reserve_bytes)
        if needed_bytes > self._file_bytes:
            self._lengthen_file(needed_bytes, added_bytes)

    def _lengthen_file(self, needed_bytes: int, added_bytes: int) -> None:
        """Reserve room for the file ahead of use, a step more than needed if possible."""
        step_bytes = limits.LOG_FILE_STEP_BYTES
        for target_bytes in (min(self._map_bytes, needed_bytes + step_bytes), needed_bytes):
            try:
                os.posix_fallocate(self._data_file, 0, target_bytes)
            except OSError as error:
                if error.errno not in _OUT_OF_ROOM:
                    return  # Not every file system can do this; then LMDB finds out by itself.
            else:
                self._file_bytes = target_bytes
                return
        # Free pages inside the file may do: that is where deletions make room.
        if added_bytes and self._used_up_bytes() - self.used_bytes() < 2 * added_bytes + self._reserve_bytes:
            raise DiskFull(f"{self._folder.data_file}: the file system has no room for {added_bytes} bytes")

    def close(self) -> None:
        """Close the file and let others use the folder. No call may be under way in another thread."""
        os.close(self._data_file)
        self._environment.close()
        self._folder.close()


def _is(error: lmdb.Error, *numbers: int) -> bool:
    """Whether a system error is behind this one. The C binding gives its text away, not its number."""
    text = str(error)
    return any(text.endswith(os.strerror(number)) for number in numbers)


def _group_of(key: bytes) -> int:
    group: int = GROUP_KEY.unpack(key)[0]
    return group


def _extent_after(write: GroupWrite, extent: tuple[int, int]) -> tuple[int, int]:
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
