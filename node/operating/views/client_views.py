"""Connections, channels and consumers of this node as RabbitMQ's management API shows them.  Pure.

Nothing here looks at all connections at once: there may be tens of thousands, and all else waits meanwhile. Who asks
goes through them by their numbers, which are in the order in which they came.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from mayfly.node.amqp.field_table import table_to_python
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.channel import Channel
from mayfly.node.broker.client import ClientChannel
from mayfly.node.broker.connection import ClientConnection
from mayfly.node.broker.consumers import Consumer
from mayfly.node.broker.pressure import Pressure
from mayfly.node.catalog import QueueRecord
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.ports.clients import Cancelled
from mayfly.node.operating.views.idle import idle_field
from mayfly.node.operating.views.json_values import json_value
from mayfly.node.operating.views.queue_counts import shard_here
from mayfly.node.operating.views.rates import CLIENT_STATS, client_counts, message_stats
from mayfly.node.shard.shard import Shard

Row = dict[str, Any]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**48)]
"""A place, or the number of a connection; what a peer says is held to that."""

ConsumerKey = tuple[int, int]
"""A consumer, as shards know it: its node, and its number there."""

WHOSE: Final = "whose"
"""In a consumer's row: shard, queue and holder, to be asked about and taken out by who has asked for the row."""

AT_ONCE: Final = 100
"""Rows of one answer, and consumers that are shown with their channel."""
LOOKED_AT: Final = 1000
"""Connections and their channels that are looked at for one answer, but for the channels of one connection more."""
_BYTES_AT_ONCE: Final = 128 * 1024
"""What one answer has at most, but for one row more: other things wait behind it."""


class ConsumerName(NamedTuple):
    """By what operators know a consumer: its tag, and the name of its channel."""

    tag: str
    channel: str


class HoldingConnection(NamedTuple):
    """A connection that has so many of what is asked for, with the name operators know it by. Its key is
    `ClientConnection.name`."""

    name: str
    key: str
    held: int


class ClientPart(NamedTuple):
    """Of what a connection has, so many from a place on."""

    key: str
    start: Number
    most: Number


