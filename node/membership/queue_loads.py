"""Which queues of the shards that a node leads are the busiest, from counts that are kept anyway (pure).

Only shards that are hot are looked at, bit by bit: a shard may have a hundred thousand queues.

    a pass      over all queues of a shard, QUEUES of which a look takes; the next one begins MEASURED_EVERY_MS later
    a load      of a shard's load a queue has the part that it has of the work between two passes; smoothed as that is
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from mayfly.node.membership.group_loads import BYTES_PER_US, MEASURED_EVERY_MS, MESSAGE_US, SMOOTHED
from mayfly.node.membership.queue_balance import LEAST_PERMILLE, QueueLoad

QUEUES: Final = 500
"""A fraction of a millisecond."""
TOLD: Final = 8
"""So many of a shard's queues are told of: one of them is moved at a time."""

QueueWork = tuple[int, int, int, bool]
"""A queue's id, the messages that were put into it so far, how many bytes one of those in it has (0: none is), and
whether it may move."""


class _Passes:
    """Those over one shard's queues."""

    def __init__(self) -> None:
        self.began_ms = 0
        self.is_under_way = False
        self.busiest: tuple[QueueLoad, ...] = ()
        self._works: Iterator[QueueWork] = iter(())
        self._before: dict[int, int] = {}
        """Queue -> its messages at the pass before this one..."""
        self._now: dict[int, int] = {}
        """...and in this one."""
        self._took_us: dict[int, int] = {}
        """Of those that had any, what they took between the two."""
        self._may_move: set[int] = set()
        """Of these, and of those that had some before, those that may."""
        self._message_bytes: dict[int, int] = {}
        """What a message had when one was seen last, of these."""
        self._smoothed: dict[int, int] = {}

    def begin(self, works: Iterator[QueueWork], now_ms: int) -> None:
        """A pass begins."""
        self.began_ms, self.is_under_way, self._works = now_ms, True, works
        self._before, self._now = self._now, {}
        self._took_us, self._may_move = {}, set()

    def go_on(self, load: int) -> None:
        """Look at the next queues of a shard that is this load."""
        seen = 0
        for queue, messages, message_bytes, may_move in islice(self._works, QUEUES):
            seen += 1
            self._now[queue] = messages
            # What came with the queue from another shard is no work of this time, nor are counts of a snapshot.
            came = messages - self._before.get(queue, messages)
            if came > 0:
                size = self._message_bytes[queue] = message_bytes or self._message_bytes.get(queue, 0)
                self._took_us[queue] = came * MESSAGE_US + came * size // BYTES_PER_US
            if may_move and (came > 0 or queue in self._smoothed):
                self._may_move.add(queue)
        if seen < QUEUES:
            self._end(load)

    def _end(self, load: int) -> None:
        self.is_under_way = False
        self._message_bytes = {queue: self._message_bytes[queue] for queue in self._took_us}
        all_us = sum(self._took_us.values())
        for queue in self._smoothed.keys() | self._took_us.keys():
            measured = load * self._took_us.get(queue, 0) // max(1, all_us)
            self._smoothed[queue] = (self._smoothed.get(queue, 0) * (SMOOTHED - 1) + measured) // SMOOTHED
        self._smoothed = {queue: each for queue, each in self._smoothed.items() if each}
        may_move = [(each, queue) for queue, each in self._smoothed.items() if queue in self._may_move]
        self.busiest = tuple((queue, each) for each, queue in sorted(may_move, reverse=True)[:TOLD])


class QueueLoads:
    """The busiest queues of the hot shards of one node."""

    def __init__(self, works: Callable[[int], Iterator[QueueWork]]) -> None:
        """`works(group)` tells of all queues of a replica of this node; the shard may change meanwhile."""
        self.works: Callable[[int], Iterator[QueueWork]] = works
        self._passes: dict[int, _Passes] = {}

    def busiest(self, group: int) -> tuple[QueueLoad, ...]:
        """The busiest queues of a hot shard that may move, the busiest first; of others, and at first, none."""
        passes = self._passes.get(group)
        return () if passes is None else passes.busiest

    def look(self, loads: Mapping[int, int], leads: Callable[[int], bool], now_ms: int) -> None:
        """Look at some queues of the hot ones among these groups, whose loads are given."""
        hot = [group for group, load in loads.items() if load >= LEAST_PERMILLE and leads(group)]
        self._passes = {group: self._passes.get(group) or _Passes() for group in hot}
        for group, passes in self._passes.items():
            if not passes.is_under_way and now_ms - passes.began_ms >= MEASURED_EVERY_MS:
                passes.begin(self.works(group), now_ms)
            if passes.is_under_way:
                passes.go_on(loads[group])
