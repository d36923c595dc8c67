"""The store on LMDB: what it keeps, refuses, and how it fails."""

import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import lmdb
import pytest

from mayfly.cluster.log import records
from mayfly.cluster.log.batch import (
    CorruptEntry,
    CorruptStore,
    DiskFailed,
    DiskFull,
    MissingEntry,
    StoredSnapshot,
    StoreRefused,
    StoreUnfit,
    WriteBatch,
)
from mayfly.cluster.raft import ConfState, Entry, EntryType, HardState, SnapshotMetadata
from mayfly.cluster.store import layouts, lmdb_tables
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.versions import LAYOUT_OLDEST, LAYOUT_VERSION
from tests.waiting import BOUND_S

MIB = 1024 * 1024
MAP_BYTES = 64 * MIB


def append(store: LmdbLogStore, group: int, first: int, payloads: list[bytes], term: int = 1) -> None:
    batch = WriteBatch()
    batch.group(group).entries = [
        Entry(term, first + position, EntryType.NORMAL, payload) for position, payload in enumerate(payloads)
    ]
    store.write(batch)


def snapshot_at(store: LmdbLogStore, group: int, index: int, release: list[int] | None = None) -> None:
    batch = WriteBatch()
    batch.group(group).snapshot = StoredSnapshot(SnapshotMetadata(index, 1, ConfState([1, 2, 3, 4, 5])), b"state")
    batch.group(group).release = release or []
    store.write(batch)


def test_everything_is_there_after_a_reopen(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES, "cluster/1")
    conf = ConfState([1, 2], [3], [1, 4], [5], True)
    batch = WriteBatch()
    write = batch.group(7)
    write.install = True
    write.snapshot = StoredSnapshot(SnapshotMetadata(10, 3, conf), b"x" * 300_000)
    write.live_entries = [Entry(1, 4, EntryType.NORMAL, b"four"), Entry(2, 9, EntryType.NORMAL, b"")]
    write.entries = [Entry(4, 11, EntryType.CONF_CHANGE_V2, b"eleven"), Entry(5, 12, 0, b"z" * 9000)]
    write.hard_state = HardState(5, 2, 11)
    batch.group(0).hard_state = HardState(1, 0, 0)
    store.write(batch)
    store.put_meta("incarnation", b"\x07")
    store.close()

    store = LmdbLogStore(tmp_path, MAP_BYTES, "cluster/1")
    groups = store.load()
    assert list(groups) == [0, 7]
    assert groups[0].hard_state == HardState(1, 0, 0)
    assert groups[7].hard_state == HardState(5, 2, 11)
    assert groups[7].snapshot == StoredSnapshot(SnapshotMetadata(10, 3, conf), b"x" * 300_000)
    assert groups[7].entries == [(11, 4), (12, 5)]
    assert groups[7].retained == [4, 9]
    assert store.read_entry(7, 4) == Entry(1, 4, EntryType.NORMAL, b"four")
    assert store.read_entry(7, 11) == Entry(4, 11, EntryType.CONF_CHANGE_V2, b"eleven")
    assert store.read_entry(7, 12).data == b"z" * 9000
    assert store.get_meta("incarnation") == b"\x07"
    assert store.get_meta("format") is None
    with pytest.raises(MissingEntry, match="entry 5 of group 7"):
        store.read_entry(7, 5)
    store.close()


def test_an_append_over_the_tail_removes_what_follows(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"a"] * 10)
    append(store, 2, 1, [b"neighbour"] * 3)
    append(store, 1, 4, [b"b", b"c"], term=2)
    groups = store.load()
    assert groups[1].entries == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert len(groups[2].entries) == 3
    assert store.read_entry(1, 4).data == b"b"
    with pytest.raises(MissingEntry):
        store.read_entry(1, 6)
    store.close()


