"""Write-ahead files and log file together: the same as a store in memory, whatever is killed, torn, full or damaged."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import lmdb
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from cluster.log import write_ahead_files
from cluster.log.batch import (
    DiskFailed,
    DiskFull,
    MissingEntry,
    StoredSnapshot,
    StoreRefused,
    StoreUnfit,
    WriteBatch,
)
from cluster.log.lmdb_store import LmdbLogStore
from cluster.log.memory_store import MemoryStore
from cluster.log.write_ahead_format import FILE_HEADER_BYTES, SECTOR_BYTES, encode_record, is_clear
from cluster.log.write_ahead_store import WriteAheadStore
from cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from node.resource_watch import ResourceWatch
from node.settings import NodeSettings
from tests.log.histories import MAP_BYTES, histories, same

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


def in_log_file(folder: Path) -> MemoryStore | LmdbLogStore:
    return LmdbLogStore(folder, MAP_BYTES)


# --- the same as in memory ---------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(histories(), st.integers(0, 1 << 32))
def test_it_holds_what_memory_holds_through_reopenings_and_kills(
    history: list[WriteBatch | None], seed: int
) -> None:
    """None in a history is a reopening: after a close, after a kill, or after a kill that tore the last record."""
    random = Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder, number = Path(name) / "0", 0
        store, model = opened(folder), MemoryStore()
        for batch in history:
            if batch is not None:
                model.write(batch)
                store.write(batch)
                continue
            same_unmoved(store, model)
            how = random.choice(("closed", "killed"))
            event(how)
            if how == "closed":
                store.close()
            else:
                number += 1
                copy = Path(name) / str(number)
                shutil.copytree(folder, copy)
                store.close()
                folder = copy
            store = opened(folder)
        same_unmoved(store, model)
        with killed(folder) as copy:
            again = opened(copy)
            same(again, model)
            again.close()
        same(store, model)
        store.close()


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


def test_a_log_of_the_older_layout_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    opened(tmp_path).close()
    set_format(tmp_path, b"mayfly log 2")
    with pytest.raises(StoreUnfit, match="format 2, written by an older MayflyMQ"):
        opened(tmp_path)
    assert stored_format(tmp_path) == b"mayfly log 2"


def set_format(folder: Path, text: bytes) -> None:
    with lmdb.open(str(folder), max_dbs=8, map_size=MAP_BYTES) as environment:
        table = environment.open_db(b"meta", create=False)
        with environment.begin(write=True, db=table) as transaction:
            transaction.put(b"\x00format", text)
            transaction.delete(b"\x00moved")


def stored_format(folder: Path) -> bytes:
    with lmdb.open(str(folder), max_dbs=8, map_size=MAP_BYTES) as environment:
        table = environment.open_db(b"meta", create=False)
        with environment.begin(db=table) as transaction:
            return bytes(transaction.get(b"\x00format") or b"")


# --- the order of things -----------------------------------------------------------------------------


def test_a_small_write_is_one_append_and_one_sync_and_the_log_file_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    calls: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        return call

    for name in ("pwrite", "fdatasync", "fsync"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    monkeypatch.setattr(LmdbLogStore, "_apply", noted("log file", LmdbLogStore._apply))
    append(store, 1, b"one")
    assert calls == ["pwrite", "fdatasync"]
    store.close()
    assert "log file" in calls


def test_a_file_is_cleared_only_once_the_log_file_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while a file is being moved, before and after the log file has it: all is there."""
    store = opened(tmp_path)
    moving, go_on = threading.Event(), threading.Event()
    real = LmdbLogStore.write_together

    def held(self: LmdbLogStore, *arguments: Any, **named: Any) -> None:
        moving.set()
        assert go_on.wait(30)
        real(self, *arguments, **named)

    monkeypatch.setattr(LmdbLogStore, "write_together", held)
    model, index = MemoryStore(), 0
    while not moving.is_set():
        index += 1
        model.write(append(store, index, b"%d" % index * 300))
    model.write(append(store, index - 2, b"instead", term=2))  # over what is being moved
    same_unmoved(store, model)
    monkeypatch.setattr(LmdbLogStore, "write_together", real)
    with killed(tmp_path) as copy:
        again = opened(copy)
        same(again, model)
        again.close()
    monkeypatch.setattr(write_ahead_files.WriteAheadFiles, "clear_other", lambda self: None)
    go_on.set()
    store._idle.wait(30)
    with killed(tmp_path) as copy:
        monkeypatch.undo()
        again = opened(copy)
        same(again, model)
        again.close()
    store.close()


