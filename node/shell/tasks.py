"""What a node does beside its turns: tasks that go on until they are done, or the node stops."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("mayfly.node")


class Tasks:
    """Of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done until it is done, or `end` is called."""
        task = self._loop.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("%s has ended", task.get_coro(), exc_info=error)

    @property
    def under_way(self) -> set[asyncio.Task[None]]:
        """Those that are not done."""
        return self._under_way

    async def end(self) -> None:
        """Give up what is not done."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
