"""The snapshot that a group has made for members that are behind, kept so that a broken transfer can go on.

A transfer that broke goes on from where it stopped only with the same snapshot. While it is on offer no entry that it
refers to leaves the log.
"""

from typing import Final

from mayfly.cluster.group.compaction import Compaction
from mayfly.cluster.log.snapshot_codec import EntryReader, OutgoingSnapshot
from mayfly.cluster.raft import ConfState, Snapshot, SnapshotMetadata

OFFER_KEPT_MS: Final = 30_000
"""How long a snapshot is kept after it was last under way."""


class SnapshotOffer:
    """At most one snapshot, being made or whole, and the entries that are not deleted because of it."""

    def __init__(self) -> None:
        self._making: Compaction | None = None
        self._snapshot: Snapshot | None = None
        self._entries: frozenset[int] = frozenset()
        self._held_release: list[int] = []
        self._idle_since_ms: int | None = None

    @property
    def metadata(self) -> SnapshotMetadata | None:
        """Which snapshot is on offer, or will be, if one is."""
        if self._making is not None:
            return self._making.metadata
        return None if self._snapshot is None else self._snapshot.metadata

    def begin(self, making: Compaction, entries: frozenset[int]) -> None:
        """A snapshot that refers to these entries is being made; the one before must have been dropped."""
        self._making = making
        self._entries = entries

    def step(self) -> None:
        """Go on making it."""
        if self._making is not None:
            self._making.step()

    def fits(self, log_starts_after: int, members: ConfState) -> bool:
        """Whether a member can go on from what is on offer or will be: with the log after it, among these members."""
        metadata = self.metadata
        if metadata is None or metadata.index < log_starts_after or metadata.conf_state != members:
            return False
        body = None if self._snapshot is None else self._snapshot.body
        return self._making is not None or (isinstance(body, OutgoingSnapshot) and not body.failed)

    def take(self, group: int, reader: EntryReader) -> Snapshot | None:
        """The snapshot, None while it is still being made."""
        making = self._making
        if making is not None and making.state is not None:
            body = OutgoingSnapshot(group, making.state, sorted(self._entries), reader)
            self._snapshot = Snapshot(making.metadata, making.state, body)
            self._making = None
        return self._snapshot

    def hold(self, indices: list[int]) -> list[int]:
        """Of the entries to delete those that can be deleted now; the others are when the offer is dropped."""
        if self.metadata is None:
            return indices
        self._held_release += [index for index in indices if index in self._entries]
        return [index for index in indices if index not in self._entries]

    def is_stale(self, under_way: bool, now_ms: int) -> bool:
        """To be asked every tick: whether it is there, and has not been under way for long."""
        if self.metadata is None:
            return False
        if under_way or (self._making is not None and self._making.state is None):
            self._idle_since_ms = None
        elif self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        return self._idle_since_ms is not None and now_ms - self._idle_since_ms >= OFFER_KEPT_MS

    def drop(self) -> list[int]:
        """Offer nothing any more; returns the entries whose deletion it held up."""
        held, self._held_release = self._held_release, []
        self._making = None
        self._snapshot = None
        self._entries = frozenset()
        self._idle_since_ms = None
        return held
