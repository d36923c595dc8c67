"""The broker of one node: its connections, and who of them gets what the shards deliver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from mayfly.node.amqp.connection import Connection
from mayfly.node.amqp.content import Content
from mayfly.node.broker.channel import Channel
from mayfly.node.broker.client import ConnectionHost
from mayfly.node.broker.client_socket import ClientSocket
from mayfly.node.broker.cluster_facade import ClusterFacade, UnreadableMessage
from mayfly.node.broker.connection import ClientConnection
from mayfly.node.broker.consumer_windows import ConsumerWindows
from mayfly.node.broker.consumers import Consumer
from mayfly.node.broker.large_publishes import LargePublishes
from mayfly.node.broker.login import NodeLogins
from mayfly.node.broker.made_in_alarm import MadeInAlarm
from mayfly.node.broker.node_consumers import NodeConsumers
from mayfly.node.broker.node_parts import NodeParts
from mayfly.node.broker.operation import AmqpError, no_room_error
from mayfly.node.broker.pressure import NodePressure
from mayfly.node.broker.reply_consumers import ReplyConsumers
from mayfly.node.broker.routes import NodeRoutes
from mayfly.node.broker.settings import BrokerSettings
from mayfly.node.broker.tokens import TokenLogins
from mayfly.node.broker.traffic import Traffic
from mayfly.node.broker.transaction import OpenTransactions
from mayfly.node.broker.unfinished_messages import UnfinishedMessages
from mayfly.node.broker.waiting_events import WaitingEvents
from mayfly.node.catalog import QueueRecord
from mayfly.node.limits import (
    CONSUMER_WINDOW_LAST_BYTES,
    LARGE_PUBLISHES_BYTES,
    MADE_IN_ALARM,
    WAITING_EVENTS_OF_NODE_BYTES,
    WAITING_EVENTS_OF_NODE_LOW_BYTES,
)
from mayfly.node.shard.commands import KEPT, encode_detach
from mayfly.node.shard.effects import ConsumerCancelled, ConsumerMoved, Deliver, Missing

logger = logging.getLogger(__name__)


class Broker:
    """All connections of one node.  Implements `ClusterEvents`."""

    def __init__(
        self,
        cluster: ClusterFacade,
        random_token: Callable[[], bytes],
        settings: BrokerSettings | None = None,
        tokens: TokenLogins | None = None,
    ) -> None:
        """`random_token()` answers 16 unpredictable octets. Without `tokens` users have passwords alone."""
        self.cluster: ClusterFacade = cluster
        self.settings: BrokerSettings = settings or BrokerSettings()
        self.connections: dict[str, ClientConnection] = {}
        self.logins: NodeLogins = NodeLogins(
            cluster, self.settings.loopback_users, random_token() + random_token(), tokens
        )
        self.unfinished: UnfinishedMessages = UnfinishedMessages(
            self.connections, self.settings.unfinished_bytes, self.settings.unfinished_bytes_of_connection
        )
        self.waiting_events: WaitingEvents = WaitingEvents(
            WAITING_EVENTS_OF_NODE_BYTES, WAITING_EVENTS_OF_NODE_LOW_BYTES, self._reading_may_change
        )
        self.large_publishes: LargePublishes = LargePublishes(
            LARGE_PUBLISHES_BYTES, self.settings.large_body_bytes
        )
        self.consumers: NodeConsumers = NodeConsumers(
            cluster.incarnation,
            ConsumerWindows(self.settings.consumer_windows_bytes, CONSUMER_WINDOW_LAST_BYTES),
        )
        self.reply_consumers: ReplyConsumers = ReplyConsumers()
        self.open_transactions: OpenTransactions = OpenTransactions(self.settings.transactions_bytes)
        self.traffic: Traffic = Traffic()
        self._made_in_alarm = MadeInAlarm(MADE_IN_ALARM)
        self._pressure = NodePressure(cluster, self.settings, self.waiting_events)
        self._parts = NodeParts(
            cluster,
            self.settings,
            random_token,
            self.connections,
            self.logins,
            NodeRoutes(cluster),
            self.consumers,
            self.reply_consumers,
            self._pressure,
            self.waiting_events,
            self.unfinished,
            self.large_publishes,
            self.open_transactions,
            self._made_in_alarm,
            self.traffic,
        )
        self._permissions_version: int = cluster.catalog.permissions_version
        self._next_connection = 1

    # -- connections --------------------------------------------------------------

    def connect(
        self, host: ConnectionHost, peer: str, loopback: bool, certificate_user: str | None = None,
        socket: ClientSocket | None = None,
    ) -> ClientConnection:  # fmt: skip
        """A socket was accepted.  `certificate_user` is whom the client's certificate names, if it had to show one."""
        self.settings.connection.cluster_name = self.cluster.catalog.cluster_name
        amqp = Connection(self.settings.connection, certificate_user)
        connection = ClientConnection(
            self._parts, amqp, host, self._next_connection, peer, loopback, socket, self._connection_over
        )
        self._next_connection += 1
        self.connections[connection.name] = connection
        return connection

    def ticked(self, now_ms: int) -> None:
        """See `ClusterEvents.ticked`."""
        self.traffic.now_ms = now_ms

    def _connection_over(self, name: str) -> None:
        self.connections.pop(name, None)

    def close_all(self, text: str) -> None:
        """The node goes down: tell every client (320)."""
        for connection in list(self.connections.values()):
            connection.force_close(text)

    # -- before the node stops (see node.engine.drain) -------------------------------

    def stop_deliveries(self) -> None:
        """No more deliveries to clients of this node; `deliveries_under_way` says when there are none any more."""
        self.consumers.stop()

    @property
    def deliveries_under_way(self) -> bool:
        """Whether some consumer may be given a message still."""
        return self.consumers.deliveries_under_way

    def stop_reading(self) -> None:
        """Take nothing from clients any more; what they have asked for is still answered."""
        self._pressure.reading_stopped = True
        self._reading_may_change()

    def resume(self) -> None:
        """Serve clients again."""
        self.consumers.stopped = self._pressure.reading_stopped = False
        for connection in list(self.connections.values()):
            connection.pressure.reading_may_change()
            for channel in connection.channels.values():
                channel.pause_consumers()

    @property
    def unacknowledged(self) -> int:
        """Deliveries that clients of this node have not settled."""
        channels = [channel for connection in self.connections.values() for channel in connection.channels.values()]
        return sum(channel.unacknowledged.count for channel in channels)

    @property
    def owes_answers(self) -> bool:
        """Whether a client waits for something that it has asked for."""
        connections = self.connections.values()
        return any(channel.owes_answers for connection in connections for channel in connection.channels.values())

    # -- ClusterEvents ------------------------------------------------------------

    def shard_effects(self, shard_id: int, effects: Sequence[object]) -> None:
        """Deliveries and cancellations for consumers of this node."""
        consumers = self.consumers.by_id
        for effect in effects:
            if isinstance(effect, Deliver):
                consumer = consumers.get(effect.consumer_id)
                if consumer is None:
                    continue
                self._deliver(consumer, effect)
            elif isinstance(effect, ConsumerCancelled):
                consumer = consumers.get(effect.consumer_id)
                if consumer is not None:
                    consumer.channel.consumer_cancelled(consumer.tag, consumer.holder)
            elif isinstance(effect, ConsumerMoved):
                consumer = consumers.get(effect.consumer_id)
                if consumer is not None:
                    consumer.channel.consumer_moved(consumer.tag, effect)
            elif isinstance(effect, Missing):
                consumer = consumers.get(effect.consumer_id)
                if consumer is not None:
                    detach = encode_detach(effect.queue_id, effect.consumer_id, KEPT)
                    consumer.handle.submit(detach, None)
                    consumer.channel.consumer_lost(consumer.tag, consumer.holder)

    def _deliver(self, consumer: Consumer, deliver: Deliver) -> None:
        """One unreadable message does not stop the deliveries of others."""
        client = consumer.channel.client
        try:
            consumer.deliver(deliver.first_delivery_id, deliver.messages)
            return
        except UnreadableMessage as error:
            # No defect.
            logger.error("delivery to %s failed: %s", client.name, error)
        except Exception:
            # A defect of ours must not end the node: the client is told, the log has the trace.
            logger.exception("delivery to %s failed", client.name)
        client.fail(AmqpError(541, "a message cannot be read"), 0, 0)

    def reply_came(self, key: str, content: Content) -> None:
        """See `ClusterEvents.reply_came`."""
        consumer = self.reply_consumers.by_key.get(key)
        if consumer is not None:
            consumer.deliver(content)

    def awaits_reply(self, key: str) -> bool:
        """See `ClusterEvents.awaits_reply`."""
        return key in self.reply_consumers.by_key

    def has_clients(self) -> bool:
        """See `ClusterEvents.has_clients`."""
        return any(connection.is_running for connection in self.connections.values())

    def consumes_from(self, shard_id: int) -> bool:
        """See `ClusterEvents.consumes_from`."""
        return self.consumers.are_in(shard_id)

    def session_lost(self, shard_id: int) -> None:
        """See `ClusterEvents.session_lost`."""
        for connection in list(self.connections.values()):
            connection.session_lost(shard_id)

    def queues_removed(self, queues: Sequence[QueueRecord]) -> None:
        """See `ClusterEvents.queues_removed`; connections of this node forget those that were exclusively theirs."""
        for queue in queues:
            if self.cluster.leads(queue.shard):
                self.traffic.queues_deleted += 1
            if queue.owner_connection and queue.owner_node == self.cluster.node_id:
                connection = self.connections.get(queue.owner_connection)
                if connection is not None:
                    connection.exclusive_queues.pop(queue.id, None)

    def catalog_changed(self) -> None:
        """See `ClusterEvents.catalog_changed`; routes notice by themselves. Connections of users and vhosts that are
        gone go."""
        version = self.cluster.catalog.permissions_version
        if version != self._permissions_version:
            self._permissions_version = version
            for connection in list(self.connections.values()):
                connection.permissions_changed()

    def alarm_changed(self, text: str | None) -> None:
        """See `ClusterEvents.alarm_changed`."""
        self.open_transactions.alarm = text is not None
        for connection in list(self.connections.values()):
            connection.pressure.alarm_changed(text)
        if text is not None:
            self._give_up_transactions()
        else:
            self._made_in_alarm.alarm_is_over()

    def _give_up_transactions(self) -> None:
        """Close the channels with the largest transactions, until the rest is within the limit: publishers are not read
        from now, so their commits are not seen."""
        channels = [channel for connection in self.connections.values() for channel in connection.channels.values()]
        waiting_bytes = sum(channel.transaction_bytes for channel in channels)
        for channel in sorted(channels, key=_transaction_bytes, reverse=True):
            if waiting_bytes <= self.open_transactions.limit_bytes:
                return
            waiting_bytes -= channel.transaction_bytes
            channel.fail(self.open_transactions.too_large(), 0, 0)

    def no_room_changed(self, elsewhere: bool) -> None:
        """See `ClusterEvents.no_room_changed`. Who waits for an answer is told that there is none; who consumes, too,
        if its messages can go to consumers elsewhere: here nothing is delivered any more, and nothing acknowledged."""
        if self.cluster.no_room is None:
            return
        error = no_room_error(self.cluster.no_room)
        for connection in list(self.connections.values()):
            channels = connection.channels.values()
            if any(channel.is_busy or (elsewhere and bool(channel.consumers)) for channel in channels):
                connection.fail(error, 0, 0)

    def pressure_changed(self, overloaded: bool) -> None:
        """See `ClusterEvents.pressure_changed`."""
        self._reading_may_change()

    def kept_bytes(self) -> int:
        """See `ClusterEvents.kept_bytes`."""
        return self.large_publishes.waiting_bytes

    def _reading_may_change(self) -> None:
        for connection in list(self.connections.values()):
            connection.pressure.reading_may_change()


def _transaction_bytes(channel: Channel) -> int:
    return channel.transaction_bytes
