"""One client and its channels as the parts of its connection see them: who it is, and where goes what is sent to it.

`ClientConnection` is a `Client`, `Channel` a `ClientChannel`. What both are made of - login, pressure, consumers,
publishing - knows no more of them than what stands here.

Base classes and no `Protocol`, since what is compiled calls a method of a base class directly; those without a body
are what the two have to bring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pamqp.commands import Basic

from mayfly.node.amqp.connection import Connection
from mayfly.node.amqp.methods import unchecked
from mayfly.node.amqp.output import Output
from mayfly.node.broker.client_socket import ClientSocket
from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.broker.consumer_timeout import LookTimes
from mayfly.node.broker.operation import AmqpError
from mayfly.node.broker.traffic import ChannelTraffic, Traffic, VhostTraffic
from mayfly.node.broker.unacknowledged import DeliveryHolder, Unacknowledged
from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.shard.effects import ConsumerMoved


class ConnectionHost(Protocol):
    """What a connection needs of the socket it belongs to."""

    def wake(self) -> None:
        """Call `ClientConnection.flush` soon, once for any number of calls."""
        ...

    def verify_password(self, stored_hash: str, password: str, done: OnDone) -> None:
        """Call `done(True)` or `done(False)` later; the check is slow on purpose. Or `done` with a string: the password
        is right, and this hash of it is better than the stored one."""
        ...

    def reading_changed(self) -> None:
        """`Pressure.wants_reading` may have changed."""
        ...


class Client:
    """Who is connected, what it is sent through, and what is done to the whole of its connection."""

    def __init__(
        self, amqp: Connection, host: ConnectionHost, name: str, socket: ClientSocket, traffic: Traffic
    ) -> None:
        """`name` is unique on this node for the life of the process; `socket` is for operators, and the node's
        `traffic`."""
        self.amqp: Connection = amqp
        self.output: Output = amqp.output
        self.host: ConnectionHost = host
        self.name: str = name
        self.socket: ClientSocket = socket
        self.traffic: Traffic = traffic
        self.vhost_traffic: VhostTraffic = VhostTraffic()
        """That of its vhost, once it is in one."""
        self.user: str = ""
        self.who: AnyUser = ""
        """The same as permissions are looked up by: not the name alone if a token says what the user may do."""
        self.vhost: str = ""
        self.exclusive_queues: dict[int, int] = {}
        """Exclusive queues of this connection: queue id -> shard id. They go when the catalog drops the queue."""
        self.over: bool = False
        self.unfinished_bytes: int = 0
        """As they were last counted; see `UnfinishedMessages`."""
        self.dirty: bool = False
        """Whether the host was told that there is something to write, and has not taken it yet."""
        self.look_times: LookTimes = LookTimes()
        """When it is looked whether something is held for too long."""

    def mark(self) -> None:
        """There is something to write."""
        if not self.dirty:
            self.dirty = True
            self.host.wake()

    @property
    def takes_cancels(self) -> bool:
        """Whether the client knows that the server may cancel a consumer."""
        return "consumer_cancel_notify" in self.amqp.client_capabilities

    def send_cancel(self, channel_id: int, consumer_tag: str) -> None:
        """basic.cancel from the server, for clients with consumer_cancel_notify."""
        if self.takes_cancels:
            self.output.send(channel_id, unchecked(Basic.Cancel, consumer_tag=consumer_tag, nowait=True))
            self.mark()

    # -- what `ClientConnection` does ---------------------------------------------

    def channels_by_id(self) -> Mapping[int, ClientChannel]:
        """Those that are open, or whose close the client has not answered."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Take what came and was held (`Connection.hold_publishes`)."""
        raise NotImplementedError

    def fail(self, error: AmqpError, class_id: int, method_id: int) -> None:
        """Close the connection with an error."""
        raise NotImplementedError

    def channel_released(self, channel: ClientChannel) -> None:
        """The channel holds nothing any more."""
        raise NotImplementedError


class ClientChannel:
    """One channel: whether it is open, what is unsettled on it, and what is done to the whole of it."""

    def __init__(self, client: Client, channel_id: int) -> None:
        self.client: Client = client
        self.channel_id: int = channel_id
        # False from the moment the channel is refused or closed: nothing is sent any more.
        self.open: bool = True
        self.unacknowledged: Unacknowledged = Unacknowledged()
        self.traffic: ChannelTraffic = ChannelTraffic(client.vhost_traffic, client.traffic)

    # -- what `Channel` does ------------------------------------------------------

    @property
    def pauses(self) -> bool:
        """Whether there shall be no deliveries: the node is about to stop, or the client does not read."""
        raise NotImplementedError

    @property
    def consumer_count(self) -> int:
        """Its consumers, with one that is about to be attached."""
        raise NotImplementedError

    @property
    def reply_address(self) -> str:
        """Where direct replies to this channel are sent to; "" if it consumes none."""
        raise NotImplementedError

    def pause_consumers(self) -> None:
        """Hold deliveries back as long as there is a reason to, and let them go on when there is none any more."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Take the events that wait, as far as nothing is under way and the client takes the answers."""
        raise NotImplementedError

    def fail(self, error: AmqpError, class_id: int, method_id: int) -> None:
        """Refuse: close the channel, or the connection if the code says so."""
        raise NotImplementedError

    def consumer_moved(self, tag: str, moved: ConsumerMoved) -> None:
        """The queue of a consumer is in another shard now: it is attached there."""
        raise NotImplementedError

    def consumer_cancelled(self, tag: str, holder: DeliveryHolder) -> None:
        """The queue is gone, or the shard has dropped this node: basic.cancel, if the client can take it."""
        raise NotImplementedError

    def consumer_lost(self, tag: str, holder: DeliveryHolder) -> None:
        """The cluster has cancelled a consumer whose queue is still there. The channel is closed if its client takes no
        notice of that: it would wait for ever."""
        raise NotImplementedError
