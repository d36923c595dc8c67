"""What is said of costs: measured at a size and at `TIMES` as much."""

from __future__ import annotations

from typing import Final

SMALL: Final = 24
TIMES: Final = 4


def is_bounded(small: int, large: int) -> bool:
    """Whether a cost does not grow, but for what a heap or a sorted list takes."""
    return large <= small + 12 + small // 8


def is_linear(small: int, large: int) -> bool:
    """Whether it grows no faster than what there is, but for a logarithm: what is squared is sixteen times as much."""
    return large <= TIMES * small * 1.4 + 50
