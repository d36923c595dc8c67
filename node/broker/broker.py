"""The broker of one node: its connections, and who of them gets what the shards deliver."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES
from mayfly.node.amqp.connection import Connection
from mayfly.node.amqp.content import Content
from mayfly.node.amqp.settings import ConnectionSettings
from mayfly.node.broker.channel import Channel
from mayfly.node.broker.client_socket import ClientSocket
from mayfly.node.broker.cluster_facade import ClusterFacade, Done
from mayfly.node.broker.connection import ClientConnection, ConnectionHost
from mayfly.node.broker.consumer_terms import USUAL_TERMS, ConsumerTerms
from mayfly.node.broker.consumer_windows import ConsumerWindows
from mayfly.node.broker.consumers import Consumer
from mayfly.node.broker.credentials import CredentialCache
from mayfly.node.broker.failed_logins import FailedLogins
from mayfly.node.broker.large_publishes import LargePublishes
from mayfly.node.broker.made_in_alarm import MadeInAlarm
from mayfly.node.broker.operation import AmqpError, no_room_error
from mayfly.node.broker.password_line import PasswordLine
from mayfly.node.broker.routes import Routes
from mayfly.node.broker.transaction import OpenTransactions
from mayfly.node.broker.unfinished_messages import UnfinishedMessages
from mayfly.node.broker.waiting_events import WaitingEvents
from mayfly.node.catalog import QueueRecord
from mayfly.node.limits import (
    CONSUMER_TIMEOUT_MS,
    CONSUMER_WINDOW_BYTES,
    CONSUMER_WINDOW_LAST_BYTES,
    CONSUMER_WINDOWS_BYTES,
    LARGE_PUBLISHES_BYTES,
    MADE_IN_ALARM,
    OPEN_TRANSACTIONS_BYTES,
    UNFINISHED_BYTES,
    UNFINISHED_BYTES_OF_CONNECTION,
    WAITING_EVENTS_OF_NODE_BYTES,
    WAITING_EVENTS_OF_NODE_LOW_BYTES,
)
from mayfly.node.shard.commands import DISCARD, GIVE_BACK, REJECT, REQUEUE
from mayfly.node.shard.effects import ConsumerCancelled, Deliver
from mayfly.node.shard.message import FAILED, GIVEN_BACK

_IDS_BITS: Final = 33
_INCARNATION_STEP_BITS: Final = 20
"""An incarnation tells the starts of a node apart in its upper bits: 30 of them, so that ids fit 63."""

logger = logging.getLogger(__name__)


class BrokerSettings:
    """What a broker is told once.  `loopback_users` may log in from this machine only; `transactions_bytes` is what all
    open transactions may hold, `unfinished_bytes` what may have come of messages that are not whole yet;
    `consumer_timeout_ms` is how long a delivery may be unacknowledged, 0 for ever; `consumer_window_bytes` is the
    largest window of a consumer, `consumer_windows_bytes` are those of all."""

    def __init__(
        self,
        connection: ConnectionSettings | None = None,
        loopback_users: frozenset[str] = frozenset(("guest",)),
        transactions_bytes: int = OPEN_TRANSACTIONS_BYTES,
        unfinished_bytes: int = UNFINISHED_BYTES,
        unfinished_bytes_of_connection: int = UNFINISHED_BYTES_OF_CONNECTION,
        consumer_timeout_ms: int = CONSUMER_TIMEOUT_MS,
        consumer_window_bytes: int = CONSUMER_WINDOW_BYTES,
        consumer_windows_bytes: int = CONSUMER_WINDOWS_BYTES,
    ) -> None:
        self.connection: ConnectionSettings = connection or ConnectionSettings()
        self.loopback_users: frozenset[str] = loopback_users
        self.transactions_bytes: int = transactions_bytes
        self.unfinished_bytes: int = unfinished_bytes
        self.unfinished_bytes_of_connection: int = unfinished_bytes_of_connection
        self.consumer_timeout_ms: int = consumer_timeout_ms
        self.consumer_window_bytes: int = consumer_window_bytes
        self.consumer_windows_bytes: int = consumer_windows_bytes


class Broker:
    """All connections of one node.  Implements `ClusterEvents`."""

    def __init__(
        self,
        cluster: ClusterFacade,
        random_token: Callable[[], bytes],
        settings: BrokerSettings | None = None,
    ) -> None:
        """`random_token()` answers 16 unpredictable octets."""
        self.cluster: ClusterFacade = cluster
        self.settings: BrokerSettings = settings or BrokerSettings()
        self._random_token = random_token
        self.credentials: CredentialCache = CredentialCache(random_token() + random_token())
        self.failed_logins: FailedLogins = FailedLogins()
        self.password_line: PasswordLine = PasswordLine()
        self.password_checks: dict[bytes, list[Done]] = {}
        """Who waits for which check: clients that come at the same time with the same password share one."""
        self.now_ms: int = 0
        """As connections were last told."""
        self.connections: dict[str, ClientConnection] = {}
        self.unfinished: UnfinishedMessages = UnfinishedMessages(
            self.connections, self.settings.unfinished_bytes, self.settings.unfinished_bytes_of_connection
        )
        self.waiting_events: WaitingEvents = WaitingEvents(
            WAITING_EVENTS_OF_NODE_BYTES, WAITING_EVENTS_OF_NODE_LOW_BYTES, self._reading_may_change
        )
        self.large_publishes: LargePublishes = LargePublishes(LARGE_PUBLISHES_BYTES)
        self.made_in_alarm: MadeInAlarm = MadeInAlarm(MADE_IN_ALARM)
        self.consumer_windows: ConsumerWindows = ConsumerWindows(
            self.settings.consumer_windows_bytes, CONSUMER_WINDOW_LAST_BYTES
        )
        self._consumers: dict[int, Consumer] = {}
        self._terms: dict[int, ConsumerTerms] = {}
        """By consumer id, where they are not the usual ones."""
        self.reply_channels: dict[str, Channel] = {}
        """Channels that consume direct replies, by the key in their address."""
        self.open_transactions: OpenTransactions = OpenTransactions(self.settings.transactions_bytes)
        self.replies_dropped: int = 0
        """Direct replies that the requester's connection had no room for."""
        self._routes: dict[tuple[str, str], Routes] = {}
        self._permissions_version: int = cluster.catalog.permissions_version
        # Consumer ids of an earlier life of the node may still come up in its log.
        self._next_id = ((cluster.incarnation >> _INCARNATION_STEP_BITS) << _IDS_BITS) + 1
        self._next_connection = 1
        self.deliveries_stopped: bool = False
        self.reading_stopped: bool = False
        self._pauses_under_way = 0

    # -- what comes back (RULES Q1) -------------------------------------------------

    def nack_outcome(self, requeue: bool) -> int:
        """What basic.nack and basic.recover are to a shard: no failed deliveries, once all members know the word."""
        if self.cluster.catalog.level < LEVEL_FAILED_DELIVERIES:
            return REQUEUE if requeue else REJECT
        return GIVE_BACK if requeue else DISCARD

    @property
    def giving_back(self) -> int:
        """The way in which a holder's messages come back that have not failed."""
        return GIVEN_BACK if self.cluster.catalog.level >= LEVEL_FAILED_DELIVERIES else FAILED

    # -- connections --------------------------------------------------------------

    def connect(
        self, host: ConnectionHost, peer: str, loopback: bool, certificate_user: str | None = None,
        socket: ClientSocket | None = None,
    ) -> ClientConnection:  # fmt: skip
        """A socket was accepted.  `certificate_user` is whom the client's certificate names, if it had to show one."""
        amqp = Connection(self.settings.connection, certificate_user)
        connection = ClientConnection(self, amqp, host, self._next_connection, peer, loopback, socket)
        self._next_connection += 1
        self.connections[connection.name] = connection
        return connection

    def connection_over(self, connection: ClientConnection) -> None:
        """A connection has come to its end."""
        self.connections.pop(connection.name, None)

    def close_all(self, text: str) -> None:
        """The node goes down: tell every client (320)."""
        for connection in list(self.connections.values()):
            connection.force_close(text)

    # -- before the node stops (see node.engine.drain) -------------------------------

    def stop_deliveries(self) -> None:
        """No more deliveries to clients of this node; `deliveries_under_way` says when there are none any more."""
        self.deliveries_stopped = True
        for consumer in list(self._consumers.values()):
            self.hold_back(consumer)

    def hold_back(self, consumer: Consumer) -> None:
        """Stop the deliveries to one consumer."""
        if consumer.set_paused(True, self._paused):
            self._pauses_under_way += 1

    def _paused(self, result: object) -> None:
        self._pauses_under_way -= 1

    @property
    def deliveries_under_way(self) -> bool:
        """Whether some consumer may be given a message still."""
        return self._pauses_under_way > 0

    def stop_reading(self) -> None:
        """Take nothing from clients any more; what they have asked for is still answered."""
        self.reading_stopped = True
        self._reading_may_change()

    def resume(self) -> None:
        """Serve clients again."""
        self.deliveries_stopped = self.reading_stopped = False
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

    def routes_of(self, vhost: str, user: str) -> Routes:
        """The routes that connections of one user to one vhost share."""
        key = (vhost, user)
        routes = self._routes.get(key)
        if routes is None:
            routes = self._routes[key] = Routes(self.cluster, vhost, user)
        return routes

    def random_name(self) -> str:
        """The random part of a generated name: 22 characters of A-Z, a-z, 0-9, - and _."""
        return urlsafe_b64encode(self._random_token()).decode("ascii").rstrip("=")

    # -- consumers ----------------------------------------------------------------

    def new_id(self) -> int:
        """A consumer or holder id that this incarnation of the node has not used."""
        id = self._next_id
        self._next_id = id + 1
        return id

    def add_consumer(self, consumer: Consumer, terms: ConsumerTerms) -> None:
        """Deliveries for this consumer's id go to it from now on."""
        self._consumers[consumer.holder.holder_id] = consumer
        if not terms.are_usual:
            self._terms[consumer.holder.holder_id] = terms

    def terms_of(self, consumer: Consumer) -> ConsumerTerms:
        """What the client has asked for."""
        return self._terms.get(consumer.holder.holder_id, USUAL_TERMS)

    def forget_consumer(self, consumer: Consumer) -> None:
        """Deliveries that are still on their way to the consumer are dropped: its shard takes them back."""
        self.consumer_windows.close(consumer.holder.holder_id)
        self._consumers.pop(consumer.holder.holder_id, None)
        self._terms.pop(consumer.holder.holder_id, None)

    @property
    def consumer_count(self) -> int:
        """Consumers attached through this node."""
        return len(self._consumers)

    # -- ClusterEvents ------------------------------------------------------------

    def shard_effects(self, shard_id: int, effects: Sequence[object]) -> None:
        """Deliveries and cancellations for consumers of this node."""
        consumers = self._consumers
        for effect in effects:
            if isinstance(effect, Deliver):
                consumer = consumers.get(effect.consumer_id)
                if consumer is None:
                    continue
                try:
                    consumer.deliver(effect.first_delivery_id, effect.messages)
                except Exception:
                    # One unreadable message must not stop the deliveries of others.
                    logger.exception("delivery to %s failed", consumer.channel.connection.name)
                    consumer.channel.connection.fail(AmqpError(541, "a message cannot be read"), 0, 0)
            elif isinstance(effect, ConsumerCancelled):
                consumer = consumers.get(effect.consumer_id)
                if consumer is not None:
                    consumer.channel.consumer_cancelled(consumer)

    def reply_came(self, key: str, content: Content) -> None:
        """See `ClusterEvents.reply_came`."""
        channel = self.reply_channels.get(key)
        if channel is not None:
            channel.deliver_reply(content)

    def awaits_reply(self, key: str) -> bool:
        """See `ClusterEvents.awaits_reply`."""
        return key in self.reply_channels

    def session_lost(self, shard_id: int) -> None:
        """See `ClusterEvents.session_lost`."""
        for connection in list(self.connections.values()):
            connection.session_lost(shard_id)

    def queues_removed(self, queues: Sequence[QueueRecord]) -> None:
        """See `ClusterEvents.queues_removed`; connections of this node forget those that were exclusively theirs."""
        for queue in queues:
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
            self.made_in_alarm.alarm_is_over()

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
