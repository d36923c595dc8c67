"""A `Storage` of a Raft group that keeps everything in memory."""

from mayfly.cluster.raft import (
    Compacted,
    ConfState,
    Entry,
    HardState,
    Snapshot,
    SnapshotMetadata,
    Unavailable,
    limit_entries,
)


class SnapshotOutOfDate(Exception):
    """There is a snapshot already that is as new."""


class MemoryStorage:
    """A snapshot and the entries after some index, in a list.

    ``_base_index`` and ``_base_term`` name the last entry that is no longer kept: the first index is one
    after it. The snapshot may be older or newer than that.
    """

    def __init__(self) -> None:
        self._hard_state: HardState = HardState()
        self._snapshot: Snapshot = Snapshot()
        self._base_index: int = 0
        self._base_term: int = 0
        self._entries: list[Entry] = []

    def initial_state(self) -> tuple[HardState, ConfState]:
        return self._hard_state, self._snapshot.metadata.conf_state

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry]:
        if low <= self._base_index:
            raise Compacted(f"entry {low} is gone, the first is {self._base_index + 1}")
        if high > self.last_index() + 1:
            raise Unavailable(f"entry {high - 1} is after the last one, {self.last_index()}")
        start = self._base_index + 1
        return limit_entries(self._entries[low - start : high - start], max_bytes)

    def term(self, index: int) -> int:
        offset = index - self._base_index
        if offset > 0:
            if offset > len(self._entries):
                raise Unavailable(f"entry {index} is after the last one, {self.last_index()}")
            return self._entries[offset - 1].term
        if offset < 0:
            raise Compacted(f"entry {index} is gone, the first is {self._base_index + 1}")
        return self._base_term

    def first_index(self) -> int:
        return self._base_index + 1

    def last_index(self) -> int:
        return self._base_index + len(self._entries)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def set_hard_state(self, hard_state: HardState) -> None:
        self._hard_state = hard_state

    def append(self, entries: list[Entry]) -> None:
        """Store entries; what was stored at their indices and after is replaced.

        Entries before the first index are skipped. Raises ValueError when there would be a gap.
        """
        if not entries:
            return
        skip = self._base_index + 1 - entries[0].index
        if skip > 0:
            entries = entries[skip:]
            if not entries:
                return
        position = entries[0].index - self._base_index - 1
        if position > len(self._entries):
            raise ValueError(f"entries from {entries[0].index} leave a gap after {self.last_index()}")
        self._entries[position:] = entries

    def apply_snapshot(self, snapshot: Snapshot) -> None:
        """Replace everything by a snapshot. Raises `SnapshotOutOfDate` when there is one as new."""
        metadata = snapshot.metadata
        if 0 < self._snapshot.metadata.index >= metadata.index:
            raise SnapshotOutOfDate(f"{metadata.index} is not after {self._snapshot.metadata.index}")
        self._snapshot = snapshot
        self._base_index = metadata.index
        self._base_term = metadata.term
        self._entries = []

    def create_snapshot(self, index: int, conf_state: ConfState | None, data: bytes) -> Snapshot:
        """Make and keep a snapshot of the state at ``index``; the entries stay until `compact`.

        Without ``conf_state`` the one of the snapshot before is kept. Raises `SnapshotOutOfDate`.
        """
        if index <= self._snapshot.metadata.index:
            raise SnapshotOutOfDate(f"{index} is not after {self._snapshot.metadata.index}")
        members = conf_state if conf_state is not None else self._snapshot.metadata.conf_state
        self._snapshot = Snapshot(SnapshotMetadata(index, self.term(index), members), data)
        return self._snapshot

    def compact(self, index: int) -> None:
        """Drop the entries up to and including ``index``. Raises `Compacted`, `Unavailable`."""
        if index <= self._base_index:
            raise Compacted(f"entry {index} is gone already")
        self._base_term = self.term(index)
        del self._entries[: index - self._base_index]
        self._base_index = index