def test_snapshots_go_to_the_log_file_with_all_that_gathered_before(tmp_path: Path) -> None:
    store, model = opened(tmp_path), MemoryStore()
    model.write(append(store, 1, b"one", b"two", b"three"))
    batch = WriteBatch()
    batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(2, 1, ConfState([1])), b"state")
    batch.group(1).release = [1]
    store.write(batch)
    model.write(batch)
    model.write(append(store, 3, b"three again", term=2))
    with killed(tmp_path) as copy:
        again = opened(copy)
        same(again, model)
        again.close()
    store.close()


def test_what_was_released_gives_its_room_back_when_the_store_is_settled(tmp_path: Path) -> None:
    store = opened(tmp_path, MIB)
    for index in range(1, 41):
        append(store, index, b"x" * 100_000)
    store.settle()
    batch = WriteBatch()
    batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(40, 1, ConfState([1])), b"state")
    store.write(batch)
    batch = WriteBatch()
    batch.group(1).release = list(range(1, 41))
    store.write(batch)
    before = store.free_bytes()
    store.settle()
    assert store.free_bytes() > before + 2 * MIB
    store.close()


def test_what_waits_for_the_log_file_is_bounded(tmp_path: Path) -> None:
    store = opened(tmp_path)
    most = 0
    for index in range(1, 2_000):
        append(store, index, b"")
        most = max(most, len(store._gathered.batch.groups[1].entries))
    assert most < 2 * SEGMENT_BYTES / 200 + 2
    store.close()


# --- killed ------------------------------------------------------------------------------------------

WRITER = """
import sys
from cluster.log.batch import StoredSnapshot, WriteBatch
from cluster.log.write_ahead_store import WriteAheadStore
from cluster.raft import ConfState, Entry, HardState, SnapshotMetadata

store = WriteAheadStore(sys.argv[1], 256 << 20, segment_bytes=128 << 10)
first = store.load()[0].entries[-1][0] + 1 if store.load() else 1
for index in range(first, 100_000):
    batch = WriteBatch()
    for group in range(3):
        write = batch.group(group)
        size = (index * 7919 + group * 104_729) % (40_000 if index % 7 == 0 else 3_000)
        write.entries = [Entry(index, index, 0, b"%d " % index * (size // 8))]
        write.hard_state = HardState(index, 1, index - 1)
        if index % 40 == 0:
            write.snapshot = StoredSnapshot(SnapshotMetadata(index - 1, index - 1, ConfState([1])), b"%d" % index)
            write.release = [dead for dead in range(max(1, index - 40), index) if dead % 3]
    store.write(batch)
    print(index, flush=True)
"""


