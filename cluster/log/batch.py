"""What a log store is asked to write, what it gives back at start, and how it fails.

A node has one store for all its groups. Everything that became due at the same moment, for all
groups, goes into one `WriteBatch`: one transaction, one sync. A batch is written whole or not at all.
"""

from collections.abc import Iterator
from typing import Protocol

from mayfly.cluster.raft import Entry, HardState, SnapshotMetadata


class LogError(Exception):
    """Base of everything a log store raises on purpose."""


class DiskFull(LogError):
    """There was no room for the batch; the store goes on, try the same batch again later.

    Nothing of it was written, except that the store may have made room with what the batch itself gives up
    (see `WriteBatch.relief`).
    """


class DiskFailed(LogError):
    """A write failed and what is on disk is not known. The store refuses further writes: stop the node."""


class StoreRefused(LogError):
    """The store can't be opened: in use, foreign, of a newer version, or broken. The text names the file."""


class StoreUnfit(StoreRefused):
    """Opening it again would end the same: what is in the folder, or missing from it, does not suit this node."""


class StoreDamaged(StoreUnfit):
    """What is in the folder is not what was written to it, or not all of it."""


class CorruptStore(LogError):
    """A stored record other than an entry doesn't match its checksum, or can't be read."""


class CorruptEntry(CorruptStore):
    """A stored entry doesn't match its checksum, or can't be read."""

    def __init__(self, group: int, index: int, reason: str) -> None:
        super().__init__(f"entry {index} of group {group} is corrupt: {reason}")
        self.group = group
        self.index = index


class MissingEntry(LogError):
    """An entry was asked for that is not stored: never written, truncated, or released."""

    def __init__(self, group: int, index: int) -> None:
        super().__init__(f"entry {index} of group {group} is not stored")
        self.group = group
        self.index = index


class StoredSnapshot:
    """The state machine's state at one index; the entries that state refers to are kept as entries."""

    __slots__ = ("metadata", "state")

    def __init__(self, metadata: SnapshotMetadata, state: bytes) -> None:
        self.metadata: SnapshotMetadata = metadata
        self.state: bytes = state

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredSnapshot):
            return False
        return self.metadata == other.metadata and self.state == other.state

    def __hash__(self) -> int:
        return hash((self.metadata, self.state))

    def __repr__(self) -> str:
        return f"StoredSnapshot({self.metadata!r} {len(self.state)} bytes)"


class LiveEntries(Protocol):
    """Entries in ascending order that need not be in memory; they can be gone through more than once."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Entry]: ...


class GroupWrite:
    """What is written for one group. The parts take effect in the order in which they stand here.

    - ``install``: ``snapshot`` came from the leader; the group's whole log is dropped first.
    - ``snapshot``: replaces the stored one. Entries at or below its index stay until they are released.
    - ``live_entries``: only with ``install``; entries at or below the snapshot's index that its state refers
      to, ascending.
    - ``entries``: appended. Stored entries with an index >= that of the first are replaced, and everything
      after the last new one is removed. They follow the log without a gap, above the snapshot.
    - ``release``: indices of entries to delete, in any order, each at or below the snapshot's index;
      those that are not stored are passed over.
    - ``hard_state``: replaces the stored one.

    A write that breaks these rules is a mistake of the caller: the store raises `ValueError` and writes
    nothing of the batch. A group's first write of all is an install.
    """

    __slots__ = ("checksums", "entries", "group", "hard_state", "install", "live_entries", "release", "snapshot")

    def __init__(self, group: int) -> None:
        self.group: int = group
        self.hard_state: HardState | None = None
        self.entries: list[Entry] = []
        self.checksums: list[int] = []
        """Of `entries`, if the store has computed them already; else empty."""
        self.snapshot: StoredSnapshot | None = None
        self.install: bool = False
        self.live_entries: LiveEntries = []
        self.release: list[int] = []

    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.hard_state is None and not self.entries and self.snapshot is None and not self.release

    def validate(self, snapshot_index: int, last_index: int, overtaking: bool = False) -> None:
        """Check the rules above against the group as stored (0, 0 when it is not). Raises `ValueError`.

        `overtaking`: a snapshot may be stored before the entries that lead up to it (`LmdbLogStore.relieve`)."""
        if self.install:
            if self.snapshot is None:
                raise self._mistake("install without a snapshot")
            snapshot_index = last_index = self.snapshot.metadata.index
            previous = 0
            for entry in self.live_entries:
                if not previous < entry.index <= snapshot_index:
                    raise self._mistake(f"live entry {entry.index} out of order or above the snapshot")
                previous = entry.index
        elif len(self.live_entries):
            raise self._mistake("live entries without install")
        elif self.snapshot is not None:
            if not snapshot_index <= self.snapshot.metadata.index <= last_index and not overtaking:
                raise self._mistake(f"snapshot not within the log {snapshot_index}..{last_index}")
            snapshot_index = self.snapshot.metadata.index
        if self.entries:
            expected = self.entries[0].index
            if expected > last_index + 1 or (expected <= snapshot_index and not overtaking):
                raise self._mistake(f"entry {expected} doesn't fit the log {snapshot_index}..{last_index}")
            for entry in self.entries:
                if entry.index != expected:
                    raise self._mistake(f"entry {entry.index} where {expected} was due")
                expected += 1
        if self.release and max(self.release) > snapshot_index:
            raise self._mistake(f"release of entry {max(self.release)} above the snapshot {snapshot_index}")

    def _mistake(self, text: str) -> ValueError:
        return ValueError(f"group {self.group}: {text}")


class WriteBatch:
    """Everything to be written at once, for all groups of the node."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[int, GroupWrite] = {}

    def group(self, group: int) -> GroupWrite:
        """The write of a group, made on first use."""
        write = self.groups.get(group)
        if write is None:
            write = self.groups[group] = GroupWrite(group)
        return write

    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return all(write.empty() for write in self.groups.values())

    def relief(self) -> "WriteBatch":
        """The part that gives up space: releases, and the snapshots that allow them.

        Without it a full store could never recover: what is to be deleted waits in the batch that doesn't
        fit. Writing the whole batch after its relief has the same outcome as writing it alone.

        What frees an entry is committed, and a restart has to know that, or it would look for the entry: the commit
        index goes with it, as far as the log is stored without this batch.
        """
        relief = WriteBatch()
        for number, write in self.groups.items():
            if write.release and not write.install:
                part = relief.group(number)
                part.snapshot = write.snapshot
                part.release = write.release
                state = write.hard_state
                if state is not None:
                    stored = write.entries[0].index - 1 if write.entries else state.commit
                    part.hard_state = HardState(state.term, state.vote, min(state.commit, stored))
        return relief


