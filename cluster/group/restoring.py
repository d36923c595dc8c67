"""A group of a cluster that was lost, begun anew by one node from copies of what its replicas had stored.

Pure: copies in, batches out. Of several copies the one with the most up-to-date log is taken (by the term and index of
its last entry, as in elections, section 5.4.1 of the Raft paper): it has all that any other knew to be committed.
The node becomes the only voter, so whatever is in that log will be committed; changes of membership in it are void.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mayfly.cluster.group.settings import BOOTSTRAP_INDEX, BOOTSTRAP_TERM
from mayfly.cluster.log.batch import GroupWrite, StoredGroup, StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, EntryType, HardState, SnapshotMetadata

ENTRIES_AT_ONCE: Final = 512

LogEnd = tuple[int, int]
"""Term and index of the last entry of a log; of two logs the one with the higher end is more up to date."""


def log_end(copy: StoredGroup) -> LogEnd:
    """How far the log of a copy goes; (0, 0) for one that is damaged, has nothing or was given up."""
    if copy.damage or copy.snapshot is None or not copy.snapshot.metadata.conf_state.voters:
        return 0, 0
    if copy.entries:
        index, term = copy.entries[-1]
        return term, index
    return copy.snapshot.metadata.term, copy.snapshot.metadata.index


def best_copy(copies: Sequence[StoredGroup | None]) -> int | None:
    """Which of the copies of a group to take, the first of several that are alike; None: none can be used."""
    ends = [(0, 0) if copy is None else log_end(copy) for copy in copies]
    best = max(ends, default=(0, 0))
    return None if best == (0, 0) else ends.index(best)


def begun_anew(group: int, copy: StoredGroup, read: Callable[[int], Entry], node: int) -> Iterator[WriteBatch]:
    """What a fresh store has to be written, batch by batch. `read(index)` gives an entry of the copy, and raises what
    `LogStore.read_entry` does. Raises ValueError for a copy that `best_copy` would not have taken."""
    snapshot = copy.snapshot
    if copy.damage or snapshot is None:
        raise ValueError(f"group {group}: this copy can't be used")
    old = snapshot.metadata
    metadata = SnapshotMetadata(old.index, old.term, ConfState(voters=[node]))
    term, last = log_end(copy)
    batch = WriteBatch()
    write = batch.group(group)
    write.install = True
    write.snapshot = StoredSnapshot(metadata, snapshot.state)
    write.live_entries = _LiveEntries(copy.retained, read)
    write.hard_state = HardState(max(term, copy.hard_state.term), 0, old.index)
    yield batch
    for start in range(0, len(copy.entries), ENTRIES_AT_ONCE):
        batch = WriteBatch()
        write = batch.group(group)
        write.entries = [_without_change(read(index)) for index, _ in copy.entries[start : start + ENTRIES_AT_ONCE]]
        yield batch
    if copy.entries:
        yield _committed(group, max(term, copy.hard_state.term), max(old.index, min(copy.hard_state.commit, last)))


def unused(group: int, node: int) -> WriteBatch:
    """The same for a group that has taken nothing: it begins on this node alone."""
    batch = WriteBatch()
    write = batch.group(group)
    write.install = True
    metadata = SnapshotMetadata(BOOTSTRAP_INDEX, BOOTSTRAP_TERM, ConfState(voters=[node]))
    write.snapshot = StoredSnapshot(metadata, b"")
    write.hard_state = HardState(BOOTSTRAP_TERM, 0, BOOTSTRAP_INDEX)
    return batch


def _committed(group: int, term: int, commit: int) -> WriteBatch:
    batch = WriteBatch()
    write: GroupWrite = batch.group(group)
    write.hard_state = HardState(term, 0, commit)
    return batch


class _LiveEntries:
    """The entries that a snapshot refers to, read when they are needed."""

    def __init__(self, indices: Sequence[int], read: Callable[[int], Entry]) -> None:
        self._indices = indices
        self._read = read

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[Entry]:
        return map(self._read, self._indices)


def _without_change(entry: Entry) -> Entry:
    """An entry that changed the membership becomes one that does nothing, at the same place."""
    return entry if entry.type == EntryType.NORMAL else Entry(entry.term, entry.index)
