"""How much work is a step, in messages."""

from typing import Final

MESSAGES_PER_STEP: Final = 16_384
"""A few milliseconds of work, compiled: a step is made in each tick."""
LIST_COSTS: Final = 16
"""However few messages are in a list, it takes as long as so many."""


class WorkPace:
    """When it is time for a pause, by work in messages."""

    def __init__(self, per_step: int) -> None:
        self.per_step = per_step
        self._left = per_step

    def is_over(self, work: int) -> bool:
        """So much was done; whether this was a step."""
        self._left -= work
        if self._left > 0:
            return False
        self._left = self.per_step
        return True
