"""A log file with damaged pages, made anew with what its node has promised and nothing else."""

from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from mayfly.cluster import limits
from mayfly.cluster.log.batch import GroupWrite, StoreDamaged, StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store.folder import DAMAGED_FILE
from mayfly.cluster.store.lmdb_file import meta_pages
from mayfly.cluster.store.salvage import Promises, salvage
from mayfly.cluster.store.write_ahead_store import WriteAheadStore

PAGE_BYTES = 4096
MAP_BYTES = 64 << 20
STATES = {1: HardState(7, 2, 60), 2: HardState(4, 3, 30)}


def damaged(folder: Path, kind: str) -> Path:
    """The log of two groups, the last votes of which are still in a write-ahead file; a page of a kind is damaged."""
    log = folder / "log"
    store = WriteAheadStore(log, MAP_BYTES)
    store.put_meta("identity", b"cluster/3")
    for number in STATES:
        write(store, number, lambda it: _begin(it))
        for index in range(2, 90):
            write(store, number, lambda it, at=index: _append(it, at))  # type: ignore[misc]
    store.settle()
    for number, state in STATES.items():
        write(store, number, lambda it, to=state: setattr(it, "hard_state", to))  # type: ignore[misc]
    left = folder / "left"
    left.mkdir()
    for file in log.iterdir():
        (left / file.name).write_bytes(file.read_bytes())
    store.close()
    spoil(left / "data.mdb", kind)
    return left


def _begin(write: GroupWrite) -> None:
    write.install = True
    write.snapshot = StoredSnapshot(SnapshotMetadata(1, 1, ConfState([1, 2, 3])), b"begin")
    write.hard_state = HardState(1, 0, 1)


def _append(write: GroupWrite, index: int) -> None:
    write.entries = [Entry(1, index, 0, b"x" * 500)]


def write(store: WriteAheadStore, number: int, fill: Callable[[GroupWrite], None]) -> None:
    batch = WriteBatch()
    fill(batch.group(number))
    store.write(batch)


def spoil(file: Path, kind: str) -> None:
    """The root of a table is no page of it any more, or that of the list of free pages."""
    with file.open("r+b") as handle:
        newest = max((page for page in meta_pages(handle.fileno()) if page), key=lambda page: page.transaction)
        octets = file.read_bytes()
        root = newest.free.root
        if kind != "free":
            at = octets.index(kind.encode(), newest.main.root * PAGE_BYTES) + len(kind)
            root = int.from_bytes(octets[at + 40 : at + 48], "little")
        handle.seek(root * PAGE_BYTES)
        handle.write(b"\xff")


def yes(promises: Promises) -> bool:
    return True


@pytest.mark.parametrize("kind", ["entries", "snapshots", "free"])
def test_what_was_promised_stays_and_all_groups_are_to_be_rebuilt(in_memory: Path, kind: str) -> None:
    folder = damaged(in_memory, kind)
    with pytest.raises(StoreDamaged, match=r"data\.mdb is damaged: page"):
        WriteAheadStore(folder, MAP_BYTES)
    before = (folder / "data.mdb").read_bytes()
    asked: list[bytes | None] = []

    def asking(promises: Promises) -> bool:
        asked.append(promises.value("identity"))
        return True

    assert salvage(folder, "why", asking)
    assert asked == [b"cluster/3"]
    assert (folder / DAMAGED_FILE).read_bytes() == before
    for _ in range(2):
        store = WriteAheadStore(folder, MAP_BYTES)
        stored = store.load()
        assert {number: group.hard_state for number, group in stored.items()} == STATES
        assert {group.damage for group in stored.values()} == {"why"}
        assert {group.last_index for group in stored.values()} == {limits.MAX_INDEX}, "nobody knows"
        assert store.get_meta("identity") == b"cluster/3"
        store.close()
    store = WriteAheadStore(folder, MAP_BYTES)
    for number in STATES:
        batch = WriteBatch()
        it = batch.group(number)
        it.install = True
        it.snapshot = StoredSnapshot(SnapshotMetadata(100, 8, ConfState([1, 2, 3])), b"rebuilt")
        it.hard_state = HardState(8, 0, 100)
        store.write(batch)
    store.close()
    store = WriteAheadStore(folder, MAP_BYTES)
    assert [(group.damage, group.last_index) for group in store.load().values()] == [("", 100), ("", 100)]
    write(store, 1, lambda it: setattr(it, "entries", [Entry(8, 101, 0, b"on")]))
    store.close()


def test_a_group_that_an_older_release_has_rebuilt_is_as_whole_as_any(in_memory: Path) -> None:
    """It takes the mark of the damage away, and leaves the one that it does not know."""
    folder = damaged(in_memory, "entries")
    assert salvage(folder, "why", yes)
    environment = lmdb.open(str(folder), max_dbs=4, map_size=MAP_BYTES)
    with environment.begin() as transaction:
        meta = environment.open_db(b"meta", transaction, create=False)
        unknown = [(key, value) for key, value in transaction.cursor(meta) if key.startswith(b"\x00end unknown")]
    environment.close()
    assert len(unknown) == len(STATES)
    store = WriteAheadStore(folder, MAP_BYTES)
    write(store, 1, _begin)
    store.close()
    environment = lmdb.open(str(folder), max_dbs=4, map_size=MAP_BYTES)
    meta = environment.open_db(b"meta", create=False)
    with environment.begin(write=True, db=meta) as transaction:
        for key, value in unknown:
            transaction.put(key, value)
    environment.close()
    store = WriteAheadStore(folder, MAP_BYTES)
    stored = store.load()
    store.close()
    assert (stored[1].damage, stored[1].last_index) == ("", 1)
    assert (stored[2].damage, stored[2].last_index) == ("why", limits.MAX_INDEX)


@pytest.mark.parametrize("kind", ["states", "meta"])
def test_a_node_whose_promises_can_not_be_read_is_left_as_it_is(in_memory: Path, kind: str) -> None:
    folder = damaged(in_memory, kind)
    unchanged(folder, yes)


def test_where_others_have_nothing_all_is_left_as_it_is(in_memory: Path) -> None:
    unchanged(damaged(in_memory, "entries"), lambda promises: False)


@pytest.mark.parametrize("file", ["last-commit", "ahead-1"])
def test_where_it_is_not_certain_what_was_promised_last_all_is_left_as_it_is(in_memory: Path, file: str) -> None:
    folder = damaged(in_memory, "entries")
    octets = bytearray((folder / file).read_bytes())
    for place in (30, 540, 4126):
        octets[place] ^= 1
    (folder / file).write_bytes(octets)
    unchanged(folder, yes)


def unchanged(folder: Path, may: Callable[[Promises], bool]) -> None:
    before = (folder / "data.mdb").read_bytes()
    assert not salvage(folder, "why", may)
    assert (folder / "data.mdb").read_bytes() == before
    assert not (folder / DAMAGED_FILE).exists()
    with pytest.raises(StoreDamaged):
        WriteAheadStore(folder, MAP_BYTES)


@pytest.mark.parametrize("file", ["data.mdb", "ahead-2"])
def test_a_file_that_is_missing_is_told_as_ever(in_memory: Path, file: str) -> None:
    folder = damaged(in_memory, "entries")
    (folder / file).unlink()
    assert not salvage(folder, "why", yes)
    with pytest.raises(StoreDamaged):
        WriteAheadStore(folder, MAP_BYTES)
