"""The outbox: messages that died and are on their way to their dead-letter queues (RULES D6-D8). HOT.

A death waits in ``unrouted``, in order, until the leader has decided where it goes. What goes to a queue of
another shard then waits in the lane of that queue until that shard has committed it.
"""

from collections import deque
from typing import Final

from mayfly.node.shard.message import Message
from mayfly.node.shard.settings import ShardQueueSettings

EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
DELIVERY_LIMIT: Final = "delivery_limit"
MAXLEN: Final = "maxlen"
QUEUE_EXPIRED: Final = "queue_expired"
REASONS: Final = (EXPIRED, REJECTED, DELIVERY_LIMIT, MAXLEN, QUEUE_EXPIRED)


class Death:
    """One message that died in ``queue_id`` at ``time_ms`` for ``reason`` (RULES D2).

    ``settings`` are the queue's at that moment: they say where it goes even if the queue is gone.
    ``sequence`` numbers the deaths of the shard from 1.
    """

    __slots__ = ("message", "queue_id", "reason", "sequence", "settings", "time_ms")

    def __init__(
        self, sequence: int, queue_id: int, message: Message, reason: str, time_ms: int,
        settings: ShardQueueSettings,
    ) -> None:
        self.sequence = sequence
        self.queue_id = queue_id
        self.message = message
        self.reason = reason
        self.time_ms = time_ms
        self.settings = settings


class Lane:
    """What waits for one target queue in another shard: ``items[i]`` has the sequence ``first_sequence + i``.

    Sequences count from 1 without gaps and never start again: the target remembers the highest. An item is
    where the content stands in this shard's log (the ROUTE entry).
    """

    __slots__ = ("first_sequence", "items", "target_queue", "target_shard")

    def __init__(self, target_shard: int, target_queue: int) -> None:
        self.target_shard = target_shard
        self.target_queue = target_queue
        self.first_sequence = 1
        self.items: deque[Message] = deque()


class Outbox:
    """Deaths in order, the parked ones, the lanes, and what became of the others. ``filled`` are the lanes in which
    something waits, ``in_lanes`` things altogether.

    Only entries change it. ``routed`` deaths reached a queue or a lane; ``dropped_*`` did not, for the reason
    named; ``lost`` targets were gone when a message got there or waited for them; ``settled`` lane items were
    committed.
    """

    __slots__ = (
        "dropped_by_operator",
        "dropped_cycle",
        "dropped_unroutable",
        "filled",
        "in_lanes",
        "lanes",
        "lost",
        "next_sequence",
        "parked",
        "routed",
        "settled",
        "unrouted",
    )

    def __init__(self) -> None:
        self.unrouted: deque[Death] = deque()
        self.parked: dict[int, Death] = {}
        self.lanes: dict[int, Lane] = {}
        self.filled: dict[int, Lane] = {}
        self.in_lanes = 0
        self.next_sequence = 1
        self.routed = 0
        self.settled = 0
        self.lost = 0
        self.dropped_cycle = 0
        self.dropped_unroutable = 0
        self.dropped_by_operator = 0

    def add(
        self, queue_id: int, message: Message, reason: str, time_ms: int, settings: ShardQueueSettings
    ) -> None:
        """A message died; its entry stays live."""
        self.unrouted.append(Death(self.next_sequence, queue_id, message, reason, time_ms, settings))
        self.next_sequence += 1

    def lane(self, target_shard: int, target_queue: int) -> Lane:
        """The lane of this target, opened if it is new."""
        found = self.lanes.get(target_queue)
        if found is None:
            found = Lane(target_shard, target_queue)
            self.lanes[target_queue] = found
        return found

    def put_in_lane(self, target_shard: int, target_queue: int, content: Message) -> None:
        """It waits for a queue of another shard, or for room in one of this."""
        lane = self.lane(target_shard, target_queue)
        lane.items.append(content)
        self.in_lanes += 1
        self.filled[target_queue] = lane

    def take_from_lane(self, lane: Lane) -> Message:
        """The first item of a lane leaves it."""
        item = lane.items.popleft()
        lane.first_sequence += 1
        self.in_lanes -= 1
        if not lane.items:
            del self.filled[lane.target_queue]
        return item

    def restore_lane(self, lane: Lane) -> None:
        """A lane as it was."""
        self.lanes[lane.target_queue] = lane
        self.in_lanes += len(lane.items)
        if lane.items:
            self.filled[lane.target_queue] = lane

    def close_lane(self, target_queue: int) -> list[Message]:
        """There is no such lane any more; what waited in it."""
        lane = self.lanes.pop(target_queue, None)
        if lane is None:
            return []
        self.filled.pop(target_queue, None)
        self.in_lanes -= len(lane.items)
        return list(lane.items)

    def depth(self) -> int:
        """Everything that waits: deaths without a decision, and lane items; without the parked ones."""
        return len(self.unrouted) + self.in_lanes
