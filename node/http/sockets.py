"""Which HTTP connections a node keeps: so many, each with a first request in time."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

_LOG: Final = logging.getLogger(__name__)


class HttpConnections:
    """Makes the protocol of each connection of a listener, for `create_server`.

    When there are too many, the one that has been without a request under way for longest makes room for the new one;
    where each has one, the new one is closed.  Whoever probes a node's health gets in, however many sockets are silent.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol], most: int, first_request_seconds: float) -> None:
        """`make()` makes the protocol that serves a connection."""
        self.make: Callable[[], asyncio.Protocol] = make
        self._most = most
        self._first_request_seconds = first_request_seconds
        self._deadlines: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        """Of connections without a request so far."""
        self._idle: dict[asyncio.BaseTransport, None] = {}
        """Connections without a request under way, those first that have been so for longest."""
        self._count = 0
        self._dropped = 0

    def __call__(self) -> asyncio.Protocol:
        return _Connection(self)

    # -- for the pages ----------------------------------------------------------------

    def request_came(self, transport: asyncio.BaseTransport) -> None:
        """The header of a request is complete."""
        self._idle.pop(transport, None)
        self._stop_waiting(transport)

    def request_done(self, transport: asyncio.BaseTransport) -> None:
        """It was answered, or is about to be: who does not read the answer is not to keep its place for that."""
        if not transport.is_closing():
            self._idle[transport] = None

    # -- for the connections ----------------------------------------------------------

    def opened(self, transport: asyncio.Transport) -> bool:
        """A socket was accepted; whether it may stay."""
        if self._count >= self._most:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:
                _LOG.warning("%d HTTP connections are open, the limit: %d dropped so far", self._most, self._dropped)
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self._drop(oldest)
        self._count += 1
        self._idle[transport] = None
        loop = asyncio.get_running_loop()
        self._deadlines[transport] = loop.call_later(self._first_request_seconds, self._drop, transport)
        return True

    def closed(self, transport: asyncio.BaseTransport) -> None:
        """A socket that was let in is gone."""
        self._count -= 1
        self._idle.pop(transport, None)
        self._stop_waiting(transport)

    def _drop(self, transport: asyncio.BaseTransport) -> None:
        self._idle.pop(transport, None)
        self._stop_waiting(transport)
        cast(asyncio.Transport, transport).abort()

    def _stop_waiting(self, transport: asyncio.BaseTransport) -> None:
        deadline = self._deadlines.pop(transport, None)
        if deadline is not None:
            deadline.cancel()


class _Connection(asyncio.Protocol):
    """One connection: all but its beginning and end goes to the protocol that serves it."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._serving = connections.make()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        accepted = cast(asyncio.Transport, transport)
        if not self._connections.opened(accepted):
            accepted.abort()
            return
        self._transport = accepted
        self._serving.connection_made(accepted)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        if self._transport is not None:
            self._connections.closed(self._transport)
            self._serving.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Octets from the client."""
        if self._transport is not None:
            self._serving.data_received(data)

    def eof_received(self) -> bool | None:
        """The client has closed its side."""
        return self._serving.eof_received() if self._transport is not None else False

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        self._serving.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._serving.resume_writing()
