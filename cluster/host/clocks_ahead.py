"""Groups whose clocks are ahead of the process clock: what a node keeps of that for its next process on the same boot.

A group's clock may be ahead for long: all wall clocks were, when it took its time from them, and were set right since.
When all processes die, nobody is left who has heard it, and the last entry's stamp says nothing of the time since: with
what is kept that time counts (RULES T14). It never makes a clock go faster than it went (RULES T5): what is kept holds
while the log has no entry of a later leader than the one it was heard from (`GroupClock.lead`), and is taken for less
than it was by as much as it may have changed without being kept anew.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mayfly.cluster.group.group import Group

ClocksAhead = dict[int, tuple[int, int]]
"""Group -> the term of the leader whose clock was heard, and by how many ms it is ahead of the process clock."""

KEPT_ANEW_MS: Final = 250
"""What is kept is replaced when it has changed by more."""


def clocks_ahead(groups: Iterable[Group], bound_ms: int, now_ms: int) -> ClocksAhead:
    """The groups whose clocks are ahead by more than the bound, as far as this node knows."""
    found: ClocksAhead = {}
    for group in groups:
        ahead = group.clock.ahead(now_ms)
        if ahead is not None and ahead[1] > bound_ms:
            found[group.id] = ahead
    return found


def is_to_be_kept(found: ClocksAhead, kept: ClocksAhead) -> bool:
    """Whether that says more, or anything else, than what is kept."""
    if found.keys() != kept.keys():
        return True
    return any(
        term != kept[id][0] or abs(ahead_ms - kept[id][1]) > KEPT_ANEW_MS for id, (term, ahead_ms) in found.items()
    )


def go_on(groups: Mapping[int, Group], kept: ClocksAhead) -> None:
    """A process begins that goes on with the process clock of the one that kept this; none of the groups leads yet."""
    for id, (term, ahead_ms) in kept.items():
        group = groups.get(id)
        if group is not None:
            group.clock.kept(term, ahead_ms - KEPT_ANEW_MS)
