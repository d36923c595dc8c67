"""Waiting for queues whose owner cannot be reached.  Pure.

A transient queue lives in one node's memory.  When that node dies, the queue stays in the catalog until the cluster
gives the node up (`session_timeout_ms`): it may be alive behind a partition.  A client that comes back through another
node and declares its queue again meets the old one meanwhile; refused, many clients give up for good.  So a declare
waits here until it can be answered.
"""

from collections.abc import Callable

from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.catalog import Catalog
from mayfly.node.limits import OWNER_LATE_MS, OWNER_SETTLED_MS


class _Wait:
    """One who waits for what becomes of a queue."""

    __slots__ = ("done", "queue_id", "since_ms")

    def __init__(self, queue_id: int, since_ms: int, done: OnDone) -> None:
        self.queue_id = queue_id
        self.since_ms = since_ms
        self.done = done


class LostOwners:
    """Who waits at one node for queues of nodes that it does not reach."""

    def __init__(self, node_id: int, catalog: Callable[[], Catalog], session_timeout_ms: int) -> None:
        """`catalog()` is the node's replica; `session_timeout_ms`: when the cluster gives a silent node up."""
        self._node_id = node_id
        self._catalog = catalog
        self._within_ms: int = session_timeout_ms + OWNER_LATE_MS
        self._up_since_ms: dict[int, int] = {}
        self._waiting: list[_Wait] = []
        self._now_ms = 0

    def wait(self, queue_id: int, done: OnDone) -> None:
        """See `ClusterFacade.await_owner`."""
        self._waiting.append(_Wait(queue_id, self._now_ms, done))
        self._look()

    def peer_up(self, node_id: int, now_ms: int) -> None:
        """The stream to a node opened."""
        self._now_ms = now_ms
        self._up_since_ms[node_id] = now_ms

    def peer_down(self, node_id: int) -> None:
        """The stream to a node broke."""
        self._up_since_ms.pop(node_id, None)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._now_ms = now_ms
        self._look()

    def catalog_changed(self) -> None:
        """The replica has applied commands."""
        self._look()

    def _look(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        over: list[tuple[OnDone, bool]] = []
        for wait in waiting:
            if self._is_answerable(wait.queue_id):
                over.append((wait.done, True))
            elif self._now_ms - wait.since_ms >= self._within_ms:
                over.append((wait.done, False))
            else:
                self._waiting.append(wait)
        for done, answerable in over:
            done(answerable)

    def _is_answerable(self, queue_id: int) -> bool:
        record = self._catalog().queue_by_id(queue_id)
        if record is None or record.replicated or record.owner_node == self._node_id:
            return True
        # A node that has just come up may have begun anew: its old queues go when it says so.
        up_since_ms = self._up_since_ms.get(record.owner_node)
        return up_since_ms is not None and self._now_ms - up_since_ms >= OWNER_SETTLED_MS