class ClientViews:
    """For one node."""

    def __init__(self, engine: Engine, broker: Broker) -> None:
        self._engine = engine
        self._broker = broker

    def count(self, kind: Kind, selection: ClientSelection, after: int) -> tuple[int, int | None]:
        """How many there are, of some connections behind that number; and the number behind which there may be more,
        None if there is no further connection."""
        connections, further = self._some(kind, selection, after)
        return sum([_count(kind, each) for each in connections]), further

    def holders(self, kind: Kind, selection: ClientSelection, after: int) -> tuple[list[HoldingConnection], int | None]:
        """Who has them, in no order: the same connections as for `count`."""
        connections, further = self._some(kind, selection, after)
        counted = [(each, _count(kind, each)) for each in connections]
        return [HoldingConnection(each.socket.name, each.name, count) for each, count in counted if count], further

    def rows(
        self, kind: Kind, selection: ClientSelection, parts: list[ClientPart]
    ) -> tuple[list[Row], list[ClientPart]]:
        """The rows of parts, in their order, as many as one answer may have; and which parts are left. In a connection
        they are in the order of its channels' numbers, and in a channel in that in which its consumers came."""
        rows: list[Row] = []
        size_bytes = places = looked_at = 0
        for number, (key, start, most) in enumerate(parts):
            if looked_at >= LOOKED_AT:
                return rows, parts[number:]
            connection = self._broker.connections.get(key)
            looked_at += 1
            if connection is None or not _is_meant(connection, selection):
                continue
            if kind != "connections":
                looked_at += len(connection.channels)
            for done, row in enumerate(self._rows_of(kind, connection, start, most), 1):
                if row is not None:
                    rows.append(row)
                    size_bytes += len(msgspec.msgpack.encode(row))
                places += 1
                if places >= AT_ONCE or size_bytes > _BYTES_AT_ONCE:
                    rest = [ClientPart(key, start + done, most - done)] if done < most else []
                    return rows, rest + parts[number + 1 :]
        return rows, []

    def find(self, name: str, after: int) -> tuple[str | None, int | None]:
        """The key of the connection of that name, if it is among some behind that number; and as `count` has it, the
        number behind which to look further."""
        found, further = self._some("connections", ClientSelection(connection=name), after)
        return (found[0].name if found else None), further

    def one(self, kind: Kind, key: str, name: str) -> Row | None:
        """The connection or channel of that name, of the connection with that key."""
        if kind == "connections":
            connection = self._connection_here(key, name)
            return None if connection is None else self._connection(connection)
        channel = self._channel_here(key, name)
        if channel is None:
            return None
        shown = [self._consumer(each) for each in islice(channel.consumers.values(), AT_ONCE)]
        return {**self._channel(channel), "consumer_details": [row for row in shown if row is not None]}

    def named(self, consumer_ids: list[int]) -> dict[int, ConsumerName]:
        """Those of these consumers that are attached through this node."""
        found = [(id, self._broker.consumers.by_id.get(id)) for id in consumer_ids[:AT_ONCE]]
        return {
            id: ConsumerName(json_value(consumer.tag), _name_of_channel(consumer.channel))
            for id, consumer in found
            if consumer is not None
        }

    def close(self, key: str, name: str, reason: str) -> bool:
        """Close the connection of that key and name (320); False if there is none here."""
        connection = self._connection_here(key, name)
        if connection is None:
            return False
        connection.force_close(reason)
        return True

    def close_channel(self, key: str, name: str, reason: str) -> bool:
        """Close the channel of that name (406), of the connection with that key; False if there is none here."""
        channel = self._channel_here(key, name)
        if channel is None:
            return False
        channel.force_close(reason)
        return True

    def cancel_consumer(self, key: str, channel_name: str, tag: str) -> Cancelled:
        """Cancel a consumer of the channel of that name, as for `close_channel`."""
        channel = self._channel_here(key, channel_name)
        if channel is None or tag not in channel.consumers:
            return "unknown"
        if not channel.client.takes_cancels:
            return "untold"
        channel.cancel_consumer(tag)
        return "cancelled"

    def _connection_here(self, key: str, name: str) -> ClientConnection | None:
        connection = self._broker.connections.get(key)
        is_it = connection is not None and _is_meant(connection, ClientSelection(connection=name))
        return connection if is_it else None

    def _channel_here(self, key: str, name: str) -> Channel | None:
        """Only while it is open."""
        connection = self._connection_here(key, connection_of("channels", name))
        number = name.removesuffix(")").rpartition(" (")[2]
        if connection is None or not (number.isascii() and number.isdigit() and len(number) <= 5):
            return None
        channel = connection.channels.get(int(number))
        if channel is None or not channel.open or _name_of_channel(channel) != name:
            return None
        return channel

    def all_here(self, kind: Kind, vhosts: Collection[str], most: int) -> Iterator[Row | int]:
        """In these vhosts, or in all of them if there are none: the rows of the first `most`, in the order in which
        their connections came, and in between how many more there are. Each is a step."""
        after: int | None = 0
        while after is not None:
            connections, after = self._some(kind, ClientSelection(), after)
            for connection in connections:
                count = _count(kind, connection) if not vhosts or connection.vhost in vhosts else 0
                shown = min(count, most)
                most -= shown
                yield from filter(None, self._rows_of(kind, connection, 0, shown) if shown else ())
                yield count - shown

    def _some(
        self, kind: Kind, selection: ClientSelection, after: int
    ) -> tuple[list[ClientConnection], int | None]:
        """Those that are meant, of some behind that number; see `count`."""
        connections = list(self._broker.connections.values())
        meant = []
        looked_at = 0
        for connection in islice(connections, bisect_right(connections, after, key=_number), None):
            looked_at += 1
            if _is_meant(connection, selection):
                meant.append(connection)
                if kind != "connections":
                    looked_at += len(connection.channels)
            if looked_at >= LOOKED_AT:
                return meant, _number(connection)
        return meant, None

    def _rows_of(self, kind: Kind, connection: ClientConnection, start: int, most: int) -> Iterator[Row | None]:
        """For each of so many places from one on; None where there is nothing to show any more."""
        if kind == "connections":
            if start == 0:
                yield self._connection(connection)
            return
        channels = _open_channels(connection)
        if kind == "channels":
            for channel in channels[start : start + most]:
                yield self._channel(channel)
            return
        end = start + most
        for channel in channels:
            count = len(channel.consumers)
            if start < count and end > 0:
                for consumer in islice(channel.consumers.values(), max(start, 0), end):
                    yield self._consumer(consumer)
            start -= count
            end -= count

    @property
    def _node(self) -> str:
        node = self._engine.catalog.node(self._engine.node_id)
        return f"node{self._engine.node_id}" if node is None else node.name

    # -- in RabbitMQ's fields -----------------------------------------------------

    def _connection(self, connection: ClientConnection) -> Row:
        socket, amqp = connection.socket, connection.amqp
        return {
            "name": socket.name,
            "node": self._node,
            "type": "network",
            "protocol": "AMQP 0-9-1",
            "user": connection.user,
            "vhost": connection.vhost,
            "state": _state(connection.pressure),
            "host": socket.own[0],
            "port": socket.own[1],
            "peer_host": socket.peer[0],
            "peer_port": socket.peer[1],
            "ssl": socket.is_tls,
            "auth_mechanism": amqp.mechanism,
            "channels": len(connection.channels),
            "channel_max": amqp.channel_max,
            "frame_max": amqp.output.frame_max_bytes,
            "timeout": amqp.heartbeat_seconds,
            "connected_at": socket.connected_at_ms,
            "recv_oct": connection.received_bytes,
            "send_oct": amqp.output.taken_bytes,
            "client_properties": json_value(amqp.client_properties),
        }

    def _channel(self, channel: Channel) -> Row:
        client, publisher = channel.client, channel.publisher
        confirms, transaction = publisher.confirms, publisher.transaction
        return {
            "name": _name_of_channel(channel),
            "number": channel.channel_id,
            "node": self._node,
            "user": client.user,
            "user_who_performed_action": client.user,
            "vhost": client.vhost,
            # An alarm concerns the connection.
            "state": "running" if _state(channel.pressure) == "blocked" else _state(channel.pressure),
            "consumer_count": len(channel.consumers),
            "messages_unacknowledged": channel.unacknowledged.count,
            "messages_unconfirmed": 0 if confirms is None else confirms.unsettled,
            "messages_uncommitted": 0 if transaction is None else transaction.publishes,
            "acks_uncommitted": 0 if transaction is None else transaction.settlements,
            "prefetch_count": channel.prefetch,
            "global_prefetch_count": 0,
            "confirm": confirms is not None,
            "transactional": transaction is not None,
            "message_stats": message_stats(CLIENT_STATS, client_counts(channel.traffic), None),
            **idle_field(channel.traffic.active_ms, channel.traffic.node.now_ms),
            "connection_details": {
                "name": client.socket.name,
                "peer_host": client.socket.peer[0],
                "peer_port": client.socket.peer[1],
            },
        }

    def _consumer(self, consumer: Consumer) -> Row | None:
        """Where the queue is gone the consumer is about to."""
        queue = self._engine.catalog.queue_by_id(consumer.holder.queue_id)
        if queue is None:
            return None
        channel = consumer.channel
        client = channel.client
        terms = self._broker.consumers.terms_of(consumer)
        return {
            "queue": {"name": queue.name, "vhost": queue.vhost},
            "consumer_tag": consumer.tag,
            "channel_details": {
                "name": _name_of_channel(channel),
                "number": channel.channel_id,
                "node": self._node,
                "user": client.user,
                "connection_name": client.socket.name,
                "peer_host": client.socket.peer[0],
                "peer_port": client.socket.peer[1],
            },
            "ack_required": not consumer.no_ack,
            "prefetch_count": consumer.prefetch,
            "exclusive": terms.exclusive,
            "consumer_timeout": max(0, consumer.holder.timeout_ms),
            "arguments": json_value(table_to_python(terms.arguments)),
            **self._activity(consumer, queue),
        }

    def _activity(self, consumer: Consumer, queue: QueueRecord) -> Row:
        """Whether it is the one that gets messages, where only one does. That is not known of a transient queue on
        another node; and where there is no replica of its shard here, WHOSE says what to ask about."""
        if not queue.settings.single_active_consumer:
            return activity(True, "up")
        holder = (self._engine.node_id, consumer.holder.holder_id)
        shard = shard_here(self._engine, queue.shard)
        if shard is not None:
            return activity_of(single_active(shard, queue.id), holder)
        unknown = activity_of(None, holder)
        return unknown | {WHOSE: [queue.shard, queue.id, *holder]} if queue.replicated else unknown


