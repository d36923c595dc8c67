"""The snapshot that a group has made for members that are behind, kept so that a broken transfer can go on.

A transfer that broke goes on from where it stopped only with the same snapshot. While it is on offer no entry that it
refers to leaves the log.
"""

from typing import Final

from cluster.log.snapshot_codec import OutgoingSnapshot
from cluster.raft import ConfState, Snapshot, SnapshotMetadata

OFFER_KEPT_MS: Final = 30_000
"""How long a snapshot is kept after it was last under way."""


class SnapshotOffer:
    """At most one snapshot, and the entries that are not deleted because of it."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._entries: frozenset[int] = frozenset()
        self._held_release: list[int] = []
        self._idle_since_ms: int | None = None

    @property
    def metadata(self) -> SnapshotMetadata | None:
        """Which snapshot is on offer, if one is."""
        return None if self._snapshot is None else self._snapshot.metadata

    def make(self, snapshot: Snapshot, entries: frozenset[int]) -> None:
        """Offer this one, which refers to these entries; the one before must have been dropped."""
        self._snapshot = snapshot
        self._entries = entries

    def find(self, log_starts_after: int, members: ConfState) -> Snapshot | None:
        """The snapshot, if a member can go on from it: with the log after it, and among these members."""
        snapshot = self._snapshot
        if snapshot is None:
            return None
        metadata, body = snapshot.metadata, snapshot.body
        if metadata.index < log_starts_after or metadata.conf_state != members:
            return None
        return snapshot if isinstance(body, OutgoingSnapshot) and not body.failed else None

    def hold(self, indices: list[int]) -> list[int]:
        """Of the entries to delete those that can be deleted now; the others are when the offer is dropped."""
        if self._snapshot is None:
            return indices
        self._held_release += [index for index in indices if index in self._entries]
        return [index for index in indices if index not in self._entries]

    def is_stale(self, under_way: bool, now_ms: int) -> bool:
        """To be asked every tick: whether it has not been under way for long."""
        if self._snapshot is None:
            return False
        if under_way:
            self._idle_since_ms = None
        elif self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        return self._idle_since_ms is not None and now_ms - self._idle_since_ms >= OFFER_KEPT_MS

    def drop(self) -> list[int]:
        """Offer nothing any more; returns the entries whose deletion it held up."""
        held, self._held_release = self._held_release, []
        self._snapshot = None
        self._entries = frozenset()
        self._idle_since_ms = None
        return held
