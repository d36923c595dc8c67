"""A connection that has ended is gone with all that belongs to it, and does not wait for the collector.

The collector does not come to what is old (`node.shell.process`): what holds itself would stay for as long as the node
runs.
"""

import gc
from collections.abc import Callable, Iterator

import pika
import pika.exceptions
import pytest
from pamqp import commands, frame
from pamqp.header import ContentHeader

from mayfly.node.amqp.connection import Connection
from mayfly.node.amqp.frames import FrameReader
from mayfly.node.broker.channel import Channel
from mayfly.node.broker.connection import ClientConnection
from mayfly.node.broker.consumers import Consumer
from mayfly.node.broker.login import Login
from mayfly.node.broker.pressure import Pressure
from mayfly.node.broker.publishing import Publisher
from mayfly.node.limits import LARGE_BODY_BYTES
from mayfly.node.shell.listener import ClientProtocol
from tests.node.broker.direct_node import DirectNode
from tests.node.broker.raw_client import Client
from tests.waiting import wait_for

CLASSES = (Channel, ClientConnection, ClientProtocol, Connection, Consumer, FrameReader, Login, Pressure, Publisher)


@pytest.fixture(scope="module")
def node() -> Iterator[DirectNode]:
    with DirectNode() as node:
        yield node


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def those_there() -> list[str]:
    return sorted(type(each).__name__ for each in gc.get_objects() if isinstance(each, CLASSES))


def opened(node: DirectNode, password: str = "guest") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials("guest", password)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port, credentials=credentials))


def publishes(node: DirectNode) -> None:
    with opened(node) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x", mandatory=True)
        channel.basic_publish("", "q", bytes(LARGE_BODY_BYTES + 1))
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish("", "nobody", b"x", mandatory=True)


def consumes(node: DirectNode) -> None:
    with opened(node) as connection:
        channel = connection.channel()
        channel.queue_declare("c")
        for _ in range(5):
            channel.basic_publish("", "c", b"x")
        tag = channel.basic_consume("c", lambda channel, method, *_: channel.basic_ack(method.delivery_tag))
        connection.process_data_events(0.05)
        channel.basic_cancel(tag)
        channel.basic_get("c")
        channel.queue_delete("c")


def closes_channels(node: DirectNode) -> None:
    with opened(node) as connection:
        for _ in range(3):
            connection.channel().close()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            connection.channel().queue_declare("nowhere", passive=True)


def is_in_a_transaction(node: DirectNode) -> None:
    with opened(node) as connection:
        channel = connection.channel()
        channel.queue_declare("t", exclusive=True)
        channel.tx_select()
        channel.basic_publish("", "t", b"x")
        channel.tx_commit()
        channel.basic_publish("", "t", b"left open")


def breaks_off(node: DirectNode) -> None:
    client = Client(node)
    client.send(1, commands.Queue.Declare(exclusive=True))
    client.send(1, commands.Basic.Consume(), commands.Basic.Publish(routing_key="nowhere", mandatory=True))
    client.socket.sendall(frame.marshal(ContentHeader(body_size=10), 1))
    while not isinstance(client.read(), commands.Basic.ConsumeOk):
        pass
    client.socket.close()


def is_refused(node: DirectNode) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        opened(node, "wrong")


@pytest.mark.parametrize("does", [publishes, consumes, closes_channels, is_in_a_transaction, breaks_off, is_refused])
def test_nothing_stays_of_a_connection(
    node: DirectNode, no_collector: None, does: Callable[[DirectNode], None]
) -> None:
    before = those_there()
    for _ in range(3):
        does(node)
    wait_for(lambda: those_there() == before, "all to be gone")
