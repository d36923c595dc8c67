"""Batches that the kernel writes without a thread: in the files they are what a thread would have written."""

import asyncio
import errno
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mayfly.cluster.log.batch import DiskFailed, DiskFull, WriteBatch
from mayfly.cluster.log.write_ahead_format import FILE_HEADER_BYTES
from mayfly.cluster.raft import Entry, HardState
from mayfly.cluster.store.direct_writes import BLOCK_BYTES, DirectWrites
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.shell.log_writer import LogWriter
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.store.histories import MAP_BYTES, same

SEGMENT_BYTES = 64 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where direct writes work."""
    (tmp_path / "probe").mkdir()
    store = WriteAheadStore(tmp_path / "probe", MAP_BYTES, segment_bytes=SEGMENT_BYTES)
    works = store.open_direct() is not None and any(written_directly(store, batch_of(index)) for index in range(1, 9))
    store.close()
    if not works:
        pytest.skip(f"{tmp_path}: this system or file system does not write without a thread")
    return tmp_path / "log"


@pytest.fixture
def store(folder: Path) -> Iterator[WriteAheadStore]:
    store = WriteAheadStore(folder, MAP_BYTES, segment_bytes=SEGMENT_BYTES)
    store.open_direct()
    store.write(batch_of(1))
    yield store
    store.close()


def batch_of(index: int, size: int = 100) -> WriteBatch:
    batch = WriteBatch()
    batch.group(1).entries = [Entry(1, index, 0, Random(index).randbytes(size))]
    batch.group(1).hard_state = HardState(1, 1, index)
    return batch


def written_directly(store: WriteAheadStore, batch: WriteBatch) -> bool:
    """Write a batch in any case; whether it went without a thread."""
    if store.begin(batch) and store.end(wait=True):
        return True
    store.write(batch)
    return False


def test_the_files_are_the_same_whoever_wrote_the_records(folder: Path) -> None:
    """Records of all sizes, at any place in a block, in both files in turn, by kernel and thread mixed."""
    random, model = Random(7), MemoryStore()
    stores = [WriteAheadStore(folder / name, MAP_BYTES, segment_bytes=SEGMENT_BYTES) for name in ("one", "other")]
    direct, threaded = stores
    direct.open_direct()
    # The salt is all in which they may differ.
    salts = list(direct._files._salts)
    headers = list(direct._files._headers)
    threaded._files._salts = salts
    for number, header in enumerate(headers):
        threaded._files._last_blocks[number] = header
    without_thread = 0
    for index in range(1, 400):
        size = random.choice((1, 80, 500, 3000, BLOCK_BYTES, 3 * BLOCK_BYTES))
        for each in stores:
            batch = batch_of(index, size)
            if each is direct and random.random() < 0.9:
                without_thread += written_directly(each, batch)
            else:
                each.write(batch)
        model.write(batch_of(index, size))
        if index % 40 == 0:
            images = [[image[FILE_HEADER_BYTES:] for _, image in each._files.images()] for each in stores]
            assert images[0] == images[1]
    assert without_thread > 200
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(folder / "one", Path(name) / "log")
        again = WriteAheadStore(Path(name) / "log", MAP_BYTES, segment_bytes=SEGMENT_BYTES)
        same(again, model)
        again.close()
    for each in stores:
        same(each, model)
        each.close()


def test_nothing_is_noted_before_it_is_on_disk(store: WriteAheadStore) -> None:
    before = store._files._ends[store._files._active]
    assert store.begin(batch_of(2))
    assert store._number == 1
    assert store._files._ends[store._files._active] == before
    assert store.end(wait=True)
    assert store._number == 2
    assert store.read_entry(1, 2).data == Random(2).randbytes(100)


def test_what_has_not_ended_is_not_noted(store: WriteAheadStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_directly(store, batch_of(2))
    assert store.begin(batch_of(3))
    monkeypatch.setattr(DirectWrites, "ended", lambda self, wait: False)
    assert store.end() is None
    assert store._number == 2
    monkeypatch.undo()
    assert store.end(wait=True)
    assert store._number == 3


def test_who_wants_the_log_meanwhile_waits_for_the_write(store: WriteAheadStore) -> None:
    assert store.begin(batch_of(2))
    settled = threading.Event()

    def settle() -> None:
        store.settle()
        settled.set()

    other = threading.Thread(target=settle)
    other.start()
    assert not settled.wait(0.05)
    assert store.end(wait=True)
    other.join()
    assert settled.is_set()
    assert store.load()[1].last_index == 2


def test_nobody_waits_for_who_has_the_log(store: WriteAheadStore) -> None:
    with store._lock:
        assert not store.begin(batch_of(2))
    assert store.begin(batch_of(2))
    assert store.end(wait=True)


def test_what_the_kernel_could_not_write_at_once_the_thread_writes(store: WriteAheadStore) -> None:
    """Cached blocks are such a case: somebody has read the files."""
    assert written_directly(store, batch_of(2))
    assert len(store._files.images()) == 2
    direct, index = store._files.direct, 2
    assert direct is not None
    ways = []
    for index in range(3, 40):
        ways.append(written_directly(store, batch_of(index)))
    assert ways[-1], "once nothing is cached, the kernel writes again"
    assert store.load()[1].last_index == index


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODATA])
def test_an_unknown_outcome_ends_all_writing(
    store: WriteAheadStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = DirectWrites.ended

    def ended(self: DirectWrites, wait: bool = False) -> bool:
        done = real(self, wait)
        self._event.result = -number
        return done

    monkeypatch.setattr(DirectWrites, "ended", ended)
    assert store.begin(batch_of(2))
    with pytest.raises(DiskFailed, match="ahead-"):
        store.end(wait=True)
    with pytest.raises(DiskFailed, match="refused after an earlier failure"):
        store.write(batch_of(2))
    with pytest.raises(DiskFailed, match="refused after an earlier failure"):
        store.begin(batch_of(2))


@pytest.mark.parametrize("result", [-errno.ENOSPC, -errno.EINVAL, 512])
def test_a_write_that_was_not_made_or_broken_off_is_made_by_the_thread(
    store: WriteAheadStore, monkeypatch: pytest.MonkeyPatch, result: int
) -> None:
    real = DirectWrites.ended

    def ended(self: DirectWrites, wait: bool = False) -> bool:
        done = real(self, wait)
        self._event.result = result
        return done

    monkeypatch.setattr(DirectWrites, "ended", ended)
    assert store.begin(batch_of(2))
    assert store.end(wait=True) is False
    monkeypatch.undo()
    store.write(batch_of(2))
    assert store.load()[1].last_index == 2


def test_a_system_without_such_writes_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    store = WriteAheadStore(tmp_path, MAP_BYTES, segment_bytes=SEGMENT_BYTES)
    assert store.open_direct() is None
    assert not store.begin(batch_of(1))
    store.write(batch_of(1))
    store.close()


# --- the loop -----------------------------------------------------------------------------------------


class Shell:
    """A loop that notes what it was told, on a store that writes directly."""

    def __init__(self, store: WriteAheadStore) -> None:
        self.loop = asyncio.new_event_loop()
        self.told: list[BaseException | None] = []
        self._was_told = asyncio.Event()
        self.writer = LogWriter(store, self.loop, self._tell, store)

    def _tell(self, error: BaseException | None) -> None:
        self.told.append(error)
        self._was_told.set()

    def turn_until_told(self, times: int) -> None:
        async def turn() -> None:
            async with asyncio.timeout(30):
                while len(self.told) < times:
                    self._was_told.clear()
                    await self._was_told.wait()

        self.loop.run_until_complete(turn())

    def turn(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0.001))


@pytest.fixture
def shell(store: WriteAheadStore) -> Iterator[Shell]:
    shell = Shell(store)
    yield shell
    shell.writer.leave_loop()
    shell.writer.stop()
    shell.loop.close()


def test_the_loop_is_woken_by_the_kernel(shell: Shell, store: WriteAheadStore) -> None:
    for index in range(2, 30):
        shell.writer.write(batch_of(index))
        shell.turn_until_told(index - 1)
    assert shell.told == [None] * 28
    assert store.read_entry(1, 29).index == 29


def test_a_loop_that_looks_is_not_woken(shell: Shell, store: WriteAheadStore) -> None:
    direct = store._files.direct
    assert direct is not None
    shell.writer.write(batch_of(2), wakes=False)
    for _ in range(20):
        shell.turn()
    assert shell.told == []
    shell.writer.look()
    shell.turn_until_told(1)
    assert shell.told == [None]
    shell.writer.write(batch_of(3))
    shell.turn_until_told(2)
    assert store.read_entry(1, 3).index == 3


def test_a_loop_that_looks_too_early_is_woken(shell: Shell) -> None:
    for index in range(2, 30):
        shell.writer.write(batch_of(index), wakes=False)
        shell.writer.look()
        shell.turn_until_told(index - 1)
    assert shell.told == [None] * 28


def test_an_error_is_told_in_the_loop(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: DirectWrites) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(DirectWrites, "result", fails)
    shell.writer.write(batch_of(2))
    shell.turn_until_told(1)
    assert isinstance(shell.told[0], DiskFailed)
    shell.writer.write(batch_of(2))
    assert len(shell.told) == 1
    shell.turn_until_told(2)
    assert isinstance(shell.told[1], DiskFailed)


def test_a_batch_under_way_is_on_disk_when_the_writer_has_stopped(store: WriteAheadStore) -> None:
    shell = Shell(store)
    shell.writer.write(batch_of(2))
    shell.writer.leave_loop()
    shell.writer.stop()
    shell.turn()
    shell.writer.look()
    assert shell.told == []
    assert store.read_entry(1, 2).index == 2
    shell.loop.close()


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_disk_that_hangs_does_not_hold_the_loop_that_is_left(
    store: WriteAheadStore, monkeypatch: pytest.MonkeyPatch, ends_well: bool
) -> None:
    """The loop has to hear a second SIGTERM, which does not wait for the disk."""
    real, held, waiting = DirectWrites.ended, threading.Event(), threading.Event()
    in_loop: list[bool] = []

    def ended(self: DirectWrites, wait: bool = False) -> bool:
        if not held.is_set():
            waiting.set()
            if not wait:
                return False
            in_loop.append(threading.current_thread() is threading.main_thread())
            assert in_loop[-1] or held.wait(30)
        done = real(self, wait)
        if not ends_well:
            self._event.result = -errno.EAGAIN
        return done

    monkeypatch.setattr(DirectWrites, "ended", ended)
    shell = Shell(store)
    shell.writer.write(batch_of(2))
    shell.writer.leave_loop()
    shell.writer.look()
    stopping = threading.Thread(target=shell.writer.stop)
    stopping.start()
    assert waiting.wait(30)
    held.set()
    stopping.join(30)
    assert in_loop == [False]
    shell.turn()
    assert shell.told == []
    assert store.read_entry(1, 2).index == 2
    shell.loop.close()


def test_an_end_that_cannot_be_asked_for_fails_the_store_and_leaves_it_open_to_be_closed(
    store: WriteAheadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: DirectWrites, wait: bool = False) -> bool:
        raise OSError(errno.EPERM, "Operation not permitted")

    assert store.begin(batch_of(2))
    monkeypatch.setattr(DirectWrites, "ended", fails)
    with pytest.raises(DiskFailed, match="Operation not permitted"):
        store.end()
    with pytest.raises(DiskFailed):
        store.write(batch_of(2))


def gives_up(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Direct writes end with this error from here on, though all that they had to write is there."""
    real = DirectWrites.ended

    def ended(self: DirectWrites, wait: bool = False) -> bool:
        done = real(self, wait)
        self._event.result = -number
        return done

    monkeypatch.setattr(DirectWrites, "ended", ended)


