"""Write-ahead files and a log file without room: refused as a whole, held until there is some, and nothing lost."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mayfly.cluster.log.batch import DiskFull, StoredSnapshot, StoreRefused, StoreUnfit, WriteBatch
from mayfly.cluster.log.write_ahead_format import FILE_HEADER_BYTES
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store import write_ahead_files
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.store.histories import same
from tests.cluster.store.write_ahead import (
    MIB,
    SEGMENT_BYTES,
    append,
    change,
    entry_or_none,
    fill,
    killed,
    opened,
    same_unmoved,
    snapshot_at,
    unmoved,
    write_at_last,
)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[WriteAheadStore]:
    store = WriteAheadStore(tmp_path, 8 * MIB, segment_bytes=SEGMENT_BYTES)
    yield store
    store.close()


def test_a_full_log_refuses_whole_batches_and_takes_more_once_something_was_released(small: WriteAheadStore) -> None:
    model = MemoryStore()
    for _ in range(3):
        last = fill(small, model)
        with pytest.raises(DiskFull):
            append(small, last + 1, b"x" * 1000, b"y" * 1000)
        same_unmoved(small, model)
        batch = WriteBatch()
        batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(last, 1, ConfState([1])), b"state")
        batch.group(1).release = list(range(1, last + 1))
        write_at_last(small, batch)
        model.write(batch)
    assert model.load() == small.load()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_full_map_in_pieces_goes_on_once_something_was_released(tmp_path: Path, seed: int) -> None:
    """Values of many sizes leave holes that fit few others; what releases comes with the batch that does not fit, and
    is at or above what waits. No acknowledged record is lost, and none keeps the node from starting."""
    random, folder = Random(seed), tmp_path / "0"
    store, model = WriteAheadStore(folder, 8 * MIB, segment_bytes=256 * 1024), MemoryStore()
    index, live = 1, list[int]()
    for number in range(1, 4):
        while True:
            sizes = [random.choice((100, 1500, 3000, 9000, 20_000, 60_000)) for _ in range(random.randrange(1, 4))]
            batch = WriteBatch()
            batch.group(1).entries = [Entry(1, index + n, 0, bytes([n + 1]) * size) for n, size in enumerate(sizes)]
            try:
                store.write(batch)
            except DiskFull:
                break
            model.write(batch)
            live += range(index, index + len(sizes))
            index += len(sizes)
        dead = random.sample(live, len(live) // 2)
        live = sorted(set(live) - set(dead)) + list(range(index, index + len(sizes)))
        release = snapshot_at(index - 1, dead).group(1)
        batch.group(1).snapshot, batch.group(1).release = release.snapshot, release.release
        batch.group(1).hard_state = HardState(1, 1, index - 1)
        index += len(sizes)
        shutil.copytree(folder, tmp_path / str(number))
        WriteAheadStore(tmp_path / str(number), 8 * MIB, segment_bytes=256 * 1024).close()
        write_at_last(store, batch)
        model.write(batch)
        assert store.load() == model.load()
    store.close()


@pytest.fixture
def full_log_file(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The log file has no room for more entries at once than this; none are no bar to what makes room."""
    most, real = [1 << 30], LmdbLogStore.write_together

    def short(self: LmdbLogStore, batches: Any, *arguments: Any, **named: Any) -> None:
        if sum(len(write.entries) for batch in batches for write in batch.groups.values()) > most[0]:
            raise DiskFull("no room")
        real(self, batches, *arguments, **named)

    monkeypatch.setattr(LmdbLogStore, "write_together", short)
    return most


