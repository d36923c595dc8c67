"""Groups begun anew from copies: which copy is taken, and what is written."""

import pytest

from mayfly.cluster.group.restoring import ENTRIES_AT_ONCE, begun_anew, best_copy, log_end
from mayfly.cluster.log.batch import StoredGroup, StoredSnapshot
from mayfly.cluster.raft import ConfState, Entry, EntryType, HardState, SnapshotMetadata
from simulation.cluster.memory_store import MemoryStore


def copy(term: int, last: int, first: int = 4) -> StoredGroup:
    """A log with a snapshot at 4, and entries up to `last` of one term."""
    metadata = SnapshotMetadata(4, 2, ConfState(voters=[1, 2, 3]))
    entries = [(index, term) for index in range(first + 1, last + 1)]
    return StoredGroup(HardState(term, 3, min(6, last)), StoredSnapshot(metadata, b"state"), entries, [2, 3])


def test_the_most_up_to_date_log_is_taken() -> None:
    damaged = copy(9, 9)
    damaged.damage = "rotten"
    assert best_copy([copy(2, 9), copy(3, 7), copy(3, 8), copy(3, 8), damaged, None]) == 2
    assert best_copy([copy(2, 4), copy(2, 5)]) == 1
    assert log_end(copy(2, 4)) == (2, 4)
    assert best_copy([damaged, None]) is None
    assert best_copy([]) is None
    with pytest.raises(ValueError, match="group 1: this copy can't be used"):
        next(begun_anew(1, damaged, lambda index: Entry(), 2))


def test_one_voter_and_nobody_comes_back_by_the_log() -> None:
    """State, live entries and log are as they were, but for changes of the membership; what was known to be committed
    stays so, in a term that nobody voted in."""
    last = 5 + ENTRIES_AT_ONCE
    change = Entry(3, 6, EntryType.CONF_CHANGE_V2, b"change")

    def read(index: int) -> Entry:
        return change if index == 6 else Entry(3, index, EntryType.NORMAL, b"%d" % index)

    store = MemoryStore()
    for batch in begun_anew(1, copy(3, last), read, 2):
        store.write(batch)
    stored = store.load()[1]
    assert stored.snapshot is not None
    assert stored.snapshot.metadata.conf_state == ConfState(voters=[2])
    assert (stored.snapshot.metadata.index, stored.snapshot.state) == (4, b"state")
    assert stored.retained == [2, 3]
    assert stored.entries == [(index, 3) for index in range(5, last + 1)]
    assert stored.hard_state == HardState(3, 0, 6)
    assert [store.read_entry(1, index).data for index in (3, 5, 6, last)] == [b"3", b"5", b"", b"%d" % last]
    assert store.read_entry(1, 6).type == EntryType.NORMAL
