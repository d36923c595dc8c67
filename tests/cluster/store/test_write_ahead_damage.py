"""Write-ahead files that are torn, damaged, missing or old: told by name, or cut off where nobody was told of them."""

import threading
from pathlib import Path
from typing import Any

import pytest

from mayfly.cluster.log.batch import StoreDamaged, StoreUnfit, WriteBatch
from mayfly.cluster.log.write_ahead_format import FILE_HEADER_BYTES, SECTOR_BYTES, encode_record, is_clear
from mayfly.cluster.raft import Entry
from mayfly.cluster.store import write_ahead_files
from tests.cluster.store.write_ahead import append, change, killed, opened, unmoved
from tests.waiting import BOUND_S


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
        with pytest.raises(StoreDamaged, match=r"of an earlier moment than last-commit: .* restore all of them"):
            opened(copy)
        # A copy that a release without it has made.
        (copy / "last-commit").unlink()
        with pytest.raises(StoreDamaged, match="is missing"):
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
    store._idle.wait(BOUND_S)
    monkeypatch.undo()
    with killed(tmp_path) as copy:
        assert not is_clear((copy / "ahead-1").read_bytes())
        change(copy / "ahead-1", FILE_HEADER_BYTES, bytes(2 * SECTOR_BYTES))
        again = opened(copy)
        assert again._number > first
        again.close()
    store._move_error = None
    store.close()
