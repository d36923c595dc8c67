"""A world of one broker over a DirectCluster with fake time, and clients that speak AMQP in octets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pamqp import body as pamqp_body
from pamqp import commands, frame, header, heartbeat
from pamqp.base import Frame

from mayfly.node.broker.broker import Broker
from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.broker.connection import ClientConnection
from mayfly.node.broker.tokens import TokenLogins
from mayfly.node.catalog import PutUser, SetPermissions
from mayfly.node.catalog.passwords import check_and_renew, make_password_hash
from mayfly.node.local_nodes.node_url import NodeUrl
from tests.node.broker.direct_cluster import DirectCluster
from tests.waiting import BOUND_S

CAPABILITIES = {
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
    "publisher_confirms": True,
}


class Delivery:
    """A message as a client got it: by basic.deliver, get-ok or return."""

    def __init__(self, method: Any, properties: Any, body: bytes) -> None:
        self.method = method
        self.properties = properties
        self.body = body

    @property
    def tag(self) -> int:
        return int(self.method.delivery_tag)


def closed(got: Any) -> tuple[str, int, str]:
    """What was closed, and why: by channel.close or connection.close."""
    kind = "channel" if isinstance(got, commands.Channel.Close) else "connection"
    return kind, got.reply_code, got.reply_text


class Client:
    """A client: encodes and decodes with pamqp, and sees what the broker writes."""

    def __init__(self, world: World, connection: ClientConnection) -> None:
        self.world = world
        self.connection = connection
        self.buffer = b""
        self.received: list[tuple[int, Any]] = []
        self.closed = False

    # ConnectionHost is implemented by Host; a client only reads and writes

    def send_bytes(self, data: bytes) -> None:
        self.connection.receive(data)
        self.world.settle()

    def send(self, channel: int, *methods: Frame) -> None:
        """Send methods in one piece."""
        self.send_bytes(b"".join(frame.marshal(method, channel) for method in methods))

    def publish_bytes(
        self,
        channel: int,
        key: str,
        body: bytes = b"m",
        exchange: str = "",
        mandatory: bool = False,
        **properties: Any,
    ) -> bytes:
        method = commands.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
        head = header.ContentHeader(0, len(body), commands.Basic.Properties(**properties))
        parts = [frame.marshal(method, channel), frame.marshal(head, channel)]
        if body:
            parts.append(frame.marshal(pamqp_body.ContentBody(body), channel))
        return b"".join(parts)

    def publish(self, channel: int, key: str, body: bytes = b"m", **options: Any) -> None:
        self.send_bytes(self.publish_bytes(channel, key, body, **options))

    def output(self, data: bytes) -> None:
        """The broker wrote this."""
        self.buffer += data
        if self.buffer.startswith(b"AMQP"):
            self.buffer = self.buffer[8:]
        while self.buffer:
            used, channel, decoded = frame.unmarshal(self.buffer)
            self.buffer = self.buffer[used:]
            if not isinstance(decoded, heartbeat.Heartbeat):
                self.received.append((channel, decoded))

    def take(self, channel: int | None = None) -> list[Any]:
        """Frames that came (on a channel), contents put together."""
        frames = [(c, f) for c, f in self.received if channel in (None, c)]
        self.received = [(c, f) for c, f in self.received if channel not in (None, c)]
        out: list[Any] = []
        position = 0
        while position < len(frames):
            _, item = frames[position]
            position += 1
            if isinstance(item, (commands.Basic.Deliver, commands.Basic.GetOk, commands.Basic.Return)):
                head = frames[position][1]
                position += 1
                body = b""
                while len(body) < head.body_size:
                    body += frames[position][1].value
                    position += 1
                out.append(Delivery(item, head.properties, body))
            else:
                out.append(item)
        return out

    def call(self, channel: int, method: Frame) -> Any:
        """Send a method; the last thing that came for it."""
        self.take(channel)
        self.send(channel, method)
        got = self.take(channel) or self.take(0)
        assert got, f"no answer to {method.name}"
        return got[-1]

    def open_channel(self, channel: int = 1, confirms: bool = False) -> int:
        assert isinstance(self.call(channel, commands.Channel.Open()), commands.Channel.OpenOk)
        if confirms:
            assert isinstance(self.call(channel, commands.Confirm.Select()), commands.Confirm.SelectOk)
        return channel

    def declare(self, queue: str, channel: int = 1, **options: Any) -> Any:
        options.setdefault("durable", True)
        return self.call(channel, commands.Queue.Declare(queue=queue, **options))

    def get(self, queue: str, channel: int = 1, no_ack: bool = True) -> Any:
        return self.call(channel, commands.Basic.Get(queue=queue, no_ack=no_ack))

    def count(self, queue: str, channel: int = 1) -> int:
        return int(self.declare(queue, channel, passive=True).message_count)

    def consume(self, queue: str, tag: str = "tag", channel: int = 1, **options: Any) -> list[Any]:
        """basic.consume; what came after consume-ok."""
        self.take(channel)
        self.send(channel, commands.Basic.Consume(queue=queue, consumer_tag=tag, **options))
        got = self.take(channel)
        assert isinstance(got[0], commands.Basic.ConsumeOk), got[0]
        return got[1:]

    def acks(self, channel: int = 1) -> list[tuple[int, bool, bool]]:
        """Confirms that came, as (tag, multiple, refused)."""
        return [
            (item.delivery_tag, item.multiple, isinstance(item, commands.Basic.Nack))
            for item in self.take(channel)
            if isinstance(item, (commands.Basic.Ack, commands.Basic.Nack))
        ]

    def lose(self) -> None:
        """The socket breaks."""
        self.connection.lost()
        self.world.settle()


class Host:
    """The socket of a client that is a plain object."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client: Client | None = None
        self.reading = True

    def wake(self) -> None:
        self.world.dirty.append(self)

    def verify_password(self, stored_hash: str, password: str, done: OnDone) -> None:
        self.world.verified += 1

        def check() -> None:
            right, better = check_and_renew(stored_hash, password, b"saltsalt")
            done(better or right)

        self.world.later.append(check)

    def reading_changed(self) -> None:
        if self.client is not None:
            self.reading = self.client.connection.pressure.wants_reading


