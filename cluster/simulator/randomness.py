"""Randomness that a seed fixes: one independent stream for each part of the simulation.

Separate streams keep a change in one part (one more draw for the network) from changing what every other part
draws, so that a fault plan stays the same while the code under test changes.
"""

from __future__ import annotations

from random import Random


def stream(seed: int, name: str) -> Random:
    """The stream of `name` in the run of `seed`; text seeds go through SHA-512, not through Python's hash."""
    return Random(f"mayfly/{seed}/{name}")


def exponential_us(random: Random, mean_us: float, ceiling_us: int) -> int:
    """An exponentially distributed number of microseconds, cut off at `ceiling_us`."""
    return min(ceiling_us, int(random.expovariate(1.0 / mean_us))) if mean_us > 0 else 0


def between(random: Random, low: int, high: int) -> int:
    """A whole number, both ends included."""
    return random.randint(low, high)
