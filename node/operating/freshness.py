"""Pages that show what the cluster has now: replicas are brought up to date first, here and where others are asked."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.shard_sources import ShardSources


class _BringUpToDate(msgspec.Struct, tag="BringUpToDate"):
    """By group, whether its replica is up to date now."""

    groups: list[int]


def _bring_up_to_date(groups: Iterable[int]) -> _BringUpToDate:
    return _BringUpToDate(list(groups))


class Freshness:
    """For one node. What it answers: whether all is up to date (`current`), and the `reason` if not."""

    def __init__(
        self, engine: Engine, cluster: ClusterControl, sources: ShardSources, questions: NodeQuestions
    ) -> None:
        self._engine = engine
        self._cluster = cluster
        self._sources = sources
        questions.add(_BringUpToDate, dict[int, bool], self._tell)

    async def of_all(self) -> dict[str, Any]:
        """Bring the catalog up to date, and a replica of every shard: that which a page will be made of."""
        return await self._of(self._sources.all())

    async def of_queue(self, vhost: str, name: str) -> dict[str, Any]:
        """The same for one queue: for the catalog and the queue's shard."""
        catalog = self._engine.catalog
        before = catalog.queue(vhost, name)
        asked = [] if before is None or not before.replicated else [before.shard]
        known = await self._of(asked)
        found = catalog.queue(vhost, name)
        if known["current"] and found is not None and found.replicated and found.shard not in asked:
            known = await self._of([found.shard])
        return known

    async def of_replicas_here(self) -> dict[str, Any]:
        """The same for what this node has replicas of, and nothing else."""
        return _said(await self._cluster.behind(list(self._engine.host.groups)), [])

    async def _of(self, shards: Iterable[int]) -> dict[str, Any]:
        late, told = await asyncio.gather(
            self._cluster.behind((CATALOG_GROUP,)), self._sources.ask(dict.fromkeys(shards), _bring_up_to_date)
        )
        late += [shard for shard, is_current in told.found.items() if not is_current]
        return _said(sorted(late), told.unknown)

    async def _tell(self, asked: _BringUpToDate) -> dict[int, bool]:
        here = [group for group in asked.groups if group in self._engine.host.groups]
        behind = set(await self._cluster.behind(here))
        return {group: group not in behind for group in here}


def _said(late: list[int], unknown: list[int]) -> dict[str, Any]:
    reasons = []
    if late:
        reasons.append(f"no leader answered for groups {_list(late)}; they are shown as a replica has them")
    if unknown:
        reasons.append(f"no node with a replica has answered for groups {_list(unknown)}; what is in them is unknown")
    return {"current": False, "reason": "; ".join(reasons)} if reasons else {"current": True}


def _list(groups: list[int]) -> str:
    return ", ".join(map(str, groups))
