"""Consumers of direct replies: no queue, no acknowledgements (see `node.broker.direct_replies`)."""

from __future__ import annotations

import logging

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.large_body import in_parts
from mayfly.node.broker.client import ClientChannel
from mayfly.node.broker.pressure import Pressure

logger = logging.getLogger(__name__)


class ReplyConsumers:
    """Those of one node, by the key in their address."""

    def __init__(self) -> None:
        self.by_key: dict[str, ReplyConsumer] = {}
        self.dropped: int = 0
        """Replies that the requester's connection had no room for."""


class ReplyConsumer:
    """A channel's consumer of direct replies."""

    def __init__(
        self, channel: ClientChannel, pressure: Pressure, node: ReplyConsumers, tag: str, key: str, address: str
    ) -> None:
        self.tag: str = tag
        self.wire_tag: bytes = tag.encode("utf-8", "surrogateescape")
        self.key: str = key
        self.address: str = address
        self._channel: ClientChannel = channel
        self._pressure: Pressure = pressure
        self._node: ReplyConsumers = node
        self._dropped: int = 0
        """Replies there was no room for."""

    def deliver(self, content: Content) -> None:
        """A direct reply has come. Nothing holds repliers back, so it is dropped where the requester takes nothing."""
        channel = self._channel
        if not channel.open:
            return
        client = channel.client
        if not self._pressure.takes_answers():
            if self._dropped == 0:
                logger.warning("connection %s does not take its direct replies: dropped", client.name)
            self._dropped += 1
            self._node.dropped += 1
            return
        tag = channel.unacknowledged.skip(1)
        client.output.send_deliveries(channel.channel_id, self.wire_tag, [(tag, False, in_parts(content))])
        self._pressure.note_output()
        client.mark()
