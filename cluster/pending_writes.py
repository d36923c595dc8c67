"""What the groups of a host want on disk: one batch is under way, and all that comes meanwhile gathers in the next."""

from cluster.log.batch import GroupWrite, WriteBatch


class PendingWrites:
    """The batch that is being written, the one that gathers behind it, and which groups wait for either."""

    def __init__(self) -> None:
        self.under_way: WriteBatch | None = None
        self.waiting: list[int] = []
        """Groups that go on when the batch that gathers is on disk; whoever gathers for a group notes it here."""
        self._under_way_waiting: list[int] = []
        self._gathering: WriteBatch = WriteBatch()

    @property
    def has_gathered(self) -> bool:
        """Whether there is something for the next batch."""
        return bool(self._gathering.groups) and not self._gathering.empty()

    def gather(self, write: GroupWrite) -> None:
        """Put a group's write into the next batch, behind what is already there for it."""
        present = self._gathering.groups.get(write.group)
        if present is None or write.install:
            self._gathering.groups[write.group] = write
            return
        present.release += write.release
        present.snapshot = write.snapshot if write.snapshot is not None else present.snapshot
        present.hard_state = write.hard_state if write.hard_state is not None else present.hard_state
        present.entries += write.entries

    def begin(self) -> WriteBatch | None:
        """The next batch, which is under way from now on; None while one is, and when nothing has gathered."""
        if self.under_way is not None or not self.has_gathered:
            return None
        batch = self.under_way = self._gathering
        self._gathering = WriteBatch()
        self._under_way_waiting, self.waiting = self.waiting, []
        return batch

    def ended(self) -> list[int]:
        """The batch that was under way is on disk; the groups that waited for it."""
        ready, self._under_way_waiting = self._under_way_waiting, []
        self.under_way = None
        return ready
