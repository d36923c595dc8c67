"""Writes a snapshot, at once or in steps."""

import msgspec

from mayfly.node.shard.snapshot.message_columns import MessageColumns
from mayfly.node.shard.snapshot.pace import MESSAGES_PER_STEP
from mayfly.node.shard.snapshot.state_row import state_row
from mayfly.node.shard.state import State


def snapshot(state: State) -> bytes:
    """The state between two entries, as bytes."""
    making = ShardSnapshotInSteps(state, MESSAGES_PER_STEP)
    while True:
        data = making.step()
        if data is not None:
            return data


class ShardSnapshotInSteps:
    """A snapshot of the state as it is now, made in steps; entries may be applied between them."""

    def __init__(self, state: State, messages_per_step: int) -> None:
        self._columns = MessageColumns(messages_per_step, state.level)
        self._row = state_row(state, self._columns)

    def step(self) -> bytes | None:
        """Write some messages; the snapshot if these were the last, None before."""
        if self._columns.step():
            return None
        return msgspec.msgpack.encode(self._row)
