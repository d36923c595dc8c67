"""Large messages go to their shards one after the other, and few at once from one node.

What is published to many queues makes an entry in the log of each of their shards: one message of 16 MiB for queues in
16 shards is 256 MiB to send, to write and to sync on every node. Given to all shards at once it holds up whatever
others publish for as long as that takes, and exists several times over meanwhile. So its channel gives it to one shard,
waits until that has it, and goes on with the next. Nothing but this channel waits for it, and if it is larger than what
may wait on a connection (WAITING_EVENTS_BYTES) that is not read meanwhile. All channels of a node stand in one line.
"""

from __future__ import annotations

from collections import deque

from mayfly.node.broker.cluster_facade import ClusterFacade, OnDone
from mayfly.node.broker.operation import Request


class LargePublishes:
    """The line of one node. One at a time goes to each shard: what waits for a shard that has no leader keeps nobody
    who is bound for another one."""

    def __init__(self, most_bytes: int, body_bytes: int) -> None:
        """So much may be under way, or two that are larger. A body larger than `body_bytes` goes in pieces."""
        self.body_bytes: int = body_bytes
        self.under_way_bytes: int = 0
        self.waiting_bytes: int = 0
        """Of those that stand in line: no shard has heard of them."""
        self._most_bytes = most_bytes
        self._largest_bytes = most_bytes // 2
        """What one counts for at most: beside one whose shard has no leader another one can go."""
        self._shards: set[int] = set()
        """Where something is on its way to."""
        self._waiting: deque[tuple[int, int, OnDone]] = deque()
        self._going_on = False

    def enter(self, shard_id: int, size_bytes: int, done: OnDone) -> None:
        """Stand in line; `done(None)`, perhaps at once, when it is one's turn. `leave` must follow."""
        size_bytes = min(size_bytes, self._largest_bytes)
        self._waiting.append((shard_id, size_bytes, done))
        self.waiting_bytes += size_bytes
        self._let_go_on()

    def leave(self, shard_id: int, size_bytes: int) -> None:
        """What was under way is there, or lost."""
        size_bytes = min(size_bytes, self._largest_bytes)
        self._shards.discard(shard_id)
        self.under_way_bytes -= size_bytes
        self._let_go_on()

    def _let_go_on(self) -> None:
        if self._going_on:
            # Where a shard answers at once each would go on inside of the one before, however many there are.
            return
        self._going_on = True
        try:
            while (place := self._next()) >= 0:
                shard_id, size_bytes, done = self._waiting[place]
                del self._waiting[place]
                self._shards.add(shard_id)
                self.waiting_bytes -= size_bytes
                self.under_way_bytes += size_bytes
                done(None)
        finally:
            self._going_on = False

    def _next(self) -> int:
        """The place in the line of whoever goes next; -1 for nobody."""
        for place, (shard_id, size_bytes, _) in enumerate(self._waiting):
            if shard_id not in self._shards:
                fits = not self.under_way_bytes or self.under_way_bytes + size_bytes <= self._most_bytes
                return place if fits else -1
        return -1


class TurnStep(Request):
    """Wait for one's turn in the line."""

    def __init__(self, line: LargePublishes, shard_id: int, size_bytes: int) -> None:
        self._line = line
        self._shard_id = shard_id
        self._size_bytes = size_bytes

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        self._line.enter(self._shard_id, self._size_bytes, done)
