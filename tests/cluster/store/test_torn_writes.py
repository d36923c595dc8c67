"""A crash at any point of a write leaves the store as before or as after it: with every byte a disk may lose.

The images of `crash_images` are composed from the real data file of the real store, before and after a commit, and
opened. That the writes come in the order which the images presume is shown by the flags of the environment and by
the system calls themselves.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import lmdb
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mayfly.cluster.log.batch import LogStore, StoreDamaged, StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.store.crash_images import META_PAGES, PAGE_BYTES, SECTOR_BYTES, Commit, DataFile
from tests.cluster.store.histories import MAP_BYTES, histories, shown_groups
from tests.waiting import BOUND_S

IMAGES_OF_A_COMMIT = 4
NOTE = "last-commit"
IN_MEMORY = Path("/dev/shm")
"""Syncs cost nothing here. What a crash leaves is composed, so none of them has to be real."""

Shown = tuple[dict[int, object], list[Entry]]


def shown(store: LogStore) -> Shown:
    """All that a store shows: what it loads, and every entry of it read back."""
    groups = store.load()
    entries = [
        store.read_entry(number, index)
        for number, group in groups.items()
        for index in [*group.retained, *[index for index, _ in group.entries]]
    ]
    return shown_groups(store), entries


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def opened(image: DataFile, like: Path, note: bytes) -> Iterator[LmdbLogStore]:
    """The store on an image of its data file, beside the other files of a folder; `note` is of its last commit."""
    with folder() as path:
        shutil.copy(like / "format", path)
        (path / NOTE).write_bytes(note)
        image.write(path / "data.mdb")
        store = LmdbLogStore(path, MAP_BYTES)
        try:
            yield store
        finally:
            store.close()


def check_image(
    image: DataFile, like: Path, note: bytes, expected: Shown, batch: WriteBatch | None, after: Shown
) -> None:
    """The image shows what is expected of it; and the store works on: the batch, if given, leads to `after`."""
    with opened(image, like, note) as store:
        assert shown(store) == expected
        if batch is not None:
            store.write(batch)
            assert shown(store) == after
        store.put_meta("again", b"yes")
        again, note = DataFile.read(store._folder.data_file), (store._folder.path / NOTE).read_bytes()
    with opened(again, like, note) as store:
        assert shown(store) == after
        assert store.get_meta("again") == b"yes"


@pytest.mark.parametrize("examples", [8, pytest.param(25, marks=pytest.mark.slow)])
def test_every_image_of_a_crash_shows_the_old_state_or_the_new_one(examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )
    @given(histories(), st.integers(0, 1 << 32))
    def look(history: list[WriteBatch | None], seed: int) -> None:
        with folder() as path:
            live_through(path, history, Random(seed))

    look()


def live_through(path: Path, history: list[WriteBatch | None], random: Random) -> None:
    """Write a history; look at images of a crash in each of its commits; go on from one of them."""
    data = path / "data.mdb"
    store, model = LmdbLogStore(path, MAP_BYTES), MemoryStore()
    for batch in history:
        if batch is None:
            store.close()
            store = LmdbLogStore(path, MAP_BYTES)
            continue
        try:
            model.check(batch)
        except ValueError:
            continue  # It built on a write that a crash has lost.
        old, before, old_note = shown(store), DataFile.read(data), (path / NOTE).read_bytes()
        store.write(batch)
        notes = [old_note, torn(old_note, (path / NOTE).read_bytes(), random), (path / NOTE).read_bytes()]
        new, commit = shown(store), Commit(before, DataFile.read(data))
        assert len(commit.changed_meta_sectors()) <= 1
        for _ in range(IMAGES_OF_A_COMMIT):
            check_image(commit.not_synced(random), path, old_note, old, batch, new)
        check_image(commit.synced(random), path, old_note, old, batch, new)
        for note in notes:
            check_image(commit.finished(random), path, note, new, None, new)
        fate = random.choice(("no crash", "no crash", "not synced", "finished"))
        event(fate)
        if fate != "not synced":
            model.write(batch)
        if fate != "no crash":
            store.close()
            image = commit.finished(random) if fate == "finished" else commit.not_synced(random)
            image.write(data)
            (path / NOTE).write_bytes(random.choice(notes) if fate == "finished" else old_note)
            store = LmdbLogStore(path, MAP_BYTES)
        assert shown(store) == shown(model)
    store.close()


def torn(before: bytes, after: bytes, random: Random) -> bytes:
    """What a crash while a note is written may leave: any of its sectors."""
    return b"".join(
        random.choice((before, after))[start : start + SECTOR_BYTES] for start in range(0, len(after), SECTOR_BYTES)
    )


# --- the first start ---------------------------------------------------------------------------------


def first_start(path: Path) -> list[DataFile]:
    """The data file after each step of a first start: nothing, LMDB's empty file, the finished log."""
    with folder() as empty:
        lmdb.open(str(empty), map_size=MAP_BYTES, max_dbs=4).close()
        prepared = DataFile.read(empty / "data.mdb")
    LmdbLogStore(path, MAP_BYTES, "cluster/1").close()
    return [DataFile(bytes(META_PAGES * PAGE_BYTES), 0), prepared, DataFile.read(path / "data.mdb")]


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_during_the_first_start_leaves_a_folder_that_can_be_started(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    nothing, prepared, finished = first_start(tmp_path / "whole")
    # Nothing is synced before the first commit: any sector may be missing, also of the meta pages.
    content = bytearray(len(finished.content))
    for start in range(0, len(content), SECTOR_BYTES):
        source = prepared.content if start < META_PAGES * PAGE_BYTES else finished.content
        if random.random() < random.choice((0.1, 0.5, 0.9, 1.0)):
            content[start : start + SECTOR_BYTES] = source[start : start + SECTOR_BYTES]
    length = random.choice((0, 100, PAGE_BYTES, META_PAGES * PAGE_BYTES, len(content)))
    path = tmp_path / "crashed"
    path.mkdir()
    DataFile(bytes(content), length).write(path / "data.mdb")
    for _ in range(2):
        store = LmdbLogStore(path, MAP_BYTES, "cluster/1")
        assert store.load() == {}
        store.close()
    assert nothing.length_bytes == 0


def test_the_first_start_is_one_commit(tmp_path: Path) -> None:
    """Two of them could leave tables without the format, which is refused as foreign."""
    LmdbLogStore(tmp_path, MAP_BYTES, "cluster/1").close()
    with lmdb.open(str(tmp_path), map_size=MAP_BYTES, max_dbs=4) as environment:
        assert environment.info()["last_txnid"] == 1


def test_a_file_that_lost_its_meta_pages_is_begun_anew_only_where_no_start_was_finished(tmp_path: Path) -> None:
    LmdbLogStore(tmp_path, MAP_BYTES).close()
    with (tmp_path / "data.mdb").open("r+b") as file:
        file.write(bytes(META_PAGES * PAGE_BYTES))
    (tmp_path / NOTE).unlink()
    with pytest.raises(StoreDamaged, match="is damaged"):
        LmdbLogStore(tmp_path, MAP_BYTES)
    (tmp_path / "format").unlink()
    LmdbLogStore(tmp_path, MAP_BYTES).close()


# --- the order of writes -----------------------------------------------------------------------------


def test_lmdb_syncs_data_before_the_meta_page_that_makes_them_count(tmp_path: Path) -> None:
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    flags = store._environment.flags()
    store.close()
    assert flags["sync"], "MDB_NOSYNC would leave both to the system"
    assert flags["metasync"], "MDB_NOMETASYNC would confirm what a crash may still undo"
    assert not flags["map_async"]
    assert not flags["writemap"], "MDB_WRITEMAP would let the system write a page whenever it likes"
    assert flags["lock"]


WRITER = """
import os, sys
from mayfly.cluster.log.batch import WriteBatch
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.raft import Entry, HardState

store = LmdbLogStore(sys.argv[1], 64 << 20)
for index in range(1, 6):
    batch = WriteBatch()
    batch.group(1).entries = [Entry(1, index, 0, bytes(index * 3000))]
    batch.group(1).hard_state = HardState(1, 1, index)
    store.write(batch)
    os.getppid()  # A mark in the list of system calls.
store.close()
"""


def test_the_system_calls_of_a_commit_are_in_the_order_that_the_images_presume(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    calls = tmp_path / "calls"
    wanted = "openat,write,writev,pwrite64,pwritev,fsync,fdatasync,msync,sync_file_range,mmap,getppid"
    traced = subprocess.run(
        ["strace", "-f", "-y", "-e", f"trace={wanted}", "-o", str(calls),
         sys.executable, "-c", WRITER, str(tmp_path / "log")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ptrace" in traced.stderr and traced.returncode:
        pytest.skip(f"strace may not trace here: {traced.stderr.strip()}")
    assert traced.returncode == 0, traced.stderr
    listing = calls.read_text(errors="replace")
    maps = [line for line in listing.splitlines() if "data.mdb" in line and "mmap(" in line]
    assert maps and not any("PROT_WRITE" in line for line in maps), "nothing is written past the system calls"
    # openat(AT_FDCWD, ".../data.mdb", O_WRONLY|O_DSYNC|O_CLOEXEC) = 6<...>: through it go the meta pages.
    durable = re.search(r'data\.mdb", O_WRONLY\|O_DSYNC\|O_CLOEXEC\) = (\d+)', listing)
    assert durable
    commits = [steps_of_a_commit(part, durable.group(1)) for part in listing.split("getppid(")[1:-1]]
    assert len(commits) == 4
    assert commits == [["data", "sync", "meta"]] * 4


def steps_of_a_commit(listing: str, durable_descriptor: str) -> list[str]:
    """What was done to the data file, repeats left out."""
    steps: list[str] = []
    for line in listing.splitlines():
        if "data.mdb" not in line:
            continue
        call, descriptor = re.findall(r"(\w+)\((\d+)", line)[0]
        if call == "pwrite64" and descriptor == durable_descriptor:
            size, start = (int(number) for number in re.findall(r"(\d+), (\d+)\) += \d+", line)[0])
            assert start % SECTOR_BYTES + size <= SECTOR_BYTES, "the meta page's change lies within one sector"
            assert start < META_PAGES * PAGE_BYTES
            step = "meta"
        elif call in ("fdatasync", "fsync"):
            step = "sync"
        else:
            step = "data"
        if steps[-1:] != [step]:
            steps.append(step)
    return steps


# --- the check can fail ------------------------------------------------------------------------------

READER = """
import sys
from mayfly.cluster.store.lmdb_store import LmdbLogStore

store = LmdbLogStore(sys.argv[1], 64 << 20)
groups = store.load()
for number, group in sorted(groups.items()):
    entries = [store.read_entry(number, index) for index in group.retained + [index for index, _ in group.entries]]
    print(number, group, repr(group.damage), [(entry.index, entry.data[:9]) for entry in entries])
"""


def read_elsewhere(image: DataFile, like: Path) -> str:
    """What a process says that reads all of an image; LMDB may take the process with it."""
    with folder() as path:
        shutil.copy(like / "format", path)
        image.write(path / "data.mdb")
        reader = subprocess.run(
            [sys.executable, "-c", READER, str(path)], capture_output=True, text=True, timeout=BOUND_S, check=False
        )
        return reader.stdout if reader.returncode == 0 else f"ended with {reader.returncode}"


def test_a_meta_page_before_its_data_pages_would_be_seen(tmp_path: Path) -> None:
    """Beyond the model: a disk that does not keep the order of a sync. The images above are not all harmless."""
    store = LmdbLogStore(tmp_path, MAP_BYTES)
    for group in (1, 2):
        batch = WriteBatch()
        batch.group(group).entries = [Entry(1, index, 0, b"%d" % index * 900) for index in range(1, 20)]
        store.write(batch)
    before = DataFile.read(tmp_path / "data.mdb")
    batch = WriteBatch()
    batch.group(1).entries = [Entry(2, index, 0, b"%d" % index * 900) for index in range(10, 18)]
    batch.group(2).install = True
    batch.group(2).snapshot = StoredSnapshot(SnapshotMetadata(40, 2, ConfState([1])), b"state" * 2000)
    batch.group(2).hard_state = HardState(2, 1, 40)
    store.write(batch)
    store.close()
    commit = Commit(before, DataFile.read(tmp_path / "data.mdb"))
    whole = {read_elsewhere(before, tmp_path), read_elsewhere(commit.after, tmp_path)}
    assert len(whole) == 2
    random = Random(1)
    outcomes = [read_elsewhere(commit.out_of_order(random), tmp_path) for _ in range(12)]
    assert any(outcome not in whole for outcome in outcomes)
