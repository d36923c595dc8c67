"""One client connection: the bridge from the AMQP state machine to channels."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

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
from node.amqp.sasl import EXTERNAL
from node.broker.access_counts import CHANNELS_OF_USER, CONNECTIONS_OF_USER, CONNECTIONS_OF_VHOST
from node.broker.channel import Channel
from node.broker.cluster_facade import Done, SessionLost
from node.broker.failed_logins import origin_of
from node.broker.operation import AmqpError, BarrierStep, Operation, Steps, check
from node.broker.password_line import Turn
from node.catalog import Refusal, RemoveQueues, UpgradePassword, UserRecord, VhostRecord, refusals
from node.catalog.access_limits import MAX_CHANNELS, MAX_CONNECTIONS, allowed
from node.catalog.passwords import NOBODYS_HASH
from node.catalog.permissions import check_vhost
from node.limits import OUTPUT_FULL_BYTES, OUTPUT_HIGH_WATER_BYTES, WAITING_EVENTS_BYTES
from node.shard.commands import encode_delete_queue

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.broker.routes import Routes

logger = logging.getLogger(__name__)

CONNECTION_FORCED: Final = 320


class ConnectionHost(Protocol):
    """What a connection needs of the socket it belongs to."""

    def wake(self) -> None:
        """Call `ClientConnection.flush` soon, once for any number of calls."""
        ...

    def verify_password(self, stored_hash: str, password: str, done: Done) -> None:
        """Call `done(True)` or `done(False)` later; the check is slow on purpose. Or `done` with a string: the password
        is right, and this hash of it is better than the stored one."""
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
        # As whom, and where: a user or vhost that is deleted and made anew is another one.
        self._user_serial: int = 0
        self._vhost_serial: int = 0
        self._in_vhost = False
        self._channels_counted = 0
        self._origin = origin_of(peer)
        self._slowed: AuthenticationRequested | None = None
        """A login that waits, because others from there have failed."""
        self._turn: Turn | None = None
        """What is called when this login is the next one in line to have its password checked."""
        self._slowed_until_ms = 0
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
        self.broker.now_ms = now_ms
        slowed = self._slowed
        if slowed is not None and now_ms >= self._slowed_until_ms and not self.over:
            self._stop_waiting()
            self._check_password(slowed, True)
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
            if self.over:
                return  # What came behind the method that ended it.
            if isinstance(event, (PublishesReceived, SettlementsReceived, MethodReceived)):
                channel = self.channels.get(event.channel_id)
                if channel is not None:
                    channel.handle(event)
            elif isinstance(event, ChannelOpened):
                self.channels[event.channel_id] = Channel(self, event.channel_id)
                self._count_channels()
            elif isinstance(event, ChannelClosed):
                closed = self.channels.pop(event.channel_id, None)
                if closed is not None:
                    self._shut(closed)
                    self._count_channels()
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
        self._stop_waiting()
        channels = list(self.channels.values())
        self.channels.clear()
        self._count_channels()
        if self._in_vhost:
            self._count_connection(-1)
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
        user, password = event.username, event.password.encode("utf-8", "surrogateescape")
        record = broker.cluster.catalog.user(user)
        if user in broker.settings.loopback_users and not self._loopback:
            self._refuse_login(event, f"user '{user}' can only connect via localhost")
        elif event.mechanism == EXTERNAL:
            if record is None:
                self._refuse_login(event, "the certificate names no user that is there")
            else:
                self._logged_in(record)
        elif record is not None and broker.credentials.known(user, record.password_hash, password):
            self._logged_in(record)
        else:
            delay_ms = broker.failed_logins.delay_ms(self._origin, user, broker.now_ms)
            if not delay_ms:
                self._check_password(event, False)
            elif broker.failed_logins.begin_waiting(self._origin, user):
                self._slowed, self._slowed_until_ms = event, broker.now_ms + delay_ms
            else:
                self._turn_away(event, "too many logins from there wait already")

    def _stop_waiting(self) -> None:
        if self._slowed is not None:
            self.broker.failed_logins.end_waiting(self._origin, self._slowed.username)
            self._slowed = None
        if self._turn is not None:
            self.broker.password_line.leave(self._origin, self._turn)
            self._turn = None

    def _stand_in_line(self, event: AuthenticationRequested, has_waited: bool) -> None:
        """Too many from there are being checked. What they come to may slow this one, or make it needless to check."""

        def turn() -> None:
            self._turn = None
            if has_waited:
                self._check_password(event, True)
            else:
                self._authenticate(event)

        if self.broker.password_line.stand(self._origin, turn):
            self._turn = turn
        else:
            self._turn_away(event, "too many passwords wait to be checked")

    def _check_password(self, event: AuthenticationRequested, has_waited: bool) -> None:
        """Have the password checked: in a thread, and for users that are not there as well, so that the time taken does
        not tell who is. `has_waited`: as long as it had to for the failures of others."""
        broker = self.broker
        record = broker.cluster.catalog.user(event.username)
        serial = -1 if record is None or not record.password_hash else record.serial
        stored = NOBODYS_HASH if record is None or not record.password_hash else record.password_hash
        digest = broker.credentials.digest(
            event.username, stored, event.password.encode("utf-8", "surrogateescape")
        )

        def verified(result: object) -> None:
            self._password_checked(event, stored, serial, result)

        waiting = broker.password_checks.get(digest)
        if waiting is not None:
            waiting.append(verified)
            return
        if not broker.password_line.begin(self._origin):
            self._stand_in_line(event, has_waited)
            return
        broker.password_checks[digest] = [verified]

        def answered(result: object) -> None:
            for each in broker.password_checks.pop(digest, []):
                each(result)
            broker.password_line.end(self._origin)

        self.host.verify_password(stored, event.password, answered)

    def _password_checked(self, event: AuthenticationRequested, stored: str, serial: int, result: object) -> None:
        broker = self.broker
        if self.over:
            if serial < 0 or result is False:
                broker.failed_logins.failed(self._origin, event.username, broker.now_ms)
            return
        record = broker.cluster.catalog.user(event.username)
        if serial < 0:
            self._refuse_login(event, "no such user, or none with a password")
        elif result is not True and not isinstance(result, str):
            self._refuse_login(event, "wrong password")
        elif record is None or record.serial != serial:
            self._turn_away(event, "deleted meanwhile")
        elif record.password_hash != stored:
            self._check_password(event, True)  # It was changed meanwhile, or stored in a better way.
        else:
            password = event.password.encode("utf-8", "surrogateescape")
            broker.credentials.remember(event.username, stored, password)
            if isinstance(result, str):
                broker.credentials.remember(event.username, result, password)
                broker.cluster.submit_catalog(UpgradePassword(event.username, stored, result), _nothing)
            self._logged_in(record)
        self.mark()

    def _refuse_login(self, event: AuthenticationRequested, why: str) -> None:
        """It was looked at, and is wrong: that counts."""
        self.broker.failed_logins.failed(self._origin, event.username, self.broker.now_ms)
        self._answer_refused(event, why)

    def _turn_away(self, event: AuthenticationRequested, why: str) -> None:
        """It was not looked at, and may have been right."""
        self.broker.failed_logins.turned_away()
        self._answer_refused(event, why)

    def _answer_refused(self, event: AuthenticationRequested, why: str) -> None:
        logger.warning("connection %s: login of %r refused: %s", self.name, event.username, why)
        self.amqp.authentication_failed(why)
        self.mark()

    def _logged_in(self, user: UserRecord) -> None:
        self.user = user.name
        self._user_serial = user.serial
        self.broker.failed_logins.succeeded(self._origin, user.name)
        self.amqp.authenticated()
        self.receive(b"")

    def permissions_changed(self) -> None:
        """Users, vhosts or permissions have changed: without its user or its vhost the connection goes. What else it
        may do is looked up when it does it."""
        if self.over or not self.user:
            return
        catalog = self.broker.cluster.catalog
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

        self._opening = Operation(self.broker.cluster, self._opening_steps(vhost), failed, finished)
        self._opening.start()

    def _opening_steps(self, vhost: str) -> Steps:
        catalog = self.broker.cluster.catalog
        if check_vhost(catalog, self.user, vhost) is not None:
            yield BarrierStep()
            check(check_vhost(catalog, self.user, vhost))
        if self.over:
            return
        record = catalog.vhost(vhost)
        assert record is not None
        check(self._limit_reached(record))
        self.vhost = vhost
        self._vhost_serial = record.serial
        self._in_vhost = True
        self._count_connection(1)
        self.amqp.channels.refusal = self._channel_refusal
        self.routes = self.broker.routes_of(vhost, self.user)
        self.amqp.opened()
        self.receive(b"")

    # -- limits of users and vhosts -----------------------------------------------

    def _limit_reached(self, vhost: VhostRecord) -> Refusal | None:
        """Whether the vhost or the user has as many connections as it may have."""
        cluster = self.broker.cluster
        counts = cluster.access_counts
        most = allowed(vhost, MAX_CONNECTIONS)
        if most is not None and counts.total(CONNECTIONS_OF_VHOST, vhost.name) >= most:
            return refusals.vhost_connection_limit(vhost.name, self.user, most)
        most = allowed(cluster.catalog.user(self.user), MAX_CONNECTIONS)
        if most is not None and counts.total(CONNECTIONS_OF_USER, self.user) >= most:
            return refusals.user_connection_limit(self.user, most)
        return None

    def _count_connection(self, by: int) -> None:
        counts = self.broker.cluster.access_counts
        counts.add(CONNECTIONS_OF_VHOST, self.vhost, by)
        counts.add(CONNECTIONS_OF_USER, self.user, by)

    def _channel_refusal(self, channels: int) -> str | None:
        """Why this connection with so many channels may not open one more."""
        cluster = self.broker.cluster
        most = allowed(cluster.catalog.user(self.user), MAX_CHANNELS)
        if most is None:
            return None
        uncounted = channels - self._channels_counted
        if cluster.access_counts.total(CHANNELS_OF_USER, self.user) + uncounted < most:
            return None
        return refusals.user_channel_limit(self.user, most).text

    def _count_channels(self) -> None:
        added = len(self.channels) - self._channels_counted
        if added:
            self._channels_counted = len(self.channels)
            self.broker.cluster.access_counts.add(CHANNELS_OF_USER, self.user, added)

    # -- pressure, alarms, cancellation -------------------------------------------

    @property
    def wants_reading(self) -> bool:
        """Whether the socket should be read from."""
        if self.waiting_bytes > WAITING_EVENTS_BYTES or self.output_full or not self.amqp.wants_input:
            return False
        if self.over:
            return True
        if self.broker.reading_stopped:
            return False
        if not self.has_published:
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
                channel.pause_consumers()

    def note_output(self) -> None:
        """Deliveries were added to what is to be written. Where that is much, there shall be no more before the socket
        has shown how much of it it takes: what a shard has at hand it delivers in one go."""
        if self.amqp.output.size_bytes > OUTPUT_HIGH_WATER_BYTES:
            self.set_output_blocked(True)

    def takes_answers(self) -> bool:
        """Whether what the client asks for may be done now: there is room for the answer."""
        if self.amqp.output.size_bytes > OUTPUT_FULL_BYTES:
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
            self.amqp.output.send(channel_id, unchecked(Basic.Cancel, consumer_tag=consumer_tag, nowait=True))
            self.mark()

    def session_lost(self, shard_id: int) -> None:
        """A shard has dropped this node's session."""
        for channel in list(self.channels.values()):
            channel.session_lost(shard_id)


def _nothing(result: object) -> None:
    """For commands whose result nobody waits for."""
    if isinstance(result, SessionLost):
        logger.debug("the fate of a clean-up command is unknown")
