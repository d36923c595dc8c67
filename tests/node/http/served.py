"""The pages of a node on loopback, from a thread: for clients that block, as the command line does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from mayfly.node.http import HttpServer
from tests.waiting import BOUND_S


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
        self.address = str(server.address)
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
