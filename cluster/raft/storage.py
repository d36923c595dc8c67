"""What the core asks of the place where the durable log lives."""

from typing import Protocol

from mayfly.cluster.raft.messages import ConfState, Entry, HardState, Snapshot


class Storage(Protocol):
    """The durable part of a log: a snapshot, then entries without a gap.

    The core only reads. Writing is the caller's part, as `Ready` tells it to. Answers never change
    behind the core's back, except that the first index grows by compaction.
    """

    def initial_state(self) -> tuple[HardState, ConfState]:
        """The hard state and the membership as of the snapshot, read once at start."""
        ...

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry]:
        """Entries of ``[low, high)``, as many as fit in ``max_bytes`` but at least one.

        Raises `Compacted` when ``low`` is before `first_index`, `Unavailable` when the range isn't there.
        """
        ...

    def term(self, index: int) -> int:
        """The term at an index in ``[first_index() - 1, last_index()]``.

        Raises `Compacted` before that range, `Unavailable` after it.
        """
        ...

    def first_index(self) -> int:
        """Index of the first entry that is kept: one after the snapshot's."""
        ...

    def last_index(self) -> int:
        """Index of the last entry; the snapshot's when there are none."""
        ...

    def snapshot(self) -> Snapshot:
        """The newest snapshot. Raises `SnapshotTemporarilyUnavailable` when it isn't ready."""
        ...
