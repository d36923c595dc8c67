"""Whether a concurrent history is one that a sequential object could have shown.

The search is that of Wing and Gong (Testing and Verifying Concurrent Objects, 1993) with Lowe's memory of where it has
been (Testing for Linearizability, 2017): operations are taken one after the other, each time one that had begun before
any other that is left was over; a pair of what was taken and the state it led to is tried once. Objects may have more
than one next state. An operation without an answer may have happened at any time after its begin, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
What = TypeVar("What")

LINEARIZABLE = "linearizable"
NOT_LINEARIZABLE = "not linearizable"
UNDECIDED = "undecided"

MOST_STEPS = 40_000
"""A search that takes more is given up, and says so."""


@dataclass(frozen=True, slots=True)
class TimedOperation(Generic[What]):
    """Something that took effect at one moment between its begin and its end; `ended_us` None: maybe, some time."""

    what: What
    began_us: int
    ended_us: int | None


@dataclass(frozen=True, slots=True)
class Verdict(Generic[What]):
    """What was found, and for a history that is not linearizable an operation that nothing explains: the first to end
    of those that were left when the search had come furthest."""

    found: str
    unexplained: TimedOperation[What] | None = None


def check(
    operations: Iterable[TimedOperation[What]],
    initial: State,
    steps: Callable[[State, TimedOperation[What]], Sequence[State]],
    most_steps: int = MOST_STEPS,
) -> Verdict[What]:
    """Search for an order. `steps(state, operation)` gives the states after it, none if its answer can't be."""
    todo = sorted(operations, key=lambda each: (each.began_us, each.ended_us is None, each.ended_us or 0))
    needed = sum(1 << place for place, each in enumerate(todo) if each.ended_us is not None)
    seen: set[tuple[int, State]] = {(0, initial)}
    pending: list[tuple[int, State]] = [(0, initial)]
    furthest, most_taken, taken_steps = 0, -1, 0
    while pending:
        taken, state = pending.pop()
        if taken & needed == needed:
            return Verdict(LINEARIZABLE)
        if (count := (taken & needed).bit_count()) > most_taken:
            furthest, most_taken = taken, count
        taken_steps += 1
        if taken_steps > most_steps:
            return Verdict(UNDECIDED)
        # What began first is tried first: it is on top of the stack.
        for place in reversed(_next_places(todo, taken)):
            for after in steps(state, todo[place]):
                found = (taken | 1 << place, after)
                if found not in seen:
                    seen.add(found)
                    pending.append(found)
    left = [each for place, each in enumerate(todo) if not furthest >> place & 1 and each.ended_us is not None]
    return Verdict(NOT_LINEARIZABLE, min(left, key=lambda each: each.ended_us or 0))


def _next_places(todo: Sequence[TimedOperation[What]], taken: int) -> list[int]:
    """The places of operations that may come next: those that began before any that is left was over."""
    places: list[int] = []
    first_end_us: int | None = None
    for place, each in enumerate(todo):
        if taken >> place & 1:
            continue
        if first_end_us is not None and each.began_us > first_end_us:
            break
        places.append(place)
        if each.ended_us is not None and (first_end_us is None or each.ended_us < first_end_us):
            first_end_us = each.ended_us
    return [place for place in places if first_end_us is None or todo[place].began_us <= first_end_us]
