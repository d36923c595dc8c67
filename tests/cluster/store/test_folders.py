"""What is made, renamed or removed stays so after a crash of the machine: its folder was synced after it."""

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mayfly.cluster.group.state_layout import encode_group_head
from mayfly.cluster.log.batch import StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store.folder import make_folder, sync_folder
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.catalog import Catalog
from mayfly.node.membership.identity import Identity
from mayfly.node.shell.data_copy import copy_data
from mayfly.node.shell.data_folder import DataFolder
from mayfly.node.shell.restoring import restore
from tests.cluster.store.histories import MAP_BYTES

LOCKS_OF_LMDB = "lock.mdb"


class Durable:
    """What the folders hold that would be there after a crash: names are noted when their folder is synced, under
    whatever name that has itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[tuple[int, str]] = set()
        real = os.fsync

        def fsync(descriptor: int) -> None:
            real(descriptor)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                folder = os.fstat(descriptor).st_ino
                self.names = {known for known in self.names if known[0] != folder}
                self.names |= {(folder, name) for name in os.listdir(descriptor)}

        monkeypatch.setattr(os, "fsync", fsync)

    def lacks(self, path: Path, below: Path) -> list[Path]:
        """Of a path and what is in it, the names that a crash may take, up to a folder that was there before."""
        above = [parent for parent in (path, *path.parents) if below in parent.parents]
        known = [found for found in path.rglob("*") if found.name != LOCKS_OF_LMDB]
        return [each for each in (*above, *known) if (each.parent.stat().st_ino, each.name) not in self.names]

    def brings_back(self, folder: Path) -> list[str]:
        """The names that are gone from a folder and that a crash may bring back."""
        present = os.listdir(folder)
        return [name for of, name in self.names if of == folder.stat().st_ino and name not in present]


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> Durable:
    return Durable(monkeypatch)


def test_a_folder_and_all_above_it_that_were_missing(tmp_path: Path, durable: Durable) -> None:
    make_folder(tmp_path / "a" / "b" / "c")
    assert not durable.lacks(tmp_path / "a" / "b" / "c", tmp_path)
    durable.names.clear()
    make_folder(tmp_path / "a" / "b" / "c")
    assert not durable.names, "what was there needs no sync"
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a" / "b" / "c", may_exist=False)


def test_a_relative_one(tmp_path: Path, durable: Durable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(Path("a/b"))
    assert not durable.lacks(tmp_path / "a" / "b", tmp_path)


def a_log(folder: Path) -> WriteAheadStore:
    return WriteAheadStore(folder, MAP_BYTES, segment_bytes=64 * 1024)


def test_a_new_log(tmp_path: Path, durable: Durable) -> None:
    store = a_log(tmp_path / "data" / "log")
    assert not durable.lacks(tmp_path / "data" / "log", tmp_path)
    store.close()


def test_a_copy_of_the_data(tmp_path: Path, durable: Durable) -> None:
    store = a_log(tmp_path / "log")
    copy_data(store, tmp_path / "backups" / "today")
    assert not durable.lacks(tmp_path / "backups" / "today", tmp_path)
    store.close()


def test_data_that_was_restored(tmp_path: Path, durable: Durable) -> None:
    store = a_log(tmp_path / "lost" / "log")
    begun = encode_group_head(0, 0, []) + Catalog(1).snapshot()
    for group in (0, 1):
        batch = WriteBatch()
        batch.group(group).install = True
        batch.group(group).snapshot = StoredSnapshot(SnapshotMetadata(1, 1, ConfState([1])), begun)
        batch.group(group).hard_state = HardState(1, 1, 1)
        batch.group(group).entries = [Entry(1, 2, 0, b"")]
        store.write(batch)
    store.put_meta("identity", Identity("blue", 1, "one", "store", 1, 1).encode())
    store.close()
    restore([tmp_path / "lost"], tmp_path / "new" / "data", MAP_BYTES)
    assert not durable.lacks(tmp_path / "new" / "data", tmp_path)


def a_late_founder(data: Path) -> None:
    """The data of a node that began as a founder, and has received a part of a snapshot."""
    store = a_log(data / "log")
    store.put_meta("identity", b"a founder")
    store.close()
    make_folder(data / "snapshots" / "parts")


def test_data_that_was_given_up(tmp_path: Path, durable: Durable) -> None:
    data = tmp_path / "data"
    a_late_founder(data)
    sync_folder(data)
    DataFolder(data).begin_anew()
    assert os.listdir(data) == ["join-again"]
    assert not {"log", "snapshots"} & set(durable.brings_back(data))
    assert not durable.lacks(data / "join-again", tmp_path)


class Crash(BaseException):
    """The process ends here."""


def test_a_crash_while_data_is_given_up_leaves_all_of_it_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each call that changes a folder: the node starts with its old data, or joins with an empty log."""
    left: list[int] = []

    def counted(real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if left and left[0] == 0:
            raise Crash
        if left:
            left[0] -= 1
        return real(*arguments, **named)

    for name in ("rename", "unlink", "rmdir", "fsync"):
        monkeypatch.setattr(os, name, partial(counted, getattr(os, name)))
    found: list[bytes | None] = []
    for calls in range(1_000):
        data = tmp_path / str(calls)
        a_late_founder(data)
        left[:] = [calls]
        try:
            DataFolder(data).begin_anew()
        except Crash:
            left.clear()
            store = a_log(data / "log")
            found.append(store.get_meta("identity"))
            store.close()
            assert DataFolder(data).joins_again()
            DataFolder(data).begin_anew()
            assert os.listdir(data) == ["join-again"]
        else:
            break
    left.clear()
    assert found[0] == b"a founder" and found[-1] is None
    assert found.index(None) == found.count(b"a founder"), "once it was gone it was there again"
    assert calls > 8
