"""Keeping one group's log short (pure): compaction, the snapshot on offer for who is behind, and entries to delete.

A log that has grown enough gives way to a snapshot of the state, made in steps (`cluster.group.compaction`), and what
no live message needs is deleted. For a member that is behind a snapshot is put on offer
(`cluster.group.snapshot_offer`), which holds back what it refers to. What has to be written of all that goes with the
group's next write (`join`).
"""

from collections.abc import Sequence
from typing import Final

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.compaction import Compaction, times_too_long
from mayfly.cluster.group.followers import Followers
from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.group.snapshot_offer import SnapshotOffer
from mayfly.cluster.log.batch import GroupWrite, StoredGroup, StoredSnapshot
from mayfly.cluster.log.group_log import GroupLog
from mayfly.cluster.raft import (
    ConfState,
    Entry,
    FollowerStatus,
    HardState,
    Snapshot,
    SnapshotMetadata,
    SnapshotTemporarilyUnavailable,
)

HURRIED_COMPACTION: Final = 64
"""While the disk is short of room, logs are compacted at this part of the usual size: what was consumed is to give
its room back, in whatever shards it was."""

TIMES_TOO_LONG: Final = 4
"""A leader compacts a log that has grown this much too long, whether all members have it or not; but it lets those
through who get on (`cluster.group.followers`)..."""

TIMES_TOO_LONG_FOR_ANYBODY: Final = 16
"""...unless its entries take this many times the bytes that are worth a compaction, or that are sent of a snapshot.
How many they are does not matter then: they are quickly sent if they are small."""

END: Final = 1 << 62
"""An index behind the end of any log."""

ENTRY_WEIGHT_BYTES: Final = 64
"""What an entry counts beside its payload when it is asked how much the log has grown."""


