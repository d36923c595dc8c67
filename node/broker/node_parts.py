"""What the connections of one node have in common."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mayfly.node.broker.client import Client
from mayfly.node.broker.cluster_facade import ClusterFacade
from mayfly.node.broker.large_publishes import LargePublishes
from mayfly.node.broker.login import NodeLogins
from mayfly.node.broker.made_in_alarm import MadeInAlarm
from mayfly.node.broker.node_consumers import NodeConsumers
from mayfly.node.broker.pressure import NodePressure
from mayfly.node.broker.reply_consumers import ReplyConsumers
from mayfly.node.broker.routes import NodeRoutes
from mayfly.node.broker.settings import BrokerSettings
from mayfly.node.broker.traffic import Traffic
from mayfly.node.broker.transaction import OpenTransactions
from mayfly.node.broker.unfinished_messages import UnfinishedMessages
from mayfly.node.broker.waiting_events import WaitingEvents


@dataclass(slots=True, eq=False)
class NodeParts:
    """Made by the broker, and given to each connection, which gives each of its parts what that needs.

    `random_token()` answers 16 unpredictable octets; `clients` are those that the node has at any time, by
    name."""

    cluster: ClusterFacade
    settings: BrokerSettings
    random_token: Callable[[], bytes]
    clients: Mapping[str, Client]
    logins: NodeLogins
    routes: NodeRoutes
    consumers: NodeConsumers
    reply_consumers: ReplyConsumers
    pressure: NodePressure
    waiting_events: WaitingEvents
    unfinished: UnfinishedMessages
    large_publishes: LargePublishes
    open_transactions: OpenTransactions
    made_in_alarm: MadeInAlarm
    traffic: Traffic

    def random_name(self) -> str:
        """The random part of a generated name: 22 characters of A-Z, a-z, 0-9, - and _."""
        return urlsafe_b64encode(self.random_token()).decode("ascii").rstrip("=")
