"""Messages that are on their way in: what has come of them takes memory, and nothing says when the rest will come.

So there are limits to one connection and to all of a node. Who goes beyond them loses the channel with the largest
unfinished message (406); of a node the connection that holds the most, so that a few octets of somebody else's are not
what is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from mayfly.node.amqp.channel import ReceivingChannel
from mayfly.node.broker.client import Client
from mayfly.node.broker.operation import AmqpError
from mayfly.node.broker.publishing import BASIC_CLASS, PUBLISH_METHOD


class UnfinishedMessages:
    """What has come of unfinished messages, on all connections of one node."""

    def __init__(self, clients: Mapping[str, Client], most_bytes: int, most_bytes_of_connection: int) -> None:
        """`clients` are those that the node has at any time."""
        self.size_bytes: int = 0
        self._clients = clients
        self._most_bytes = most_bytes
        self._most_bytes_of_connection = most_bytes_of_connection

    def look(self, client: Client) -> None:
        """Count what the connection holds now, and give up what is too much."""
        self._count(client)
        while client.unfinished_bytes > self._most_bytes_of_connection:
            if not self._give_up(client, "this connection", self._most_bytes_of_connection):
                return
        while self.size_bytes > self._most_bytes:
            largest = max(self._clients.values(), key=_unfinished_bytes, default=client)
            if not self._give_up(largest, "this node", self._most_bytes):
                return

    def _count(self, client: Client) -> None:
        now_bytes = 0 if client.over else client.amqp.channels.unfinished.size_bytes
        self.size_bytes += now_bytes - client.unfinished_bytes
        client.unfinished_bytes = now_bytes

    def _give_up(self, client: Client, of_whom: str, most_bytes: int) -> bool:
        """Close the channel that holds the most; whether that has freed something."""
        before_bytes = client.unfinished_bytes
        largest = max(client.amqp.channels.by_id.values(), key=_unfinished_bytes_of_channel, default=None)
        channel = None if largest is None else client.channels_by_id().get(largest.channel_id)
        if channel is not None:
            text = f"the unfinished messages of {of_whom} are larger than {most_bytes} bytes"
            channel.fail(AmqpError(406, text), BASIC_CLASS, PUBLISH_METHOD)
        self._count(client)
        return client.unfinished_bytes < before_bytes


def _unfinished_bytes(client: Client) -> int:
    return client.unfinished_bytes


def _unfinished_bytes_of_channel(channel: ReceivingChannel) -> int:
    return channel.unfinished_bytes