class World:
    """One broker, its cluster and its clock."""

    make_host: type[Host] = Host

    def __init__(self, shards: int = 4, tokens: TokenLogins | None = None) -> None:
        self.cluster = DirectCluster(shards, now_ms=1_000_000)
        counter = itertools.count(1)
        self.broker = Broker(self.cluster, lambda: next(counter).to_bytes(16, "big"), tokens=tokens)
        self.cluster.events = self.broker
        self.dirty: list[Host] = []
        self.later: list[Any] = []
        self.verified = 0
        # Gathered work is left alone while False.
        self.running = True
        self.add_user("guest", "guest", ".*", ".*", ".*")

    def add_user(self, name: str, password: str, *permissions: str) -> None:
        self.cluster.catalog.apply(PutUser(name, make_password_hash(password, b"saltsalt", n=16)))
        if permissions:
            self.cluster.catalog.apply(SetPermissions(name, "/", *permissions))

    def settle(self) -> None:
        """Let everything happen that can happen without time passing."""
        for _ in range(50):
            later, self.later = self.later, []
            for each in later:
                each()
            if self.running:
                self.cluster.pump()
            dirty, self.dirty = self.dirty, []
            for host in dirty:
                if host.client is not None:
                    host.client.output(b"".join(host.client.connection.flush()))
                    host.client.closed = host.client.connection.amqp.should_close
            if not dirty and not self.later:
                break

    def alarm(self, reason: str | None) -> None:
        """Publishers are blocked for this reason, or no more."""
        self.cluster.blocked = reason
        self.broker.alarm_changed(reason)
        self.settle()

    def advance(self, ms: int, step_ms: int = 50) -> None:
        """Time passes, in ticks."""
        end = self.cluster.now_ms + ms
        while self.cluster.now_ms < end:
            self.cluster.tick(min(end, self.cluster.now_ms + step_ms))
            self.settle()

    def socket(self, loopback: bool = True, certificate_user: str | None = None) -> Client:
        """A client that has said nothing yet."""
        host = self.make_host(self)
        client = Client(self, self.broker.connect(host, "test", loopback, certificate_user))
        host.client = client
        return client

    def login(
        self,
        user: str = "guest",
        password: str = "guest",
        loopback: bool = True,
        capabilities: dict[str, Any] | None = None,
        mechanism: str = "PLAIN",
        certificate_user: str | None = None,
    ) -> Client:
        """A client that has sent start-ok."""
        client = self.socket(loopback, certificate_user)
        client.send_bytes(b"AMQP\x00\x00\x09\x01")
        assert isinstance(client.take()[0], commands.Connection.Start)
        properties: Any = {"capabilities": CAPABILITIES if capabilities is None else capabilities}
        client.send(
            0,
            commands.Connection.StartOk(
                client_properties=properties,
                mechanism=mechanism,
                response=f"\0{user}\0{password}",
                locale="en_US",
            ),
        )
        return client

    def client(self, vhost: str = "/", channel: bool = True, **login: Any) -> Client:
        """A client with an open connection, and channel 1 open."""
        client = self.login(**login)
        (tune,) = client.take()
        assert isinstance(tune, commands.Connection.Tune), tune
        client.send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        client.send(0, commands.Connection.Open(virtual_host=vhost))
        (opened,) = client.take()
        assert isinstance(opened, commands.Connection.OpenOk), opened
        if channel:
            client.open_channel()
        return client


@pytest.fixture(autouse=True)
def _patient_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that a test runs in its own process wait for a node however busy this machine is."""
    connect = NodeUrl.connect
    monkeypatch.setattr(NodeUrl, "connect", lambda self, timeout_s: connect(self, BOUND_S))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()
