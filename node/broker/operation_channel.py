"""One channel as its operations see it: what they go by, what they leave behind, and what they have it do.

`Channel` is an `OperationChannel`. A base class for the reason that `client.py` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pamqp.base import Frame

from mayfly.node.broker.client import Client, ClientChannel
from mayfly.node.broker.cluster_facade import ClusterFacade
from mayfly.node.broker.consumers import Consumer
from mayfly.node.broker.node_parts import NodeParts
from mayfly.node.broker.operation import Steps
from mayfly.node.broker.pressure import Pressure
from mayfly.node.broker.publishing import ConfirmsDue, Publisher
from mayfly.node.broker.reply_consumers import ReplyConsumer
from mayfly.node.broker.routes import Routes
from mayfly.node.broker.unacknowledged import DeliveryHolder
from mayfly.node.catalog import QueueRecord


class OperationChannel(ClientChannel):
    """What methods on a channel find, and change."""

    def __init__(
        self,
        client: Client,
        channel_id: int,
        node: NodeParts,
        routes: Routes,
        pressure: Pressure,
        confirms_due: ConfirmsDue,
    ) -> None:
        """`routes` and the two behind it are the connection's."""
        super().__init__(client, channel_id)
        client.traffic.channels_opened += 1
        self.node: NodeParts = node
        self.cluster: ClusterFacade = node.cluster
        self.pressure: Pressure = pressure
        self.publisher: Publisher = Publisher(
            self, routes, confirms_due, node.cluster, node.open_transactions, node.large_publishes
        )
        self.consumers: dict[str, Consumer] = {}
        # A consumer is to come: its shard has been asked.
        self.is_attaching: bool = False
        self.reply_consumer: ReplyConsumer | None = None
        self.get_holders: dict[int, DeliveryHolder] = {}
        """Who holds what basic.get has brought, by queue; of queues that are gone no more than of others."""
        # Of consumers to come.
        self.prefetch: int = 0
        self.last_queue: str = ""

    # -- what `Channel` does ------------------------------------------------------

    def send(self, method: Frame) -> None:
        """Send a method, unless the channel is on its way out."""
        raise NotImplementedError

    def check_making(self) -> None:
        """The client is about to make a queue, an exchange or a binding. Raises AmqpError if it may not now."""
        raise NotImplementedError

    def holder_timeout_ms(self, record: QueueRecord, arguments: dict[str, Any]) -> int:
        """How long somebody new may hold deliveries of a queue, given a consumer's arguments (RULES Q3)."""
        raise NotImplementedError

    def get_holder(self, record: QueueRecord) -> DeliveryHolder:
        """Under what name the channel holds messages it gets from this queue."""
        raise NotImplementedError

    def give_back(self, holders: Iterable[DeliveryHolder]) -> None:
        """What these hold goes back to its queues when the channel ends, whatever it knows of it."""
        raise NotImplementedError

    def submit_settlements(self) -> None:
        """Give what was settled to the shards."""
        raise NotImplementedError

    def forget_reply_consumer(self) -> None:
        """Direct replies to this channel go nowhere from now on."""
        raise NotImplementedError


Handler = Callable[[OperationChannel, Any, bytes], Steps | None]
"""What is done for a method. It gets the method and its field table as on the wire; steps that are left to do are run
while the channel's later events wait."""
