"""Queues that a bound of an entry has cut short, to go on in the order of their ids. HOT."""

from heapq import heapify, heappop, heappush
from typing import Final

from mayfly.node.shard.queue import Queue

_SLACK: Final = 64


class Backlog:
    """A set of queues. An entry takes as many of them as it has room for, and looks at no others.

    ``heap`` has the ids, some of queues that have left the set; ``taken`` those that this entry has taken already.
    """

    __slots__ = ("heap", "queues", "taken")

    def __init__(self) -> None:
        self.queues: dict[int, Queue] = {}
        self.heap: list[int] = []
        self.taken: list[int] = []

    def add(self, queue: Queue) -> None:
        """The queue is in the set."""
        queue_id = queue.queue_id
        if queue_id not in self.queues:
            self.queues[queue_id] = queue
            heappush(self.heap, queue_id)

    def remove(self, queue_id: int) -> None:
        """The queue is not in the set."""
        if self.queues and self.queues.pop(queue_id, None) is not None and len(self.heap) > (
            2 * len(self.queues) + _SLACK
        ):
            self.heap = list(self.queues)
            heapify(self.heap)

    def take(self) -> Queue | None:
        """The next one that this entry has not taken; None when there is none."""
        last = self.taken[-1] if self.taken else -1
        while self.heap:
            queue_id = heappop(self.heap)
            queue = self.queues.get(queue_id)
            if queue is not None and queue_id > last:
                self.taken.append(queue_id)
                return queue
        return None

    def put_back(self) -> None:
        """The entry is over: those that it has taken and that are in the set wait for the next one."""
        for queue_id in self.taken:
            if queue_id in self.queues:
                heappush(self.heap, queue_id)
        self.taken.clear()
