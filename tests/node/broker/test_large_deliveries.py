"""Large messages on their way to a client: whole and in order, a part in each turn, no more than the socket takes."""

from __future__ import annotations

import random
import socket
from typing import Any

import pytest
from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.exceptions import UnmarshalingException

from mayfly.node.limits import LARGE_BODY_BYTES, OUTPUT_HIGH_WATER_BYTES, OUTPUT_PART_BYTES
from mayfly.node.shell import listener
from tests.node.broker.direct_node import DirectNode
from tests.node.broker.test_in_pieces import publish_bytes
from tests.node.conftest import Client, Delivery, World
from tests.waiting import BOUND_S, wait_for

BODY = random.Random(8).randbytes(4 * LARGE_BODY_BYTES + 5)
BODIES = [b"first", BODY, b"third", BODY[1:], BODY[2:], b"last"]
SMALL_BYTES = 4096


class Measuring(Client):
    """Notes the largest piece that was written to it."""

    largest_bytes = 0

    def output(self, data: bytes) -> None:
        self.largest_bytes = max(self.largest_bytes, len(data))
        super().output(data)


@pytest.fixture
def client(world: World) -> Client:
    client = world.client()
    client.__class__ = Measuring
    return client


def publish(client: Client, queue: str, body: bytes, **options: Any) -> None:
    client.send_bytes(publish_bytes(1, body, "", queue, **options))


def all_of(client: Client, came: list[Any]) -> list[Any]:
    """What comes as long as the socket takes what is written to it."""
    while client.connection.pressure.output_blocked:
        client.connection.pressure.set_output_blocked(False)
        client.world.settle()
        came += client.take(1)
    return came


def bodies_of(came: list[object]) -> list[bytes]:
    return [bytes(each.body) for each in came if isinstance(each, Delivery)]


def test_each_turn_has_a_part_and_all_is_whole_and_in_order(client: Measuring) -> None:
    client.declare("q")
    for body in BODIES:
        publish(client, "q", body)
    assert bodies_of(all_of(client, client.consume("q"))) == BODIES
    assert client.largest_bytes <= OUTPUT_PART_BYTES + SMALL_BYTES
    client.send(1, commands.Basic.Ack(len(BODIES), multiple=True))
    client.lose()
    assert client.world.client().count("q") == 0


def test_q1_what_came_back_says_so_and_a_get_is_in_parts_as_well(client: Measuring) -> None:
    client.declare("q", arguments={"x-queue-type": "quorum"})
    publish(client, "q", BODY, headers={"a": 1})
    first = client.get("q", no_ack=False)
    assert (first.body, first.properties.headers, first.method.redelivered) == (BODY, {"a": 1}, False)
    client.send(1, commands.Basic.Nack(first.method.delivery_tag, requeue=True))
    again = client.get("q", no_ack=False)
    assert (again.body, again.method.redelivered) == (BODY, True)
    assert again.properties.headers == {"a": 1, "x-acquired-count": 1}
    client.send(1, commands.Basic.Recover(requeue=True))
    client.take()
    (consumed,) = client.consume("q")
    assert (consumed.body, consumed.method.redelivered) == (BODY, True)
    assert consumed.properties.headers["x-acquired-count"] == 2
    assert client.largest_bytes <= OUTPUT_PART_BYTES + SMALL_BYTES


def test_j1_each_of_a_stream_says_its_offset(client: Measuring) -> None:
    client.declare("s", arguments={"x-queue-type": "stream"})
    for body in BODIES:
        publish(client, "s", body)
    client.send(1, commands.Basic.Qos(prefetch_count=20))
    came = all_of(client, client.consume("s", arguments={"x-stream-offset": "first"}))
    assert bodies_of(came) == BODIES
    assert [each.properties.headers["x-stream-offset"] for each in came] == list(range(len(BODIES)))
    assert client.largest_bytes <= OUTPUT_PART_BYTES + SMALL_BYTES


def test_what_waits_is_written_before_the_connection_is_closed(client: Measuring) -> None:
    client.declare("q")
    publish(client, "q", BODY)
    client.connection.receive(frame.marshal(commands.Basic.Get(queue="q", no_ack=True), 1))
    client.world.cluster.pump()
    client.output(b"".join(client.connection.flush()))
    assert client.connection.amqp.output.has_large
    client.send(0, commands.Connection.Close(200, "", 0, 0))
    *came, closed = client.take()
    assert isinstance(closed, commands.Connection.CloseOk)
    assert bodies_of(came) == [BODY]
    assert client.largest_bytes <= OUTPUT_PART_BYTES + SMALL_BYTES


