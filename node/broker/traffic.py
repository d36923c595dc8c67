"""What the clients of one node have done since its process began: counts for operators, nothing goes by them.  HOT.

They are what RabbitMQ counts for its `rabbitmq_global_...` metrics, and what it shows as `message_stats`. Each is
counted where it happens, once for what comes or goes together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from mayfly.node.amqp.content import Content
from mayfly.node.broker.watching import Watch

SIZE_BOUNDS: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)
"""Bodies are counted by size, in bytes: up to and with each bound, and beyond the last. RabbitMQ's."""

MOST_EXCHANGES: Final = 10_000
"""Of a vhost, with counts of their own."""


class MessageCounts:
    """What has become of messages, of one channel, one vhost or all of a node."""

    def __init__(self) -> None:
        self.received: int = 0
        self.confirmed: int = 0
        self.unroutable_dropped: int = 0
        self.unroutable_returned: int = 0
        self.delivered_manual_ack: int = 0
        self.delivered_auto_ack: int = 0
        self.got_manual_ack: int = 0
        self.got_auto_ack: int = 0
        self.get_empty: int = 0
        self.redelivered: int = 0
        """Of those delivered and got, again."""
        self.acknowledged: int = 0

    @property
    def delivered(self) -> int:
        """Messages that went to clients, in whatever way."""
        return self.delivered_manual_ack + self.delivered_auto_ack + self.got_manual_ack + self.got_auto_ack


class VhostTraffic(MessageCounts):
    """Of one vhost, through this node."""

    def __init__(self) -> None:
        super().__init__()
        self.by_exchange: dict[bytes, int] = {}
        """Messages that came to each exchange from clients; beyond MOST_EXCHANGES further ones are not counted."""

    def receive(self, contents: Sequence[Content], first: int, end: int) -> None:
        """Publishes contents[first:end] were taken. Most of them are for the same exchange."""
        self.received += end - first
        begin = first
        last = contents[first].exchange_and_key
        for position in range(first + 1, end):
            key = contents[position].exchange_and_key
            if key != last:
                self._count(last, position - begin)
                begin, last = position, key
        self._count(last, end - begin)

    def _count(self, exchange_and_key: bytes, messages: int) -> None:
        exchange = exchange_and_key[1 : 1 + exchange_and_key[0]]
        known = self.by_exchange.get(exchange)
        if known is not None or len(self.by_exchange) < MOST_EXCHANGES:
            self.by_exchange[exchange] = messages + (known or 0)


class Traffic(MessageCounts):
    """Of all connections of one node, those included that are over."""

    def __init__(self) -> None:
        super().__init__()
        self.vhosts: dict[str, VhostTraffic] = {}
        self.watches: list[Watch] = []
        """Of operators who look at the moment."""
        self.now_ms: int = 0
        """The process clock as of the last tick: near enough to say since when something is idle."""
        self.connections_opened: int = 0
        """Those that came into a vhost; so with those that are closed."""
        self.connections_closed: int = 0
        self.channels_opened: int = 0
        self.channels_closed: int = 0
        self.publishers: int = 0
        """Channels that have published and are not over."""
        self.queues_declared: int = 0
        """Declares that were answered with declare-ok, but for passive ones."""
        self.queues_created: int = 0
        """Of these, those that made a queue."""
        self.queues_deleted: int = 0
        """Queues that are gone, for whatever reason, and whose shard this node led then."""
        self.received_confirm: int = 0
        """Of those received, with a confirm to come."""
        self.routed: int = 0
        """One for each queue that a message was routed to; in a transaction with its commit."""
        self.body_bytes: int = 0
        """Of all that was received."""
        self.by_size: list[int] = [0] * (len(SIZE_BOUNDS) + 1)

    def of_vhost(self, vhost: str) -> VhostTraffic:
        """That part of it; a vhost that is made anew has the same."""
        found = self.vhosts.get(vhost)
        if found is None:
            found = self.vhosts[vhost] = VhostTraffic()
        return found

    def receive(self, contents: Sequence[Content], first: int, end: int) -> None:
        """Publishes contents[first:end] were taken. Most of them are of the same size."""
        self.received += end - first
        begin = first
        last_bytes = len(contents[first].body)
        for position in range(first + 1, end):
            size_bytes = len(contents[position].body)
            if size_bytes != last_bytes:
                self._count(last_bytes, position - begin)
                begin, last_bytes = position, size_bytes
        self._count(last_bytes, end - begin)

    def _count(self, size_bytes: int, messages: int) -> None:
        self.body_bytes += messages * size_bytes
        self.by_size[bisect_left(SIZE_BOUNDS, size_bytes)] += messages


class ChannelTraffic(MessageCounts):
    """Of one channel; what is counted on it counts for its vhost and its node as well."""

    def __init__(self, vhost: VhostTraffic, node: Traffic) -> None:
        super().__init__()
        self._vhost: VhostTraffic = vhost
        self.node: Traffic = node
        self.active_ms: int = node.now_ms
        """When its client asked for something, or was given something, last; see `Traffic.now_ms`."""

    def receive(self, contents: Sequence[Content], first: int, end: int) -> None:
        """Publishes contents[first:end], which are some, were taken."""
        self.received += end - first
        self._vhost.receive(contents, first, end)
        self.node.receive(contents, first, end)

    def confirm(self, messages: int) -> None:
        """So many were confirmed."""
        self.active_ms = self.node.now_ms
        self.confirmed += messages
        self._vhost.confirmed += messages
        self.node.confirmed += messages

    def drop(self) -> None:
        """A message had no route, and nobody is told."""
        self.unroutable_dropped += 1
        self._vhost.unroutable_dropped += 1
        self.node.unroutable_dropped += 1

    def return_(self, messages: int) -> None:
        """So many had no route, and went back."""
        self.unroutable_returned += messages
        self._vhost.unroutable_returned += messages
        self.node.unroutable_returned += messages

    def deliver(self, messages: int, again: int, auto_ack: bool) -> None:
        """So many went to a consumer, some of them again."""
        self.active_ms = self.node.now_ms
        if auto_ack:
            self.delivered_auto_ack += messages
            self._vhost.delivered_auto_ack += messages
            self.node.delivered_auto_ack += messages
        else:
            self.delivered_manual_ack += messages
            self._vhost.delivered_manual_ack += messages
            self.node.delivered_manual_ack += messages
        if again:
            self._redeliver(again)

    def get(self, again: bool, auto_ack: bool) -> None:
        """A message was got."""
        if auto_ack:
            self.got_auto_ack += 1
            self._vhost.got_auto_ack += 1
            self.node.got_auto_ack += 1
        else:
            self.got_manual_ack += 1
            self._vhost.got_manual_ack += 1
            self.node.got_manual_ack += 1
        if again:
            self._redeliver(1)

    def get_nothing(self) -> None:
        """There was none."""
        self.get_empty += 1
        self._vhost.get_empty += 1
        self.node.get_empty += 1

    def acknowledge(self, messages: int) -> None:
        """So many were acknowledged."""
        self.acknowledged += messages
        self._vhost.acknowledged += messages
        self.node.acknowledged += messages

    def _redeliver(self, messages: int) -> None:
        self.redelivered += messages
        self._vhost.redelivered += messages
        self.node.redelivered += messages
