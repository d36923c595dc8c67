"""connection.close with publishes still on their way: the client gets close-ok and the end of the stream, no reset."""

import select
import socket
import time
from collections.abc import Iterator

import pytest
from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from node.limits import MIB
from tests.broker.direct_node import DirectNode

BODY = b"b" * 4000
CLOSE_OK = frame.marshal(commands.Connection.CloseOk(), 0)
CHANNEL_OPEN_OK = b"\x00\x14\x00\x0b"
WITHIN_S = 20
STAYS_S = 1.0


@pytest.fixture(scope="module")
def node() -> Iterator[DirectNode]:
    with DirectNode() as node:
        yield node


def methods(*all_of_them: Frame, channel: int = 0) -> bytes:
    return b"".join(frame.marshal(method, channel) for method in all_of_them)


def publishes(size_bytes: int) -> bytes:
    one = b"".join(
        frame.marshal(part, 1)
        for part in (
            commands.Basic.Publish(exchange="", routing_key="nowhere"),
            ContentHeader(0, len(BODY), commands.Basic.Properties()),
            ContentBody(BODY),
        )
    )
    return one * (size_bytes // len(one) + 1)


def read_until(connection: socket.socket, end: bytes) -> None:
    data = b""
    while end not in data:
        got = connection.recv(65536)
        assert got, data
        data += got


@pytest.fixture
def connection(node: DirectNode) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", node.port), timeout=WITHIN_S) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        start = commands.Connection.StartOk(client_properties={}, mechanism="PLAIN", response="\0guest\0guest")
        tune = commands.Connection.TuneOk(0x7FF, 131_072, 0)
        connection.sendall(methods(start, tune, commands.Connection.Open()))
        connection.sendall(methods(commands.Channel.Open(), channel=1))
        read_until(connection, CHANNEL_OPEN_OK)
        yield connection


def everything(connection: socket.socket) -> bytes:
    """What comes until the end of the stream; raises ConnectionResetError instead if there is a reset."""
    data = b""
    while got := connection.recv(65536):
        data += got
    return data


def until(node: DirectNode, count: int) -> None:
    deadline = time.monotonic() + WITHIN_S
    while node.listener.connection_count != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_comes_behind_close_does_not_cost_the_client_its_close_ok(
    node: DirectNode, connection: socket.socket
) -> None:
    before = node.listener.connection_count
    connection.sendall(publishes(100_000) + methods(commands.Connection.Close(200, "bye", 0, 0)))
    # Close-ok is there, and not read yet.
    assert select.select([connection], [], [], WITHIN_S)[0]
    connection.sendall(publishes(MIB))
    assert everything(connection) == CLOSE_OK
    connection.sendall(publishes(MIB))
    connection.close()
    until(node, before - 1)


def test_a_client_that_stays_is_dropped_after_a_while(
    node: DirectNode, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.listener.CLOSE_OK_SECONDS", STAYS_S)
    before = node.listener.connection_count
    connection.sendall(methods(commands.Connection.Close(200, "bye", 0, 0)))
    assert everything(connection) == CLOSE_OK
    began_s = time.monotonic()
    until(node, before - 1)
    assert time.monotonic() - began_s >= STAYS_S


def test_a_client_that_goes_on_and_on_is_dropped(
    node: DirectNode, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.listener.FAREWELL_BYTES", MIB)
    connection.sendall(methods(commands.Connection.Close(200, "bye", 0, 0)))
    more = publishes(100 * MIB)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.sendall(more)
