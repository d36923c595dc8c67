"""All consumers that are attached through one node, by the ids under which the shards know them."""

from __future__ import annotations

from typing import Final

from mayfly.node.broker.cluster_facade import ShardHandle
from mayfly.node.broker.consumer_terms import USUAL_TERMS, ConsumerTerms
from mayfly.node.broker.consumer_windows import ConsumerWindows
from mayfly.node.broker.consumers import Consumer
from mayfly.node.broker.unacknowledged import DeliveryHolder
from mayfly.node.numbers import STARTS_SHIFT

_IDS_BITS: Final = 33
"""An incarnation tells the starts of a node apart in its upper bits: 30 of them, so that ids fit 63."""


class NodeConsumers:
    """Who gets what, and whether anybody gets anything."""

    def __init__(self, incarnation: int, windows: ConsumerWindows) -> None:
        self.by_id: dict[int, Consumer] = {}
        self.windows: ConsumerWindows = windows
        self.stopped: bool = False
        """The node is about to stop: there are no more deliveries."""
        self._terms: dict[int, ConsumerTerms] = {}
        """By consumer id, where they are not the usual ones."""
        self._in_shards: dict[int, int] = {}
        """How many there are, by shard."""
        # Consumer ids of an earlier life of the node may still come up in its log.
        self._next_id = ((incarnation >> STARTS_SHIFT) << _IDS_BITS) + 1
        self._pauses_under_way = 0

    def new_id(self) -> int:
        """A consumer or holder id that this incarnation of the node has not used."""
        id = self._next_id
        self._next_id = id + 1
        return id

    def add(self, consumer: Consumer, terms: ConsumerTerms) -> None:
        """Deliveries for this consumer's id go to it from now on."""
        self.by_id[consumer.holder.holder_id] = consumer
        self._count(consumer.holder, 1)
        if not terms.are_usual:
            self._terms[consumer.holder.holder_id] = terms

    def terms_of(self, consumer: Consumer) -> ConsumerTerms:
        """What the client has asked for."""
        return self._terms.get(consumer.holder.holder_id, USUAL_TERMS)

    def attached_again(self, consumer: Consumer, holder: DeliveryHolder, handle: ShardHandle) -> None:
        """A consumer is in another shard, with its queue."""
        old_id = consumer.holder.holder_id
        del self.by_id[old_id]
        self.by_id[holder.holder_id] = consumer
        self._count(consumer.holder, -1)
        self._count(holder, 1)
        terms = self._terms.pop(old_id, None)
        if terms is not None:
            self._terms[holder.holder_id] = terms
        self.windows.rename(old_id, holder.holder_id)
        consumer.move(holder, handle)

    def forget(self, consumer_id: int) -> None:
        """Deliveries that are still on their way to the consumer are dropped: if it was not detached before, its shard
        takes them back."""
        self.windows.close(consumer_id)
        consumer = self.by_id.pop(consumer_id, None)
        if consumer is not None:
            self._count(consumer.holder, -1)
        self._terms.pop(consumer_id, None)

    def are_in(self, shard_id: int) -> bool:
        """Whether any is attached to a queue of this shard."""
        return shard_id in self._in_shards

    def _count(self, holder: DeliveryHolder, more: int) -> None:
        count = self._in_shards.pop(holder.shard_id, 0) + more
        if count:
            self._in_shards[holder.shard_id] = count

    def stop(self) -> None:
        """No more deliveries; `deliveries_under_way` says when there are none any more."""
        self.stopped = True
        for consumer in list(self.by_id.values()):
            self.hold_back(consumer)

    def hold_back(self, consumer: Consumer) -> None:
        """Stop the deliveries to one consumer."""
        if consumer.set_paused(True, self._paused):
            self._pauses_under_way += 1

    def _paused(self, result: object) -> None:
        self._pauses_under_way -= 1

    @property
    def deliveries_under_way(self) -> bool:
        """Whether some consumer may be given a message still, after `stop`."""
        return self._pauses_under_way > 0
