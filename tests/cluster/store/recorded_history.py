"""The program whose system calls `test_recorded_crashes.py` records: a short history of a store, each step of which is
answered on standard output.

    python recorded_history.py FOLDER
"""

import os
import sys
from pathlib import Path
from typing import Final

from mayfly.cluster.log.batch import LogStore, StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from tests.cluster.store.recorded_disk import ANSWER

MAP_BYTES: Final = 8 << 20
SEGMENT_BYTES: Final = 8 * 1024
STEPS: Final = 22
SNAPSHOT_EVERY: Final = 8
OWN: Final = "own"


def opened(folder: Path) -> WriteAheadStore:
    """A store whose files take turns soon."""
    return WriteAheadStore(folder, MAP_BYTES, "node", SEGMENT_BYTES)


def take_step(store: LogStore, step: int) -> None:
    """One entry, from 1 on; a snapshot that releases what is before it, now and then; values of the node's own."""
    if step % 5 == 0:
        store.put_meta(OWN, b"%d" % step)
        return
    batch = WriteBatch()
    write = batch.group(1)
    index = step - step // 5
    write.entries = [Entry(1, index, 0, b"%d " % index * 300)]
    write.hard_state = HardState(1, 1, index - 1)
    if step % SNAPSHOT_EVERY == 0:
        write.snapshot = StoredSnapshot(SnapshotMetadata(index - 1, 1, ConfState([1])), b"%d" % index * 2_000)
        write.release = [each for each in range(1, index) if each % 3]
    store.write(batch)


def main() -> None:
    """From a new folder to a stop in order."""
    store = opened(Path(sys.argv[1]))
    for step in range(1, STEPS + 1):
        take_step(store, step)
        os.write(1, b"%s %d\n" % (ANSWER, step))
    store.close()


if __name__ == "__main__":
    main()
