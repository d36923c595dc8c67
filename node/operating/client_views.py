"""Connections, channels and consumers of this node as RabbitMQ's management API shows them.  Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from node.amqp.field_table import table_to_python
from node.broker.broker import Broker
from node.broker.channel import Channel
from node.broker.connection import ClientConnection
from node.broker.consumers import Consumer
from node.catalog import QueueRecord
from node.engine import Engine
from node.operating.client_selection import ClientSelection, Kind
from node.operating.json_values import json_value
from node.shard.shard import Shard

Row = dict[str, Any]
_Shown = TypeVar("_Shown")

AT_ONCE: Final = 100
"""Rows of one answer, and consumers that are shown with their channel."""
_BYTES_AT_ONCE: Final = 128 * 1024
"""What one answer has at most, but for one row more: other things wait behind it."""


class ClientViews:
    """For one node."""

    def __init__(self, engine: Engine, broker: Broker) -> None:
        self._engine = engine
        self._broker = broker

    def some(self, kind: Kind, selection: ClientSelection, start: int, most: int) -> tuple[int, list[Row]]:
        """How many there are here, and so many of them from a place on, `AT_ONCE` at most: by connection, number of
        the channel and consumer tag."""
        connections = [
            each for each in self._running() if selection.has(each.user, each.vhost, each.socket.name)
        ]
        if most > 0:
            connections.sort(key=_name)
        end = start + min(most, AT_ONCE)
        if kind == "connections":
            return len(connections), _rows(connections[start:end], self._connection)
        channels = [channel for each in connections for _, channel in sorted(each.channels.items()) if channel.open]
        if kind == "channels":
            return len(channels), _rows(channels[start:end], self._channel)
        consumers = [consumer for each in channels for consumer in self._consumers(each)]
        return len(consumers), _rows(consumers[start:end], self._consumer)

    def one(self, kind: Kind, name: str) -> Row | None:
        """The connection or channel of that name."""
        if kind == "connections":
            connection = self._find(name)
            return None if connection is None else self._connection(connection)
        connection_name, _, number = name.removesuffix(")").rpartition(" (")
        connection = self._find(connection_name)
        if connection is None or not (number.isascii() and number.isdigit() and len(number) <= 5):
            return None
        channel = connection.channels.get(int(number))
        if channel is None or not channel.open or _name_of_channel(channel) != name:
            return None
        return {
            **self._channel(channel),
            "consumer_details": _rows(self._consumers(channel)[:AT_ONCE], self._consumer),
        }

    def close(self, name: str, reason: str) -> bool:
        """Close the connection of that name (320); False if there is none here."""
        connection = self._find(name)
        if connection is not None:
            connection.force_close(reason)
        return connection is not None

    def _running(self) -> Iterable[ClientConnection]:
        return [each for each in self._broker.connections.values() if each.is_running]

    def _find(self, name: str) -> ClientConnection | None:
        return next((each for each in self._running() if each.socket.name == name), None)

    def _consumers(self, channel: Channel) -> list[tuple[Consumer, QueueRecord]]:
        """Those of queues, by tag. Where the queue is gone the consumer is about to."""
        by_id = self._engine.catalog.queue_by_id
        with_queues = [(each, by_id(each.holder.queue_id)) for _, each in sorted(channel.consumers.items())]
        return [(consumer, queue) for consumer, queue in with_queues if queue is not None]

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
            "state": _state(connection),
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
            "client_properties": json_value(amqp.client_properties),
        }

    def _channel(self, channel: Channel) -> Row:
        connection, publisher = channel.connection, channel.publisher
        confirms, transaction = publisher.confirms, publisher.transaction
        return {
            "name": _name_of_channel(channel),
            "number": channel.channel_id,
            "node": self._node,
            "user": connection.user,
            "user_who_performed_action": connection.user,
            "vhost": connection.vhost,
            # An alarm concerns the connection.
            "state": "running" if _state(connection) == "blocked" else _state(connection),
            "consumer_count": len(channel.consumers),
            "messages_unacknowledged": channel.unacknowledged.count,
            "messages_unconfirmed": 0 if confirms is None else confirms.unsettled,
            "messages_uncommitted": 0 if transaction is None else transaction.publishes,
            "acks_uncommitted": 0 if transaction is None else transaction.settlements,
            "prefetch_count": channel.prefetch,
            "global_prefetch_count": channel.global_prefetch.limit,
            "confirm": confirms is not None,
            "transactional": transaction is not None,
            "connection_details": {
                "name": connection.socket.name,
                "peer_host": connection.socket.peer[0],
                "peer_port": connection.socket.peer[1],
            },
        }

    def _consumer(self, shown: tuple[Consumer, QueueRecord]) -> Row:
        consumer, queue = shown
        channel = consumer.channel
        connection = channel.connection
        terms = self._broker.terms_of(consumer)
        active, status = self._activity(consumer, queue)
        return {
            "queue": {"name": queue.name, "vhost": queue.vhost},
            "consumer_tag": consumer.tag,
            "channel_details": {
                "name": _name_of_channel(channel),
                "number": channel.channel_id,
                "node": self._node,
                "user": connection.user,
                "connection_name": connection.socket.name,
                "peer_host": connection.socket.peer[0],
                "peer_port": connection.socket.peer[1],
            },
            "ack_required": not consumer.no_ack,
            "prefetch_count": consumer.prefetch,
            "exclusive": terms.exclusive,
            "arguments": json_value(table_to_python(terms.arguments)),
            "active": active,
            "activity_status": status,
        }

    def _activity(self, consumer: Consumer, queue: QueueRecord) -> tuple[bool | None, str]:
        """Whether it is the one that gets messages, where only one does; None where the queue lives on another node,
        which alone knows."""
        if not queue.settings.single_active_consumer:
            return True, "up"
        shard: Shard | None = None
        if queue.replicated:
            shard = self._engine.shards[queue.shard]
        elif queue.owner_node == self._engine.node_id:
            shard = self._engine.transient.local.shard
        found = None if shard is None else shard.queue(queue.id)
        if found is None:
            return None, "unknown"
        single = found.consumers.single
        if single is not None and (single.session[0], single.holder_id) == (
            self._engine.node_id, consumer.holder.holder_id,
        ):  # fmt: skip
            return True, "single_active"
        return False, "waiting"


def _rows(shown: Sequence[_Shown], row_of: Callable[[_Shown], Row]) -> list[Row]:
    """Their rows, as many as one answer may have."""
    rows: list[Row] = []
    size_bytes = 0
    for each in shown:
        rows.append(row_of(each))
        size_bytes += len(msgspec.msgpack.encode(rows[-1]))
        if size_bytes > _BYTES_AT_ONCE:
            break
    return rows


def _name(connection: ClientConnection) -> str:
    return connection.socket.name


def _name_of_channel(channel: Channel) -> str:
    return f"{channel.connection.socket.name} ({channel.channel_id})"


def _state(connection: ClientConnection) -> str:
    if connection.pressure.is_blocked:
        return "blocked"
    return "running" if connection.pressure.wants_reading else "flow"
