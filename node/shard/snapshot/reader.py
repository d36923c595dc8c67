"""Reads a snapshot, at once or in steps."""

import msgspec

from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.snapshot.pace import MESSAGES_PER_STEP, WorkPace
from mayfly.node.shard.snapshot.state_row import restore_state
from mayfly.node.shard.state import State


def restore(state: State, data: bytes) -> None:
    """Fill a new state from a ``snapshot``; ShardError when it is none (the state is then of no use)."""
    reading = RestoreInSteps(state, data, MESSAGES_PER_STEP)
    while not reading.step():
        pass


class RestoreInSteps:
    """Fills a new state from a ``snapshot``, in steps."""

    def __init__(self, state: State, data: bytes, messages_per_step: int) -> None:
        self._work = restore_state(state, data, WorkPace(messages_per_step))

    def step(self) -> bool:
        """Read some messages; whether these were the last. ShardError when it is no snapshot (the state is then of no
        use).
        """
        try:
            for _ in self._work:
                return False
        except (
            TypeError, ValueError, LookupError, OverflowError, AttributeError, RecursionError, msgspec.MsgspecError
        ) as error:
            raise ShardError(f"shard snapshot that can't be read: {error!r}") from error
        return True
