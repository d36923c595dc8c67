"""Where a node takes clients: plain ones at one address, those with TLS at another."""

import asyncio
import socket
import ssl

import pytest

from node.broker.broker import Broker
from node.broker.direct_cluster import DirectCluster
from node.listener import AmqpListener


def test_a_door_that_can_not_be_opened_leaves_none_open() -> None:
    """Plain clients in a node that those with TLS do not find would be half a start."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listener = AmqpListener(
                Broker(DirectCluster(), lambda: b"\0" * 16), "127.0.0.1", 0, lambda: None,
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), tls_address=taken.getsockname()[:2],
            )  # fmt: skip
            with pytest.raises(OSError):
                await listener.open_door()
            assert listener.port
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", listener.port)

    asyncio.run(run())
