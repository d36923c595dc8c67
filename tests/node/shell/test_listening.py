"""Where a node takes clients: plain ones at one address, those with TLS at another."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from mayfly.node.broker.broker import Broker
from mayfly.node.shell.acceptor import _listen
from mayfly.node.shell.listener import AmqpListener, ListenerSettings, _is_loopback
from tests.node.broker.direct_cluster import DirectCluster
from tests.waiting import BOUND_S

AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER of who closes with a reset."""


def test_an_address_that_can_not_be_had_leaves_none_listening() -> None:
    """Plain clients in a node that those with TLS do not find would be half a start."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            settings = ListenerSettings("127.0.0.1", tls=tls, tls_address=taken.getsockname()[:2])
            listener = AmqpListener(Broker(DirectCluster(), lambda: b"\0" * 16), lambda: None, settings)
            with pytest.raises(OSError):
                await listener.start_listening()
            assert listener.port
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", listener.port)

    asyncio.run(run())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_client_that_was_reset_before_it_was_accepted_is_dropped(
    run: Callable[[Coroutine[Any, Any, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux hands it over with its octets to be read, and does not say any more where it came from."""
    connected: list[str] = []
    come = asyncio.Event()
    connect = Broker.connect

    def note(self: Broker, host: Any, peer: str, *rest: Any) -> Any:
        connected.append(peer)
        come.set()
        return connect(self, host, peer, *rest)

    monkeypatch.setattr(Broker, "connect", note)

    async def test() -> None:
        settings = ListenerSettings("127.0.0.1")
        listener = AmqpListener(Broker(DirectCluster(), lambda: b"\0" * 16), lambda: None, settings)
        await listener.start_listening()
        # No turn of the loop between these.
        with socket.socket() as gone:
            gone.connect(("127.0.0.1", listener.port))
            gone.sendall(b"AMQP\x00\x00\x09\x01")
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        with socket.create_connection(("127.0.0.1", listener.port)) as stays:
            async with asyncio.timeout(BOUND_S):
                await come.wait()
            assert connected == ["{}:{}".format(*stays.getsockname())]
            assert listener.connection_count == 1
        await listener.stop()

    run(test())


@pytest.mark.parametrize("peer", [None, "", b"", "/run/socket", (), ("",), ("localhost", 1), ("192.0.2.1", 1)])
def test_who_has_no_address_of_this_machine_is_not_taken_for_local(peer: object) -> None:
    assert not _is_loopback(peer)


@pytest.mark.parametrize("peer", [("127.0.0.1", 1), ("::1", 1, 0, 0), ("::ffff:127.0.0.1", 1, 0, 0)])
def test_who_has_an_address_of_this_machine_is_local(peer: object) -> None:
    assert _is_loopback(peer)


NOT_HERE = "2001:db8::1"
"""Kept for documents: no machine has it."""
NO_FAMILY = 99
"""Of addresses: one that no system has."""


class Names:
    """A loop that knows one host, with these addresses."""

    def __init__(self, *found: tuple[int, str]) -> None:
        self._found = found

    async def getaddrinfo(self, host: str | None, port: int, *, type: int, flags: int) -> list[tuple[Any, ...]]:
        return [
            (family, type, 0, "", (address, port, 0, 0) if family == socket.AF_INET6 else (address, port))
            for family, address in self._found
        ]


def listens_at(*found: tuple[int, str]) -> list[tuple[str, int]]:
    opened = asyncio.run(_listen(cast(Any, Names(*found)), "host", 0, False))
    try:
        return [own.getsockname()[:2] for own in opened]
    finally:
        for own in opened:
            own.close()


@pytest.mark.parametrize("missing", [(NO_FAMILY, "127.0.0.1"), (socket.AF_INET6, NOT_HERE)])
@pytest.mark.parametrize("first", [True, False])
def test_addresses_of_a_kind_that_this_machine_lacks_are_left_out(missing: tuple[int, str], first: bool) -> None:
    """As where IPv6 is turned off, and the host's name has such an address all the same."""
    there = (socket.AF_INET, "127.0.0.1")
    found = listens_at(missing, there) if first else listens_at(there, missing)
    assert [host for host, _ in found] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([(NO_FAMILY, "127.0.0.1")], "can't listen on 127.0.0.1:0: Address family not supported"),
        ([(NO_FAMILY, "127.0.0.1"), (socket.AF_INET6, NOT_HERE)], f"can't listen on {NOT_HERE}:0: "),
        ([(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "192.0.2.1")], "can't listen on 192.0.2.1:"),
    ],
)
def test_where_no_address_can_be_had_or_one_of_ipv4_can_not_it_is_said(
    found: list[tuple[int, str]], text: str
) -> None:
    with pytest.raises(OSError, match=text):
        listens_at(*found)


def test_all_addresses_of_a_host_have_the_port_that_the_system_chose_for_the_first() -> None:
    (one, port), (other, same) = listens_at((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2"))
    assert (one, other, same) == ("127.0.0.1", "127.0.0.2", port)
