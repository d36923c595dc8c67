"""How long a shard is led here: what was asked before the end of that is not answered after it (pure).

A barrier, a turn to route in or an answer of the catalog may come when another node leads, when there is no replica
here any more, or when this node leads again and has asked anew. The shard's state here may then be that of long ago,
and the entries in which its messages live may be gone.
"""

from collections.abc import Callable


def _always() -> bool:
    return True


class Tenure:
    """Of the leader of one shard: one comes after the other, and each has a number."""

    def __init__(self, goes_on: Callable[[], bool] = _always) -> None:
        """`goes_on()`: whether the shard is led here, now; if that has ended or begun anew, it calls `end`."""
        self.number: int = 0
        """Of the present one: keep it with what is asked."""
        self._goes_on = goes_on

    def end(self) -> None:
        """The shard is not led here any more, or is so anew."""
        self.number += 1

    def is_still(self, number: int) -> bool:
        """Whether what was asked in that one is to be answered."""
        return self._goes_on() and number == self.number
