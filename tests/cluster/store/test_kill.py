"""A writer is killed in the middle of its writes: what it was told is there, and nothing is torn."""

import subprocess
import sys
from pathlib import Path

import pytest

from mayfly.cluster.store.lmdb_store import LmdbLogStore

MAP_BYTES = 256 * 1024 * 1024
GROUPS = 4

WRITER = """
import sys
from mayfly.cluster.log.batch import StoredSnapshot, WriteBatch
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata

store = LmdbLogStore(sys.argv[1], int(sys.argv[2]))
first = store.load()[0].entries[-1][0] + 1 if store.load() else 1
for index in range(first, 100_000):
    batch = WriteBatch()
    for group in range(int(sys.argv[3])):
        write = batch.group(group)
        size = (index * 7919 + group * 104_729) % 30_000
        write.entries = [Entry(index, index, 0, b"%d " % index * (size // 8))]
        write.hard_state = HardState(index, 1, index - 1)
        if index % 10 == 0:
            metadata = SnapshotMetadata(index - 1, index - 1, ConfState([1]))
            write.snapshot = StoredSnapshot(metadata, b"%d" % index)
            write.release = [dead for dead in range(max(1, index - 10), index) if dead % 3]
    store.write(batch)
    print(index, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [3, 47, 120])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, acknowledged: int) -> None:
    told = 0
    for _ in range(2):
        arguments = [sys.executable, "-c", WRITER, str(tmp_path), str(MAP_BYTES), str(GROUPS)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(acknowledged):
                told = int(writer.stdout.readline())
            # It is in the middle of a later write now, at a moment that differs from run to run.
            writer.kill()
            rest = writer.stdout.read().split()
            told = int(rest[-1]) if rest else told
        store = LmdbLogStore(tmp_path, MAP_BYTES)
        groups = store.load()
        assert len(groups) == GROUPS
        ends = {stored.hard_state.term for stored in groups.values()}
        assert len(ends) == 1, "a batch was torn"
        end = ends.pop()
        assert told <= end <= told + 1
        for number, stored in groups.items():
            floor = 0 if stored.snapshot is None else stored.snapshot.metadata.index
            assert floor == max(0, end // 10 * 10 - 1)
            assert stored.entries == [(index, index) for index in range(floor + 1, end + 1)]
            assert stored.retained == list(range(3, floor + 1, 3))
            for index in (*stored.retained, end):
                data = store.read_entry(number, index).data
                assert data == b"%d " % index * ((index * 7919 + number * 104_729) % 30_000 // 8)
        store.close()
