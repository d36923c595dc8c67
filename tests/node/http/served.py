"""The pages of a node on loopback, from a thread: for clients that block, as the command line does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from mayfly.node.http import HttpServer, HttpSettings, PagePorts
from mayfly.node.operating.ports.access import AccessPort
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.operator import OperatorPort
from mayfly.node.operating.ports.status import StatusProvider
from mayfly.node.settings.kinds import Address
from tests.waiting import BOUND_S


def http_server(
    status: StatusProvider,
    operator: OperatorPort | None = None,
    management: ManagementPort | None = None,
    access: AccessPort | None = None,
    **settings: Any,
) -> HttpServer:
    """One on loopback, with these settings besides."""
    here = Address("127.0.0.1", 0)
    return HttpServer(PagePorts(status, operator, management, access), HttpSettings(here, **settings))


def address_of(server: HttpServer) -> Address:
    """Where it listens, once it does."""
    (listening,) = server._listening
    return Address(*listening.sockets[0].getsockname()[:2])


class Served:
    """Within the context, what `make` makes is served at the address that it gives."""

    def __init__(self, make: Callable[[], HttpServer]) -> None:
        self._make = make
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.address = ""
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    async def _serve(self) -> None:
        server = self._make()
        await server.start()
        self.address = str(address_of(server))
        self._started.set()
        await self._stop.wait()
        await server.stop()

    def __enter__(self) -> str:
        self._thread.start()
        assert self._started.wait(BOUND_S)
        return self.address

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(BOUND_S)
        self._loop.close()
