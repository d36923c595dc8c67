"""The outbox: messages that died and are on their way to their dead-letter queues (RULES D6-D8). HOT.

A death waits in ``unrouted``, in order, until the leader has decided where it goes. What goes to a queue of
another shard then waits in the lane of that queue until that shard has committed it.
"""

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from mayfly.node.shard.message import Message
from mayfly.node.shard.message_id import NO_DIGEST
from mayfly.node.shard.settings import ShardQueueSettings

EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
DELIVERY_LIMIT: Final = "delivery_limit"
MAXLEN: Final = "maxlen"
QUEUE_EXPIRED: Final = "queue_expired"
# What an item of a lane is (`item_kind`). All but the first are of a queue that has moved from here (`moving`).
LETTER: Final = 0
"""A dead letter, or what was due."""
PUBLISHED: Final = 1
"""A message of the queue that was never delivered, or goes behind those."""
RETURNED: Final = 2
"""One that came back."""
MANIFEST: Final = 3
"""The queue itself: MOVE_IN."""
END: Final = 4
"""All that was in the queue when it left is before this."""
RELEASED: Final = 5
"""Nobody holds the queue's lease from here any more (RULES L3)."""
SCHEDULED: Final = 6
"""A message of the queue that waits for its time, which is when it counts as enqueued."""
_KIND_SHIFT: Final = 16

REASONS: Final = (EXPIRED, REJECTED, DELIVERY_LIMIT, MAXLEN, QUEUE_EXPIRED)
"""Why messages die (RULES D2)."""
DUE: Final = "due"
"""Not dead, but to be routed as those are: what has waited for a delayed exchange (RULES S1)."""
RECORD_OF_EXPIRED: Final = "journal-expired"
"""No death, but the record of one (RULES R4), which is to be routed into the queue's journal: of its deadline,"""
RECORD_OF_QUEUE_EXPIRED: Final = "journal-queue-expired"
"""of its queue's end,"""
RECORD_OF_QUEUE: Final = "journal-queue"
"""and of a queue whose lease has run out. Its message has no content, and stands for the queue: it was last used when
that came, its lease ended at the deadline, and so many messages went with it as that was delivered."""
RECORDS: Final = (RECORD_OF_EXPIRED, RECORD_OF_QUEUE_EXPIRED, RECORD_OF_QUEUE)
PARKED_REASONS: Final = (*REASONS, *RECORDS)
"""Of what may be parked, as operators are shown it."""
ALL_REASONS: Final = (*REASONS, DUE, *RECORDS)
"""In the order of a snapshot's numbers."""


_NO_DIGESTS: Final[dict[int, bytes]] = {}
"""What all lanes without any have in common; never changed."""


# Thousands of them wait at once: it refers to nothing that refers to it, as a message.
@mypyc_attr(acyclic=True)
class Death:
    """One message that died in ``queue_id`` at ``time_ms`` for ``reason`` (RULES D2), is DUE, or is to be noted in the
    queue's journal (RECORDS).

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
    where the content stands in this shard's log (of a dead letter, in the ROUTE entry), and what it is (`item_kind`).

    ``digests``, by sequence: of the ids of items that wait for their time, for a queue that comes back before they have
    gone (`node.shard.message_id`).

    ``target_shard`` is where the queue was when the lane was filled; it may have moved since. ``last_own``, of the lane
    of a queue that has left: the last sequence that had no letter, if it waits still.
    """

    __slots__ = ("digests", "first_sequence", "items", "last_own", "target_queue", "target_shard")

    def __init__(self, target_shard: int, target_queue: int) -> None:
        self.target_shard = target_shard
        self.target_queue = target_queue
        self.first_sequence = 1
        self.last_own = 0
        self.items: deque[Message] = deque()
        self.digests = _NO_DIGESTS

    def note_digest(self, digest: bytes) -> None:
        """The last item is SCHEDULED, and this the digest of its id."""
        if not self.digests:
            self.digests = {}
        self.digests[self.last_sequence()] = digest

    def first_digest(self) -> bytes:
        """That of the first item."""
        return self.digests.get(self.first_sequence, NO_DIGEST) if self.digests else NO_DIGEST

    def find_own(self) -> None:
        """Find what `last_own` is, of a lane as it was."""
        sequence = self.last_sequence()
        for item in reversed(self.items):
            if item_kind(item) != LETTER:
                self.last_own = sequence
                return
            sequence -= 1

    def last_sequence(self) -> int:
        """Of the last item, or the one before the next if there is none."""
        return self.first_sequence + len(self.items) - 1


def as_item(message: Message, kind: int) -> Message:
    """The message as an item of a lane. (Where it keeps what it is: in the priority, above that in its queue.)"""
    return message.with_priority(kind << _KIND_SHIFT | message.priority) if kind else message


def item_kind(item: Message) -> int:
    """What an item of a lane is: LETTER, PUBLISHED and so on."""
    return item.priority >> _KIND_SHIFT


def item_priority(item: Message) -> int:
    """Its priority in its queue."""
    return item.priority & ((1 << _KIND_SHIFT) - 1)


class Outbox:
    """Deaths in order, the parked ones, the lanes, and what became of the others. ``filled`` are the lanes in which
    something waits, ``in_lanes`` things altogether.

    Only entries change it. ``routed`` deaths reached a queue or a lane; ``dropped_*`` did not, for the reason
    named, nor did ``dropped_due`` messages of delayed exchanges, which had no route when they were due; ``lost``
    targets were gone when a message got there or waited for them; ``settled`` lane items were committed. ``journaled``
    records reached a journal or a lane (RULES R4).
    """

    __slots__ = (
        "dropped_by_operator",
        "dropped_cycle",
        "dropped_due",
        "dropped_unroutable",
        "filled",
        "in_lanes",
        "journaled",
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
        self.dropped_due = 0
        self.journaled = 0

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
        if item_kind(content) != LETTER:
            lane.last_own = lane.last_sequence()
        self.in_lanes += 1
        self.filled[target_queue] = lane

    def put_run_in_lane(self, target_shard: int, target_queue: int, contents: list[Message]) -> None:
        """`put_in_lane` for at least one letter."""
        lane = self.lane(target_shard, target_queue)
        lane.items.extend(contents)
        self.in_lanes += len(contents)
        self.filled[target_queue] = lane

    def take_up_to(self, lane: Lane, up_to: int) -> list[Message]:
        """The first items of a lane leave it, up to this sequence."""
        items = lane.items
        count = max(0, min(up_to + 1 - lane.first_sequence, len(items)))
        if lane.digests:
            return [self.take_from_lane(lane) for _ in range(count)]
        leaving = [items.popleft() for _ in range(count)]
        lane.first_sequence += count
        self.in_lanes -= count
        if count and not items:
            del self.filled[lane.target_queue]
        return leaving

    def take_from_lane(self, lane: Lane) -> Message:
        """The first item of a lane leaves it."""
        item = lane.items.popleft()
        if lane.digests:
            lane.digests.pop(lane.first_sequence, None)
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
