"""Sockets that peers connect to: bound to all addresses of a name, and accepted from until they are closed."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from mayfly.cluster import limits
from mayfly.cluster.transport.complaints import Complaints

_BACKLOG: Final = 100
_USER_TIMEOUT_MS: Final = limits.KEEPALIVE_INTERVAL_MS + limits.KEEPALIVE_TIMEOUT_MS


class Listening:
    """Accepts connections. What becomes of them is the business of `came(socket, host)`."""

    def __init__(self, what: str, complaints: Complaints, came: Callable[[socket.socket, str], None]) -> None:
        """`what` is listened for, for texts."""
        self._what = what
        self._complaints = complaints
        self._came = came
        self._sockets: list[socket.socket] = []
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self.port = 0

    async def bind(self, host: str, port: int) -> None:
        """Take the address; port 0 means any. Raises `OSError`."""
        try:
            await self._bind(host, port)
        except OSError as error:
            self.close()
            text = f"can't listen on {host}:{port} for {self._what}: {error.strerror or error}"
            raise OSError(text) from None
        self.port = self._sockets[0].getsockname()[1]

    def begin(self) -> None:
        """Accept who comes, from here on."""
        for listening in self._sockets:
            listening.setblocking(False)
            self._accept_from(listening)

    def end(self) -> None:
        """Accept nobody any more; the address is still taken until `close`."""
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)

    def close(self) -> None:
        """Give the address back; after `end`."""
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    async def _bind(self, host: str, port: int) -> None:
        """Listen at all addresses of a name, at the first one if any port will do."""
        if host == "::" and socket.has_dualstack_ipv6():
            both = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
            self._sockets.append(both)
            return
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        addresses = {(family, sockaddr[:2]): None for family, _, _, _, sockaddr in found}
        for family, (address, _) in list(addresses)[: 1 if port == 0 else None]:
            self._sockets.append(socket.create_server((str(address), port), family=family, backlog=_BACKLOG))

    def _accept_from(self, listening: socket.socket) -> None:
        # Not `sock_accept`: asyncio's own loop loses the connection that comes in the moment in which it is cancelled.
        self._pauses.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, address = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # It went while it waited.
        except OSError as error:
            # No file descriptors, or no memory: others have to give theirs back first.
            self._complaints.say_first(f"the port for {self._what}", f"can't accept: {error.strerror or error}")
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            self._pauses[listening] = loop.call_later(limits.ACCEPT_RETRY_SECONDS, self._accept_from, listening)
            return
        accepted.setblocking(False)
        self._came(accepted, str(address[0]))


def give_up_in_time(transport: asyncio.BaseTransport) -> None:
    """A peer that takes nothing for so long is gone: as with gRPC's keepalive, and not after the usual 15 minutes."""
    handle = transport.get_extra_info("socket")
    if handle is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
