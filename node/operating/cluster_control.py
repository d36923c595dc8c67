"""The cluster's catalog for those who wait: commands until they are answered, replicas here until they are current."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.catalog import CatalogCommand
from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.operating.current_replicas import CurrentReplicas

COMMAND_TIMEOUT_S: Final = 10.0


class ClusterControl:
    """For one node."""

    def __init__(self, engine: Engine, cluster_id: str, pump: Callable[[], None]) -> None:
        """`pump` has the engine pumped soon. Another cluster, or this one restored, has another id."""
        self.cluster_id: str = cluster_id
        self._engine = engine
        self._pump = pump
        self._current = CurrentReplicas(engine.host.read_index, pump)

    async def command(self, command: CatalogCommand) -> object:
        """Put a command into the catalog; what it answers, or None if that took too long."""
        answers: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def answered(result: object) -> None:
            if not answers.done():
                answers.set_result(None if result is SESSION_LOST else result)

        self._engine.submit_catalog(command, answered)
        self._pump()
        return await _or_none(answers)

    async def spread(self) -> None:
        """Wait until the connected nodes have what was changed here, but not for one that hangs."""
        everywhere: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def told(_: object) -> None:
            if not everywhere.done():
                everywhere.set_result(True)

        self._engine.catalog_spread(told, everywhere=True)
        await _or_none(everywhere)

    async def behind(self, groups: Iterable[int]) -> list[int]:
        """See `CurrentReplicas.behind`."""
        return await self._current.behind(groups)

    async def catch_up(self) -> None:
        """Bring the catalog here up to date, if that is possible soon."""
        await self._current.behind((CATALOG_GROUP,))


async def _or_none(answer: Awaitable[object]) -> object:
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            return await answer
    except TimeoutError:
        return None
