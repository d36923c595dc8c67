"""A copy of a log that is written to opens as the log was at one moment, whatever waited outside the log file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mayfly.cluster.log.batch import WriteBatch
from mayfly.cluster.raft import Entry, HardState
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.cluster.store.write_ahead_store import WriteAheadStore

Store = LmdbLogStore | WriteAheadStore


def batch(index: int) -> WriteBatch:
    """One entry more for two groups."""
    written = WriteBatch()
    for group in (1, 2):
        write = written.group(group)
        write.entries = [Entry(1, index, 0, b"%d of %d" % (index, group))]
        write.hard_state = HardState(1, 1, index)
    return written


@pytest.mark.parametrize("make", [LmdbLogStore, WriteAheadStore])
def test_a_copy_is_the_log_of_one_moment(make: Callable[[Path], Store], tmp_path: Path) -> None:
    store = make(tmp_path / "log")
    for index in range(1, 21):
        store.write(batch(index))
    store.put_meta("identity", b"who")
    store.copy(tmp_path / "copy")
    for index in range(21, 31):
        store.write(batch(index))
    with pytest.raises(OSError):
        store.copy(tmp_path / "copy")
    for _ in range(2):  # the second time it has been opened before
        copied = make(tmp_path / "copy")
        groups = copied.load()
        assert {number: group.last_index for number, group in groups.items()} == {1: 20, 2: 20}
        assert copied.read_entry(2, 20).data == b"20 of 2"
        assert copied.get_meta("identity") == b"who"
        copied.close()
    copied = make(tmp_path / "copy")
    copied.load()
    copied.write(batch(21))
    copied.close()
    assert store.load()[1].last_index == 30
    store.close()
