"""One client connection: the bridge from the AMQP state machine to channels."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pamqp.commands import Basic

from node.amqp.connection import Connection
from node.amqp.events import (
    AuthenticationRequested,
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    Event,
    MethodReceived,
    OpenRequested,
    PublishesReceived,
    SettlementsReceived,
)
from node.amqp.methods import unchecked
from node.broker.channel import Channel
from node.broker.cluster_facade import Done, SessionLost
from node.broker.operation import AmqpError, BarrierStep, Operation, Steps, check
from node.catalog import RemoveQueues
from node.catalog.permissions import check_vhost
from node.limits import OUTPUT_FULL_BYTES, OUTPUT_HIGH_WATER_BYTES, WAITING_EVENTS_BYTES
from node.shard.commands import encode_delete_queue

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.broker.routes import Routes

logger = logging.getLogger(__name__)


class ConnectionHost(Protocol):
    """What a connection needs of the socket it belongs to."""

    def wake(self) -> None:
        """Call `ClientConnection.flush` soon, once for any number of calls."""
        ...

    def verify_password(self, stored_hash: str, password: str, done: Done) -> None:
        """Call `done(True)` or `done(False)` later; the check is slow on purpose."""
        ...

    def reading_changed(self) -> None:
        """`ClientConnection.wants_reading` may have changed."""
        ...


class ClientConnection:
    """The broker's side of one connection, from the first octet to the last."""

    def __init__(
        self, broker: Broker, amqp: Connection, host: ConnectionHost, number: int, peer: str, loopback: bool
    ) -> None:
        """`peer` is for logs; `loopback` says whether the client is on this machine."""
        self.broker: Broker = broker
        self.amqp: Connection = amqp
        self.host: ConnectionHost = host
        self.peer: str = peer
        # Unique on this node for the life of the process: the owner of exclusive queues.
        self.name: str = f"{peer}#{number}"
        self.user: str = ""
        self.vhost: str = ""
        self.routes: Routes = broker.routes_of("", "")
        self.channels: dict[int, Channel] = {}
        self.exclusive_queues: dict[int, int] = {}
        """Exclusive queues of this connection: queue id -> shard id."""
        self.has_published: bool = False
        self.output_blocked: bool = False
        self.output_full: bool = False
        self.waiting_bytes: int = 0
        self.over: bool = False
        self._loopback = loopback
        self._told_blocked = False
        self._dirty = False
        self._marked: list[Channel] = []
        self._unreleased: set[Channel] = set()
        self._opening: Operation | None = None

    # -- octets -----------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Octets from the client."""
        self._handle(self.amqp.receive(data))
        self.mark()

    def tick(self, now_ms: int) -> None:
        """Heartbeats and time limits."""
        events = self.amqp.tick(now_ms)
        if events:
            self._handle(events)
        self.mark()

    def lost(self) -> None:
        """The socket is gone."""
        self._handle(self.amqp.connection_lost())
        self.finish()

    def flush(self) -> list[bytes]:
        """The octets to write now: confirms of the turn included."""
        self._dirty = False
        if self._marked:
            marked = self._marked
            self._marked = []
            for channel in marked:
                channel.marked = False
                if channel.open:
                    channel.publisher.send_confirms()
        return self.amqp.take_output()

    def mark(self) -> None:
        """There is something to write."""
        if not self._dirty:
            self._dirty = True
            self.host.wake()

    def mark_channel(self, channel: Channel) -> None:
        """The channel has confirms to send at the end of the turn."""
        if not channel.marked:
            channel.marked = True
            self._marked.append(channel)
            self.mark()

    # -- events -----------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, (PublishesReceived, SettlementsReceived, MethodReceived)):
                channel = self.channels.get(event.channel_id)
                if channel is not None:
                    channel.handle(event)
            elif isinstance(event, ChannelOpened):
                self.channels[event.channel_id] = Channel(self, event.channel_id)
            elif isinstance(event, ChannelClosed):
                closed = self.channels.pop(event.channel_id, None)
                if closed is not None:
                    self._shut(closed)
            elif isinstance(event, AuthenticationRequested):
                self._authenticate(event)
            elif isinstance(event, OpenRequested):
                self._open(event.vhost)
            elif isinstance(event, ConnectionClosed):
                logger.debug("connection %s: %s", self.name, event.reason)
                self.finish()

    def _shut(self, channel: Channel) -> None:
        if not channel.released:
            self._unreleased.add(channel)
            channel.shut()

    def channel_released(self, channel: Channel) -> None:
        """The channel holds nothing any more."""
        self._unreleased.discard(channel)
        if self.over and not self._unreleased:
            self._delete_exclusive_queues()

    def fail(self, error: AmqpError, class_id: int, method_id: int) -> None:
        """Close the connection with an error."""
        self.amqp.close(error.code, error.text, class_id, method_id)
        self.mark()
        self.finish()

    def finish(self) -> None:
        """The connection is over: channels give back what they hold, exclusive queues go."""
        if self.over:
            return
        self.over = True
        channels = list(self.channels.values())
        self.channels.clear()
        self._unreleased.update(channel for channel in channels if not channel.released)
        for channel in channels:
            channel.shut()
        if not self._unreleased:
            self._delete_exclusive_queues()
        self.broker.connection_over(self)

    def _delete_exclusive_queues(self) -> None:
        if not self.exclusive_queues:
            return
        queues, self.exclusive_queues = self.exclusive_queues, {}
        cluster = self.broker.cluster
        for queue_id, shard_id in queues.items():
            cluster.shard(shard_id).submit(encode_delete_queue(queue_id, False, False), None)
        cluster.submit_catalog(RemoveQueues(tuple(queues)), _nothing)

    # -- authentication and open ------------------------------------------------

    def _authenticate(self, event: AuthenticationRequested) -> None:
        broker = self.broker
        record = broker.cluster.catalog.user(event.username)
        if record is None or not record.password_hash:
            self._refuse_login(event, "no such user, or none with a password")
            return
        if event.username in broker.settings.loopback_users and not self._loopback:
            self._refuse_login(event, f"user '{event.username}' can only connect via localhost")
            return
        stored = record.password_hash
        password = event.password.encode("utf-8", "surrogateescape")
        if broker.credentials.known(event.username, stored, password):
            self._logged_in(event.username)
            return

        def verified(result: object) -> None:
            if self.over:
                return
            if result is True:
                broker.credentials.remember(event.username, stored, password)
                self._logged_in(event.username)
            else:
                self._refuse_login(event, "wrong password")
            self.mark()

        self.host.verify_password(stored, event.password, verified)

    def _refuse_login(self, event: AuthenticationRequested, why: str) -> None:
        logger.warning("connection %s: login of %r refused: %s", self.name, event.username, why)
        self.amqp.authentication_failed(why)
        self.mark()

    def _logged_in(self, user: str) -> None:
        self.user = user
        self.amqp.authenticated()
        self.receive(b"")

    def _open(self, vhost: str) -> None:
        """connection.open: the vhost must be there and the user must have permissions in it."""

        def failed(error: AmqpError) -> None:
            self.amqp.refuse_open(error.code, error.text)

        def finished() -> None:
            self._opening = None
            self.mark()

        self._opening = Operation(self.broker.cluster, self._opening_steps(vhost), failed, finished)
        self._opening.start()

    def _opening_steps(self, vhost: str) -> Steps:
        catalog = self.broker.cluster.catalog
        if check_vhost(catalog, self.user, vhost) is not None:
            yield BarrierStep()
            check(check_vhost(catalog, self.user, vhost))
        if self.over:
            return
        self.vhost = vhost
        self.routes = self.broker.routes_of(vhost, self.user)
        self.amqp.opened()
        self.receive(b"")

    # -- pressure, alarms, cancellation -------------------------------------------

    @property
    def wants_reading(self) -> bool:
        """Whether the socket should be read from."""
        if self.waiting_bytes > WAITING_EVENTS_BYTES or self.output_full or not self.amqp.wants_input:
            return False
        if self.over or not self.has_published:
            return True
        cluster = self.broker.cluster
        return not cluster.overloaded and cluster.blocked is None

    def reading_may_change(self) -> None:
        """Tell the socket to look at `wants_reading`."""
        self.host.reading_changed()

    def set_output_blocked(self, blocked: bool) -> None:
        """The socket's buffer is above its high-water mark, or has drained."""
        if blocked != self.output_blocked:
            self.output_blocked = blocked
            for channel in self.channels.values():
                channel.pause_consumers(blocked)

    def note_output(self) -> None:
        """Deliveries were added to what is to be written. Where that is much, there shall be no more before the socket
        has shown how much of it it takes: what a shard has at hand it delivers in one go."""
        if self.amqp.output_bytes > OUTPUT_HIGH_WATER_BYTES:
            self.set_output_blocked(True)

    def takes_answers(self) -> bool:
        """Whether what the client asks for may be done now: there is room for the answer."""
        if self.amqp.output_bytes > OUTPUT_FULL_BYTES:
            self.set_output_full(True)
        return not self.output_full

    def set_output_full(self, full: bool) -> None:
        """So much is to be sent that the client is not read, and nothing done for it, until it takes some of that."""
        if full != self.output_full:
            self.output_full = full
            if not full:
                for channel in list(self.channels.values()):
                    channel.go_on()
            self.reading_may_change()

    def first_publish(self) -> None:
        """The client turns out to be a publisher: alarms and pressure concern it from now on."""
        self.has_published = True
        self.alarm_changed(self.broker.cluster.blocked)
        self.reading_may_change()

    def alarm_changed(self, text: str | None) -> None:
        """Publishers are not read from while there is an alarm, and told so if they can take that. RabbitMQ tells once,
        whatever comes on top."""
        if not self.has_published or self.over or (text is not None) == self._told_blocked:
            return
        self._told_blocked = text is not None
        if text is not None:
            self.amqp.send_blocked(text)
        else:
            self.amqp.send_unblocked()
        self.mark()
        self.reading_may_change()

    def send_cancel(self, channel_id: int, consumer_tag: str) -> None:
        """basic.cancel from the server, for clients with consumer_cancel_notify."""
        if "consumer_cancel_notify" in self.amqp.client_capabilities:
            self.amqp.send(channel_id, unchecked(Basic.Cancel, consumer_tag=consumer_tag, nowait=True))
            self.mark()

    def session_lost(self, shard_id: int) -> None:
        """A shard has dropped this node's session."""
        for channel in list(self.channels.values()):
            channel.session_lost(shard_id)


def _nothing(result: object) -> None:
    """For commands whose result nobody waits for."""
    if isinstance(result, SessionLost):
        logger.debug("the fate of a clean-up command is unknown")
