"""What the groups of a host want on disk: one batch is under way, and all that comes meanwhile gathers in the next.

Unless that is large: then what is small goes first, and each group with much to write is a batch of its own, in turn
with what is small. So nothing waits for more than one large write besides its own.
"""

from mayfly.cluster.limits import LARGE_WRITE_BYTES
from mayfly.cluster.log.batch import GroupWrite, WriteBatch


class PendingWrites:
    """The batch that is being written, the one that gathers behind it, and which groups wait for either."""

    def __init__(self) -> None:
        self.under_way: WriteBatch | None = None
        self.under_way_bytes: int = 0
        """About its payload."""
        self.waiting: list[int] = []
        """Groups that go on when what gathers for them is on disk; whoever gathers for a group notes it here."""
        self._under_way_waiting: list[int] = []
        self._gathering: WriteBatch = WriteBatch()
        self._gathered_bytes: dict[int, int] = {}
        """By group."""
        self._all_gathered_bytes: int = 0
        self._small_was_last = False

    @property
    def has_gathered(self) -> bool:
        """Whether there is something for the next batch."""
        return bool(self._gathering.groups) and not self._gathering.empty()

    @property
    def groups(self) -> set[int]:
        """Of which something is not on disk."""
        under_way = () if self.under_way is None else self.under_way.groups
        return {*under_way, *self._gathering.groups}

    @property
    def until_stored(self) -> int:
        """After so many writes, from the one under way on, all that has come by now is on disk, whatever comes
        meanwhile: each takes a group that gathers, and those of small and of large writes take turns."""
        under_way = 0 if self.under_way is None else 1
        return under_way + (2 * len(self._gathering.groups) if self.has_gathered else 0)

    def gather(self, write: GroupWrite) -> None:
        """Put a group's write into the next batch, behind what is already there for it."""
        group = write.group
        size_bytes = 0
        for entry in write.entries:
            size_bytes += len(entry.data)
        if write.snapshot is not None:
            size_bytes += len(write.snapshot.state)
        present = self._gathering.groups.get(group)
        if present is None or write.install:
            self._all_gathered_bytes += size_bytes - self._gathered_bytes.get(group, 0)
            self._gathered_bytes[group] = size_bytes
            self._gathering.groups[group] = write
            return
        self._all_gathered_bytes += size_bytes
        self._gathered_bytes[group] += size_bytes
        present.release += write.release
        present.snapshot = write.snapshot if write.snapshot is not None else present.snapshot
        present.hard_state = write.hard_state if write.hard_state is not None else present.hard_state
        present.entries += write.entries

    def begin(self) -> WriteBatch | None:
        """The next batch, which is under way from now on; None while one is, and when nothing has gathered."""
        if self.under_way is not None or not self.has_gathered:
            return None
        if self._all_gathered_bytes > LARGE_WRITE_BYTES and len(self._gathering.groups) > 1:
            return self._begin_some()
        batch = self.under_way = self._gathering
        self.under_way_bytes = self._all_gathered_bytes
        self._gathering = WriteBatch()
        self._gathered_bytes = {}
        self._all_gathered_bytes = 0
        self._under_way_waiting, self.waiting = self.waiting, []
        return batch

    def _begin_some(self) -> WriteBatch:
        """As many groups as one write takes that is not large; or, if these were last, the first that takes more."""
        sizes = self._gathered_bytes
        large = [group for group, size_bytes in sizes.items() if size_bytes > LARGE_WRITE_BYTES]
        small = any(not write.empty() for group, write in self._gathering.groups.items() if group not in large)
        taken: list[int] = []
        if large and (self._small_was_last or not small):
            taken = large[:1]
            self.under_way_bytes = sizes[taken[0]]
        else:
            self.under_way_bytes = 0
            for group, size_bytes in sizes.items():
                if size_bytes <= LARGE_WRITE_BYTES and self.under_way_bytes + size_bytes <= LARGE_WRITE_BYTES:
                    taken.append(group)
                    self.under_way_bytes += size_bytes
        self._small_was_last = taken != large[:1]
        batch = self.under_way = WriteBatch()
        for group in taken:
            batch.groups[group] = self._gathering.groups.pop(group)
            self._all_gathered_bytes -= self._gathered_bytes.pop(group)
        self._under_way_waiting = [group for group in self.waiting if group in batch.groups]
        self.waiting = [group for group in self.waiting if group not in batch.groups]
        return batch

    def ended(self) -> list[int]:
        """The batch that was under way is on disk; the groups that waited for it."""
        ready, self._under_way_waiting = self._under_way_waiting, []
        self.under_way = None
        return ready
