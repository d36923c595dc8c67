"""Pages that must not show an old state: the replicas here are brought up to date first, if that is possible soon."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from mayfly.node.broker.cluster_facade import OnDone

CURRENT_WITHIN_S: Final = 1.0
"""So long a page waits for leaders. Clients give up after two."""


class CurrentReplicas:
    """Read indices for callers who do not wait for ever.

    However many of them give up while a group has no leader, one of its reads is under way.
    """

    def __init__(self, read_index: Callable[[int, OnDone], None], pump: Callable[[], None]) -> None:
        """`read_index` is the host's; `pump` has the engine pumped soon."""
        self._read_index = read_index
        self._pump = pump
        self._under_way: set[int] = set()
        self._next: dict[int, list[asyncio.Future[bool]]] = {}

    async def behind(self, groups: Iterable[int]) -> list[int]:
        """Bring the replicas of these groups up to date; those for which no leader has answered in time."""
        waiting = {group: self._wait(group) for group in groups}
        self._pump()
        if waiting:
            _, late = await asyncio.wait(waiting.values(), timeout=CURRENT_WITHIN_S)
            for future in late:
                future.cancel()
        return [group for group, future in waiting.items() if future.cancelled() or not future.result()]

    def _wait(self, group: int) -> asyncio.Future[bool]:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._next[group] = [*self._still_waiting(group), future]
        if group not in self._under_way:
            self._begin(group)
        return future

    def _still_waiting(self, group: int) -> list[asyncio.Future[bool]]:
        return [future for future in self._next.pop(group, []) if not future.done()]

    def _begin(self, group: int) -> None:
        self._under_way.add(group)
        asked = self._still_waiting(group)

        def answered(result: object) -> None:
            self._under_way.discard(group)
            for future in asked:
                if not future.done():
                    future.set_result(result is None)
            left = self._still_waiting(group)
            if left:
                self._next[group] = left
                self._begin(group)

        self._read_index(group, answered)