def test_released_entries_are_gone_and_live_ones_stay(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"%d" % number for number in range(1, 101)])
    append(store, 2, 1, [b"neighbour"] * 3)
    live = [3, 50, 51, 80]
    snapshot_at(store, 1, 80, [index for index in range(80, 0, -1) if index not in live])
    groups = store.load()
    assert groups[1].retained == live
    assert groups[1].entries == [(index, 1) for index in range(81, 101)]
    assert store.read_entry(1, 51).data == b"51"
    batch = WriteBatch()
    batch.group(1).release = [3, 4, 80, 3]
    store.write(batch)
    assert store.load()[1].retained == [50, 51]
    assert len(store.load()[2].entries) == 3
    store.close()


def test_an_install_drops_the_log_and_stores_live_entries(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    for group in (1, 2, 3):
        append(store, group, 1, [b"old"] * 20)
    batch = WriteBatch()
    write = batch.group(2)
    write.install = True
    write.snapshot = StoredSnapshot(SnapshotMetadata(15, 9, ConfState([1])), b"s")
    write.live_entries = [Entry(3, 5, EntryType.NORMAL, b"five"), Entry(3, 6, EntryType.NORMAL, b"six")]
    write.release = [5]
    store.write(batch)
    groups = store.load()
    assert groups[2].entries == []
    assert groups[2].retained == [6]
    assert store.read_entry(2, 6).data == b"six"
    assert len(groups[1].entries) == len(groups[3].entries) == 20
    append(store, 2, 16, [b"after"], term=9)
    assert store.load()[2].entries == [(16, 9)]
    store.close()


def mistakes() -> list[WriteBatch]:
    batches = [WriteBatch() for _ in range(6)]
    batches[0].group(1).entries = [Entry(1, 7, EntryType.NORMAL, b"gap")]
    batches[1].group(1).entries = [Entry(1, 2, EntryType.NORMAL, b"below the snapshot")]
    batches[2].group(1).entries = [Entry(1, 6), Entry(1, 8)]
    batches[3].group(1).release = [4]
    batches[4].group(1).install = True
    batches[5].group(1).snapshot = StoredSnapshot(SnapshotMetadata(6, 1), b"")
    return batches


@pytest.mark.parametrize("number", range(6))
def test_a_mistaken_write_is_refused_and_writes_nothing(tmp_path: Path, number: int) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"x"] * 5)
    snapshot_at(store, 1, 3)
    before = store.load()
    batch = mistakes()[number]
    batch.group(9).hard_state = HardState(1, 1, 1)
    with pytest.raises(ValueError, match="group 1"):
        store.write(batch)
    assert store.load() == before
    append(store, 1, 6, [b"fine"])
    store.close()


def test_extents_are_found_again_after_a_reopen(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"x"] * 5)
    append(store, 2, 1, [b"y"] * 9)
    snapshot_at(store, 1, 5, [1, 2, 3, 4, 5])
    store.close()
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 6, [b"next"])
    with pytest.raises(ValueError):
        append(store, 2, 11, [b"gap"])
    append(store, 2, 3, [b"shorter"], term=2)
    assert store.load()[2].entries == [(1, 1), (2, 1), (3, 2)]
    store.close()


@pytest.mark.parametrize("size", [0, 5 * 1024, 5 * 1024 + 1, 70_001, 128 * 1024, 128 * 1024 + 1])
def test_a_checksum_in_pieces_is_the_checksum_of_the_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert records.crc32(data[:size], 7) == zlib.crc32(data[:size], 7)
    assert records.crc32(memoryview(data)[:size]) == zlib.crc32(data[:size])


# --- corruption --------------------------------------------------------------------------------------


def damage(path: Path, table: bytes, key: bytes, value: bytes) -> None:
    with lmdb.open(str(path), max_dbs=8, map_size=MAP_BYTES) as environment:
        database = environment.open_db(table, create=False)
        with environment.begin(write=True, db=database) as transaction:
            transaction.put(key, value)


def stored_value(path: Path, table: bytes, key: bytes) -> bytearray:
    with lmdb.open(str(path), max_dbs=8, map_size=MAP_BYTES) as environment:
        database = environment.open_db(table, create=False)
        with environment.begin(db=database) as transaction:
            return bytearray(transaction.get(key) or b"")


