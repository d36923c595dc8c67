"""One client connection: the bridge from the AMQP state machine to channels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from mayfly.node.amqp.connection import Connection
from mayfly.node.amqp.events import (
    AuthenticationRequested,
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    Event,
    MethodReceived,
    OpenRequested,
    PublishesReceived,
    SecretUpdated,
    SettlementsReceived,
)
from mayfly.node.broker.channel import Channel
from mayfly.node.broker.client import Client, ClientChannel, ConnectionHost
from mayfly.node.broker.client_socket import ClientSocket
from mayfly.node.broker.cluster_facade import ClusterFacade
from mayfly.node.broker.connection_limits import ConnectionLimits
from mayfly.node.broker.handlers import HANDLERS
from mayfly.node.broker.login import Login
from mayfly.node.broker.node_parts import NodeParts
from mayfly.node.broker.operation import AmqpError, BarrierStep, Operation, ServeStep, Steps, check
from mayfly.node.broker.pressure import Pressure
from mayfly.node.broker.publishing import ConfirmsDue
from mayfly.node.broker.routes import Routes
from mayfly.node.broker.tokens import NEW_SECRET_REFUSED, TokenLife
from mayfly.node.catalog import RemoveQueues, UserRecord
from mayfly.node.catalog.permissions import check_vhost
from mayfly.node.catalog.token_user import TokenUser
from mayfly.node.limits import QUEUES_BURIED_PER_COMMAND
from mayfly.node.shard.commands import encode_delete_queue

logger = logging.getLogger(__name__)

CONNECTION_FORCED: Final = 320
COMMAND_INVALID: Final = 503
NOT_ALLOWED: Final = 530
_CONNECTION_CLASS: Final = 10
_UPDATE_SECRET: Final = 70


class ClientConnection(Client):
    """The broker's side of one connection, from the first octet to the last."""

    def __init__(
        self, node: NodeParts, amqp: Connection, host: ConnectionHost, number: int, peer: str, loopback: bool,
        socket: ClientSocket | None, ended: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`peer` is for logs; `loopback` says whether the client is on this machine; `socket` is for operators.
        `ended` is called with the connection's name when it has come to its end."""
        super().__init__(
            amqp, host, f"{peer}#{number}", socket or ClientSocket((peer, 0), ("", 0), False, 0), node.traffic
        )
        self.node: NodeParts = node
        self.cluster: ClusterFacade = node.cluster
        self.routes: Routes = node.routes.of("", "")
        self.channels: dict[int, Channel] = {}
        self.pressure: Pressure = Pressure(self, node.pressure)
        self._ended: Callable[[str], None] = ended
        self._confirms_due: ConfirmsDue = ConfirmsDue()
        self._login: Login | None = Login(self, node.logins, peer, loopback, self._logged_in)
        self._limits = ConnectionLimits(node.cluster, self.socket.limit_reached, not self.socket.is_inner)
        # As whom, and where: a user or vhost that is deleted and made anew is another one.
        self._user_serial: int = 0
        self._vhost_serial: int = 0
        self._in_vhost = False
        self._token_life: TokenLife | None = None
        self._secret_waits = False
        self.received_bytes: int = 0
        self._unreleased: set[ClientChannel] = set()
        self._opening: Operation | None = None

    # -- octets -----------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Octets from the client."""
        self.received_bytes += len(data)
        self._handle(self.amqp.receive(data))
        if self.amqp.publish_begun and not self.pressure.has_published:
            self.pressure.first_publish()
        self._count_unfinished()
        self.mark()

    def go_on(self) -> None:
        """See `Client.go_on`."""
        try:
            self.receive(b"")
        except Exception:
            # All others are to hear that the alarm is over.
            logger.exception("connection %s failed", self.name)
            self.fail(AmqpError(541, "internal error"), 0, 0)

    def _count_unfinished(self) -> None:
        if self.amqp.channels.unfinished.size_bytes != self.unfinished_bytes:
            self.node.unfinished.look(self)

    def tick(self, now_ms: int) -> None:
        """Heartbeats and time limits."""
        self.node.logins.now_ms = now_ms
        if self._login is not None:
            self._login.tick(now_ms)
        if self._token_life is not None and self._token_life.is_over(now_ms) and not self.over:
            self.force_close(f"the token of user '{self.user}' has expired")
        events = self.amqp.tick(now_ms)
        if events:
            self._handle(events)
        self._count_unfinished()
        if self.look_times.is_due(now_ms):
            for channel in list(self.channels.values()):
                channel.look_at_oldest(now_ms)
        self.mark()

    def lost(self) -> None:
        """The socket is gone."""
        self._handle(self.amqp.connection_lost())
        self.finish()
        # They would hold it as it holds them, and the collector does not come to what is old (`node.shell.process`).
        self._login = None
        self.pressure.let_go()

    def flush(self, takes_large: bool = True) -> list[bytes]:
        """The octets to write now: confirms of the turn included. Where a large body leaves more than that to write,
        the host is woken for it; and nothing of one is given where the socket `takes_large` no more for now."""
        self.dirty = False
        publishers = self._confirms_due.publishers
        if publishers:
            self._confirms_due.publishers = []
            for publisher in publishers:
                publisher.is_due = False
                if publisher.channel.open:
                    publisher.send_confirms()
        output = self.amqp.output
        if output.has_large and not takes_large:
            return []
        taken = self.amqp.take_output()
        if output.size_bytes:
            self.mark()
        return taken

    # -- events -----------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if self.over:
                return  # What came behind the method that ended it.
            if isinstance(event, (PublishesReceived, SettlementsReceived, MethodReceived)):
                channel = self.channels.get(event.channel_id)
                if channel is not None:
                    channel.handle(event)
            elif isinstance(event, ChannelOpened):
                self.channels[event.channel_id] = Channel(
                    self, event.channel_id, self.node, self.routes, self.pressure, self._confirms_due, HANDLERS
                )
                self._limits.count_channels(len(self.channels))
            elif isinstance(event, ChannelClosed):
                closed = self.channels.pop(event.channel_id, None)
                if closed is not None:
                    self._shut(closed)
                    self._limits.count_channels(len(self.channels))
            elif isinstance(event, SecretUpdated):
                self._update_secret(event.secret)
            elif isinstance(event, AuthenticationRequested):
                assert self._login is not None
                self._login.request(event)
            elif isinstance(event, OpenRequested):
                self._open(event.vhost)
            elif isinstance(event, ConnectionClosed):
                logger.debug("connection %s: %s", self.name, event.reason)
                self.finish()

    def _shut(self, channel: Channel) -> None:
        if not channel.released:
            self._unreleased.add(channel)
            channel.shut(in_order=True)

    def channels_by_id(self) -> Mapping[int, ClientChannel]:
        """See `Client.channels_by_id`."""
        return self.channels

    def channel_released(self, channel: ClientChannel) -> None:
        """See `Client.channel_released`."""
        self._unreleased.discard(channel)
        if self.over and not self._unreleased:
            self._delete_exclusive_queues()

    def fail(self, error: AmqpError, class_id: int, method_id: int) -> None:
        """See `Client.fail`."""
        self.amqp.close(error.code, error.text, class_id, method_id)
        self.mark()
        self.finish()

    def force_close(self, text: str) -> None:
        """Close the connection for reasons that are not its own (320); what is stored is confirmed before."""
        for channel in self.channels.values():
            channel.publisher.send_confirms()
        self.fail(AmqpError(CONNECTION_FORCED, text), 0, 0)

    @property
    def is_running(self) -> bool:
        """Whether it is open: logged in, in a vhost, and not over."""
        return self._in_vhost and not self.over

    def finish(self) -> None:
        """The connection is over: channels give back what they hold, exclusive queues go."""
        if self.over:
            return
        self.over = True
        if self._in_vhost:
            self.traffic.connections_closed += 1
        if self._login is not None:
            self._login.stop_waiting()
        channels = list(self.channels.values())
        self.channels.clear()
        self._limits.end()
        self._unreleased.update(channel for channel in channels if not channel.released)
        for channel in channels:
            channel.shut(in_order=self.amqp.closed_by_client)
        self._count_unfinished()
        if not self._unreleased:
            self._delete_exclusive_queues()
        self._ended(self.name)

    def _delete_exclusive_queues(self) -> None:
        queues, self.exclusive_queues = self.exclusive_queues, {}
        _delete_queues(self.cluster, iter(queues.items()))

    # -- user and vhost ---------------------------------------------------------

    def _logged_in(self, user: UserRecord | TokenUser) -> None:
        """The client is this user."""
        self.user = user.name
        if isinstance(user, TokenUser):
            self._goes_by(user)
        else:
            self.who = user.name
            self._user_serial = user.serial
        self.amqp.authenticated()
        self.receive(b"")

    def _goes_by(self, user: TokenUser) -> None:
        self.who = user
        self._token_life = TokenLife(user.lives_ms)

    def _update_secret(self, secret: str) -> None:
        """connection.update-secret: a token that ends later takes the place of the one that the client has shown. A
        password does not end, and another one is not looked at; RabbitMQ does the same for users of its own."""
        if self._secret_waits:
            error = AmqpError(COMMAND_INVALID, "the secret from before is still looked at")
            self.fail(error, _CONNECTION_CLASS, _UPDATE_SECRET)
        elif isinstance(self.who, TokenUser):
            self._secret_waits = True
            assert self._login is not None
            self._login.look_at_token(secret, self._secret_looked_at)
        else:
            self.amqp.secret_updated()

    def _secret_looked_at(self, answer: TokenUser | str) -> None:
        self._secret_waits = False
        if isinstance(answer, TokenUser):
            if answer.name != self.user:
                answer = "it is another user's"
            elif check_vhost(self.cluster.catalog, answer, self.vhost) is not None:
                answer = f"it grants nothing in vhost '{self.vhost}'"
        if isinstance(answer, TokenUser):
            self._goes_by(answer)
            self.routes.change_user(answer)
            self.amqp.secret_updated()
        else:
            logger.warning("connection %s: another token of %r refused: %s", self.name, self.user, answer)
            self.fail(AmqpError(NOT_ALLOWED, NEW_SECRET_REFUSED), _CONNECTION_CLASS, _UPDATE_SECRET)

    def permissions_changed(self) -> None:
        """Users, vhosts or permissions have changed: without its user or its vhost the connection goes. What else it
        may do is looked up when it does it."""
        if self.over or not self.user:
            return
        catalog = self.cluster.catalog
        if not isinstance(self.who, TokenUser):
            user = catalog.user(self.user)
            if user is None or user.serial != self._user_serial:
                self.fail(AmqpError(CONNECTION_FORCED, f"user '{self.user}' is deleted"), 0, 0)
                return
        if self._in_vhost:
            vhost = catalog.vhost(self.vhost)
            if vhost is None or vhost.serial != self._vhost_serial:
                self.fail(AmqpError(CONNECTION_FORCED, f"vhost '{self.vhost}' is deleted"), 0, 0)

    def _open(self, vhost: str) -> None:
        """connection.open: the vhost must be there and the user must have permissions in it."""

        def failed(error: AmqpError) -> None:
            self.amqp.refuse_open(error.code, error.text)

        def finished() -> None:
            self._opening = None
            self.mark()

        self._opening = Operation(self.cluster, self._opening_steps(vhost), failed, finished)
        self._opening.start()

    def _opening_steps(self, vhost: str) -> Steps:
        catalog = self.cluster.catalog
        yield ServeStep()
        if self.over:
            return
        if check_vhost(catalog, self.who, vhost) is not None:
            yield BarrierStep()
            check(check_vhost(catalog, self.who, vhost))
        if self.over:
            return
        record = catalog.vhost(vhost)
        assert record is not None
        check(self._limits.refusal(self.user, record))
        self.vhost = vhost
        self._vhost_serial = record.serial
        self._in_vhost = True
        self.traffic.connections_opened += 1
        self.vhost_traffic = self.traffic.of_vhost(vhost)
        self._limits.begin(self.user, vhost)
        self.amqp.channels.refusal = self._limits.channel_refusal
        self.routes = self.node.routes.of(vhost, self.who)
        self.amqp.opened()
        self.receive(b"")

    # -- what the shards tell ---------------------------------------------------

    def session_lost(self, shard_id: int) -> None:
        """A shard has dropped this node's session."""
        for channel in list(self.channels.values()):
            channel.session_lost(shard_id)


def _delete_queues(cluster: ClusterFacade, queues: Iterator[tuple[int, int]]) -> None:
    """Delete exclusive queues, (id, shard id), of a connection that is over: some at a time, the next when those have
    left the catalog."""
    some = list(islice(queues, QUEUES_BURIED_PER_COMMAND))
    if not some:
        return
    for queue_id, shard_id in some:
        cluster.shard(shard_id).submit(encode_delete_queue(queue_id, False, False), None)
    cluster.submit_catalog(
        RemoveQueues(tuple(queue_id for queue_id, _ in some)), lambda _: _delete_queues(cluster, queues)
    )