def test_a_direct_reply_is_in_parts_as_well(client: Measuring) -> None:
    client.consume("amq.rabbitmq.reply-to", no_ack=True)
    client.declare("asked")
    client.publish(1, "asked", b"?", reply_to="amq.rabbitmq.reply-to")
    publish(client, client.get("asked").properties.reply_to, BODY)
    assert bodies_of(all_of(client, client.take(1))) == [BODY]
    assert client.largest_bytes <= OUTPUT_PART_BYTES + SMALL_BYTES


class RawClient:
    """A client that reads when it is told to."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
        self._input = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.read(commands.Connection.Start)
        self.send(0, commands.Connection.StartOk(mechanism="PLAIN", response="\0guest\0guest", locale="en_US"))
        self.read(commands.Connection.Tune)
        self.send(0, commands.Connection.TuneOk(10, 131_072, 0), commands.Connection.Open("/"))
        self.read(commands.Connection.OpenOk)
        self.send(1, commands.Channel.Open())
        self.read(commands.Channel.OpenOk)

    def send(self, channel: int, *methods: Frame) -> None:
        self.socket.sendall(b"".join(frame.marshal(method, channel) for method in methods))

    def count(self, queue: str) -> int:
        self.send(1, commands.Queue.Declare(queue=queue, passive=True))
        return int(self.read(commands.Queue.DeclareOk)[-1].message_count)

    def read(self, end: type) -> list[Any]:
        """All that comes up to such a frame."""
        came: list[Any] = []
        while not came or not isinstance(came[-1], end):
            while True:
                try:
                    used, _, item = frame.unmarshal(self._input)
                    break
                except UnmarshalingException:  # It is not whole yet.
                    data = self.socket.recv(1 << 20)
                    assert data, came
                    self._input += data
            self._input = self._input[used:]
            came.append(item)
        return came


def test_a_client_that_does_not_read_has_parts_made_when_it_reads_again() -> None:
    with DirectNode() as node:
        publisher = RawClient(node.port)
        publisher.send(1, commands.Queue.Declare(queue="q", durable=True), commands.Confirm.Select())
        publisher.read(commands.Confirm.SelectOk)
        for body in 2 * BODIES:
            publisher.socket.sendall(publish_bytes(1, body, "", "q"))
        wait_for(lambda: publisher.count("q") == 2 * len(BODIES), "all is in the queue")
        client = RawClient(node.port)
        gets = [commands.Basic.Get(queue="q", no_ack=True)] * 2 * len(BODIES)
        client.send(1, *gets, commands.Queue.Declare(queue="q", passive=True))
        wait_for(lambda: any(each._writing_paused for each in node.listener._protocols), "it takes no more")
        for _ in range(40):
            publisher.count("q")  # A turn of the node, at least.
        (protocol,) = [each for each in node.listener._protocols if each._writing_paused]
        assert protocol._transport.get_write_buffer_size() <= OUTPUT_HIGH_WATER_BYTES + 2 * OUTPUT_PART_BYTES
        assert protocol._connection is not None
        assert protocol._connection.amqp.output.has_large
        came = client.read(commands.Queue.DeclareOk)
        octets = b"".join(each.value for each in came if hasattr(each, "value") and isinstance(each.value, bytes))
        assert octets == b"".join(2 * BODIES)
        assert not protocol._connection.pressure.output_full
        assert not protocol._connection.pressure.output_blocked


@pytest.mark.parametrize("closes", [True, False])
def test_what_a_client_asked_for_comes_before_its_connection_ends(
    closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed by itself, or by a node that stops. However busy this machine is."""
    monkeypatch.setattr(listener, "CLOSE_OK_SECONDS", BOUND_S)
    with DirectNode() as node:
        client = RawClient(node.port)
        client.send(1, commands.Queue.Declare(queue="q", durable=True))
        client.read(commands.Queue.DeclareOk)
        for body in BODIES:
            client.socket.sendall(publish_bytes(1, body, "", "q"))
        wait_for(lambda: client.count("q") == len(BODIES), "all is in the queue")
        client.send(1, *[commands.Basic.Get(queue="q", no_ack=True)] * len(BODIES))
        wait_for(lambda: any(each._writing_paused for each in node.listener._protocols), "it takes no more")
        if closes:
            client.send(0, commands.Connection.Close(200, "", 0, 0))
            came = client.read(commands.Connection.CloseOk)
        else:
            node._loop.call_soon_threadsafe(node._stop.set)
            came = client.read(commands.Connection.Close)
            client.send(0, commands.Connection.CloseOk())
        octets = b"".join(each.value for each in came if hasattr(each, "value") and isinstance(each.value, bytes))
        assert octets == b"".join(BODIES)
        assert client.socket.recv(1) == b""
        client.socket.close()
