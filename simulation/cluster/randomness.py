"""Randomness that a seed fixes: one independent stream for each part of the simulation.

Separate streams keep a change in one part (one more draw for the network) from changing what every other part
draws, so that a fault plan stays the same while the code under test changes.
"""

from __future__ import annotations

from math import log
from random import Random
from typing import Any

State = tuple[Any, ...]
"""Where a stream is: what `Random.getstate` gives."""


class RandomStream(Random):
    """The generator of Python; the two draws that a run makes most take the short way to the same numbers."""

    def randint(self, a: int, b: int) -> int:
        """A whole number from `a` to `b`, both included."""
        span = b - a + 1
        if span < 1:
            raise ValueError(f"no whole number is in [{a}, {b}]")
        bits = span.bit_length()
        drawn = self.getrandbits(bits)
        while drawn >= span:
            drawn = self.getrandbits(bits)
        return a + drawn


def stream(seed: int, name: str) -> Random:
    """The stream of `name` in the run of `seed`; text seeds go through SHA-512, not through Python's hash."""
    return RandomStream(f"mayfly/{seed}/{name}")


def continued(state: State) -> Random:
    """A stream that goes on from there."""
    random = RandomStream(0)
    random.setstate(state)
    return random


def exponential_us(random: Random, mean_us: float, ceiling_us: int) -> int:
    """An exponentially distributed number of microseconds, cut off at `ceiling_us`."""
    if mean_us <= 0:
        return 0
    # As random.expovariate does, without its call.
    drawn = int(-log(1.0 - random.random()) / (1.0 / mean_us))
    return drawn if drawn < ceiling_us else ceiling_us


def between(random: Random, low: int, high: int) -> int:
    """A whole number, both ends included."""
    return random.randint(low, high)