def test_a_relief_may_overtake_what_waits(tmp_path: Path, full_log_file: list[int]) -> None:
    """A snapshot above records that have no room: what it releases is given up nevertheless, and after a kill all is
    there, with the commit index that came with the relief."""
    store, model = opened(tmp_path), MemoryStore()
    model.write(append(store, 1, b"one", b"two"))
    store.settle()
    batch = WriteBatch()
    batch.group(1).hard_state = HardState(1, 1, 2)
    batch.group(1).entries = [Entry(1, 3, 0, b"three"), Entry(1, 4, 0, b"four"), Entry(1, 5, 0, b"five")]
    store.write(batch)
    model.write(batch)
    full_log_file[0] = 0
    batch = snapshot_at(4, [1, 3])
    batch.group(1).hard_state = HardState(1, 1, 5)
    batch.group(1).entries = [Entry(1, 6, 0, b"six")]
    with pytest.raises(DiskFull):
        store.write(batch)
    assert entry_or_none(store, 1, 1) is None
    full_log_file[0] = 1 << 30
    with killed(tmp_path) as copy:
        again = opened(copy)
        stored = again.load()[1]
        # A release that is lost with a crash is given again.
        assert (stored.retained, stored.entries) == ([2, 3, 4], [(5, 1)])
        assert stored.hard_state.commit == 5
        assert again.read_entry(1, 4).data == b"four"
        again.close()
    with killed(tmp_path) as copy:
        for name in write_ahead_files.FILE_NAMES:
            change(copy / name, FILE_HEADER_BYTES, bytes(SEGMENT_BYTES - FILE_HEADER_BYTES))
        with pytest.raises(StoreUnfit, match=r"records .* are missing"):
            opened(copy)
    store.write(batch)
    model.write(batch)
    same(store, model)
    store.close()


@pytest.mark.parametrize("where", ["here", "at the next start"])
def test_what_has_no_room_at_once_is_moved_in_steps(tmp_path: Path, full_log_file: list[int], where: str) -> None:
    store, model = opened(tmp_path), MemoryStore()
    for index in range(1, 8):
        model.write(append(store, index, b"x" * 300))
    full_log_file[0] = 2
    with killed(tmp_path) as copy:
        if where == "here":
            store.settle()
            model.write(append(store, 8, b"y"))
            same(store, model)
        else:
            again = opened(copy)
            same(again, model)
            again.close()
    store.close()


def test_a_start_without_room_for_what_is_acknowledged_says_what_to_do(
    tmp_path: Path, full_log_file: list[int]
) -> None:
    folder = unmoved(tmp_path, b"A" * 900, b"B" * 900)
    full_log_file[0] = 0
    with pytest.raises(StoreRefused, match=r"no room in the log file: no room\. Make .* raise disk_map_bytes") as found:
        opened(folder)
    assert not isinstance(found.value, StoreUnfit)
    full_log_file[0] = 1 << 30
    store = opened(folder)
    assert store.load()[1].entries == [(1, 1), (2, 1)]
    store.close()


