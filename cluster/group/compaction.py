"""A compaction that is under way: the snapshot of a large state is made in steps, between which the group goes on.

A state of millions of messages takes seconds to put into bytes. A node that was busy for so long in one go would be
silent for all its groups, and lose the lead of all of them.
"""

from typing import Final

from mayfly.cluster.group.state_machine import SnapshotSteps
from mayfly.cluster.raft import SnapshotMetadata

_COPIED_AT_LEISURE_BYTES: Final = 1 << 23
"""A copy of more than this is a step of its own."""


class StateSteps:
    """A group's state (see `cluster.group.state_layout`) as of one moment, in steps."""

    def __init__(self, head: bytes, machine: SnapshotSteps) -> None:
        """`head`: what stands before the machine's state."""
        self._head: bytes = head
        self._steps: SnapshotSteps = machine
        self._machine: bytes | None = None

    def step(self) -> bytes | None:
        """See `SnapshotSteps`."""
        if self._machine is None:
            self._machine = self._steps.step()
            if self._machine is None or len(self._machine) > _COPIED_AT_LEISURE_BYTES:
                return None
        return self._head + self._machine


class Compaction:
    """What is known of a compaction from its beginning to its end."""

    def __init__(self, metadata: SnapshotMetadata, log_bytes: int, steps: SnapshotSteps) -> None:
        """`metadata` of the moment at which it begins; the log has grown by `log_bytes` until then."""
        self.metadata: SnapshotMetadata = metadata
        self.log_bytes: int = log_bytes
        self.state: bytes | None = None
        """The finished snapshot."""
        self._steps: SnapshotSteps = steps

    def step(self) -> None:
        """Do a bounded part of the work, if any is left."""
        if self.state is None:
            self.state = self._steps.step()


def times_too_long(
    log_bytes: int, entries: int, compact_bytes: int, compact_entries: int, state_bytes: int
) -> int:
    """How many times a log has grown by what is worth a compaction, after a last one that wrote `state_bytes`.

    A log grows as much as the last snapshot took, if that is more than the settings say: were a large state written
    each time that so little is added, what is written would grow with the square of the state.
    """
    worth_bytes = max(compact_bytes, state_bytes)
    return max(log_bytes // worth_bytes, entries * compact_bytes // (compact_entries * worth_bytes))
