"""Long work in another thread, in steps."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor


async def run_steps(executor: Executor, steps: Iterator[None]) -> None:
    """Let the executor go through the steps, one at a time: when this is cancelled, at most one step goes on."""
    while not await asyncio.get_running_loop().run_in_executor(executor, _ended, steps):
        pass


def _ended(steps: Iterator[None]) -> bool:
    for _ in steps:
        return False
    return True