def test_an_append_without_room_goes_to_the_log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that never writes in place can be out of room: half a record is there, and must not count."""
    store, model = opened(tmp_path), MemoryStore()
    model.write(append(store, 1, b"one"))
    real = os.pwrite
    broken = [True]

    def short(descriptor: int, data: bytes, start: int) -> int:
        if broken[0]:
            broken[0] = False
            real(descriptor, data[: len(data) // 2], start)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, start)

    monkeypatch.setattr(os, "pwrite", short)
    model.write(append(store, 2, b"two" * 500))
    model.write(append(store, 3, b"three"))
    assert not broken[0]
    with killed(tmp_path) as copy:
        again = opened(copy)
        same(again, model)
        again.close()
    store.close()


class FullDisk:
    """A file system that writes nothing in place and has no room: every `pwrite` is refused while `full`, half of its
    octets written. Which it is asked for is noted as (octets, whether they are all zeros)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, zeros_alone: bool = False) -> None:
        self.full = True
        self.refused: list[tuple[int, bool]] = []
        real = os.pwrite

        def pwrite(descriptor: int, data: bytes, start: int) -> int:
            zeros = not any(data)
            if not self.full or (zeros_alone and not zeros):
                return real(descriptor, data, start)
            self.refused.append((len(data), zeros))
            if not zeros:
                real(descriptor, data[: len(data) // 2], start)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "pwrite", pwrite)


def same_after_a_kill(folder: Path, model: MemoryStore) -> None:
    with killed(folder) as copy:
        again = opened(copy)
        same(again, model)
        again.close()


def test_a_disk_without_room_for_anything_refuses_and_then_takes_the_same_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = opened(tmp_path), MemoryStore()
    model.write(append(store, 1, b"one"))
    disk = FullDisk(monkeypatch)
    for _ in range(3):
        with pytest.raises(DiskFull, match="No space left"):
            append(store, 2, b"two" * 500)
    assert (True in [zeros for _, zeros in disk.refused]) and len(disk.refused) >= 6
    disk.full = False
    model.write(append(store, 2, b"two" * 500))
    model.write(append(store, 3, b"three"))
    same_after_a_kill(tmp_path, model)
    same(store, model)
    store.close()


def test_another_batch_after_one_that_had_no_room_finds_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = opened(tmp_path), MemoryStore()
    model.write(append(store, 1, b"one"))
    disk = FullDisk(monkeypatch)
    with pytest.raises(DiskFull):
        append(store, 2, b"two" * 500)
    with pytest.raises(DiskFull):
        append(store, 2, b"2")
    disk.full = False
    model.write(append(store, 2, b"2"))
    model.write(append(store, 3, b"three"))
    same_after_a_kill(tmp_path, model)
    store.close()


def test_a_file_that_could_not_be_cleared_takes_no_records_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log file takes them at once meanwhile."""
    store, model = opened(tmp_path), MemoryStore()
    disk = FullDisk(monkeypatch, zeros_alone=True)
    for index in range(1, 101):
        disk.full = index < 80
        model.write(append(store, index, b"x" * (700 if index % 3 else 1)))
        if index % 10 == 0:
            same_after_a_kill(tmp_path, model)
    assert disk.refused
    same(store, model)
    store.close()


def test_a_start_without_room_to_clear_the_files_goes_on_and_writes_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = opened(tmp_path), MemoryStore()
    for index in range(1, 12):
        model.write(append(store, index, b"x" * 300))
    with killed(tmp_path) as copy:
        disk = FullDisk(monkeypatch)
        again = opened(copy)
        assert again.load()[1].last_index == 11
        for _ in range(2):
            with pytest.raises(DiskFull, match="No space left"):
                append(again, 12, b"short")
        with killed(copy) as later:
            once_more = opened(later)
            same(once_more, model)
            once_more.close()
        disk.full = False
        model.write(append(again, 12, b"short"))
        same_after_a_kill(copy, model)
        again.close()
    store.close()


def test_a_sync_without_room_is_no_failure_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that takes its room from a pool says so when it syncs."""
    store, model = opened(tmp_path), MemoryStore()
    model.write(append(store, 1, b"one"))

    def short(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", short)
    for _ in range(2):
        with pytest.raises(DiskFull):
            append(store, 2, b"two" * 500)
    monkeypatch.undo()
    model.write(append(store, 2, b"two" * 500))
    model.write(append(store, 3, b"three"))
    same_after_a_kill(tmp_path, model)
    store.close()


def test_a_move_without_room_is_tried_again_and_writes_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = opened(tmp_path), MemoryStore()

    def full(*arguments: Any, **named: Any) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(LmdbLogStore, "write_together", full)
    index = fill(store, model)
    same_unmoved(store, model)
    for _ in range(3):
        with pytest.raises(DiskFull):
            append(store, index + 1, b"no" * 600)
    monkeypatch.undo()
    model.write(append(store, index + 1, b"yes"))
    same(store, model)
    store.close()


def test_a_copy_that_a_relief_came_into_is_refused(
    tmp_path: Path, full_log_file: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have the snapshot, and not the entries that wait."""
    store, real = opened(tmp_path / "log"), LmdbLogStore.copy
    append(store, 1, b"one")

    def beside(self: LmdbLogStore, folder: Path) -> None:
        append(store, 2, b"two")
        full_log_file[0] = 0
        with pytest.raises(DiskFull):
            store.write(snapshot_at(2, [1]))
        real(self, folder)

    monkeypatch.setattr(LmdbLogStore, "copy", beside)
    with pytest.raises(OSError, match="ran full meanwhile"):
        store.copy(tmp_path / "copy")
    full_log_file[0] = 1 << 30
    store.close()
