"""Work in steps, between which others have their turn."""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar

STEPS_AT_ONCE: Final = 8
"""Steps of a page before other work gets its turn: a millisecond or two."""
_T = TypeVar("_T")


async def in_turns(steps: Iterable[_T | None], at_once: int) -> list[_T]:
    """What the steps come to, without those that came to nothing; after so many others have their turn."""
    found: list[_T] = []
    for number, step in enumerate(steps, 1):
        if step is not None:
            found.append(step)
        if number % at_once == 0:
            await asyncio.sleep(0)
    return found
