"""A command of an operator for a shard, and what the shard answers."""

import asyncio
from collections.abc import Callable
from typing import Final

from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.engine.engine import Engine

_PATIENCE_S: Final = 10.0


async def give_command(engine: Engine, pump: Callable[[], None], shard: int, command: bytes) -> object:
    """What the shard answers; None if that takes too long, or nobody knows: it may come to be yet."""
    answers: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def answered(result: object) -> None:
        if not answers.done():
            answers.set_result(None if result is SESSION_LOST else result)

    engine.shard(shard).submit(command, answered)
    pump()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await answers
    except TimeoutError:
        return None