@pytest.mark.parametrize("position", [0, 1, 5, 12, 14, 90])
def test_a_changed_byte_in_an_entry_is_found(tmp_path: Path, position: int) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 3, 1, [b"x" * 100] * 4)
    store.close()
    key = records.ENTRY_KEY.pack(3, 2)
    value = stored_value(tmp_path, b"entries", key)
    value[position] ^= 0x10
    damage(tmp_path, b"entries", key, bytes(value))
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    stored = store.load()[3]
    assert stored.damage.startswith("entry 2 of group 3 is corrupt")
    assert stored.last_index == 4
    with pytest.raises(CorruptEntry) as caught:
        store.read_entry(3, 2)
    assert (caught.value.group, caught.value.index) == (3, 2)
    assert store.read_entry(3, 3).data == b"x" * 100
    store.close()


def test_bytes_changed_in_the_file_itself_are_found(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"A" * 5000, b"NEEDLE" * 1000, b"B" * 5000])
    store.close()
    file = tmp_path / "data.mdb"
    content = file.read_bytes()
    place = content.index(b"NEEDLENEEDLE") + 600
    with file.open("r+b") as handle:
        handle.seek(place)
        handle.write(b"?")
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    assert "entry 2 of group 1 is corrupt" in store.load()[1].damage
    store.close()


def test_an_entry_in_the_wrong_place_is_found(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"one", b"two"])
    store.close()
    value = stored_value(tmp_path, b"entries", records.ENTRY_KEY.pack(1, 1))
    damage(tmp_path, b"entries", records.ENTRY_KEY.pack(1, 2), bytes(value))
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    assert "entry 2 of group 1 is corrupt" in store.load()[1].damage
    store.close()


@pytest.mark.parametrize("table", [b"states", b"snapshots"])
@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_hard_state_or_snapshot_is_found(tmp_path: Path, table: bytes, cut: bool) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    batch = WriteBatch()
    write = batch.group(1)
    write.install = True
    write.snapshot = StoredSnapshot(SnapshotMetadata(1, 1, ConfState([1])), b"state")
    write.hard_state = HardState(1, 1, 1)
    store.write(batch)
    store.close()
    key = records.GROUP_KEY.pack(1)
    value = stored_value(tmp_path, table, key)
    value[-6] ^= 1
    damage(tmp_path, table, key, bytes(value[:7]) if cut else bytes(value))
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    if table == b"states":
        with pytest.raises(CorruptStore, match="of group 1 is corrupt"):
            store.load()
    else:
        stored = store.load()[1]
        assert "snapshot of group 1 is corrupt" in stored.damage
        assert (stored.hard_state, stored.snapshot) == (HardState(1, 1, 1), None)
    store.close()


def test_damage_found_while_running_is_told_until_the_group_is_installed_anew(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"one", b"two"])
    append(store, 2, 1, [b"one", b"two"])
    store.mark_damaged(2, "entry 1 of group 2 is corrupt: seen while running")
    store.close()
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    groups = store.load()
    assert groups[1].damage == ""
    assert groups[2].damage == "entry 1 of group 2 is corrupt: seen while running"
    batch = WriteBatch()
    batch.group(2).install = True
    batch.group(2).snapshot = StoredSnapshot(SnapshotMetadata(2, 1, ConfState([1])), b"state")
    store.write(batch)
    assert store.load()[2].damage == ""
    store.close()


def test_a_hole_in_the_log_is_found(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"x"] * 5)
    store.close()
    with lmdb.open(str(tmp_path), max_dbs=8, map_size=MAP_BYTES) as environment:
        database = environment.open_db(b"entries", create=False)
        with environment.begin(write=True, db=database) as transaction:
            transaction.delete(records.ENTRY_KEY.pack(1, 3))
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    stored = store.load()[1]
    assert "entry 4 where 3" in stored.damage
    assert stored.last_index == 5
    store.close()


# --- what is not opened ------------------------------------------------------------------------------


