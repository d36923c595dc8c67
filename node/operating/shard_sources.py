"""Where operators' views have what they show of shards: this node's replica, or a node that has one.

A question about shards names them, and its answer has them by number: a node answers for those that it has a replica
of, this one like any other. So a view is made the same way wherever the replica is, and who asks finds out from the
answer, not from what it believed.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from mayfly.node.engine.engine import Engine
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.views.queue_counts import shard_here

_T = TypeVar("_T")

SHARDS_AT_ONCE: Final = 32
"""Shards that one question is about: what is asked about each is to fit into the time for an answer."""
_NODES_TRIED: Final = 3
"""Nodes that are asked about a shard until one has it."""


class ToldByShard(NamedTuple):
    """What was told, by shard, and the shards about which no node has told anything in time."""

    found: dict[int, Any]
    unknown: list[int]


class ShardSources:
    """For one node."""

    def __init__(self, engine: Engine, questions: NodeQuestions) -> None:
        self._engine = engine
        self._questions = questions

    def has(self, shard: int) -> bool:
        """Whether this node has a replica of the shard, or it is in its memory."""
        return shard_here(self._engine, shard) is not None

    def all(self) -> list[int]:
        """The replicated shards, by number."""
        return list(range(1, self._engine.catalog.shard_count + 1))

    async def ask(self, wanted: Mapping[int, _T], question: Callable[[dict[int, _T]], msgspec.Struct]) -> ToldByShard:
        """What nodes with replicas of these shards say: this node of those that it has, of the others the leader or,
        where it can't be asked or hasn't got the replica, a node that should have one.

        `wanted` says what is asked about each shard; `question` is made of the part for one node, and its answer is a
        dict by shard. A node that falls silent is not made up for with another one, which would double the wait: the
        next page asks that one at once."""
        found: dict[int, Any] = {}
        here = {shard: what for shard, what in wanted.items() if self.has(shard)}
        if here:
            found |= await self._questions.ask(self._engine.node_id, question(here))
        tried: dict[int, set[int]] = {shard: set() for shard in wanted if shard not in found}
        left: Collection[int] = tried
        for _ in range(_NODES_TRIED):
            by_node = self._by_node(left, tried)
            if not by_node:
                break
            asking = [
                self._ask_node(node, {shard: wanted[shard] for shard in some}, question)
                for node, some in by_node.items()
            ]
            for told in await asyncio.gather(*asking):
                found |= told
            silent = {node for node in by_node if not self._questions.may_answer(node)}
            left = [shard for shard in left if shard not in found and not tried[shard] & silent]
        return ToldByShard(found, sorted(wanted.keys() - found.keys()))

    def _by_node(self, shards: Iterable[int], tried: dict[int, set[int]]) -> dict[int, list[int]]:
        """Whom to ask next about each of them; nobody about some."""
        by_node: dict[int, list[int]] = {}
        for shard in shards:
            planned = self._engine.catalog.members.plan.get(shard, ())
            for node in (self._engine.leader_of(shard), *planned):
                if node not in tried[shard] and self._questions.may_answer(node):
                    tried[shard].add(node)
                    by_node.setdefault(node, []).append(shard)
                    break
        return by_node

    async def _ask_node(
        self, node: int, wanted: Mapping[int, _T], question: Callable[[dict[int, _T]], msgspec.Struct]
    ) -> dict[int, Any]:
        found: dict[int, Any] = {}
        shards = list(wanted)
        for start in range(0, len(shards), SHARDS_AT_ONCE):
            some = {shard: wanted[shard] for shard in shards[start : start + SHARDS_AT_ONCE]}
            told = await self._questions.ask(node, question(some))
            if told is None:
                break
            found |= {shard: what for shard, what in told.items() if shard in wanted}
        return found


def unknown_text(shard: int) -> str:
    """What is shown instead of what would be known of a shard."""
    return f"no node with a replica of shard {shard} has answered in time"
