"""A log file whose pages are damaged, made anew without what they held: for a node whose groups others have, too.

What a replica has promised is in its hard states: terms, votes. If those can be read, and the last commit is known
for certain, the node can go on: without a single entry, as a member whose replicas are all damaged
(`cluster.group.rebuilding`), each of which stays silent until a leader's snapshot covers whatever it may have
acknowledged. How far its logs had come is not known, so only a leader of a later term than any in which it spoke can
do that.

Nothing is changed where this can't be done; then an operator decides. The damaged file stays beside the new one,
until all is rebuilt and the node starts again.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mayfly.cluster.log import records
from mayfly.cluster.log.batch import CorruptStore
from mayfly.cluster.log.gathered import replay
from mayfly.cluster.log.records import GROUP_KEY
from mayfly.cluster.raft import HardState
from mayfly.cluster.store.folder import DAMAGED_FILE, DATA_FILE, sync_folder
from mayfly.cluster.store.last_commit import LastCommit
from mayfly.cluster.store.layouts import USER_PREFIX
from mayfly.cluster.store.lmdb_file import META_BYTES, Meta, meta_pages, read_tables, renumbered
from mayfly.cluster.store.lmdb_store import MOVED_KEY, RELIEVED_KEY, LmdbLogStore
from mayfly.cluster.store.lmdb_tables import table_checksum
from mayfly.cluster.store.write_ahead_files import FILE_NAMES

_DRAFT: Final = "salvage"
_MAP_BYTES: Final = 64 * 1024 * 1024
"""Of the new file while it is made: what is in it is little."""


class Promises:
    """What could be read: hard states by group, and the node's own values."""

    def __init__(self, meta: Meta, states: dict[int, HardState], own: dict[bytes, bytes], last: int) -> None:
        self.meta: Meta = meta
        self.states: dict[int, HardState] = states
        self.own: dict[bytes, bytes] = own
        self.last: int = last
        """The number of the last record of the write-ahead files."""

    def value(self, key: str) -> bytes | None:
        """As `LogStore.get_meta`."""
        return self.own.get(USER_PREFIX + key.encode())


def salvage(folder: Path, why: str, may: Callable[[Promises], bool]) -> bool:
    """Make a damaged log file anew, if what was promised can be read and `may` says that others have the rest; whether
    that was done. `why` becomes the damage of each group. The folder must be open nowhere.

    Raises OSError, `LogError`."""
    try:
        promises = _read(folder)
    except (CorruptStore, OSError):
        return False
    if promises is None or not may(promises):
        return False
    draft = folder / _DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _make(draft, promises, why)
        data, damaged = folder / DATA_FILE, folder / DAMAGED_FILE
        damaged.unlink(missing_ok=True)
        with suppress(OSError):  # Not every file system has links; then it is gone.
            damaged.hardlink_to(data)
        # The write-ahead files and the note of the last commit may stay as they are: both are behind the new file.
        (draft / DATA_FILE).replace(data)
        sync_folder(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def _read(folder: Path) -> Promises | None:
    """None where it is not certain that nothing is missing. Raises `CorruptStore`, OSError."""
    notes = LastCommit(folder)
    try:
        noted = notes.notes()
    finally:
        notes.close()
    descriptor = os.open(folder / DATA_FILE, os.O_RDONLY)
    try:
        newest = max((page.transaction for page in meta_pages(descriptor) if page is not None), default=0)
        if not noted or newest != noted[0][0].transaction:
            return None
        meta, checksum = noted[0]
        stored, own = read_tables(descriptor, meta, (b"states", b"meta"))
    finally:
        os.close(descriptor)
    if table_checksum(own) != checksum:
        return None
    values = dict(own)
    images = [(name, (folder / name).read_bytes()) for name in FILE_NAMES]
    moved, relieved = (int.from_bytes(values.get(key, b""), "big") for key in (MOVED_KEY, RELIEVED_KEY))
    gathered, last = replay(images, moved)
    if last < relieved:
        return None
    states = {GROUP_KEY.unpack(key)[0]: records.decode_hard_state(key, value) for key, value in stored}
    for group, write in gathered.batch.groups.items():
        if write.hard_state is not None:
            states[group] = write.hard_state
    # One that was torn behind the last has the next number.
    return Promises(meta, states, values, last + 1)


def _make(draft: Path, promises: Promises, why: str) -> None:
    store = LmdbLogStore(draft, _MAP_BYTES)
    try:
        store.put_promises(promises.states, promises.own, promises.last, why)
    finally:
        store.close()
    # With the numbers of the commits that follow the noted one the new file takes the old one's place in one step.
    with (draft / DATA_FILE).open("r+b") as file:
        pages = meta_pages(file.fileno())
        newest = max((page for page in pages if page is not None), key=lambda page: page.transaction)
        for number in (promises.meta.transaction, promises.meta.transaction + 1):
            octets = renumbered(newest, number)
            assert len(octets) == META_BYTES
            os.pwrite(file.fileno(), octets, number % 2 * newest.page_bytes)
        os.fsync(file.fileno())
