"""A compaction that is under way: the snapshot of a large state is made in steps, between which the group goes on.

A state of millions of messages takes seconds to put into bytes. A node that was busy for so long in one go would be
silent for all its groups, and lose the lead of all of them.
"""

from io import BytesIO
from typing import Final

from mayfly.cluster.group.state_machine import SnapshotSteps
from mayfly.cluster.raft import SnapshotMetadata

COPIED_PER_STEP_BYTES: Final = 1 << 23


class Copying:
    """Octets that are put together, or cut, some megabytes at a time."""

    def __init__(self, head: bytes, data: bytes, start: int) -> None:
        """What comes of it is `head`, and behind it `data` from `start` on."""
        self._data: bytes = data
        self._position: int = start
        self._copy: BytesIO = BytesIO()
        self._copy.write(head)

    def step(self) -> bytes | None:
        """Copy some; all of it if that was the last."""
        end = min(len(self._data), self._position + COPIED_PER_STEP_BYTES)
        self._copy.write(memoryview(self._data)[self._position : end])
        self._position = end
        return self._copy.getvalue() if end == len(self._data) else None


class StateSteps:
    """A group's state (see `cluster.group.state_layout`) as of one moment, in steps."""

    def __init__(self, head: bytes, machine: SnapshotSteps) -> None:
        """`head`: what stands before the machine's state."""
        self._head: bytes = head
        self._steps: SnapshotSteps = machine
        self._copying: Copying | None = None

    def step(self) -> bytes | None:
        """See `SnapshotSteps`."""
        if self._copying is not None:
            return self._copying.step()
        machine = self._steps.step()
        if machine is None:
            return None
        self._copying = copying = Copying(self._head, machine, 0)
        return copying.step() if len(machine) <= COPIED_PER_STEP_BYTES else None


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
