"""The log as the algorithm sees it: storage with the unstable end laid over it.

    first index        offset            last index
        |  in storage    |    unstable       |
        ----------------------------------------
               ^applied  ^applying    ^committed

Three positions move to the right only: ``committed`` (a quorum has it), ``applying`` (handed to the state
machine) and ``applied`` (the state machine said so), with applied <= applying <= committed <= last.
"""

from mayfly.cluster.raft.errors import Compacted, RaftError, StorageError, Unavailable
from mayfly.cluster.raft.messages import Entry, EntryType, Snapshot, entry_bytes, limit_entries
from mayfly.cluster.raft.storage import Storage
from mayfly.cluster.raft.unstable import Unstable


class RaftLog:
    """One node's log. Only `append`, `maybe_append` and `restore` change what it holds."""

    def __init__(self, storage: Storage, max_applying_bytes: int, given_up: tuple[int, int] = (0, 0)) -> None:
        """For ``given_up`` see `Config`."""
        first = storage.first_index()
        last = storage.last_index()
        self.storage: Storage = storage
        self.unstable: Unstable = Unstable(last + 1)
        self.committed: int = first - 1
        self.applying: int = first - 1
        self.applied: int = first - 1
        self._max_applying_bytes: int = max_applying_bytes
        self._applying_bytes: int = 0
        self._applying_paused: bool = False
        # Kept here because every message asks for them, and nobody else changes the end of the log.
        self._last_index: int = last
        self._last_term: int = storage.term(last)
        self._given_up: tuple[int, int] = given_up

    def __repr__(self) -> str:
        return (
            f"RaftLog(committed={self.committed}, applying={self.applying}, applied={self.applied}, "
            f"offset={self.unstable.offset}, last={self._last_term}/{self._last_index})"
        )

    def first_index(self) -> int:
        snapshot = self.unstable.snapshot
        return self.storage.first_index() if snapshot is None else snapshot.metadata.index + 1

    def last_index(self) -> int:
        return self._last_index

    def last_term(self) -> int:
        return self._last_term

    def term(self, index: int) -> int:
        """The term of the entry at ``index``. Raises `Compacted` or `Unavailable`."""
        if index == self._last_index:
            return self._last_term
        term = self.unstable.term(index)
        if term >= 0:
            return term
        # The term at first_index() - 1 is kept although the entry is not: appends are matched against it.
        if index + 1 < self.first_index():
            raise Compacted(f"entry {index} is before the first one")
        if index > self._last_index:
            raise Unavailable(f"entry {index} is after the last one, {self._last_index}")
        return self.storage.term(index)

    def term_or_zero(self, index: int) -> int:
        """The term of the entry at ``index``; 0 when it isn't there."""
        try:
            return self.term(index)
        except StorageError:
            return 0

    def matches(self, index: int, term: int) -> bool:
        """Whether the entry at ``index`` is there and has this term (section 5.3, Log Matching)."""
        if index == self._last_index:
            return term == self._last_term
        try:
            return self.term(index) == term
        except StorageError:
            return False

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends so is at least as complete as this one (section 5.4.1), and as one that was given
        up: what was committed with its entries is known to majorities of which this member is one."""
        return (last_term, last_index) >= self.vouched

    @property
    def vouched(self) -> tuple[int, int]:
        """Term and index of the last entry that this member has, or has had before it gave its log up."""
        return max((self._last_term, self._last_index), self._given_up)

    @property
    def is_behind_what_was_given_up(self) -> bool:
        """Whether this log is less complete than one that this member had."""
        return (self._last_term, self._last_index) < self._given_up

    def append(self, entries: list[Entry]) -> int:
        """Put entries in place, dropping what conflicts. Returns the last index.

        Raises `RaftError` when that would touch a committed entry.
        """
        if entries:
            if entries[0].index <= self.committed:
                raise RaftError(f"entry {entries[0].index} is committed and can't be replaced")
            self.unstable.truncate_and_append(entries)
            last = entries[-1]
            self._last_index = last.index
            self._last_term = last.term
        return self._last_index

    def maybe_append(
        self, previous_index: int, previous_term: int, entries: list[Entry], commit: int
    ) -> int:
        """Take entries from a leader if the log agrees before them; figure 2, AppendEntries 2 to 5.

        Returns the last index known to agree with the leader's, or -1 when the previous entry doesn't.
        """
        if not self.matches(previous_index, previous_term):
            return -1
        last_new = previous_index + len(entries)
        if entries:
            if previous_index == self._last_index:
                self.append(entries)
            else:
                position = self._first_difference(entries)
                if position >= 0:
                    self.append(entries[position:])
        self.commit_to(commit if commit < last_new else last_new)
        return last_new

    def _first_difference(self, entries: list[Entry]) -> int:
        """Position of the first entry that isn't in the log with this term, or -1."""
        for position, entry in enumerate(entries):
            if not self.matches(entry.index, entry.term):
                return position
        return -1

    def find_agreement(self, index: int, term: int) -> tuple[int, int]:
        """The last place up to ``index`` where a log whose entry there has ``term`` may agree with this one.

        Returns (index, its term); the term is 0 when that entry is no longer or not yet here.
        """
        while index > 0:
            try:
                ours = self.term(index)
            except StorageError:
                return index, 0
            if ours <= term:
                return index, ours
            index -= 1
        return 0, 0

    def commit_to(self, index: int) -> None:
        """Raise the commit index. Raises `RaftError` when the log doesn't reach so far."""
        if index > self.committed:
            if index > self._last_index:
                raise RaftError(f"commit {index} is after the last entry, {self._last_index}: log lost?")
            self.committed = index

    def maybe_commit(self, index: int, term: int) -> bool:
        """Commit up to ``index`` if that entry is of this term (section 5.4.2). True when it moved."""
        if index > self.committed and term != 0 and self.matches(index, term):
            self.commit_to(index)
            return True
        return False

    def applied_to(self, index: int, byte_count: int) -> None:
        """The state machine has applied everything up to ``index``; ``byte_count`` of it were handed out."""
        if index > self.committed or index < self.applied:
            raise RaftError(f"applied {index} is outside of [{self.applied}, {self.committed}]")
        self.applied = index
        if self.applying < index:
            self.applying = index
        self._applying_bytes = max(0, self._applying_bytes - byte_count)
        self._applying_paused = self._applying_bytes >= self._max_applying_bytes

    def accept_applying(self, index: int, byte_count: int, allow_unstable: bool) -> None:
        """Entries up to ``index`` have been handed out for applying.

        Handing out pauses when the limit is reached, or when the last page was cut short by it.
        """
        if index > self.committed:
            raise RaftError(f"applying {index} is after the commit index {self.committed}")
        self.applying = index
        self._applying_bytes += byte_count
        self._applying_paused = (
            self._applying_bytes >= self._max_applying_bytes or index < self._last_appliable(allow_unstable)
        )

    def has_next_committed(self, allow_unstable: bool) -> bool:
        """Whether entries wait to be applied. A snapshot goes first."""
        if self.applying == self.committed or self._applying_paused or self.unstable.snapshot is not None:
            return False
        return self.applying < self._last_appliable(allow_unstable)

    def next_committed(self, allow_unstable: bool) -> list[Entry]:
        """The next page of entries to apply; entries not yet on disk only with ``allow_unstable``."""
        if not self.has_next_committed(allow_unstable):
            return []
        room = self._max_applying_bytes - self._applying_bytes
        return self.slice(self.applying + 1, self._last_appliable(allow_unstable) + 1, room)

    def _last_appliable(self, allow_unstable: bool) -> int:
        if allow_unstable:
            return self.committed
        return min(self.committed, self.unstable.offset - 1)

    def has_unapplied_conf_change(self) -> bool:
        """Whether a membership change is committed but not applied. Reads page by page.

        What is compacted has been applied, even where `applied_to` wasn't told yet.
        """
        low = max(self.applied + 1, self.first_index())
        while low <= self.committed:
            page = self.slice(low, self.committed + 1, self._max_applying_bytes)
            for entry in page:
                if entry.type != EntryType.NORMAL:
                    return True
            low += len(page)
        return False

    def snapshot(self) -> Snapshot:
        """The newest snapshot. Raises `SnapshotTemporarilyUnavailable`."""
        pending = self.unstable.snapshot
        return self.storage.snapshot() if pending is None else pending

    def restore(self, snapshot: Snapshot) -> None:
        """Begin anew after a snapshot."""
        self.unstable.restore(snapshot)
        self.committed = snapshot.metadata.index
        self._last_index = snapshot.metadata.index
        self._last_term = snapshot.metadata.term

    def entries_from(self, low: int, max_bytes: int) -> list[Entry]:
        """Entries from ``low`` on within the limit; none when ``low`` is after the end.

        Raises `Compacted`.
        """
        if low > self._last_index:
            return []
        return self.slice(low, self._last_index + 1, max_bytes)

    def slice(self, low: int, high: int, max_bytes: int) -> list[Entry]:
        """Entries of ``[low, high)`` within the limit, at least one. Raises `Compacted`, `RaftError`."""
        unstable = self.unstable
        offset = unstable.offset
        if low >= offset:
            return limit_entries(unstable.slice(low, high), max_bytes)
        if low < self.first_index():
            raise Compacted(f"entry {low} is before the first one")
        if high > self._last_index + 1:
            raise RaftError(f"entry {high - 1} is after the last one, {self._last_index}")
        stored_end = min(high, offset)
        stored = self.storage.entries(low, stored_end, max_bytes)
        if high <= offset or len(stored) < stored_end - low:
            return stored
        room = max_bytes - sum([entry_bytes(entry) for entry in stored])
        rest = limit_entries(unstable.slice(offset, high), room)
        if entry_bytes(rest[0]) > room:
            return stored
        return stored + rest
