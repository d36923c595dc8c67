"""The watch of a node's disk, with a real log."""

from pathlib import Path
from typing import Any, cast

from mayfly.cluster.log.batch import StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, SnapshotMetadata
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.duties.alarms import disk_watermark
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.resource_watch import ResourceWatch

MIB = 1024 * 1024


def test_what_was_released_ends_the_alarm_of_a_node_that_writes_no_more(tmp_path: Path) -> None:
    """Between the limit and where the alarm ends, too: releases wait in the write-ahead file, and nothing else comes
    that would have them moved, since publishers are blocked."""
    store = WriteAheadStore(tmp_path / "log", 64 * MIB)
    batch = WriteBatch()
    batch.group(1).entries = [Entry(1, index, data=bytes(MIB)) for index in range(1, 21)]
    store.write(batch)
    batch = WriteBatch()
    batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(20, 1, ConfState([1])), b"state")
    store.write(batch)
    batch = WriteBatch()
    batch.group(1).release = list(range(1, 21))
    store.write(batch)
    free_bytes = store.free_bytes()
    watch = ResourceWatch(cast(Any, None), store, cast(Any, None), NodeSettings(), lambda take_in: None)
    disk = disk_watermark(free_bytes - MIB)
    assert disk.look(free_bytes - 2 * MIB)
    assert disk.limit < free_bytes < disk.relief < free_bytes + 20 * MIB
    assert not watch._disk_is_short(disk)
    assert watch.free_bytes is not None
    assert watch.free_bytes > free_bytes + 19 * MIB
    store.close()
