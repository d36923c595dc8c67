"""What an operator of a simulated cluster does to its members."""

from dataclasses import dataclass
from random import Random

ADD = "add"
REMOVE = "remove"
REPLACE = "replace"
ADD_SHARDS = "add shards"


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """One thing to do, and when: counted from the beginning, or from when whoever drew it says."""

    at_us: int
    kind: str


def draw_changes(random: Random, start_us: int, end_us: int) -> tuple[MembershipChange, ...]:
    """The changes of a seed; none in every second one."""
    times = sorted(random.randint(start_us, end_us) for _ in range(random.choice((0, 0, 1, 2))))
    return tuple(MembershipChange(at_us, random.choice((ADD, REMOVE, REPLACE))) for at_us in times)