def test_a_second_store_on_the_folder_is_refused(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    with pytest.raises(StoreRefused, match="in use by process") as refused:
        LmdbLogStore(tmp_path, MAP_BYTES)
    assert not isinstance(refused.value, StoreUnfit)
    script = (
        "import sys\nfrom mayfly.cluster.store.lmdb_store import LmdbLogStore\n"
        "from mayfly.cluster.log.batch import StoreRefused\n"
        "try:\n    LmdbLogStore(sys.argv[1], 1 << 20)\nexcept StoreRefused as error:\n    print(error)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    assert "in use by process" in child.stdout
    store.close()
    LmdbLogStore(tmp_path, MAP_BYTES).close()


def test_garbage_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(bytes(range(256)) * 64)
    with pytest.raises(StoreUnfit, match=r"data\.mdb is damaged"):
        LmdbLogStore(tmp_path, MAP_BYTES)


def test_a_file_that_was_cut_off_is_refused_and_named(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"x" * 50_000] * 5)
    used = store._room.used_bytes()
    store.close()
    file = tmp_path / "data.mdb"
    for length in (used // 2 // 4096 * 4096, 8192, 4096, 100, 0):
        with file.open("r+b") as handle:
            handle.truncate(length)
        with pytest.raises(StoreUnfit, match=r"data\.mdb"):
            LmdbLogStore(tmp_path, MAP_BYTES)


def test_a_log_that_vanished_is_not_begun_anew(tmp_path: Path) -> None:
    LmdbLogStore(tmp_path, MAP_BYTES).close()
    (tmp_path / "data.mdb").unlink()
    with pytest.raises(StoreUnfit, match="missing or empty"):
        LmdbLogStore(tmp_path, MAP_BYTES)


def test_a_foreign_lmdb_file_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=MIB) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"some", b"thing")
    with pytest.raises(StoreUnfit, match="not the log of a MayflyMQ node"):
        LmdbLogStore(tmp_path, MAP_BYTES)


def test_a_foreign_lmdb_file_with_tables_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=MIB, max_dbs=3) as environment:
        for table in (b"meta", b"other"):
            with environment.begin(write=True, db=environment.open_db(table)) as transaction:
                transaction.put(b"some", b"thing")
    with pytest.raises(StoreUnfit, match="not the log of a MayflyMQ node"):
        LmdbLogStore(tmp_path, MAP_BYTES)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    LmdbLogStore(tmp_path, MAP_BYTES).close()
    damage(tmp_path, b"meta", b"\x00format", b"mayfly log 7")
    with pytest.raises(StoreUnfit, match=r"format 7, written by a newer MayflyMQ; .* up to format 6\. There is no way"):
        LmdbLogStore(tmp_path, MAP_BYTES)


