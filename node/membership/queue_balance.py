"""Which queue moves to another shard because its own is too hot (pure).

A shard is led by one node, so one that has more load than a node should carry evens out nowhere as a whole: some of its
queues have to go. A move costs every message that waits, and a pause of the queue's clients, so there is slack in all:

    a shard is hot      at LEAST_PERMILLE, if it is by one of HOT_PARTS above an even share of the load of all
    a move is good      if neither shard has, after it, more than the hot one now without one of GAIN_PARTS
    it is made          when there was a good one out of the same shard for `hot_for_ms`; then that time begins anew, so
                        that the next one follows from loads that have the last one in them

Of a queue that is all there is in a shard no move is good: it would be the other shard that is hot. For loads that stay
there is an end: with each move the squares of the shards' loads, as they are estimated, sum up to less. For others, a
queue that was moved stays for `stays_ms`.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

from mayfly.cluster.host.plan_moves import IDLE_WEIGHT

HOT_PARTS: Final = 4
LEAST_PERMILLE: Final = 100
"""A tenth of a core is no trouble to any node."""
GAIN_PARTS: Final = 8
HOT_FOR_MS: Final = 60_000
"""Loads are smoothed over 20 s: what they say after a minute is nearly all from the time since the last move."""
STAYS_MS: Final = 3_600_000
"""Two queues that are busy in turns would otherwise change places with each turn."""

QueueLoad = tuple[int, int]
"""A queue's id, and its load in thousandths of a core."""


class QueueMove(NamedTuple):
    """A queue is to move from one shard to another."""

    queue: int
    source: int
    target: int


class Loads(NamedTuple):
    """What a move follows from.

    `shards` has the loads of all shards in thousandths of a core, `leaders` the nodes that are to lead them, and
    `queues` the busiest queues of some of them that may move. There are so many `nodes` that may lead."""

    shards: Mapping[int, int]
    leaders: Mapping[int, int]
    queues: Mapping[int, Iterable[QueueLoad]]
    nodes: int


class QueueBalance:
    """What the catalog's leader remembers of moves and loads; a new leader begins anew."""

    def __init__(self, hot_for_ms: int = HOT_FOR_MS, stays_ms: int = STAYS_MS) -> None:
        self._hot_for_ms = hot_for_ms
        self._stays_ms = stays_ms
        self._source = 0
        """The shard that is hot, 0 for none, since then..."""
        self._since_ms = 0
        self._moved_ms: dict[int, int] = {}
        """Queue -> when it was moved."""

    def rest(self) -> None:
        """Nothing is to be moved now: what is hot has to last anew."""
        self._source = 0

    def next_move(self, loads: Loads, now_ms: int) -> QueueMove | None:
        """The move to make now, which is taken as made; None if there is none."""
        self._moved_ms = {queue: ms for queue, ms in self._moved_ms.items() if now_ms - ms < self._stays_ms}
        move = good_move(loads, self._moved_ms, self._source)
        if move is None:
            self.rest()
            return None
        if move.source != self._source:
            self._source, self._since_ms = move.source, now_ms
        if now_ms - self._since_ms < self._hot_for_ms:
            return None
        self._moved_ms[move.queue] = self._since_ms = now_ms
        return move

    def not_made(self, queue: int) -> None:
        """The move of this queue that was made has not come about."""
        self._moved_ms.pop(queue, None)


def good_move(loads: Loads, stay: Container[int] = (), before: int = 0) -> QueueMove | None:
    """The move out of the hottest shard that has a good one, to the least loaded; None if no move is good. Queues that
    `stay` are left where they are. As long as the shard `before` has a good one, it is that: of two that are about as
    hot now the one is hotter and now the other."""
    shards = loads.shards
    if len(shards) < 2 or loads.nodes < 2:
        return None
    share = sum(shards.values()) // min(loads.nodes, len(shards))
    hot_permille = max(LEAST_PERMILLE, share + share // HOT_PARTS)
    for source in sorted(loads.queues, key=lambda shard: (shard != before, -shards.get(shard, 0), shard)):
        load = shards.get(source, 0)
        if load <= hot_permille:
            continue
        target = _least_loaded(loads, source)
        left = [
            (max(load - of_queue, shards[target] + of_queue), of_queue, queue)
            for queue, of_queue in loads.queues[source]
            if queue not in stay
        ]
        if left and min(left)[0] <= load - load // GAIN_PARTS:
            return QueueMove(min(left)[2], source, target)
    return None


def _least_loaded(loads: Loads, source: int) -> int:
    """Of shards that do next to nothing one whose leader has the least to do."""
    of_nodes: dict[int, int] = {}
    for shard, load in loads.shards.items():
        leader = loads.leaders.get(shard, 0)
        of_nodes[leader] = of_nodes.get(leader, 0) + load

    def rank(shard: int) -> tuple[int, int, int]:
        return max(IDLE_WEIGHT, loads.shards[shard]), of_nodes[loads.leaders.get(shard, 0)], shard

    return min((shard for shard in loads.shards if shard != source), key=rank)
