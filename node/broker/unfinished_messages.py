"""Messages that are on their way in: what has come of them takes memory, and nothing says when the rest will come.

So there are limits to one connection and to all of a node. Who goes beyond them loses the channel with the largest
unfinished message (406); of a node the connection that holds the most, so that a few octets of somebody else's are not
what is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mayfly.node.broker.operation import AmqpError
from mayfly.node.broker.publishing import BASIC_CLASS, PUBLISH_METHOD

if TYPE_CHECKING:
    from mayfly.node.amqp.channel import Channel
    from mayfly.node.broker.connection import ClientConnection


class UnfinishedMessages:
    """What has come of unfinished messages, on all connections of one node."""

    def __init__(
        self, connections: Mapping[str, ClientConnection], most_bytes: int, most_bytes_of_connection: int
    ) -> None:
        """`connections` are those that the node has at any time."""
        self.size_bytes: int = 0
        self._connections = connections
        self._most_bytes = most_bytes
        self._most_bytes_of_connection = most_bytes_of_connection

    def look(self, connection: ClientConnection) -> None:
        """Count what the connection holds now, and give up what is too much."""
        self._count(connection)
        while connection.unfinished_bytes > self._most_bytes_of_connection:
            if not self._give_up(connection, "this connection", self._most_bytes_of_connection):
                return
        while self.size_bytes > self._most_bytes:
            largest = max(self._connections.values(), key=_unfinished_bytes, default=connection)
            if not self._give_up(largest, "this node", self._most_bytes):
                return

    def _count(self, connection: ClientConnection) -> None:
        now_bytes = 0 if connection.over else connection.amqp.channels.unfinished.size_bytes
        self.size_bytes += now_bytes - connection.unfinished_bytes
        connection.unfinished_bytes = now_bytes

    def _give_up(self, connection: ClientConnection, of_whom: str, most_bytes: int) -> bool:
        """Close the channel that holds the most; whether that has freed something."""
        before_bytes = connection.unfinished_bytes
        largest = max(connection.amqp.channels.by_id.values(), key=_unfinished_bytes_of_channel, default=None)
        channel = None if largest is None else connection.channels.get(largest.channel_id)
        if channel is not None:
            text = f"the unfinished messages of {of_whom} are larger than {most_bytes} bytes"
            channel.fail(AmqpError(406, text), BASIC_CLASS, PUBLISH_METHOD)
        self._count(connection)
        return connection.unfinished_bytes < before_bytes


def _unfinished_bytes(connection: ClientConnection) -> int:
    return connection.unfinished_bytes


def _unfinished_bytes_of_channel(channel: Channel) -> int:
    return channel.unfinished_bytes
