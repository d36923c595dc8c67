"""The snapshots that a group has made for members that are behind, kept while they are sent, and for a while longer.

A transfer that broke goes on from where it stopped only with the same snapshot, so the newest one is offered again as
long as it will do. Another one takes its place for members that it can't help; it stays beside that one for those to
whom it is under way. No entry that one of them refers to leaves the log. One that is given up says so
(`OutgoingSnapshot.give_up`): nobody goes on sending what would be of no use.
"""

from collections.abc import Collection
from typing import Final

from mayfly.cluster.group.compaction import Compaction
from mayfly.cluster.log.snapshot_codec import EntryReader, OutgoingSnapshot
from mayfly.cluster.raft import Snapshot, SnapshotMetadata

OFFER_KEPT_MS: Final = 30_000
"""How long a snapshot is kept after it was last under way."""


class _Offer:
    """One snapshot, being made or whole, and the entries that are not deleted because of it."""

    def __init__(self, making: Compaction, entries: frozenset[int]) -> None:
        self.metadata: SnapshotMetadata = making.metadata
        self.entries: frozenset[int] = entries
        self.making: Compaction | None = making
        self.snapshot: Snapshot | None = None

    @property
    def body(self) -> OutgoingSnapshot | None:
        """What is sent of it; None while it is being made."""
        body = None if self.snapshot is None else self.snapshot.body
        return body if isinstance(body, OutgoingSnapshot) else None


class SnapshotOffer:
    """The newest snapshot, those before it that are still under way, and the entries that are not deleted because of
    them."""

    def __init__(self) -> None:
        self._newest: _Offer | None = None
        self._earlier: list[_Offer] = []
        self._held_release: list[int] = []
        self._idle_since_ms: int | None = None

    @property
    def metadata(self) -> SnapshotMetadata | None:
        """Which snapshot is on offer, or will be, if one is."""
        return None if self._newest is None else self._newest.metadata

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held back."""
        return self._newest is None and not self._earlier

    @property
    def total_bytes(self) -> int:
        """Of the largest, as it travels; 0 as long as that is not known."""
        return max((offer.body.total_bytes for offer in self._all() if offer.body is not None), default=0)

    def _all(self) -> list[_Offer]:
        return self._earlier if self._newest is None else [*self._earlier, self._newest]

    def begin(self, making: Compaction, entries: frozenset[int]) -> None:
        """A snapshot that refers to these entries is being made. The one before must have been set aside."""
        self._newest = _Offer(making, entries)
        self._idle_since_ms = None

    def step(self) -> None:
        """Go on making it."""
        if self._newest is not None and self._newest.making is not None:
            self._newest.making.step()

    def fits(self, log_starts_after: int) -> bool:
        """Whether a member can go on from what is on offer or will be, with the log after it."""
        newest = self._newest
        if newest is None or newest.metadata.index < log_starts_after:
            return False
        return newest.making is not None or (newest.body is not None and not newest.body.failed)

    def take(self, group: int, reader: EntryReader) -> Snapshot | None:
        """The snapshot, None while it is still being made."""
        newest = self._newest
        if newest is None:
            return None
        making = newest.making
        if making is not None and making.state is not None:
            body = OutgoingSnapshot(group, making.state, sorted(newest.entries), reader)
            newest.snapshot = Snapshot(making.metadata, making.state, body)
            newest.making = None
        return newest.snapshot

    def hold(self, indices: list[int]) -> list[int]:
        """Of the entries to delete those that can be deleted now; the others are when all is dropped that refers to
        them."""
        offers = self._all()
        if not offers:
            return indices
        held = {index for index in indices if any(index in offer.entries for offer in offers)}
        self._held_release += [index for index in indices if index in held]
        return [index for index in indices if index not in held]

    # ------------------------------------------------------------------ its end

    def set_aside(self) -> list[int]:
        """Another one is to be made: this one is kept for those to whom it is under way, if it can be. Returns the
        entries whose deletion it held up, and nothing holds up any more."""
        newest, self._newest = self._newest, None
        if newest is not None and newest.body is not None and not newest.body.failed:
            self._earlier.append(newest)
        return self._free()

    def mind(self, under_way: Collection[int], now_ms: int) -> list[int]:
        """To be called every tick with the indices of those that are under way: what nobody takes is dropped, the
        newest after a while. Returns what `set_aside` does."""
        for offer in [offer for offer in self._earlier if offer.metadata.index not in under_way]:
            self._earlier.remove(offer)
            _give_up(offer, "a newer one takes its place")
        newest = self._newest
        if newest is not None:
            making = newest.making
            if newest.metadata.index in under_way or (making is not None and making.state is None):
                self._idle_since_ms = None
            elif self._idle_since_ms is None:
                self._idle_since_ms = now_ms
            elif now_ms - self._idle_since_ms >= OFFER_KEPT_MS:
                self._newest = None
                _give_up(newest, "nobody takes it any more")
        return self._free()

    def drop_before(self, index: int, why: str) -> list[int]:
        """Give up what ends before this index. Returns what `set_aside` does."""
        for offer in self._all():
            if offer.metadata.index < index:
                _give_up(offer, why)
                if offer is self._newest:
                    self._newest = None
                else:
                    self._earlier.remove(offer)
        return self._free()

    def _free(self) -> list[int]:
        offers = self._all()
        free = [index for index in self._held_release if not any(index in offer.entries for offer in offers)]
        if free:
            gone = set(free)
            self._held_release = [index for index in self._held_release if index not in gone]
        return free


def _give_up(offer: _Offer, why: str) -> None:
    if offer.body is not None:
        offer.body.give_up(f"it was given up: {why}")
