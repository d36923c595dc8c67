"""A store that is closed while others are in it."""

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from mayfly.cluster.log.batch import DiskFailed
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.node.duties.alarms import disk_watermark
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.resource_watch import ResourceWatch
from tests.cluster.store.write_ahead import append, opened
from tests.waiting import BOUND_S


def test_a_close_waits_for_a_copy_and_refuses_what_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "log")
    append(store, 1, b"one")
    copying, go_on, real = threading.Event(), threading.Event(), LmdbLogStore.copy

    def held(self: LmdbLogStore, folder: Path) -> None:
        copying.set()
        assert go_on.wait(BOUND_S)
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
    assert copying.wait(BOUND_S)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    copier.join(BOUND_S)
    closer.join(BOUND_S)
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
        assert go_on.wait(BOUND_S)
        real(self, *arguments, **named)

    monkeypatch.setattr(LmdbLogStore, "write_together", held)
    failures: list[BaseException] = []

    def look() -> None:
        try:
            watch._disk_is_short(disk_watermark(1 << 60))
            # As late as can be: the close may have come before the second look or after it.
            closer.join(BOUND_S)
            watch._disk_is_short(disk_watermark(1 << 60))
        except BaseException as error:
            failures.append(error)

    looker, closer = threading.Thread(target=look), threading.Thread(target=store.close)
    looker.start()
    assert settling.wait(BOUND_S)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    looker.join(BOUND_S)
    closer.join(BOUND_S)
    assert [type(failure) for failure in failures] == [DiskFailed]
    assert "the store is closed" in str(failures[0])
    with pytest.raises(DiskFailed, match="the store is closed"):
        store.free_bytes()
    with pytest.raises(DiskFailed, match="the store is closed"):
        store.put_meta("members", b"late")


def test_a_close_waits_for_a_look_at_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    looking, go_on, real = threading.Event(), threading.Event(), LmdbLogStore.free_bytes
    seen: list[int] = []

    def held(self: LmdbLogStore) -> int:
        looking.set()
        assert go_on.wait(BOUND_S)
        return real(self)

    monkeypatch.setattr(LmdbLogStore, "free_bytes", held)
    looker = threading.Thread(target=lambda: seen.append(store.free_bytes()))
    closer = threading.Thread(target=store.close)
    looker.start()
    assert looking.wait(BOUND_S)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    looker.join(BOUND_S)
    closer.join(BOUND_S)
    assert seen[0] > 0
