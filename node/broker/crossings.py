"""A node's publishers go over to the new shards of queues that have moved, without overtaking themselves.

What this node has published in the old shard is on its way to the new one. Before anything is published there directly,
the old shard is asked whether all of that has arrived (CROSS); publishers to the queue wait meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from mayfly.node.broker.operation import LaterStep, Request, ShardStep
from mayfly.node.shard.commands import encode_cross
from mayfly.node.shard.results import Crossed

if TYPE_CHECKING:
    from mayfly.node.broker.cluster_facade import ClusterFacade
    from mayfly.node.catalog import QueueRecord


class Crossings:
    """Which queues' new shards the publishers of one node use."""

    def __init__(self, cluster: ClusterFacade) -> None:
        self._cluster = cluster
        self.version: int = 0
        """Grows with every change: routes that were found before it count no more."""
        self._crossed: dict[int, int] = {}
        """By queue, how often it had moved when all had arrived."""
        self._crossing: set[int] = set()
        self._forgotten = 0

    def uncrossed(self, queues: Iterable[QueueRecord]) -> list[QueueRecord]:
        """Those of the queues that are not to be published to yet."""
        return [queue for queue in queues if self._is_uncrossed(queue)]

    def _is_uncrossed(self, queue: QueueRecord) -> bool:
        moves = queue.moves
        return moves is not None and moves.count > 0 and self._crossed.get(queue.id) != moves.count

    def forget(self) -> None:
        """Something was published in a shard in which a queue may not be any more."""
        self._crossed.clear()
        self._forgotten += 1
        self.version += 1

    def cross(self, queues: Iterable[QueueRecord]) -> Generator[Request, Any, None]:
        """Wait until all has arrived that was published here for these queues in other shards."""
        for queue in queues:
            while queue.id in self._crossing:
                yield LaterStep()
            if self._is_uncrossed(queue):
                self._crossing.add(queue.id)
                try:
                    yield from self._cross(queue)
                finally:
                    self._crossing.discard(queue.id)

    def _cross(self, queue: QueueRecord) -> Generator[Request, Any, None]:
        moves = queue.moves
        if moves is None:
            return
        forgotten = self._forgotten
        for shard in moves.sources:
            up_to = 0
            while True:
                answer = yield ShardStep(shard, encode_cross(queue.id, up_to))
                if isinstance(answer, Crossed):
                    if answer.done:
                        break
                    up_to = answer.up_to
                if self._cluster.catalog.queue_by_id(queue.id) is None:
                    return
                yield LaterStep()
        if forgotten == self._forgotten:
            self._crossed[queue.id] = moves.count
        self.version += 1
