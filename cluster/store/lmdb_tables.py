"""The LMDB environment of a node's log: opened, created at the first start, or refused with the reason.

Four tables: `entries` (group u32, index u64), `states` (group u32), `snapshots` (group u32), `meta` (text).

LMDB syncs in its default mode: a commit writes the pages that it has made anew, syncs them, and only then writes, again
durably, the page that makes them count. It never overwrites pages that the last commit refers to, so a crash at any
moment leaves the state of some commit, and nothing has to be repaired at start
(tests/cluster/store/test_torn_writes.py).

What a bad disk leaves is another matter: the file is looked through before LMDB has it, and its last commit is known
from a second place (`last_commit`).
"""

import errno
import logging
import os
import zlib
from collections.abc import Iterable
from typing import Final

import lmdb

from mayfly.cluster.log.batch import CorruptStore, StoreDamaged, StoreRefused, StoreUnfit
from mayfly.cluster.store import layouts
from mayfly.cluster.store.folder import OUT_OF_ROOM, StoreFolder
from mayfly.cluster.store.last_commit import CheckedFile, LastCommit, checked
from mayfly.cluster.store.lmdb_file import META_BYTES, read_meta
from mayfly.cluster.versions import LAYOUT_OLDEST, LAYOUT_VERSION

log = logging.getLogger(__name__)

_FORMAT_KEY: Final = b"\x00format"
_IDENTITY_KEY: Final = b"\x00identity"
_FORMAT_MAGIC: Final = b"mayfly log "
_FORMAT: Final = _FORMAT_MAGIC + str(LAYOUT_VERSION).encode()
# What LMDB says of the file's content; all else (no memory, no descriptors, no answer from the disk) may pass.
_DAMAGED: Final = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.PageNotFoundError)
_FOREIGN: Final = (*_DAMAGED, lmdb.NotFoundError, lmdb.IncompatibleError)