def test_the_layout_before_is_converted_at_start_with_all_that_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a step such as the next layout will have: what it adds is there, what was there stays, and a release before it
    is told by the marker, too."""
    monkeypatch.setattr(lmdb_tables, "LAYOUT_OLDEST", 5)
    monkeypatch.setitem(layouts.STEPS, 5, lambda meta: meta.put(layouts.USER_PREFIX + b"level", b"1"))
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    store.put_meta("identity", b"me")
    append(store, 1, 1, [b"one", b"two"])
    before = store.load()[1].entries
    store.close()
    damage(tmp_path, b"meta", b"\x00format", b"mayfly log 5")
    (tmp_path / "format").write_text("mayfly log 5\n")
    for _ in range(2):
        store = LmdbLogStore(tmp_path, MAP_BYTES)
        assert (store.get_meta("identity"), store.get_meta("level")) == (b"me", b"1")
        assert store.load()[1].entries == before == [(1, 1), (2, 1)]
        store.close()
        assert (tmp_path / "format").read_text() == "mayfly log 6\n"
    damage(tmp_path, b"meta", b"\x00format", b"mayfly log 5")
    LmdbLogStore(tmp_path, MAP_BYTES).close()  # a crash between the log and its marker
    assert stored_value(tmp_path, b"meta", b"\x00format") == b"mayfly log 6"


def test_every_layout_that_is_read_has_its_step() -> None:
    assert list(layouts.STEPS) == list(range(LAYOUT_OLDEST, LAYOUT_VERSION))


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_an_older_format_is_refused_each_time(tmp_path: Path, version: int) -> None:
    """Its entries do other things in this version: replicas that replay them from different snapshots would differ."""
    LmdbLogStore(tmp_path, MAP_BYTES).close()
    damage(tmp_path, b"meta", b"\x00format", b"mayfly log %d" % version)
    for _ in range(2):
        with pytest.raises(StoreUnfit, match=f"format {version}, written by an older MayflyMQ; .* formats 6 to 6:"):
            LmdbLogStore(tmp_path, MAP_BYTES)


def test_the_log_of_another_node_is_refused(tmp_path: Path) -> None:
    LmdbLogStore(tmp_path, MAP_BYTES, "blue/1").close()
    with pytest.raises(StoreUnfit, match="belongs to node blue/1, this is node blue/2"):
        LmdbLogStore(tmp_path, MAP_BYTES, "blue/2")
    LmdbLogStore(tmp_path, MAP_BYTES, "blue/1").close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="can't open the data folder") as refused:
        LmdbLogStore(tmp_path / "file" / "below", MAP_BYTES)
    assert not isinstance(refused.value, StoreUnfit)


def test_a_file_that_cannot_be_mapped_now_may_be_later(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match=r"can't open .*data\.mdb: .*Cannot allocate memory") as refused:
        LmdbLogStore(tmp_path, 1 << 60)
    assert not isinstance(refused.value, StoreUnfit)
    LmdbLogStore(tmp_path, MAP_BYTES).close()


@pytest.mark.parametrize("error", [lmdb.DiskError("Input/output error"), lmdb.MemoryError("Cannot allocate memory")])
def test_tables_that_cannot_be_read_now_may_be_later(
    tmp_path: Path, error: lmdb.Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    LmdbLogStore(tmp_path, MAP_BYTES).close()

    class Failing:
        """An environment whose tables can't be read."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            self._environment = lmdb.Environment(*arguments, **more)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._environment, name)

        def open_db(self, *_: object, **__: object) -> object:
            raise error

    with monkeypatch.context() as patched:
        patched.setattr(lmdb, "open", Failing)
        with pytest.raises(StoreRefused, match=str(error)) as refused:
            LmdbLogStore(tmp_path, MAP_BYTES)
    assert not isinstance(refused.value, StoreUnfit)
    LmdbLogStore(tmp_path, MAP_BYTES).close()


# --- room --------------------------------------------------------------------------------------------


def fill(store: LmdbLogStore, last: int, payload_bytes: int, step: int) -> int:
    """Append to group 1 until the store is full; the last index."""
    for _ in range(10_000):
        try:
            append(store, 1, last + 1, [bytes(payload_bytes)] * step)
        except DiskFull:
            return last
        last += step
    raise AssertionError("the store never got full")


@pytest.mark.parametrize("payload_bytes", [200, 9_000, 200_000])
def test_a_full_store_recovers_when_entries_are_released(tmp_path: Path, payload_bytes: int) -> None:
    store = LmdbLogStore(tmp_path, 8 * MIB)
    last = 0
    step = max(1, 100_000 // payload_bytes)
    for _ in range(3):
        free_before = store.free_bytes()
        last = fill(store, last, payload_bytes, step)
        assert store.free_bytes() < free_before
        with pytest.raises(DiskFull):
            append(store, 1, last + 1, [bytes(payload_bytes)] * step)
        assert store.load()[1].entries[-1] == (last, 1)
        # Releasing works although the store is full, in small steps and in one.
        batch = WriteBatch()
        batch.group(1).hard_state = HardState(1, 1, last)
        store.write(batch)
        low = store.load()[1]
        dead = low.retained + [index for index, _ in low.entries][:-2]
        batch = WriteBatch()
        batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(last - 2, 1, ConfState([1])), b"")
        store.write(batch)
        for start in range(0, len(dead), 97):
            batch = WriteBatch()
            batch.group(1).release = dead[start : start + 97]
            store.write(batch)
        for _ in range(2):
            batch = WriteBatch()
            batch.group(1).hard_state = HardState(1, 1, last)
            store.write(batch)
        assert store.free_bytes() > 5 * MIB
    store.close()


