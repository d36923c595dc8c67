"""The last commit is known from a second place: a lost meta page loses nothing, and files that do not belong together
show."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mayfly.cluster.log.batch import DiskFailed, StoreDamaged, StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store import last_commit, lmdb_tables
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.store.write_ahead_store import WriteAheadStore

PAGE_BYTES = 4096
MAP_BYTES = 64 << 20
LARGE = b"x" * 70_000
"""More than a write-ahead record takes: it goes to the log file at once."""


def begin(folder: Path) -> WriteAheadStore:
    store = WriteAheadStore(folder, MAP_BYTES)
    batch = WriteBatch()
    write = batch.group(1)
    write.install = True
    write.snapshot = StoredSnapshot(SnapshotMetadata(1, 1, ConfState([1])), b"")
    write.hard_state = HardState(1, 0, 1)
    store.write(batch)
    return store


def append(store: WriteAheadStore | LmdbLogStore, index: int, data: bytes) -> None:
    batch = WriteBatch()
    batch.group(1).entries = [Entry(1, index, 0, data)]
    batch.group(1).hard_state = HardState(1, 1, index - 1)
    store.write(batch)


def copied(folder: Path, to: Path) -> Path:
    """What a process that is killed now leaves."""
    return shutil.copytree(folder, to)


def newest_place(file: Path) -> int:
    octets = file.read_bytes()
    numbers = [int.from_bytes(octets[at + 144 : at + 152], "little") for at in (0, PAGE_BYTES)]
    return numbers.index(max(numbers))


def change(file: Path, place: int, octets: bytes) -> None:
    with file.open("r+b") as handle:
        handle.seek(place)
        handle.write(octets)


def _zeros(file: Path, page: int, older: bytes) -> None:
    change(file, page * PAGE_BYTES, bytes(PAGE_BYTES))


def _not_written(file: Path, page: int, older: bytes) -> None:
    """The disk said that it was, and it is what it was."""
    change(file, page * PAGE_BYTES, older[page * PAGE_BYTES : page * PAGE_BYTES + 152])


def _earlier_number(file: Path, page: int, older: bytes) -> None:
    change(file, page * PAGE_BYTES + 144, bytes(8))


def _later_number(file: Path, page: int, older: bytes) -> None:
    change(file, page * PAGE_BYTES + 147, b"\x01")


def _other_root(file: Path, page: int, older: bytes) -> None:
    change(file, page * PAGE_BYTES + 128, b"\x02")


def _both(file: Path, page: int, older: bytes) -> None:
    change(file, 0, bytes(2 * PAGE_BYTES))


LOSSES = [_zeros, _not_written, _earlier_number, _later_number, _other_root, _both]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("batches", [1, 2])
def test_a_lost_meta_page_loses_nothing_that_was_confirmed(
    in_memory: Path, lose: Callable[[Path, int, bytes], None], batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = begin(in_memory / "log")
    append(store, 2, LARGE)
    for index in range(3, 3 + batches):
        older = (in_memory / "log" / "data.mdb").read_bytes()
        append(store, index, LARGE)
    left = copied(in_memory / "log", in_memory / "left")
    store.close()
    file = left / "data.mdb"
    lose(file, newest_place(file), older)
    for _ in range(2):
        again = WriteAheadStore(left, MAP_BYTES)
        stored = again.load()[1]
        assert stored.entries == [(index, 1) for index in range(2, 3 + batches)]
        assert stored.hard_state == HardState(1, 1, 1 + batches)
        assert not stored.damage
        again.close()
    assert caplog.text.count("is there again") == 1
    again = WriteAheadStore(left, MAP_BYTES)
    append(again, 3 + batches, LARGE)
    again.close()


def test_a_number_that_a_flip_makes_the_next_one_is_not_believed(in_memory: Path) -> None:
    """The page of the commit before would hide the last one."""
    store = LmdbLogStore(in_memory / "log", MAP_BYTES)
    batch = WriteBatch()
    batch.group(1).install = True
    batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(1, 1, ConfState([1])), b"")
    store.write(batch)
    for index in range(2, 9):
        append(store, index, LARGE)
    store.close()
    file = in_memory / "log" / "data.mdb"
    older = 1 - newest_place(file)
    at = older * PAGE_BYTES + 144
    number = int.from_bytes(file.read_bytes()[at : at + 8], "little")
    change(file, at, (number + 2).to_bytes(8, "little"))
    store = LmdbLogStore(in_memory / "log", MAP_BYTES)
    assert store.load()[1].last_index == 8
    store.close()


@pytest.mark.parametrize("place", [3, 16, 20, 40, 170, 175, 178, 500])
@pytest.mark.parametrize("part", [0, 1])
def test_a_flip_in_the_second_place_does_no_harm(in_memory: Path, part: int, place: int) -> None:
    store = begin(in_memory / "log")
    append(store, 2, LARGE)
    store.close()
    note = in_memory / "log" / last_commit.FILE_NAME
    at = part * PAGE_BYTES + place
    change(note, at, bytes((note.read_bytes()[at] ^ 4,)))
    for _ in range(2):
        store = WriteAheadStore(in_memory / "log", MAP_BYTES)
        assert store.load()[1].last_index == 2
        store.close()


def test_a_log_of_a_release_without_a_second_place_gets_one(in_memory: Path) -> None:
    store = begin(in_memory / "log")
    append(store, 2, LARGE)
    store.close()
    (in_memory / "log" / last_commit.FILE_NAME).unlink()
    store = WriteAheadStore(in_memory / "log", MAP_BYTES)
    assert store.load()[1].last_index == 2
    store.close()
    change(in_memory / "log" / "data.mdb", newest_place(in_memory / "log" / "data.mdb") * PAGE_BYTES, bytes(100))
    store = WriteAheadStore(in_memory / "log", MAP_BYTES)
    assert store.load()[1].last_index == 2
    store.close()


def test_that_release_may_go_on_with_the_log_and_leave_the_second_place_behind(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(in_memory / "log").close()
    with monkeypatch.context() as patched:
        patched.setattr(lmdb_tables.LmdbTables, "note_commit", lambda tables: None)
        store = WriteAheadStore(in_memory / "log", MAP_BYTES)
        for index in range(2, 6):
            append(store, index, LARGE)
        store.put_meta("level", b"5")
        store.close()
    store = WriteAheadStore(in_memory / "log", MAP_BYTES)
    assert store.load()[1].last_index == 5
    assert store.get_meta("level") == b"5"
    store.close()


def test_without_a_second_place_a_lost_meta_page_is_told(in_memory: Path) -> None:
    store = begin(in_memory / "log")
    append(store, 2, LARGE)
    store.close()
    file = in_memory / "log" / "data.mdb"
    (in_memory / "log" / last_commit.FILE_NAME).unlink()
    change(file, newest_place(file) * PAGE_BYTES, bytes(100))
    before = file.read_bytes()
    with pytest.raises(StoreDamaged, match="one of its two meta pages is lost, and what was written last may be"):
        WriteAheadStore(in_memory / "log", MAP_BYTES)
    assert file.read_bytes() == before


def test_a_log_file_of_another_moment_or_node_is_told(in_memory: Path) -> None:
    store = begin(in_memory / "log")
    early = (in_memory / "log" / "data.mdb").read_bytes()
    for index in range(2, 9):
        append(store, index, LARGE)
    store.close()
    late = (in_memory / "log" / "data.mdb").read_bytes()
    (in_memory / "log" / "data.mdb").write_bytes(early)
    with pytest.raises(StoreDamaged, match=r"of an earlier moment than last-commit: .* restore all of them from one"):
        WriteAheadStore(in_memory / "log", MAP_BYTES)
    other = begin(in_memory / "other")
    for index in range(2, 9):
        append(other, index, b"y" * 150_000)
    other.close()
    (in_memory / "log" / "data.mdb").write_bytes(late)
    shutil.copy(in_memory / "other" / last_commit.FILE_NAME, in_memory / "log")
    with pytest.raises(StoreDamaged, match=r"of another moment than last-commit, or of another log .* restore all"):
        WriteAheadStore(in_memory / "log", MAP_BYTES)


def test_what_the_table_of_the_nodes_own_values_holds_has_a_checksum(in_memory: Path) -> None:
    store = begin(in_memory / "log")
    store.put_meta("identity", b"cluster/3")
    append(store, 2, LARGE)
    store.close()
    file = in_memory / "log" / "data.mdb"
    octets = file.read_bytes()
    while (place := octets.rfind(b"cluster/3")) >= 0:
        change(file, place + 8, b"2")
        octets = octets[:place]
    with pytest.raises(StoreDamaged, match="its table meta doesn't match its checksum"):
        WriteAheadStore(in_memory / "log", MAP_BYTES)


def test_nobody_is_told_of_a_commit_before_it_is_noted(in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = begin(in_memory / "log")
    append(store, 2, LARGE)
    with monkeypatch.context() as patched:
        patched.setattr(last_commit.LastCommit, "note", _raising(OSError(5, "Input/output error")))
        with pytest.raises(DiskFailed):
            append(store, 3, LARGE)
    with pytest.raises(DiskFailed):
        append(store, 3, LARGE)
    store.close()


def test_a_note_without_room_keeps_nobody_from_writing(in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = begin(in_memory / "log")
    with monkeypatch.context() as patched:
        patched.setattr(last_commit.LastCommit, "note", _raising(OSError(28, "No space left on device")))
        append(store, 2, LARGE)
        append(store, 3, LARGE)
    left = copied(in_memory / "log", in_memory / "left")
    store.close()
    store = WriteAheadStore(left, MAP_BYTES)
    assert store.load()[1].last_index == 3
    store.close()


def _raising(error: OSError) -> Callable[..., None]:
    def raises(*_: object) -> None:
        raise error

    return raises


def test_a_copy_can_be_started(in_memory: Path) -> None:
    store = begin(in_memory / "log")
    append(store, 2, LARGE)
    store.copy(in_memory / "copy")
    append(store, 3, LARGE)
    store.close()
    copy = WriteAheadStore(in_memory / "copy", MAP_BYTES)
    assert copy.load()[1].last_index == 2
    copy.close()
