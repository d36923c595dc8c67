"""The store in memory and the simulated disk: full, failed, busy."""

from random import Random

import pytest

from mayfly.cluster.log.batch import (
    CorruptEntry,
    CorruptStore,
    DiskFailed,
    DiskFull,
    MissingEntry,
    StoredSnapshot,
    WriteBatch,
)
from mayfly.cluster.raft import Entry, HardState, SnapshotMetadata
from simulation.cluster.memory_store import MemoryStore, SimulatedDisk


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


def test_what_is_given_up_for_want_of_room_takes_the_commit_with_it() -> None:
    """A restart must know that what freed an entry is committed, or it looks for an entry that is gone."""
    disk = SimulatedDisk()
    batch = entries(1, 5)
    batch.group(1).hard_state = HardState(1, 1, 2)
    disk.write(batch)
    compaction = WriteBatch()
    compaction.group(1).snapshot = StoredSnapshot(SnapshotMetadata(2, 1), b"")
    disk.write(compaction)
    full = entries(6, 1)
    full.group(1).release = [1]
    full.group(1).hard_state = HardState(2, 3, 6)
    disk.refuse(full)
    stored = disk.load()[1]
    assert (stored.retained, [index for index, _ in stored.entries]) == ([2], [3, 4, 5])
    assert stored.hard_state == HardState(2, 3, 5)


def test_a_flipped_bit_is_found_by_its_checksum_wherever_it_is() -> None:
    for bit in range(0, 2_000, 37):
        disk = SimulatedDisk()
        batch = entries(1, 3)
        batch.group(1).hard_state = HardState(1, 1, 2)
        disk.write(batch)
        disk.rot(1, 2, bit)
        with pytest.raises(CorruptEntry):
            disk.read_entry(1, 2)
        stored = disk.load()[1]
        assert "entry 2 of group 1 is corrupt" in stored.damage
        assert (stored.entries, stored.last_index) == ([(1, 1)], 3)
        disk.write(entries(2, 1))
        assert disk.load()[1].damage == ""
        disk.rot_hard_state(1, bit)
        with pytest.raises(CorruptStore, match="hard state of group 1"):
            disk.load()


def test_damage_below_the_snapshot_is_told_once_it_was_read_and_an_install_ends_it() -> None:
    disk = SimulatedDisk()
    disk.write(entries(1, 3))
    batch = WriteBatch()
    batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(3, 1), b"state")
    disk.write(batch)
    disk.rot(1, 2)
    assert disk.load()[1].damage == ""
    disk.mark_damaged(1, "entry 2")
    assert disk.load()[1].damage == "entry 2"
    assert disk.rotten()
    disk.rot_snapshot(1, 99)
    assert disk.load()[1].snapshot is None
    install = WriteBatch()
    install.group(1).install = True
    install.group(1).snapshot = StoredSnapshot(SnapshotMetadata(9, 2), b"new")
    disk.write(install)
    assert (disk.load()[1].damage, disk.rotten()) == ("", False)


@pytest.mark.parametrize("survives", [True, False])
def test_a_failed_sync_leaves_the_old_batch_or_the_new_one(survives: bool) -> None:
    disk = SimulatedDisk()
    disk.write(entries(1, 1))
    disk.begin_write(entries(2, 3))
    disk.fail_sync(survives)
    assert [index for index, _ in disk.load()[1].entries] == ([1, 2, 3, 4] if survives else [1])
    disk.wipe()
    assert disk.load() == {}


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_crashes_leave_what_was_completed_even_while_a_file_is_being_cleared(first: int) -> None:
    """Records of all sizes, snapshots that go to the log file at once, torn records, a crash at the start after one."""
    for seed in range(first, first + 20):
        random, disk, model, index = Random(seed), SimulatedDisk(), MemoryStore(), 1
        for _ in range(60):
            batch = entries(index, random.randrange(1, 3))
            for each in batch.groups[1].entries:
                each.data = b"x" * random.choice((10, 300, 900))
            if random.randrange(5) == 0 and index > 1:
                batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(index - 1, 1), b"")
            disk.begin_write(batch)
            if random.randrange(4) == 0:
                disk.crash()
            else:
                disk.complete()
                model.write(batch)
                index = batch.groups[1].entries[-1].index + 1
            assert disk.load() == model.load(), f"seed {seed}"