@pytest.mark.parametrize("snapshot_before", [True, False])
def test_a_full_store_recovers_through_the_batch_that_does_not_fit(
    tmp_path: Path, snapshot_before: bool
) -> None:
    store = LmdbLogStore(tmp_path, 8 * MIB)
    last = fill(store, 0, 20_000, 5)
    for _ in range(3):
        # What a host hands over again and again: new entries, and what it could give up for them.
        batch = WriteBatch()
        write = batch.group(1)
        write.entries = [Entry(1, last + 1 + number, 0, bytes(20_000)) for number in range(40)]
        if snapshot_before:
            snapshot_at(store, 1, last - 1)
        else:
            write.snapshot = StoredSnapshot(SnapshotMetadata(last - 1, 1, ConfState([1])), b"state")
        write.release = list(range(1, last - 1))
        attempts = 0
        while True:
            attempts += 1
            assert attempts < 5
            try:
                store.write(batch)
            except DiskFull:
                stored = store.load()[1]
                assert stored.entries[-1] == (last, 1), "nothing is added by a batch that doesn't fit"
                assert stored.retained == [last - 1]
            else:
                break
        assert attempts > 1
        stored = store.load()[1]
        assert stored.retained == [last - 1]
        assert [index for index, _ in stored.entries] == list(range(last, last + 41))
        last = fill(store, last + 40, 20_000, 5)
    store.close()


def test_a_limit_of_the_file_system_is_met_without_harm(tmp_path: Path) -> None:
    script = """
import resource, sys
from mayfly.cluster.log.batch import DiskFull, WriteBatch, StoredSnapshot
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.raft import Entry, EntryType, SnapshotMetadata
resource.setrlimit(resource.RLIMIT_FSIZE, (24 << 20, 24 << 20))
store = LmdbLogStore(sys.argv[1], 256 << 20)
def append(index):
    batch = WriteBatch()
    batch.group(1).entries = [Entry(1, index, EntryType.NORMAL, bytes(100_000))]
    store.write(batch)
index = 1
try:
    while index < 1000:
        append(index)
        index += 1
except DiskFull:
    pass
assert 100 < index < 200, index
assert [number for number, _ in store.load()[1].entries] == list(range(1, index))
batch = WriteBatch()
batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(index - 1, 1), b"")
batch.group(1).release = list(range(1, index))
store.write(batch)
for _ in range(2):
    store.put_meta("tick", b"")
for more in range(10):
    append(index + more)
store.close()
print("recovered")
"""
    child = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert child.stdout == "recovered\n", child.stderr


class BrokenCommit(LmdbLogStore):
    """A store whose disk reports an input/output error once."""

    broken = False

    def _apply(self, transaction: "lmdb.Transaction[bytes]", batch: WriteBatch, overtaking: bool) -> None:
        super()._apply(transaction, batch, overtaking)
        if self.broken:
            self.broken = False
            raise lmdb.Error("mdb_txn_commit: Input/output error")


def test_after_an_input_output_error_nothing_is_written_any_more(tmp_path: Path) -> None:
    store = BrokenCommit(tmp_path, MAP_BYTES)
    append(store, 1, 1, [b"x"])
    store.broken = True
    with pytest.raises(DiskFailed, match=r"data\.mdb"):
        append(store, 1, 2, [b"y"])
    with pytest.raises(DiskFailed, match="refused after an earlier failure"):
        append(store, 1, 2, [b"y"])
    with pytest.raises(DiskFailed):
        store.put_meta("a", b"b")
    assert store.read_entry(1, 1).data == b"x"
    store.close()
    store = BrokenCommit(tmp_path, MAP_BYTES)
    assert store.load()[1].entries == [(1, 1)]
    store.close()


def test_free_and_used_bytes_follow_what_is_stored(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    free, used = store.free_bytes(), store._room.used_bytes()
    append(store, 1, 1, [bytes(1 * MIB)] * 10)
    assert 10 * MIB <= store._room.used_bytes() - used < 11 * MIB
    assert 10 * MIB <= free - store.free_bytes() < 11 * MIB
    snapshot_at(store, 1, 10, list(range(1, 11)))
    assert store._room.used_bytes() - used < MIB
    assert free - store.free_bytes() < MIB
    store.close()