def give_up(store: WriteAheadStore, batch: WriteBatch, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Write the batch directly, which ends with this error; later ones end as they should."""
    gives_up(monkeypatch, number)
    assert store.begin(batch)
    assert store.end(wait=True) is False
    monkeypatch.undo()


def has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: LmdbLogStore, *arguments: int) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(LmdbLogStore, "demand_room", full)


def entries_after_a_crash(folder: Path) -> list[tuple[int, int]]:
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(folder, Path(name) / "log")
        again = WriteAheadStore(Path(name) / "log", MAP_BYTES, segment_bytes=SEGMENT_BYTES)
        entries = again.load()[1].entries
        again.close()
    return entries


ERRORS = [errno.ENOSPC, errno.EAGAIN, errno.EINTR, errno.EOPNOTSUPP, errno.EINVAL]


@pytest.mark.parametrize("number", ERRORS)
def test_what_a_direct_write_that_ended_badly_left_behind_is_cleared_before_a_shorter_record(
    store: WriteAheadStore, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Else a crash behind the shorter one leaves octets that no start could take for anything but damage."""
    give_up(store, batch_of(2, 3000), monkeypatch, number)
    has_no_room(monkeypatch)
    store.write(batch_of(2, 3000))
    monkeypatch.undo()
    store.write(batch_of(3, 10))
    assert entries_after_a_crash(folder) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize("number", ERRORS)
def test_a_batch_that_was_given_up_is_not_replayed_over_what_came_instead(
    store: WriteAheadStore, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Also when the log file is brought up to date between the two, in steps because it is nearly full."""
    give_up(store, batch_of(2, 3000), monkeypatch, number)
    real, calls = LmdbLogStore.write_together, [0]

    def once_full(self: LmdbLogStore, *arguments: Any, **named: Any) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise DiskFull("no room")
        real(self, *arguments, **named)

    monkeypatch.setattr(LmdbLogStore, "write_together", once_full)
    store.settle()
    monkeypatch.undo()
    assert calls[0] == 2
    instead = batch_of(2, 20)
    instead.group(1).entries = [Entry(2, 2, 0, b"instead")]
    store.write(instead)
    store.write(batch_of(3, 10))
    assert entries_after_a_crash(folder) == [(1, 1), (2, 2), (3, 1)]


def test_what_was_given_up_is_cleared_before_the_other_file_takes_records(
    store: WriteAheadStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else there would be two records of one number."""
    index, files = 2, store._files
    while files._ends[files._active] + 5000 < SEGMENT_BYTES:
        store.write(batch_of(index, 1000))
        index += 1
    active = files._active
    give_up(store, batch_of(index, 100), monkeypatch, errno.EAGAIN)
    instead = batch_of(index, 6000)
    instead.group(1).entries[0].term = 2
    store.write(instead)
    assert files._active != active
    entries = [*((each, 1) for each in range(1, index)), (index, 2)]
    assert entries_after_a_crash(folder) == entries


def test_the_same_record_is_written_over_what_is_left_of_it_without_another_sync(
    store: WriteAheadStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up(store, batch_of(2, 3000), monkeypatch, errno.EAGAIN)
    syncs = [0]
    real = os.fdatasync

    def counted(descriptor: int) -> None:
        syncs[0] += 1
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    store.write(batch_of(2, 3000))
    assert syncs == [1]
    store.write(batch_of(3, 10))
    assert syncs == [2]
    assert entries_after_a_crash(folder) == [(1, 1), (2, 1), (3, 1)]


def test_a_direct_write_on_a_disk_without_room_for_anything_is_refused_and_then_made(
    store: WriteAheadStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gives_up(monkeypatch, errno.ENOSPC)

    def no_room(descriptor: int, data: bytes, start: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", no_room)
    for _ in range(5):
        assert not written_or_refused(store, batch_of(2, 3000))
    monkeypatch.undo()
    assert written_or_refused(store, batch_of(2, 3000))
    store.write(batch_of(3, 10))
    assert entries_after_a_crash(folder) == [(1, 1), (2, 1), (3, 1)]


def written_or_refused(store: WriteAheadStore, batch: WriteBatch) -> bool:
    try:
        written_directly(store, batch)
    except DiskFull:
        return False
    return True


# --- what the system is asked for ---------------------------------------------------------------------

WRITER = """
import sys
from mayfly.cluster.log.write_ahead_format import FILE_HEADER_BYTES
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from tests.cluster.store.test_direct_writes import batch_of, written_directly

store = WriteAheadStore(sys.argv[1], 64 << 20)
store.open_direct()
store.write(batch_of(1))
for index in range(2, 6):
    assert written_directly(store, batch_of(index))
store.close()
"""


def test_a_direct_write_is_a_synced_one(folder: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    traced = subprocess.run(
        ["strace", "-f", "-y", "-e", "trace=io_submit,openat", sys.executable, "-c", WRITER, str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ptrace" in traced.stderr and traced.returncode:
        pytest.skip(f"strace may not trace here: {traced.stderr.strip()}")
    assert traced.returncode == 0, traced.stderr
    direct = [line for line in traced.stderr.splitlines() if re.search(r"ahead-[12]\", .*O_DIRECT\b", line)]
    assert len(direct) == 2
    assert all("O_DSYNC" in line for line in direct)
    durable = {int(re.findall(r"= (\d+)", line)[-1]) for line in direct}
    calls = [line for line in traced.stderr.splitlines() if "io_submit(" in line]
    assert len(calls) == 4
    for call in calls:
        assert int(re.findall(r"aio_fildes=(\d+)", call)[0]) in durable, call


def test_records_end_where_the_next_begin(store: WriteAheadStore) -> None:
    """A last block that is remembered wrongly would write over what was confirmed."""
    for index in range(2, 60):
        written_directly(store, batch_of(index, 1 + (index * 997) % 9000))
        files = store._files
        end, block = files._ends[files._active], files._last_blocks[files._active]
        image = files._paths[files._active].read_bytes()
        assert block == image[end - end % BLOCK_BYTES : end]
        os.posix_fadvise(files._descriptors[files._active], 0, 0, os.POSIX_FADV_DONTNEED)