def single_active(shard: Shard, queue_id: int) -> ConsumerKey | None:
    """Who of several consumers gets the messages of a queue of this shard: (0, 0) if nobody does, None if the shard has
    no such queue."""
    queue = shard.queue(queue_id)
    if queue is None:
        return None
    single = queue.consumers.single
    return (0, 0) if single is None else (single.session[0], single.holder_id)


def activity_of(active: ConsumerKey | None, holder: ConsumerKey) -> Row:
    """What is shown of this consumer where that one is the active one."""
    if active is None:
        return activity(None, "unknown")
    return activity(True, "single_active") if active == holder else activity(False, "waiting")


def activity(active: bool | None, status: str) -> Row:
    """In RabbitMQ's fields."""
    return {"active": active, "activity_status": status}


def connection_of(kind: Kind, name: str) -> str:
    """The name of the connection, in that of one or of a channel."""
    return name if kind == "connections" else name.removesuffix(")").rpartition(" (")[0]


def _is_meant(connection: ClientConnection, selection: ClientSelection) -> bool:
    if not connection.is_running or connection.socket.is_inner:
        return False
    # To put the name together costs more than all else here.
    name = "" if selection.connection is None else connection.socket.name
    return selection.has(connection.user, connection.vhost, name)


def _number(connection: ClientConnection) -> int:
    """Connections are numbered as they come, and kept in that order: `Broker.connect`."""
    return int(connection.name.rpartition("#")[2])


def _open_channels(connection: ClientConnection) -> list[Channel]:
    """By number."""
    return [channel for _, channel in sorted(connection.channels.items()) if channel.open]


def _count(kind: Kind, connection: ClientConnection) -> int:
    if kind == "connections":
        return 1
    channels = connection.channels.values()
    if kind == "channels":
        return sum([channel.open for channel in channels])
    return sum([len(channel.consumers) for channel in channels if channel.open])


def _name_of_channel(channel: ClientChannel) -> str:
    return f"{channel.client.socket.name} ({channel.channel_id})"


def _state(pressure: Pressure) -> str:
    if pressure.is_blocked:
        return "blocked"
    return "running" if pressure.wants_reading else "flow"
