"""What the tests of write-ahead files and log file together share."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mayfly.cluster.log.batch import DiskFull, MissingEntry, StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, SnapshotMetadata
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.store.histories import MAP_BYTES

MIB = 1024 * 1024
SEGMENT_BYTES = 16 * 1024
"""Small, so that files take turns and large batches pass them by."""


def opened(folder: Path, segment_bytes: int = SEGMENT_BYTES) -> WriteAheadStore:
    return WriteAheadStore(folder, MAP_BYTES, segment_bytes=segment_bytes)


def append(store: WriteAheadStore, first: int, *payloads: bytes, term: int = 1, group: int = 1) -> WriteBatch:
    batch = WriteBatch()
    batch.group(group).entries = [Entry(term, first + offset, 0, data) for offset, data in enumerate(payloads)]
    store.write(batch)
    return batch


@contextmanager
def killed(folder: Path) -> Iterator[Path]:
    """A copy of the folder as a kill would leave it now: of what is in memory alone, nothing."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "log"
        shutil.copytree(folder, copy)
        yield copy


def same_unmoved(store: WriteAheadStore, model: MemoryStore) -> None:
    """Entries as they can be read now; `load` would bring the log file up to date."""
    for group in range(3):
        for index in range(1, 70):
            assert entry_or_none(store, group, index) == entry_or_none(model, group, index)


def entry_or_none(store: WriteAheadStore | MemoryStore, group: int, index: int) -> Entry | None:
    try:
        return store.read_entry(group, index)
    except MissingEntry:
        return None


def change(file: Path, place: int, octets: bytes) -> None:
    with file.open("r+b") as handle:
        handle.seek(place)
        handle.write(octets)


def unmoved(tmp_path: Path, *payloads: bytes) -> Path:
    """A folder as a kill leaves it, with an entry a record in the first write-ahead file."""
    folder, copy = tmp_path / "log", tmp_path / "killed"
    store = opened(folder)
    for index, payload in enumerate(payloads, 1):
        append(store, index, payload)
    shutil.copytree(folder, copy)
    store.close()
    return copy


def fill(store: WriteAheadStore, model: MemoryStore) -> int:
    """Append until there is no room; the last index."""
    stored = model.load().get(1)
    index = 1 if stored is None else stored.last_index + 1
    with suppress(DiskFull):
        while True:
            model.write(append(store, index, b"%d" % index * 300))
            index += 1
    return index - 1


def write_at_last(store: WriteAheadStore, batch: WriteBatch) -> None:
    """As a node does it: what does not fit is given again, and what it gives up has made room by then."""
    for _ in range(3):
        with suppress(DiskFull):
            store.write(batch)
            return
    raise AssertionError("what was given up has made no room")


def snapshot_at(index: int, release: list[int], group: int = 1) -> WriteBatch:
    batch = WriteBatch()
    batch.group(group).snapshot = StoredSnapshot(SnapshotMetadata(index, 1, ConfState([1])), b"state")
    batch.group(group).release = release
    return batch
