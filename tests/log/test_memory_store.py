"""The store in memory and the simulated disk: full, failed, busy."""

import pytest

from cluster.log.batch import DiskFailed, DiskFull, MissingEntry, StoredSnapshot, WriteBatch
from cluster.log.memory_store import MemoryStore, SimulatedDisk
from cluster.raft import Entry, HardState, SnapshotMetadata


def entries(first: int, count: int, size: int = 100) -> WriteBatch:
    batch = WriteBatch()
    batch.group(1).entries = [Entry(1, first + offset, 0, bytes(size)) for offset in range(count)]
    return batch


def test_a_full_store_takes_releases_and_goes_on() -> None:
    store = MemoryStore(capacity_bytes=1000)
    store.write(entries(1, 7))
    with pytest.raises(DiskFull):
        store.write(entries(8, 3))
    batch = WriteBatch()
    batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(7, 1), b"")
    batch.group(1).release = [1, 2, 3]
    store.write(batch)
    store.write(entries(8, 3))
    assert store.load()[1].retained == [4, 5, 6, 7]
    with pytest.raises(MissingEntry):
        store.read_entry(1, 3)


def test_full_and_failed_are_switches() -> None:
    disk = SimulatedDisk()
    disk.full = True
    assert disk.free_bytes() == 0
    with pytest.raises(DiskFull):
        disk.begin_write(entries(1, 1))
    with pytest.raises(DiskFull):
        disk.put_meta("key", b"value")
    batch = WriteBatch()
    batch.group(1).hard_state = HardState(1, 1, 1)
    disk.write(batch)
    disk.full = False
    disk.begin_write(entries(1, 1))
    disk.full = True
    with pytest.raises(DiskFull):
        disk.complete()
    disk.full = False
    disk.failed = True
    with pytest.raises(DiskFailed):
        disk.begin_write(entries(1, 1))
    with pytest.raises(DiskFailed):
        disk.put_meta("key", b"value")


def test_one_write_at_a_time() -> None:
    disk = SimulatedDisk()
    disk.begin_write(entries(1, 1))
    with pytest.raises(RuntimeError):
        disk.begin_write(entries(1, 1))
    disk.complete()
    with pytest.raises(RuntimeError):
        disk.complete()
    disk.put_meta("key", b"value")
    assert disk.get_meta("key") == b"value"
    assert disk.get_meta("other") is None
