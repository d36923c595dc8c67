"""A leader's snapshot between its arrival and the disk: it is read before anything of it is stored.

What can't be read must not take the place of a state that can: this replica would not come up again, and neither would
the others, one after the other, as each falls behind. A snapshot with the right digest can be such all the same: made
by another version, or of a leader's memory that was damaged. It is refused; nobody tells the leader, who would send it
again at once. For a while the replica passes over the entries behind it, whose refusal would bring the same one again;
a new one is looked at. A large one is read in steps, one in each tick, and only once: what was read is what
becomes the state when the snapshot is on disk. It is read to its end though newer ones arrive: of a leader that makes
them faster than they are read, none would be read otherwise. The newest of them is next.
"""

from typing import Final

from mayfly.cluster.group.applying import Applying, StateReading
from mayfly.cluster.group.state_machine import BadSnapshot
from mayfly.cluster.raft import NO_LEADER, RaftMessage, Snapshot

UNREADABLE: Final = "can't be read"
"""What the line for operators says of a snapshot that is refused."""


class SnapshotIntake:
    """At most one snapshot that is being read, the newest that waits for it, and those that were read and are on their
    way to the disk."""

    def __init__(self, group: int, applying: Applying, refusal_ms: int) -> None:
        self._group = group
        self._applying = applying
        self._refusal_ms = refusal_ms
        self._message: RaftMessage | None = None
        self._next: RaftMessage | None = None
        self._reading: StateReading | None = None
        self._read: dict[int, StateReading] = {}
        """By the snapshot's index."""
        self._refused_from: int = NO_LEADER
        self._refused_index: int = 0
        self._refused_until_ms: int = 0
        self._complaint: str = ""

    def begin(self, message: RaftMessage, snapshot: Snapshot, now_ms: int) -> None:
        """Read this one, after another one that is being read, unless that is of an earlier term; or not at all, if it
        is that one or older, or was refused a short time ago."""
        if self.is_refused(message.from_, now_ms) and snapshot.metadata.index <= self._refused_index:
            return
        under_way = self._message
        if under_way is None or under_way.term < message.term:
            self._message, self._next, self._reading = message, None, None
        elif under_way.term == message.term and snapshot.metadata.index > _index_of(self._next or under_way):
            self._next = message

    @property
    def reading_from(self) -> int:
        """The node whose snapshot is being read; NO_LEADER if there is nothing to read."""
        return NO_LEADER if self._message is None else self._message.from_

    def step(self, term: int, committed: int, now_ms: int) -> RaftMessage | None:
        """Go on reading, if there is something to read; its message, once all of a snapshot was read. One of an earlier
        term than this, or of what is `committed` here by now, can't help any more: its message comes at once, so that
        Raft refuses it."""
        message = self._message
        if message is None or message.snapshot is None:
            return None
        snapshot = message.snapshot
        if message.term < term or snapshot.metadata.index <= committed:
            self._go_on()
            return message
        try:
            if self._reading is None:
                self._reading = self._applying.reading(snapshot.data)
            if not self._reading.step():
                return None
        except BadSnapshot as error:
            self._refused_from, self._refused_index = message.from_, snapshot.metadata.index
            self._refused_until_ms = now_ms + self._refusal_ms
            self._complaint = (
                f"group {self._group}: a snapshot of index {snapshot.metadata.index} from node {message.from_} "
                f"{UNREADABLE}: {error}; it is not stored, this replica keeps what it has and has no other one sent "
                f"for {self._refusal_ms / 1000:g} s"
            )
            self._go_on()
            return None
        self._read[snapshot.metadata.index] = self._reading
        self._go_on()
        return message

    def _go_on(self) -> None:
        self._message, self._next, self._reading = self._next, None, None

    def is_refused(self, node: int, now_ms: int) -> bool:
        """Whether the last snapshot of this node could not be read, a short time ago."""
        return node == self._refused_from and now_ms < self._refused_until_ms

    def is_busy(self, node: int, now_ms: int) -> bool:
        """Whether this node is to send no snapshot now, and entries of it that don't fit to the log are not to be
        refused: they come behind one that is being read or was refused."""
        return self._message is not None or self.is_refused(node, now_ms)

    @property
    def has_read(self) -> bool:
        """Whether something was read that is not on disk yet."""
        return bool(self._read)

    def keep(self, accepted: Snapshot | None) -> None:
        """Of what was read and is not being written, only this one was taken in place of the log, or will be
        when Raft has applied what came before; None: none."""
        for index in list(self._read):
            if accepted is None or index > accepted.metadata.index:
                del self._read[index]

    def take(self, snapshot: Snapshot) -> StateReading:
        """What was read of a snapshot that is on disk now."""
        index = snapshot.metadata.index
        read = self._read.pop(index)
        for older in [other for other in self._read if other < index]:
            del self._read[older]
        return read

    def take_complaint(self) -> str:
        """What an operator should know of a snapshot that was refused, once; "" if there is nothing."""
        complaint, self._complaint = self._complaint, ""
        return complaint


def _index_of(message: RaftMessage) -> int:
    return 0 if message.snapshot is None else message.snapshot.metadata.index