class StoredGroup:
    """What is stored of one group.

    ``entries`` are the (index, term) of the entries above the snapshot, without a gap. ``retained`` are the
    indices of stored entries at or below it, ascending: live ones, and dead ones whose release was
    lost with a crash. The host releases those that its state machine doesn't call live.

    ``damage`` says what in the snapshot or the log is damaged, naming group and index; nothing of the two may be
    used then (see `cluster.group.rebuilding`). The hard state is intact. ``last_index`` is the highest index that the
    group is known to have had. ``given_up`` is term and index of the last entry of a log that this node had before, and
    gave up: no store sets it.
    """

    __slots__ = ("damage", "entries", "given_up", "hard_state", "last_index", "retained", "snapshot")

    def __init__(
        self,
        hard_state: HardState,
        snapshot: StoredSnapshot | None,
        entries: list[tuple[int, int]],
        retained: list[int],
    ) -> None:
        self.hard_state: HardState = hard_state
        self.snapshot: StoredSnapshot | None = snapshot
        self.entries: list[tuple[int, int]] = entries
        self.retained: list[int] = retained
        self.damage: str = ""
        self.given_up: tuple[int, int] = (0, 0)
        self.last_index: int = 0 if snapshot is None else snapshot.metadata.index
        if entries:
            self.last_index = entries[-1][0]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StoredGroup)
            and self.hard_state == other.hard_state
            and self.snapshot == other.snapshot
            and self.entries == other.entries
            and self.retained == other.retained
            and self.damage == other.damage
        )

    def __hash__(self) -> int:
        return hash((self.hard_state, self.snapshot))

    def __repr__(self) -> str:
        return (
            f"StoredGroup({self.hard_state!r}, {self.snapshot!r}, entries={self.entries!r}, "
            f"retained={self.retained!r})"
        )


class LogStore(Protocol):
    """The durable log of a node.

    `write` and `put_meta` block until the data is synced; they are called from one thread at a time.
    `read_entry` and `get_meta` may be called from any thread, also while a write is under way, and
    then see what was written before it.
    """

    def load(self) -> dict[int, StoredGroup]:
        """All groups as stored. Called, before the first write. What is damaged is told in `StoredGroup.damage`;
        raises `CorruptStore` when it is a hard state, or the store as a whole."""
        ...

    def write(self, batch: WriteBatch) -> None:
        """Write the batch durably, whole or not at all. Raises `DiskFull`, `DiskFailed`, `ValueError`.

        After `DiskFull` the relief of the batch may have been written. Nobody may change the batch while
        this runs.
        """
        ...

    def read_entry(self, group: int, index: int) -> Entry:
        """One entry, its checksum verified. Raises `MissingEntry`, `CorruptEntry`."""
        ...

    def mark_damaged(self, group: int, text: str) -> None:
        """Note durably that `read_entry` found damage in a group, until it is installed anew: `load` tells it."""
        ...

    def get_meta(self, key: str) -> bytes | None:
        """A value of the node's own, None when it was never put."""
        ...

    def put_meta(self, key: str, value: bytes) -> None:
        """Store a value of the node's own durably. Raises `DiskFull`, `DiskFailed`."""
        ...

    def free_bytes(self) -> int:
        """How many bytes can still be written, about; space freed by releases counts."""
        ...

    def close(self) -> None:
        """Give up files and locks. No call may be under way or follow."""
        ...
