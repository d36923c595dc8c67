"""Sockets of the TLS port that have not agreed on TLS: they count, and not for long."""

import contextlib
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.direct_node import DirectNode

MOST = 3
WITHIN_S = 20


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of clients that trust it."""
    folder: Path = tmp_path_factory.mktemp("certificate")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))


@pytest.fixture
def node(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[DirectNode]:
    with DirectNode(tls=contexts[0], connection_limit=MOST) as node:
        yield node


def connect(node: DirectNode) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=WITHIN_S)


def greeting(node: DirectNode, context: ssl.SSLContext) -> bytes:
    """The first frame that a client gets which sends its header in one piece with the end of the handshake."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(received, sent, server_hostname="localhost")
    with connect(node) as plain:

        def until_done(step: Callable[[], object]) -> object:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    plain.sendall(sent.read())
                    data = plain.recv(65_536)
                    if not data:
                        raise ConnectionError("closed by the node") from None
                    received.write(data)

        until_done(secured.do_handshake)
        secured.write(b"AMQP\x00\x00\x09\x01")
        frame = until_done(lambda: secured.read(11))
        assert isinstance(frame, bytes)
        return frame


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < end, "not within the bound"
        time.sleep(0.01)


def test_silent_sockets_take_places(node: DirectNode, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    with contextlib.ExitStack() as sockets:
        silent = [sockets.enter_context(connect(node)) for _ in range(MOST)]
        until(lambda: node.listener.connection_count == MOST)
        with pytest.raises(OSError):
            greeting(node, contexts[1])
        silent[0].close()
        until(lambda: node.listener.connection_count == MOST - 1)
        assert greeting(node, contexts[1])[7:] == b"\x00\x0a\x00\x0a", "connection.start"
    until(lambda: node.listener.connection_count == 0)


def test_a_handshake_that_does_not_end_is_given_up(
    node: DirectNode, contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.tls_door.HANDSHAKE_SECONDS", 0.3)
    with connect(node) as silent, connect(node) as talking:
        talking.sendall(b"AMQP\x00\x00\x09\x01")
        for each in (silent, talking):
            with contextlib.suppress(ConnectionError):
                while each.recv(100):
                    pass
    until(lambda: node.listener.connection_count == 0)
    assert greeting(node, contexts[1])[7:] == b"\x00\x0a\x00\x0a", "connection.start"


def test_stopping_waits_for_no_handshake(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    with DirectNode(tls=contexts[0]) as node, connect(node) as silent:
        until(lambda: node.listener.connection_count == 1)
        node.stop()
        with contextlib.suppress(ConnectionError):
            assert silent.recv(1) == b""
