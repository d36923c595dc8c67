"""TLS for a socket that was accepted: a handshake takes a place among the connections, and is given up in time."""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from node.limits import HANDSHAKE_SECONDS


class TlsDoor(asyncio.Protocol):
    """The socket of a client until it has agreed on TLS; then it belongs to the protocol that `make()` makes.

    asyncio's own listeners tell nobody of a socket before its handshake is done, so silent ones could not be counted.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        came: Callable[["TlsDoor"], bool],
        gone: Callable[["TlsDoor"], None],
    ) -> None:
        """`came(self)` says whether there is room for one more; after that `gone(self)` is called once, when the
        handshake has failed, or before it becomes a client."""
        self._context = context
        self._make = make
        self._came = came
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        """What came behind the handshake, before the client's protocol was there."""
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A socket was accepted."""
        self._transport = cast(asyncio.Transport, transport)
        if self._came(self):
            self._task = asyncio.get_running_loop().create_task(self._secure(self._transport))
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """The first octets of the client, decrypted."""
        self._early.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self._lost = True

    def abort(self) -> None:
        """Drop the socket."""
        if self._transport is not None:
            self._transport.abort()

    async def _secure(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except OSError:  # of which SSLError is one: no TLS, no certificate, too late, gone
            transport.abort()
            secured = None
        self._gone(self)
        if secured is None or self._lost:
            return
        client = self._make()
        secured.set_protocol(client)
        client.connection_made(secured)
        for data in self._early:
            client.data_received(data)
