"""What an operator of a simulated cluster does to its members."""

from dataclasses import dataclass

ADD = "add"
REMOVE = "remove"
REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do, and when: counted from the beginning, or from when whoever drew it says."""

    at_us: int
    kind: str
