"""basic.qos with global: a limit for all consumers of a channel together.

Each consumer's shard keeps to the limit for that consumer, and this for the channel: what comes beyond the limit waits
here, in the order in which it came, until the client has settled as much.  So it waits for this channel, and is not
given to others meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from node.shard.commands import REQUEUE, encode_settle

if TYPE_CHECKING:
    from node.amqp.content import Content
    from node.broker.consumers import Consumer
    from node.broker.unacknowledged import Unacknowledged

NO_LIMIT: Final = 0


class HeldBack:
    """Deliveries of one consumer that wait: (redelivered, content), with rising delivery ids."""

    def __init__(self, consumer: Consumer, first_delivery_id: int, deliveries: list[tuple[bool, Content]]) -> None:
        self.consumer: Consumer = consumer
        self.first_delivery_id: int = first_delivery_id
        self.deliveries: list[tuple[bool, Content]] = deliveries


class GlobalPrefetch:
    """The limit of one channel, and what waits for it."""

    def __init__(self, unacknowledged: Unacknowledged) -> None:
        self.limit: int = NO_LIMIT
        self._unacknowledged = unacknowledged
        self._waiting: deque[HeldBack] = deque()

    @property
    def is_used(self) -> bool:
        """Whether deliveries have to come by here."""
        return self.limit != NO_LIMIT or bool(self._waiting)

    def of(self, prefetch: int) -> int:
        """What a consumer with this limit of its own may hold, 0 for no limit."""
        return min(prefetch, self.limit) if prefetch and self.limit else prefetch or self.limit

    def add(self, held_back: HeldBack) -> None:
        """Deliveries have come."""
        self._waiting.append(held_back)

    def send(self) -> None:
        """Send what may be sent now."""
        while self._waiting and self._waiting[0].consumer.channel.open:
            first = self._waiting[0]
            count = len(first.deliveries)
            if self.limit != NO_LIMIT:
                # What came by basic.get counts nothing, as in RabbitMQ.
                held = self._unacknowledged.count - self._unacknowledged.got
                count = min(count, self.limit - held)
            if count <= 0:
                return
            first.consumer.send(first.first_delivery_id, first.deliveries[:count])
            first.first_delivery_id += count
            del first.deliveries[:count]
            if not first.deliveries:
                self._waiting.popleft()

    def forget(self, consumer: Consumer, give_back: bool) -> None:
        """The consumer is gone; `give_back`: its shard still counts these deliveries as the consumer's."""
        mine = [held_back for held_back in self._waiting if held_back.consumer is consumer]
        self._waiting = deque([held_back for held_back in self._waiting if held_back.consumer is not consumer])
        if give_back and mine:
            ids = [held_back.first_delivery_id + n for held_back in mine for n in range(len(held_back.deliveries))]
            holder = consumer.holder
            consumer.handle.submit(encode_settle(holder.queue_id, holder.holder_id, REQUEUE, ids), None)
