"""connection.close with publishes still on their way: the client gets close-ok and the end of the stream, no reset."""

import select
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from mayfly.node.limits import MIB
from tests.node.broker.direct_node import DirectNode
from tests.waiting import BOUND_S, until_judged, wait_for

BODY = b"b" * 4000
CLOSE_OK = frame.marshal(commands.Connection.CloseOk(), 0)
CHANNEL_OPEN_OK = b"\x00\x14\x00\x0b"
STAYS_S = 1.0
SILENCE_S = 1.0


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
    with socket.create_connection(("127.0.0.1", node.port), timeout=BOUND_S) as connection:
        log_in(connection)
        yield connection


def log_in(connection: socket.socket) -> None:
    """Up to an open channel."""
    connection.sendall(b"AMQP\x00\x00\x09\x01")
    start = commands.Connection.StartOk(client_properties={}, mechanism="PLAIN", response="\0guest\0guest")
    tune = commands.Connection.TuneOk(0x7FF, 131_072, 0)
    connection.sendall(methods(start, tune, commands.Connection.Open()))
    connection.sendall(methods(commands.Channel.Open(), channel=1))
    read_until(connection, CHANNEL_OPEN_OK)


def everything(connection: socket.socket) -> bytes:
    """What comes until the end of the stream; raises ConnectionResetError instead if there is a reset."""
    data = b""
    while got := connection.recv(65536):
        data += got
    return data


def until(node: DirectNode, count: int) -> None:
    wait_for(lambda: node.listener.connection_count == count, f"{count} connections")


def test_what_comes_behind_close_does_not_cost_the_client_its_close_ok(
    node: DirectNode, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However busy this machine is: a client that stays for longer is dropped."""
    monkeypatch.setattr("mayfly.node.shell.listener.CLOSE_OK_SECONDS", BOUND_S)
    before = node.listener.connection_count
    connection.sendall(publishes(100_000) + methods(commands.Connection.Close(200, "bye", 0, 0)))
    # Close-ok is there, and not read yet.
    assert select.select([connection], [], [], BOUND_S)[0]
    connection.sendall(publishes(MIB))
    assert everything(connection) == CLOSE_OK
    connection.sendall(publishes(MIB))
    connection.close()
    until(node, before - 1)


def test_a_client_that_stays_is_dropped_after_a_while(
    node: DirectNode, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mayfly.node.shell.listener.CLOSE_OK_SECONDS", STAYS_S)
    before = node.listener.connection_count
    began_s = time.monotonic()
    connection.sendall(methods(commands.Connection.Close(200, "bye", 0, 0)))
    assert everything(connection) == CLOSE_OK
    until(node, before - 1)
    assert time.monotonic() - began_s >= STAYS_S


def test_a_client_that_goes_on_and_on_is_dropped(
    node: DirectNode, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mayfly.node.shell.listener.FAREWELL_BYTES", MIB)
    connection.sendall(methods(commands.Connection.Close(200, "bye", 0, 0)))
    more = publishes(100 * MIB)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.sendall(more)


def test_over_tls_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be sent there to say that no more will come: the socket is open until the client is silent."""
    monkeypatch.setattr("mayfly.node.shell.listener.FAREWELL_SILENCE_SECONDS", SILENCE_S)
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    until_judged(lambda round: is_seen_out(server, trusting), "a client that was never silent", rounds=10)


def is_seen_out(server: ssl.SSLContext, trusting: ssl.SSLContext) -> bool:
    """False if the node hung up because this machine kept the client from sending for a while."""
    more = publishes(MIB)
    with (
        DirectNode(tls=server) as node,
        socket.create_connection(("127.0.0.1", node.port), timeout=BOUND_S) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        log_in(connection)
        sent_s = [time.monotonic()]
        try:
            connection.sendall(publishes(100_000) + methods(commands.Connection.Close(200, "bye", 0, 0)))
            assert select.select([connection], [], [], BOUND_S)[0]
            for _ in range(20):
                connection.sendall(more)
                sent_s.append(time.monotonic())
            said = everything(connection)
        except OSError:
            sent_s.append(time.monotonic())
            if all(later - earlier < SILENCE_S / 2 for earlier, later in pairwise(sent_s)):
                raise
            return False
        assert said == CLOSE_OK
        until(node, 0)
        return True