def test_what_was_acknowledged_survives_kills(tmp_path: Path) -> None:
    told = 0
    for acknowledged in (1, 30, 110, 75, 150):
        arguments = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(acknowledged):
                told = int(writer.stdout.readline())
            writer.kill()
            rest = writer.stdout.read().split()
            told = int(rest[-1]) if rest else told
        store = WriteAheadStore(tmp_path, 256 * MIB)
        groups = store.load()
        (end,) = {stored.hard_state.term for stored in groups.values()}
        assert told <= end <= told + 1
        for number, stored in groups.items():
            floor = 0 if stored.snapshot is None else stored.snapshot.metadata.index
            assert floor == max(0, end // 40 * 40 - 1)
            assert stored.entries == [(index, index) for index in range(floor + 1, end + 1)]
            assert stored.retained == list(range(3, floor + 1, 3))
            for index in (*stored.retained, end):
                size = (index * 7919 + number * 104_729) % (40_000 if index % 7 == 0 else 3_000)
                assert store.read_entry(number, index).data == b"%d " % index * (size // 8)
        store.close()


# --- damaged -----------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_a_damaged_payload_is_told_as_that_of_the_log_file_is(tmp_path: Path, damaged: int) -> None:
    folder = unmoved(tmp_path, b"A" * 900, b"B" * 900, b"C" * 900)
    file = folder / "ahead-1"
    change(file, file.read_bytes().index(b"ABC"[damaged - 1 : damaged] * 900) + 100, b"?")
    store = opened(folder)
    stored = store.load()[1]
    assert stored.damage.startswith(f"entry {damaged} of group 1 is corrupt")
    assert stored.last_index == 3
    store.close()


def test_a_damaged_record_is_refused_and_named(tmp_path: Path) -> None:
    folder = unmoved(tmp_path, b"A" * 900, b"B" * 900, b"C" * 900)
    change(folder / "ahead-1", FILE_HEADER_BYTES + 10, b"?")
    with pytest.raises(StoreUnfit, match=r"ahead-1 is damaged: no record can be read at byte 512"):
        opened(folder)


def test_a_torn_last_record_is_cut_off(tmp_path: Path) -> None:
    folder = unmoved(tmp_path, b"A" * 900, b"B" * 900, b"C" * 900)
    file = folder / "ahead-1"
    place = file.read_bytes().index(b"C" * 900) // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES
    change(file, place, bytes(SECTOR_BYTES))
    for _ in range(2):
        store = opened(folder)
        assert store.load()[1].entries == [(1, 1), (2, 1)]
        store.close()
    store = opened(folder)
    append(store, 3, b"three")
    store.close()


@pytest.mark.parametrize("name", write_ahead_files.FILE_NAMES)
def test_a_missing_or_shortened_file_is_refused_and_named(tmp_path: Path, name: str) -> None:
    folder = unmoved(tmp_path, b"A" * 900)
    octets = (folder / name).read_bytes()
    (folder / name).write_bytes(octets[:700])
    with pytest.raises(StoreUnfit, match=f"{name} is cut off"):
        opened(folder)
    (folder / name).unlink()
    with pytest.raises(StoreUnfit, match=f"{name} is missing"):
        opened(folder)
    (folder / name).write_bytes(octets)
    opened(folder).close()


def test_an_older_copy_of_the_log_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    store = opened(folder)
    append(store, 1, b"one")
    store.close()
    older = (folder / "data.mdb").read_bytes()
    store = opened(folder)
    for index in range(2, 60):
        append(store, index, b"x" * 1000)
    store.settle()
    append(store, 60, b"x" * 1000)
    with killed(folder) as copy:
        (copy / "data.mdb").write_bytes(older)
        with pytest.raises(StoreUnfit, match="is missing"):
            opened(copy)
    store.close()


def test_a_crash_while_a_torn_record_is_cleared_damages_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that was torn comes behind one that the log file has, and its head outlives those before it."""
    folder = tmp_path / "log"
    store = opened(folder)
    for index in range(1, 4):
        append(store, index, b"x" * 900)
    append(store, 4, b"x" * 40_000)  # with all before it to the log file
    batch = WriteBatch()
    batch.group(1).entries = [Entry(1, 5, 0, b"y" * 3000)]
    record, end = encode_record(store._number + 1, batch, store._files.salt), store._files._ends[0]
    with killed(folder) as copy:
        change(copy / "ahead-1", end, record)
        change(copy / "ahead-1", (end // SECTOR_BYTES + 3) * SECTOR_BYTES, bytes(SECTOR_BYTES))
        monkeypatch.setattr(write_ahead_files.WriteAheadFiles, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened(copy)
        monkeypatch.undo()
        change(copy / "ahead-1", FILE_HEADER_BYTES, bytes(2 * SECTOR_BYTES))
        again = opened(copy)
        assert again.load()[1].last_index == 4
        append(again, 5, b"five")
        again.close()
    store.close()


def interrupted(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_a_crash_while_a_file_of_empty_records_is_cleared_damages_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    first = store._number

    def mover_interrupted(self: write_ahead_files.WriteAheadFiles) -> None:
        if threading.current_thread().name == "log-mover":
            raise KeyboardInterrupt

    monkeypatch.setattr(write_ahead_files.WriteAheadFiles, "clear_other", mover_interrupted)
    while store._mover is None:
        empty = WriteBatch()
        empty.group(1)
        store.write(empty)
    store._idle.wait(30)
    monkeypatch.undo()
    with killed(tmp_path) as copy:
        assert not is_clear((copy / "ahead-1").read_bytes())
        change(copy / "ahead-1", FILE_HEADER_BYTES, bytes(2 * SECTOR_BYTES))
        again = opened(copy)
        assert again._number > first
        again.close()
    store._move_error = None
    store.close()


# --- full and failing --------------------------------------------------------------------------------


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


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_an_append_that_fails_ends_all_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store = opened(tmp_path)
    append(store, 1, b"one")

    def fails(*arguments: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(DiskFailed, match="Input/output error"):
        append(store, 2, b"two")
    monkeypatch.undo()
    with pytest.raises(DiskFailed, match="refused after an earlier failure"):
        append(store, 2, b"two")
    store.close()
    store = opened(tmp_path)
    assert store.load()[1].entries in ([(1, 1)], [(1, 1), (2, 1)])
    store.close()


def test_a_move_that_fails_ends_all_writing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)

    def fails(*arguments: Any, **named: Any) -> None:
        raise DiskFailed("Input/output error")

    monkeypatch.setattr(LmdbLogStore, "write_together", fails)
    index = 0
    with suppress(DiskFailed):
        while True:
            append(store, index + 1, b"x" * 1000)
            index += 1
    with pytest.raises(DiskFailed, match="refused after an earlier failure: Input/output error"):
        append(store, index + 1, b"x")
    assert index > SEGMENT_BYTES // 1100
    assert store.read_entry(1, 1).data == b"x" * 1000
    store.close()
    monkeypatch.undo()
    store = opened(tmp_path)
    assert store.load()[1].last_index == index
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


def test_what_was_written_is_told_at_once(tmp_path: Path) -> None:
    """A busy time is known by it: it must not wait for a file's turn."""
    store = opened(tmp_path)
    for index in range(1, 60):
        before = store.written_bytes
        append(store, index, b"x" * (1000 if index % 10 else 20_000))
        assert 500 < store.written_bytes - before < 50_000
    before = store.written_bytes
    store.settle()
    assert store.written_bytes == before
    store.close()


def test_a_close_waits_for_a_copy_and_refuses_what_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "log")
    append(store, 1, b"one")
    copying, go_on, real = threading.Event(), threading.Event(), LmdbLogStore.copy

    def held(self: LmdbLogStore, folder: Path) -> None:
        copying.set()
        assert go_on.wait(30)
        real(self, folder)

    monkeypatch.setattr(LmdbLogStore, "copy", held)
    failures: list[BaseException] = []

    def copy() -> None:
        try:
            store.copy(tmp_path / "copy")
        except BaseException as error:
            failures.append(error)

    copier, closer = threading.Thread(target=copy), threading.Thread(target=store.close)
    copier.start()
    assert copying.wait(30)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    copier.join(30)
    closer.join(30)
    assert not failures
    again = opened(tmp_path / "copy")
    assert again.read_entry(1, 1).data == b"one"
    again.close()
    with pytest.raises(DiskFailed, match="the store is closed"):
        store.settle()


def test_a_close_waits_for_who_makes_room_and_refuses_a_look_at_it_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of a watch that was cancelled goes on: it must not meet files that are closed, or other files that
    have their descriptors now."""
    store = opened(tmp_path)
    append(store, 1, b"one")
    watch = ResourceWatch(cast(Any, None), store, cast(Any, None), NodeSettings(), lambda take_in: None)
    settling, go_on, real = threading.Event(), threading.Event(), LmdbLogStore.write_together

    def held(self: LmdbLogStore, *arguments: Any, **named: Any) -> None:
        settling.set()
        assert go_on.wait(30)
        real(self, *arguments, **named)

    monkeypatch.setattr(LmdbLogStore, "write_together", held)
    failures: list[BaseException] = []

    def look() -> None:
        try:
            watch._free_bytes(1 << 60)
            # As late as can be: the close may have come before the second look or after it.
            closer.join(30)
            watch._free_bytes(1 << 60)
        except BaseException as error:
            failures.append(error)

    looker, closer = threading.Thread(target=look), threading.Thread(target=store.close)
    looker.start()
    assert settling.wait(30)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    looker.join(30)
    closer.join(30)
    assert [type(failure) for failure in failures] == [DiskFailed]
    assert "the store is closed" in str(failures[0])
    with pytest.raises(DiskFailed, match="the store is closed"):
        store.used_bytes()
    with pytest.raises(DiskFailed, match="the store is closed"):
        store.put_meta("members", b"late")


def test_a_close_waits_for_a_look_at_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    looking, go_on, real = threading.Event(), threading.Event(), LmdbLogStore.free_bytes
    seen: list[int] = []

    def held(self: LmdbLogStore) -> int:
        looking.set()
        assert go_on.wait(30)
        return real(self)

    monkeypatch.setattr(LmdbLogStore, "free_bytes", held)
    looker = threading.Thread(target=lambda: seen.append(store.free_bytes()))
    closer = threading.Thread(target=store.close)
    looker.start()
    assert looking.wait(30)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    looker.join(30)
    closer.join(30)
    assert seen[0] > 0


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


def test_a_mistaken_write_is_refused_and_nothing_of_it_is_there(tmp_path: Path) -> None:
    store = opened(tmp_path)
    append(store, 1, b"one")
    batch = WriteBatch()
    batch.group(2).hard_state = HardState(1, 1, 1)
    batch.group(1).entries = [Entry(1, 7, 0, b"gap")]
    with pytest.raises(ValueError, match="entry 7 doesn't fit"):
        store.write(batch)
    assert list(store.load()) == [1]
    store.close()
