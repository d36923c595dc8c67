"""A node on loopback over a DirectCluster: listener and broker as in the product, no Raft, no disk.

Run as a script it serves until it is stopped, for trying clients and the recorded scenarios against it:

    python tests/node/broker/direct_node.py 5672
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import threading
import time
from typing import Any

from mayfly.node.broker.broker import Broker
from mayfly.node.catalog import PutUser, SetPermissions
from mayfly.node.catalog.passwords import make_password_hash
from mayfly.node.shell.listener import AmqpListener, ListenerSettings
from tests.node.broker.direct_cluster import DirectCluster

_QUICK_HASH_N = 16
_STOPS_WITHIN_S = 60


def add_user(cluster: DirectCluster, name: str, password: str, *permissions: str) -> None:
    """A user with permissions (configure, write, read) in the vhost /."""
    cluster.catalog.apply(PutUser(name, make_password_hash(password, b"saltsalt", n=_QUICK_HASH_N)))
    if permissions:
        cluster.catalog.apply(SetPermissions(name, "/", *permissions))


class DirectNode:
    """A broker that real clients can connect to, in a thread of its own."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None, **limits: Any) -> None:
        """`limits` are more arguments of the listener."""
        self.limits = limits
        self.port = port
        self.tls = tls
        self.cluster: DirectCluster
        self.broker: Broker
        self.listener: AmqpListener
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._scheduled = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def start(self) -> DirectNode:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def stop(self) -> None:
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOPS_WITHIN_S)
        assert not self._thread.is_alive(), "the node does not stop"

    def __enter__(self) -> DirectNode:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.cluster = DirectCluster(16, now_ms=_now_ms(), wake=self._schedule)
        add_user(self.cluster, "guest", "guest", ".*", ".*", ".*")
        self.broker = Broker(self.cluster, lambda: os.urandom(16))
        self.cluster.events = self.broker
        settings = ListenerSettings("127.0.0.1", self.port, self.tls, **self.limits)
        self.listener = AmqpListener(self.broker, self._schedule, settings)
        await self.listener.start_listening()
        self.port = self.listener.port
        self._ready.set()
        ticker = asyncio.ensure_future(self._tick())
        await self._stop.wait()
        ticker.cancel()
        await self.listener.stop()

    async def _tick(self) -> None:
        while True:
            self.cluster.tick(_now_ms())
            self._schedule()
            await asyncio.sleep(0.05)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        self.cluster.pump(_now_ms())
        self.listener.flush()
        if self.cluster.busy:
            self._schedule()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    with DirectNode(int(sys.argv[1]) if len(sys.argv) > 1 else 5672) as node:
        print(f"listening on 127.0.0.1:{node.port}", flush=True)
        threading.Event().wait()
