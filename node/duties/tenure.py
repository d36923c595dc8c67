"""How long a shard is led here: what was asked before the end of that is not answered after it (pure).

A barrier, a turn to route in or an answer of the catalog may come when another node leads, when there is no replica
here any more, or when this node leads again and has asked anew. The shard's state here may then be that of long ago,
and the entries in which its messages live may be gone.
"""

from typing import Protocol


class LedGroup(Protocol):
    """The group of a shard, as `cluster.group.group.Group`."""

    @property
    def established(self) -> bool:
        """Whether it is led here, and may be decided for."""
        ...

    @property
    def term(self) -> int:
        """The current term."""
        ...


class Tenure:
    """Of the leader of one shard: one comes after the other, and each has a number."""

    def __init__(self, group: LedGroup | None = None) -> None:
        """Without a group the shard is led here for as long as it is there."""
        self.number: int = 0
        """Of the present one: keep it with what is asked."""
        self.term: int = 0
        """In which it began; 0: the shard is not led here, as far as was noticed."""
        self._group: LedGroup | None = group

    def begin(self, term: int) -> None:
        """The shard is led here in this term; 0: it is not any more."""
        self.number += 1
        self.term = term

    def is_still(self, number: int) -> bool:
        """Whether what was asked in that one is to be answered, though the end may not have been noticed."""
        group = self._group
        return number == self.number and (group is None or (group.established and group.term == self.term))
