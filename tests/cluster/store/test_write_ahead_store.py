"""Write-ahead files and log file together: the same as a store in memory, whatever is killed or fails."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import lmdb
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mayfly.cluster.log.batch import DiskFailed, StoredSnapshot, StoreUnfit, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store import write_ahead_files
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.store.histories import MAP_BYTES, histories, same
from tests.cluster.store.write_ahead import MIB, SEGMENT_BYTES, append, killed, opened, same_unmoved
from tests.waiting import BOUND_S

# --- the same as in memory --------------------------------------------------------------------------


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


def test_its_files_are_first_written_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system counts as written with each append is the whole piece that the append is in."""
    pieces: list[tuple[int, int]] = []
    pwrite = os.pwrite

    def noted(descriptor: int, data: bytes, start: int) -> int:
        pieces.append((start, start + len(data)))
        return pwrite(descriptor, data, start)

    monkeypatch.setattr(os, "pwrite", noted)
    path = tmp_path / "ahead"
    write_ahead_files._create(path, MIB)
    at_once = write_ahead_files.CREATED_AT_ONCE_BYTES
    assert [start for start, _ in pieces] == [0, *[end for _, end in pieces[:-1]]], "one behind the other"
    assert path.stat().st_size == pieces[-1][1] == MIB
    assert all(start // at_once == (end - 1) // at_once for start, end in pieces), "none is in two"


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


# --- the order of things ----------------------------------------------------------------------------


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
        assert go_on.wait(BOUND_S)
        real(self, *arguments, **named)

    monkeypatch.setattr(LmdbLogStore, "write_together", held)
    model, index = MemoryStore(), 0
    while not moving.is_set():
        index += 1
        model.write(append(store, index, b"%d" % index * 300))
        # The next file may be full before the thread that moves this one has begun.
        assert store._idle.is_set() or moving.wait(BOUND_S)
    model.write(append(store, index - 2, b"instead", term=2))  # over what is being moved
    same_unmoved(store, model)
    monkeypatch.setattr(LmdbLogStore, "write_together", real)
    with killed(tmp_path) as copy:
        again = opened(copy)
        same(again, model)
        again.close()
    monkeypatch.setattr(write_ahead_files.WriteAheadFiles, "clear_other", lambda self: None)
    go_on.set()
    store._idle.wait(BOUND_S)
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

# --- killed -----------------------------------------------------------------------------------------


WRITER = """
import sys
from mayfly.cluster.log.batch import StoredSnapshot, WriteBatch
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata

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


# --- failing ----------------------------------------------------------------------------------------


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
