"""basic.qos with global: a limit for all consumers of a channel together.

Each consumer's shard keeps to the limit for that consumer, and this for the channel: what comes beyond the limit waits
here, in the order in which it came, until the client has settled as much.  So it waits for this channel, and is not
given to others meanwhile. Its contents are in memory: where they are many, the consumers are paused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from node.limits import OUTPUT_HIGH_WATER_BYTES, OUTPUT_LOW_WATER_BYTES
from node.shard.commands import RETURN, UNSENT, encode_detach, encode_settle, encode_settle_up_to

if TYPE_CHECKING:
    from node.amqp.content import Content
    from node.broker.consumers import Consumer
    from node.broker.unacknowledged import Unacknowledged

NO_LIMIT: Final = 0

_DELIVERY_BYTES: Final = 512
"""What a delivery that waits counts for besides its content."""


class HeldBack:
    """Deliveries of one consumer that wait: (redelivered, content), with rising delivery ids."""

    def __init__(self, consumer: Consumer, first_delivery_id: int, deliveries: list[tuple[bool, Content]]) -> None:
        self.consumer: Consumer = consumer
        self.first_delivery_id: int = first_delivery_id
        self.deliveries: list[tuple[bool, Content]] = deliveries


class GlobalPrefetch:
    """The limit of one channel, and what waits for it."""

    def __init__(self, unacknowledged: Unacknowledged, fullness_changed: Callable[[], None]) -> None:
        self.limit: int = NO_LIMIT
        self.held_back_bytes: int = 0
        self.is_full: bool = False
        """So much waits that there should be no more; no longer so once little does."""
        self._fullness_changed = fullness_changed
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
        self.held_back_bytes += _size_of(held_back.deliveries)
        self._look()

    def send(self) -> None:
        """Send what may be sent now."""
        self._send()
        self._look()

    def _send(self) -> None:
        while self._waiting and self._waiting[0].consumer.channel.open:
            first = self._waiting[0]
            count = len(first.deliveries)
            if self.limit != NO_LIMIT:
                # What came by basic.get counts nothing, as in RabbitMQ.
                held = self._unacknowledged.count - self._unacknowledged.got
                count = min(count, self.limit - held)
            if count <= 0:
                return
            sent = first.deliveries[:count]
            first.consumer.send(first.first_delivery_id, sent)
            first.first_delivery_id += count
            del first.deliveries[:count]
            self.held_back_bytes -= _size_of(sent)
            if not first.deliveries:
                self._waiting.popleft()

    def give_back(self, consumer: Consumer) -> None:
        """The channel ends: if deliveries of this consumer wait, give back all that it holds, those uncounted."""
        first = next((held_back for held_back in self._waiting if held_back.consumer is consumer), None)
        if first is None:
            return
        # The consumer ends before, so that it is given nothing more. What the client was sent comes first in the queue.
        holder, handle = consumer.holder, consumer.handle
        handle.submit(encode_detach(holder.queue_id, holder.holder_id, False), None)
        sent_up_to = first.first_delivery_id - 1
        handle.submit(encode_settle_up_to(holder.queue_id, holder.holder_id, RETURN, sent_up_to), None)
        self.forget(consumer, True)

    def forget(self, consumer: Consumer, give_back: bool) -> None:
        """The consumer is gone; `give_back`: its shard still counts these deliveries as the consumer's."""
        mine = [held_back for held_back in self._waiting if held_back.consumer is consumer]
        self._waiting = deque([held_back for held_back in self._waiting if held_back.consumer is not consumer])
        self.held_back_bytes -= sum(_size_of(held_back.deliveries) for held_back in mine)
        self._look()
        if give_back and mine:
            ids = [held_back.first_delivery_id + n for held_back in mine for n in range(len(held_back.deliveries))]
            holder = consumer.holder
            consumer.handle.submit(encode_settle(holder.queue_id, holder.holder_id, UNSENT, ids), None)

    def _look(self) -> None:
        limit_bytes = OUTPUT_LOW_WATER_BYTES if self.is_full else OUTPUT_HIGH_WATER_BYTES
        is_full = self.held_back_bytes > limit_bytes
        if is_full != self.is_full:
            self.is_full = is_full
            self._fullness_changed()


def _size_of(deliveries: list[tuple[bool, Content]]) -> int:
    return sum(_DELIVERY_BYTES + content.size_bytes for _, content in deliveries)
