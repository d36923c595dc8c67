"""Groups, wherever their replicas are, and what is in the shards: for `/status`, `/shards`, `/cluster/members` and the
overview."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from mayfly.node.engine.engine import Engine
from mayfly.node.limits import SHARDS
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.shard_sources import ShardSources, ToldByShard, unknown_text
from mayfly.node.operating.turns import STEPS_AT_ONCE, in_turns
from mayfly.node.operating.views.members import (
    GroupReplicas,
    ReplicaStanding,
    replica_rows,
    replicas_here,
    standings_here,
)
from mayfly.node.operating.views.overview import ShardTotals, totals_in_steps
from mayfly.node.operating.views.status import group_steps, unknown_group

Row = dict[str, Any]

_MOST_GROUPS: Final = 1 + SHARDS
"""About as many a question asks at most, whatever it says."""


class _Rows(msgspec.Struct, tag="GroupRows"):
    """`group_steps`."""

    groups: list[int]


class _Totals(msgspec.Struct, tag="ShardTotals"):
    """`totals_in_steps`."""

    groups: list[int]


class _Replicas(msgspec.Struct, tag="GroupReplicas"):
    """`replicas_here`."""

    groups: list[int]


class _Standings(msgspec.Struct, tag="ReplicaStandings"):
    """`standings_here`."""


class Groups:
    """What one node shows of groups, and tells others about those that it has replicas of."""

    def __init__(
        self, engine: Engine, sources: ShardSources, questions: NodeQuestions, now_ms: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._sources = sources
        self._now_ms = now_ms
        questions.add(_Rows, dict[int, Row], self._tell_rows)
        questions.add(_Totals, dict[int, ShardTotals], self._tell_totals)
        questions.add(_Replicas, dict[int, GroupReplicas], lambda it: replicas_here(engine, it.groups[:_MOST_GROUPS]))

        questions.add(_Standings, dict[int, ReplicaStanding], lambda _: standings_here(engine))
        self._questions = questions

    def all(self) -> list[int]:
        """The groups by number: the catalog's, and those of the shards."""
        return [CATALOG_GROUP, *self._sources.all()]

    async def rows(self) -> list[Row]:
        """A row for each group by number, for `engine_status`. Of a shard of which no node has told anything it has
        what this node knows, and `unknown` says so."""
        catalog = await self._tell_rows(_Rows([CATALOG_GROUP]))
        told = await self._ask(_Rows, self._sources.all())
        unknown = {id: unknown_group(self._engine, id) | {"unknown": unknown_text(id)} for id in told.unknown}
        return [row for _, row in sorted((catalog | told.found | unknown).items())]

    async def totals(self) -> tuple[list[ShardTotals], list[int]]:
        """How much is in each shard, in this node's own transient one, too; and the shards of which no node has told
        anything."""
        own = self._engine.transient.local.shard.shard_id
        told = await self._ask(_Totals, [*self._sources.all(), own])
        return list(told.found.values()), told.unknown

    async def replicas(self) -> dict[int, GroupReplicas]:
        """Who leads and who votes in each group; of shards of which no node has told anything there is nothing."""
        catalog = replicas_here(self._engine, [CATALOG_GROUP])
        told = await self._ask(_Replicas, self._sources.all())
        return catalog | dict(sorted(told.found.items()))

    async def by_nodes(self) -> list[Row]:
        """See `replica_rows`: of all groups, by what all nodes say at about the same time."""
        replicas = await self.replicas()
        return replica_rows(replicas, await self._questions.ask_all(_Standings()), self.all())

    async def _ask(self, question: type[_Rows] | type[_Totals] | type[_Replicas], groups: list[int]) -> ToldByShard:
        return await self._sources.ask(dict.fromkeys(groups), lambda some: question(list(some)))

    async def _tell_rows(self, asked: _Rows) -> dict[int, Row]:
        steps = group_steps(self._engine, asked.groups[:_MOST_GROUPS], self._now_ms())
        return {row["group"]: row for row in await in_turns(steps, STEPS_AT_ONCE)}

    async def _tell_totals(self, asked: _Totals) -> dict[int, ShardTotals]:
        steps = totals_in_steps(self._engine, asked.groups[:_MOST_GROUPS])
        return dict(await in_turns(steps, STEPS_AT_ONCE))