class LmdbTables:
    """The open environment and its tables. Raises `StoreUnfit`: file foreign, damaged, cut off, newer, another node's;
    `StoreRefused`: can't be read or written now."""

    def __init__(self, folder: StoreFolder, map_size_bytes: int, node_identity: str) -> None:
        self._file = folder.data_file
        self._last: LastCommit | None = None
        self._descriptor = -1
        try:
            self._last = LastCommit(folder.path)
            found = self._check(self._last)
            self._descriptor = os.open(self._file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._close_files()
            raise StoreRefused(f"can't open {self._file}: {error.strerror}") from error
        except BaseException:
            self._close_files()
            raise
        self.environment: lmdb.Environment = self._open(folder, map_size_bytes)
        self.page_bytes: int = self.environment.stat()["psize"]
        self.map_bytes: int = self.environment.info()["map_size"]
        try:
            if self.environment.stat()["entries"] == 0:
                self._create(node_identity)
            else:
                self._open_tables(node_identity, found.table_checksum)
            self.note_commit()
            folder.mark(_FORMAT.decode() + "\n")
        except (lmdb.Error, OSError) as error:
            self.close()
            raise StoreRefused(f"can't set up {self._file}: {error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all files."""
        self.environment.close()
        self._close_files()

    def _close_files(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check(self, last: LastCommit) -> CheckedFile:
        if not self._file.exists() or self._file.stat().st_size == 0:
            last.clear()
            return CheckedFile(None, "")
        try:
            found = checked(self._file, last)
        except CorruptStore as error:
            raise StoreDamaged(f"{self._file} is {error}") from error
        if found.mended:
            log.warning("%s: %s", self._file, found.mended)
        return found

    def note_commit(self) -> None:
        """Put down in its second place that the last commit is on disk; to be called before anybody is told. Raises
        OSError, lmdb.Error."""
        assert self._last is not None
        with self.environment.begin(db=self.meta, buffers=True) as transaction:
            number = transaction.id()
            checksum = table_checksum(transaction.cursor())
        place = number % 2
        meta = read_meta(os.pread(self._descriptor, META_BYTES, place * self.page_bytes), place)
        if meta is None or meta.transaction != number:
            raise OSError(errno.EIO, f"commit {number} is not in the file that it was written to")
        try:
            self._last.note(meta, checksum)
        except OSError as error:
            # Only file systems that never write in place can run short here. What is committed stays so, and a log that
            # took nothing more could never give room back.
            if error.errno not in OUT_OF_ROOM:
                raise

    def _open(self, folder: StoreFolder, map_size_bytes: int) -> lmdb.Environment:
        try:
            return lmdb.open(str(folder.path), map_size=map_size_bytes, max_dbs=4, mode=0o600)
        except lmdb.VersionMismatchError as error:
            self._close_files()
            raise StoreUnfit(f"{self._file} was written by another version of LMDB") from error
        except _DAMAGED as error:
            self._close_files()
            raise StoreDamaged(f"{self._file} is damaged, or not the log of a MayflyMQ node ({error})") from error
        except (lmdb.Error, OSError) as error:
            self._close_files()
            raise StoreRefused(f"can't open {self._file}: {error}") from error

    def _create(self, node_identity: str) -> None:
        """All tables and the format in one commit: a crash leaves a log, or an empty file to begin with."""
        environment = self.environment
        with environment.begin(write=True) as transaction:
            self.meta = environment.open_db(b"meta", txn=transaction)
            self.entries = environment.open_db(b"entries", txn=transaction)
            self.states = environment.open_db(b"states", txn=transaction)
            self.snapshots = environment.open_db(b"snapshots", txn=transaction)
            transaction.put(_FORMAT_KEY, _FORMAT, db=self.meta)
            if node_identity:
                transaction.put(_IDENTITY_KEY, node_identity.encode(), db=self.meta)

    def _open_tables(self, node_identity: str, checksum: int | None) -> None:
        environment = self.environment
        try:
            self.meta = environment.open_db(b"meta", create=False)
            with environment.begin(db=self.meta) as transaction:
                if checksum is not None and table_checksum(transaction.cursor()) != checksum:
                    raise StoreDamaged(f"{self._file} is damaged: its table meta doesn't match its checksum")
                written_format: bytes | None = transaction.get(_FORMAT_KEY)
                identity: bytes | None = transaction.get(_IDENTITY_KEY)
            self._convert(self._checked_format(written_format))
            self.entries = environment.open_db(b"entries", create=False)
            self.states = environment.open_db(b"states", create=False)
            self.snapshots = environment.open_db(b"snapshots", create=False)
        except _FOREIGN as error:
            raise StoreUnfit(f"{self._file} is not the log of a MayflyMQ node ({error})") from error
        if identity is not None and node_identity and identity.decode() != node_identity:
            raise StoreUnfit(f"{self._file} belongs to node {identity.decode()}, this is node {node_identity}")
        if identity is None and node_identity:
            with environment.begin(write=True, db=self.meta) as transaction:
                transaction.put(_IDENTITY_KEY, node_identity.encode())

    def _convert(self, version: int) -> None:
        """What an older release wrote takes the layout of this one, in one commit: a crash leaves one or the other."""
        if version == LAYOUT_VERSION:
            return
        with self.environment.begin(write=True, db=self.meta) as transaction:
            for before in range(version, LAYOUT_VERSION):
                layouts.STEPS[before](transaction)
            transaction.put(_FORMAT_KEY, _FORMAT)
        log.info("%s: the data had format %d and has format %d now", self._file, version, LAYOUT_VERSION)

    def _checked_format(self, written: bytes | None) -> int:
        if written is None or not written.startswith(_FORMAT_MAGIC):
            raise StoreUnfit(f"{self._file} is not the log of a MayflyMQ node")
        version = int(written[len(_FORMAT_MAGIC) :])
        if version > LAYOUT_VERSION:
            raise StoreUnfit(
                f"{self._file} has format {version}, written by a newer MayflyMQ; "
                f"this one reads up to format {LAYOUT_VERSION}. There is no way back to an older one: start the newer "
                "one, or empty the folder and let the node join anew"
            )
        if version < LAYOUT_OLDEST:
            raise StoreUnfit(
                f"{self._file} has format {version}, written by an older MayflyMQ; this one reads formats "
                f"{LAYOUT_OLDEST} to {LAYOUT_VERSION}: start a release in between first, if there is one, or else the "
                "older one, export its definitions and empty its queues"
            )
        return version

    def extend(self, added_bytes: int) -> None:
        """Make the map larger, until it is opened again. No transaction may be open."""
        self.map_bytes += -(-added_bytes // self.page_bytes) * self.page_bytes
        self.environment.set_mapsize(self.map_bytes)

    def used_pages(self) -> tuple[int, int]:
        """How many pages hold data: single ones, and those of values that take several."""
        tables = (self.entries, self.states, self.snapshots, self.meta)
        with self.environment.begin() as transaction:
            stats = [self.environment.stat(), *[transaction.stat(table) for table in tables]]
        single = 2 + sum(stat["branch_pages"] + stat["leaf_pages"] for stat in stats)
        return single, sum(stat["overflow_pages"] for stat in stats)

    def used_up_bytes(self) -> int:
        """How far into the file LMDB has come."""
        used_up: int = (self.environment.info()["last_pgno"] + 1) * self.page_bytes
        return used_up


def table_checksum(pairs: Iterable[tuple[bytes | memoryview, bytes | memoryview]]) -> int:
    """Of all that a table holds, in its order; for one that holds little."""
    total = 0
    for key, value in pairs:
        total = zlib.crc32(value, zlib.crc32(b"%d %d " % (len(key), len(value)), zlib.crc32(key, total)))
    return total
