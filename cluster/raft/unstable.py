"""The end of the log that is not yet known to be on disk."""

from mayfly.cluster.raft.errors import RaftError
from mayfly.cluster.raft.messages import Entry, Snapshot


class Unstable:
    """Entries, and perhaps a snapshot, from the moment they are accepted until storage has them.

    ``entries[i]`` has index ``offset + i``. Those before ``in_progress`` have been handed to the caller
    for writing. ``offset`` may lie below the end of storage: then the next write replaces what is there.
    Lists that are handed out are copies, because this one is changed in place.
    """

    def __init__(self, offset: int) -> None:
        self.offset: int = offset
        self.in_progress: int = offset
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.snapshot_in_progress: bool = False

    def term(self, index: int) -> int:
        """The term at ``index``, or -1 when it isn't known here."""
        position = index - self.offset
        if position >= 0:
            if position < len(self.entries):
                return self.entries[position].term
            return -1
        snapshot = self.snapshot
        if snapshot is not None and snapshot.metadata.index == index:
            return snapshot.metadata.term
        return -1

    def next_entries(self) -> list[Entry]:
        """What has not been handed out for writing."""
        return self.entries[self.in_progress - self.offset :]

    def has_next_entries(self) -> bool:
        return len(self.entries) > self.in_progress - self.offset

    def next_snapshot(self) -> Snapshot | None:
        """The snapshot, unless it has been handed out."""
        return None if self.snapshot_in_progress else self.snapshot

    def accept(self) -> None:
        """Everything here has been handed out for writing."""
        self.in_progress = self.offset + len(self.entries)
        self.snapshot_in_progress = self.snapshot is not None

    def stable_to(self, index: int, term: int) -> None:
        """Storage has the entries up to this one, and no write under way can still replace them.

        Nothing happens when another entry has taken its place meanwhile.
        """
        position = index - self.offset
        if position < 0 or position >= len(self.entries) or self.entries[position].term != term:
            return
        del self.entries[: position + 1]
        self.offset = index + 1
        if self.in_progress < self.offset:
            self.in_progress = self.offset

    def stable_snapshot_to(self, index: int) -> None:
        """Storage has the snapshot of ``index``; a newer one stays."""
        if self.snapshot is not None and self.snapshot.metadata.index == index:
            self.snapshot = None
            self.snapshot_in_progress = False

    def restore(self, snapshot: Snapshot) -> None:
        """Begin anew after a snapshot."""
        self.offset = snapshot.metadata.index + 1
        self.in_progress = self.offset
        self.entries = []
        self.snapshot = snapshot
        self.snapshot_in_progress = False

    def truncate_and_append(self, entries: list[Entry]) -> None:
        """Put entries in place, dropping whatever was at their indices and after."""
        first = entries[0].index
        position = first - self.offset
        held = len(self.entries)
        if position == held:
            self.entries.extend(entries)
        elif position > held:
            raise RaftError(f"entries from {first} leave a gap after {self.offset + held - 1}")
        elif position <= 0:
            self.entries = entries[:]
            self.offset = first
            self.in_progress = first
        else:
            self.entries[position:] = entries
            if self.in_progress > first:
                self.in_progress = first

    def slice(self, low: int, high: int) -> list[Entry]:
        """The entries of ``[low, high)``, all of which must be here."""
        if not self.offset <= low <= high <= self.offset + len(self.entries):
            raise RaftError(f"[{low}, {high}) is not within the {len(self.entries)} from {self.offset}")
        return self.entries[low - self.offset : high - self.offset]
