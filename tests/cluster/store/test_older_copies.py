"""A write-ahead file that is replaced, alone, with an older copy of itself: when that does harm, and when it shows."""

import shutil
from pathlib import Path

import pytest

from mayfly.cluster.log.batch import MissingEntry
from tests.cluster.store.write_ahead import append, killed, opened

AHEAD = ("ahead-1", "ahead-2")


def copies(folder: Path, to: Path) -> None:
    to.mkdir()
    for name in AHEAD:
        shutil.copy(folder / name, to / name)


def put_back(folder: Path, older: Path) -> None:
    for name in AHEAD:
        shutil.copy(older / name, folder / name)


def test_after_a_stop_in_order_an_older_copy_does_no_harm(tmp_path: Path) -> None:
    """All is in the log file then, which says up to which record it has everything."""
    folder, older = tmp_path / "log", tmp_path / "older"
    store = opened(folder)
    append(store, 1, b"one")
    copies(folder, older)
    append(store, 2, b"two")
    store.close()
    put_back(folder, older)
    again = opened(folder)
    assert [again.read_entry(1, index).data for index in (1, 2)] == [b"one", b"two"]
    again.close()


def test_after_a_kill_an_older_copy_of_the_last_one_is_not_told(tmp_path: Path) -> None:
    """The hole that docs/operations/troubleshoot.md tells of, with its reason in docs/decisions/log.md 8: one append
    and one sync is all that a write has, so no second place knows of it yet."""
    folder, older = tmp_path / "log", tmp_path / "older"
    store = opened(folder)
    append(store, 1, b"one")
    copies(folder, older)
    append(store, 2, b"confirmed")
    with killed(folder) as crashed:
        put_back(crashed, older)
        again = opened(crashed)
        assert again.read_entry(1, 1).data == b"one"
        with pytest.raises(MissingEntry):
            again.read_entry(1, 2)
        again.close()
    store.close()
