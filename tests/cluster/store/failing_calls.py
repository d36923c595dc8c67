"""The program of `test_failing_disk.py`, behind the library that makes a disk fail: work on a store while one call
after the other fails, and a look at what is there afterwards. Ends with a line that begins with the number of calls
that failed.

    python failing_calls.py write|sync|read|open
"""

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from mayfly.cluster.log.batch import DiskFull, LogError, StoredSnapshot, StoreUnfit, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store.write_ahead_store import WriteAheadStore

DISK: Final = Path(os.environ["FAILING_DISK_FOLDER"])
SWITCH: Final = Path(os.environ["FAILING_DISK_SWITCH"])
MAP_BYTES: Final = 32 << 20
SEGMENT_BYTES: Final = 16 * 1024
BATCHES: Final = 40
BEGUN: Final = 19
SNAPSHOT_EVERY: Final = 7
NEVER_REACHED: Final = 1_000
EVERY_CALL_BELOW: Final = 40


class Written:
    """What the store has said is on disk: up to which entry, and the last value of its own."""

    def __init__(self, entry: int) -> None:
        self.entry = entry
        self.own = 0


def opened(folder: Path) -> WriteAheadStore:
    """A store whose files take turns soon."""
    return WriteAheadStore(folder, MAP_BYTES, "node", SEGMENT_BYTES)


def batch_of(index: int) -> WriteBatch:
    """One entry; now and then a snapshot, which releases most of what is before it."""
    batch = WriteBatch()
    write = batch.group(1)
    write.entries = [Entry(1, index, 0, payload(index))]
    write.hard_state = HardState(1, 1, index - 1)
    if index % SNAPSHOT_EVERY == 0:
        write.snapshot = StoredSnapshot(SnapshotMetadata(index - 1, 1, ConfState([1])), b"%d" % index)
        write.release = [each for each in range(max(1, index - SNAPSHOT_EVERY), index) if each % 3]
    return batch


def payload(index: int) -> bytes:
    """What the entry holds."""
    return b"%d " % index * 300


def work(store: WriteAheadStore, written: Written) -> None:
    """Everything a node does with its store."""
    store.load()
    first = written.entry + 1
    for index in range(first, first + BATCHES):
        batch = batch_of(index)
        with suppress(DiskFull):
            store.write(batch)
            written.entry = index
        if written.entry != index:
            store.write(batch)
            written.entry = index
        if index % 10 == 0:
            store.put_meta("own", b"%d" % index)
            written.own = index
        assert store.read_entry(1, index).data == payload(index)
    store.settle()


def check(folder: Path, written: Written) -> None:
    """All that was written is there, and perhaps what was under way."""
    store = opened(folder)
    group = store.load().get(1)
    last = 0 if group is None else group.last_index
    assert written.entry <= last <= written.entry + 1, f"{last} entries of {written.entry}"
    assert group is None or not group.damage
    assert int(store.get_meta("own") or 0) >= written.own
    floor = last - last % SNAPSHOT_EVERY - 1
    for index in range(max(1, floor - SNAPSHOT_EVERY), last + 1):
        if index > floor or index % 3 == 0:
            assert store.read_entry(1, index).data == payload(index)
    store.close()


def switch(text: str) -> None:
    """What the disk does from now on; a call while all is well begins the count of calls anew."""
    SWITCH.unlink(missing_ok=True)
    (DISK / "counted").write_bytes(b"1")
    if text:
        SWITCH.write_text(text, encoding="utf-8")


def fails_at(call: str, skip: int, most: int, start: Path | None) -> bool:
    """Work on a store while the call after so many fails; whether the store has told of it."""
    folder, written, store = DISK / "log", Written(0), None
    told: LogError | None = None
    if start is not None:
        shutil.copytree(start, folder)
        written = Written(BEGUN)
    switch(f"{call} {skip} {most}")
    try:
        store = opened(folder)
        work(store, written)
    except LogError as error:
        told = error
    if store is not None:
        store.close()
    assert not isinstance(told, StoreUnfit), f"never to be started again, for a call that failed: {told}"
    assert told is None or str(folder) in str(told), f"which file was it? {told}"
    switch("")
    check(folder, written)
    shutil.rmtree(folder)
    return told is not None


def main() -> None:
    """All calls of one kind: with a new folder, and with one as a kill has left it."""
    call = sys.argv[1]
    DISK.mkdir()
    began, killed = DISK / "began", DISK / "killed"
    store = opened(began)
    for index in range(1, BEGUN + 1):
        store.write(batch_of(index))
    shutil.copytree(began, killed)
    store.close()
    failed = 0
    for start in (None, killed):
        for most in (1, 0):
            quiet = 0
            for skip in (*range(EVERY_CALL_BELOW), *range(EVERY_CALL_BELOW, NEVER_REACHED, 5)):
                told = fails_at(call, skip, most, start)
                failed += told
                quiet = 0 if told else quiet + 1
                if quiet > 3:
                    break
    print(f"{failed} calls failed")


if __name__ == "__main__":
    main()