class LogUpkeep:
    """Of one replica's log: how much it has grown, and what is to be written to make it short again."""

    def __init__(
        self,
        id: int,
        stored: StoredGroup,
        log: GroupLog,
        applying: Applying,
        settings: GroupSettings,
    ) -> None:
        self._id = id
        self._log = log
        self._applying = applying
        self._settings = settings
        self._commit_at_start = stored.hard_state.commit
        self._compacting: Compaction | None = None
        """The compaction that is being made."""
        self._compaction: GroupWrite | None = None
        """The one that is made, until it is written."""
        self._release: list[int] = []
        """Entries that the next write deletes."""
        self._read_again: list[int] = []
        """Entries that hold nothing live, but what is read when those behind the snapshot are applied again."""
        self._offer: SnapshotOffer = SnapshotOffer()
        self._followers: Followers = Followers()
        self._sent_bytes: int = 0
        """Of the last snapshot that was sent since the last compaction, as it travels."""
        self._log_bytes: int = 0
        self._state_bytes: int = 0 if stored.snapshot is None else len(stored.snapshot.state)
        self.wants_all_to_follow: bool = False
        """On the leader: whether the log is to be compacted as soon as all members have it."""

    # ------------------------------------------------------------------ what happens to the log

    def appended(self, entries: list[Entry]) -> None:
        """These are being written at the end of the log."""
        for entry in entries:
            self._log_bytes += len(entry.data) + ENTRY_WEIGHT_BYTES

    def replaced(self, snapshot: Snapshot) -> None:
        """A snapshot of the leader is being written in place of the log."""
        self._compaction = self._compacting = None
        self._state_bytes = len(snapshot.data)
        self.give_up_offers("one of another leader takes the place of this replica's log")
        self._release = []
        self._read_again = []
        self._log_bytes = 0

    def released(self, indices: list[int]) -> None:
        """These entries hold nothing live any more. Those that are still in the log go with its next compaction."""
        compacted = self._log.snapshot_metadata.index
        below = [index for index in indices if index <= compacted]
        if below:
            self._release += self._offer.hold(self._not_read_again(below, compacted))
            for index in below:
                self._log.release(index)

    def _not_read_again(self, dead: list[int], compacted: int) -> list[int]:
        """Those of the dead entries that can go, with a snapshot up to this index."""
        read_at = self._applying.pieces.read_at
        if not read_at:
            return dead
        self._read_again += [index for index in dead if read_at.get(index, 0) > compacted]
        return [index for index in dead if read_at.get(index, 0) <= compacted]

    # ------------------------------------------------------------------ what is written

    @property
    def has_write(self) -> bool:
        """Whether there is something to write."""
        return self._compaction is not None or bool(self._release)

    def join(self, write: GroupWrite | None, hard_state: HardState) -> GroupWrite:
        """The group's next write (None: it has nothing to write by itself) with what is to be written here."""
        extra = self._compaction or GroupWrite(self._id)
        self._compaction = None
        if write is None:
            write = extra
            # What frees an entry is committed: a restart must know that before it looks for the entry. And one that
            # forgot that a member is out would wait for its vote, for ever if it was one of two.
            write.hard_state = hard_state
        else:
            write.snapshot = extra.snapshot if write.snapshot is None else write.snapshot
        if not write.install:
            write.release += extra.release + self._release
        self._release = []
        return write

    # ------------------------------------------------------------------ compaction

    def compact(
        self, slowest_match: int, applied: int, members: ConfState, may_write: bool, hurried: bool = False
    ) -> bool:
        """Make a snapshot of what is applied and drop dead entries, when the log has grown enough; True if it did. A
        large state takes several calls, and ticks between them; the snapshot is of the moment of the first.

        A leader waits (up to several times the size) for the slowest member, so that a short absence is made good from
        the log, and longer for one that gets on: what is made is put in place of the log when those have all that is
        in it. `may_write`: no write of the group is under way. `hurried`: the disk is short of room, a small part of
        the size is enough, and nobody is waited for."""
        if hurried:
            self.give_up_offers("the disk is short of room")
        waits = not hurried and not self._is_too_long_for_anybody()
        if self._compacting is not None:
            if waits and min(self._followers.snapshots_under_way, default=END) < self._compacting.metadata.index:
                # That takes its time, and two states much memory.
                self._compacting = None
                return False
            return self._finish_compaction(may_write, waits)
        entries = applied - self._log.snapshot_metadata.index
        part = HURRIED_COMPACTION if hurried else 1
        grown = times_too_long(
            part * self._log_bytes, part * entries, self._settings.compact_bytes, self._settings.compact_entries,
            0 if hurried else self._state_bytes,
        )
        self.wants_all_to_follow = grown >= 1
        if grown < 1:
            return False
        if slowest_match < applied and (grown < TIMES_TOO_LONG or (waits and self._is_needed(applied, entries))):
            return False
        if not may_write or self._compaction is not None:
            return False
        metadata = SnapshotMetadata(applied, self._log.term(applied), members)
        self._compacting = Compaction(metadata, self._log_bytes, self._applying.state_steps())
        self._compacting.step()
        return self._finish_compaction(may_write, waits)

    def _is_too_long_for_anybody(self) -> bool:
        self._sent_bytes = max(self._sent_bytes, self._offer.total_bytes)
        worth_bytes = max(self._settings.compact_bytes, self._state_bytes, self._sent_bytes)
        return self._log_bytes >= TIMES_TOO_LONG_FOR_ANYBODY * worth_bytes

    def _is_needed(self, applied: int, entries: int) -> bool:
        """Whether somebody who gets on needs more than the later half of the log, which is soon let through, or may yet
        take what is on offer."""
        offered = self._offer.metadata
        return self._followers.needed < applied - entries // 2 or (offered is not None and offered.index < applied)

    def _finish_compaction(self, may_write: bool, waits: bool) -> bool:
        """Have the snapshot written once it is made, and drop what is dead by now; True if it did."""
        made = self._compacting
        if made is None or made.state is None or not may_write or self._compaction is not None:
            return False
        if waits and self._followers.needed < made.metadata.index:
            return False
        self._compacting = None
        self._release += self._offer.drop_before(made.metadata.index, "the log behind it has become too long")
        self._sent_bytes = 0
        live = set(self._applying.live_entries())
        write = GroupWrite(self._id)
        write.snapshot = StoredSnapshot(made.metadata, made.state)
        compacted = made.metadata.index
        dead = [i for i in range(self._log.first_index(), compacted + 1) if i not in live]
        if self._read_again:
            dead += self._read_again
            self._read_again = []
        write.release = self._offer.hold(self._not_read_again(dead, compacted))
        self._applying.pieces.forget_reads(compacted)
        self._log.compact(made.metadata, live)
        self._compaction = write
        self._log_bytes -= made.log_bytes
        self._state_bytes = len(made.state)
        return True

    def step(self) -> None:
        """A tick: go on making what is being made."""
        if self._compacting is not None:
            self._compacting.step()
        self._offer.step()

    # ------------------------------------------------------------------ the snapshot on offer

    @property
    def offers(self) -> bool:
        """Whether a snapshot is on offer, being made, or under way."""
        return not self._offer.is_empty

    @property
    def offered(self) -> SnapshotMetadata | None:
        """Which snapshot is on offer, or will be, if one is."""
        return self._offer.metadata

    def look(self, members: Sequence[FollowerStatus], last_index: int, now_ms: int) -> None:
        """What a leader knows of the other members; nobody where this replica does not lead. To be called before
        `compact`, and every tick while something is on offer."""
        self._followers.look(members, last_index, now_ms)

    def delivered(self, node: int, index: int) -> None:
        """A snapshot of this index has come to a member whole."""
        self._followers.has_got(node, index)

    def mind_offer(self, now_ms: int) -> None:
        """To be called every tick: what has not been under way to anybody for long is dropped, and what it held back
        is deleted with the next write."""
        self._release += self._offer.mind(self._followers.snapshots_under_way, now_ms)

    def give_up_offers(self, why: str) -> None:
        """Whoever sends a snapshot of this replica is to stop."""
        self._release += self._offer.drop_before(END, why)

    def set_offer_aside(self) -> None:
        """The next one who needs a snapshot needs a newer one. Whoever is being sent this one gets it whole."""
        self._release += self._offer.set_aside()

    def make_snapshot(self, applied: int, members: ConfState) -> Snapshot:
        """A snapshot for a member that is too far behind: the state as applied, with the live entries.

        As long as it will do, it is the one that was made the last time, so that a transfer that broke can go on.
        Raises SnapshotTemporarilyUnavailable while a large one is being made, and while this replica has not caught up
        with what it had applied before it was started: until then its state may name entries that were given up since.
        """
        if not self._offer.fits(self._log.snapshot_index()):
            if applied < self._commit_at_start:
                raise SnapshotTemporarilyUnavailable
            metadata = SnapshotMetadata(applied, self._log.term(applied), members)
            self.set_offer_aside()
            # All of the entries are on disk: what is applied was written before.
            making = Compaction(metadata, 0, self._applying.state_steps())
            self._offer.begin(making, frozenset(self._applying.state_entries()))
            self._offer.step()
        snapshot = self._offer.take(self._id, self._log.reader)
        if snapshot is None:
            raise SnapshotTemporarilyUnavailable
        return snapshot
