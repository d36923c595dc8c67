"""A node as in the product, in a thread of its own, with its pages and a client."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pika
from yarl import URL

from mayfly.node.catalog import PutUser, SetPermissions
from mayfly.node.catalog.passwords import make_password_hash
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.assembly import Node as Parts
from mayfly.node.shell.process import NodeProcess
from tests.node.http.served import address_of
from tests.waiting import BOUND_S, wait_for

NOT_FOUND = (404, {"error": "Object Not Found", "reason": "Not Found"})


class Node:
    """A node in a thread of its own, asked over HTTP and by a client in `/`."""

    def __init__(self, folder: Path, **more: Any) -> None:
        """`more` are settings."""
        here = Address("127.0.0.1", 0)
        self.settings = NodeSettings(
            data_dir=folder, amqp_address=here, http_address=here, peer_address=here, frames_address=here, shards=2,
            **more,
        )  # fmt: skip
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._process = NodeProcess(self.settings)
        self.parts: Parts = self.run(self._process.start())
        wait_for(lambda: self.parts.memory.used_bytes, "the first look at disk and memory")
        self.connection: Any = None
        self.connect()

    def connect(self) -> None:
        """A connection with a channel, in place of the one from before, which the node may have closed."""
        if self.connection is not None:
            self._disconnect()
        port = self.parts.listener.port
        self.connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, socket_timeout=BOUND_S, stack_timeout=2 * BOUND_S)
        )
        self.channel = self.connection.channel()

    def run(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(BOUND_S)

    def _disconnect(self) -> None:
        with suppress(pika.exceptions.AMQPError):
            self.connection.close()

    def stop(self) -> None:
        self._disconnect()
        self.run(self._process.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND_S)

    def add_user(self, name: str, tag: str, configure: str | None) -> None:
        """With the password of its name, and in `/` these permissions if any."""
        command = self.parts.cluster.command
        self.run(command(PutUser(name, make_password_hash(name, b"saltsalt", n=16), (tag,))))
        if configure is not None:
            self.run(command(SetPermissions(name, "/", configure, ".*", ".*")))

    @property
    def address(self) -> str:
        """Of the pages."""
        return str(address_of(self.parts.http))

    def ask(self, method: str, path: str, user: str = "guest", content: object = None) -> tuple[int, Any]:
        """Status and JSON (None: empty) of an answer."""
        answer: tuple[int, Any] = self.run(self._ask(method, path, user, content))
        return answer

    async def _ask(self, method: str, path: str, user: str, content: object) -> tuple[int, Any]:
        encoded = base64.b64encode(f"{user}:{user}".encode()).decode()
        url = URL(f"http://{self.address}{path}", encoded=True)
        headers = {"Authorization": f"Basic {encoded}", "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, url, data=None if content is None else json.dumps(content)) as found,
        ):
            return found.status, await found.json() if found.content_length else None

    def text(self, path: str) -> str:
        """A page that is no JSON."""
        answer: str = self.run(self._text(path))
        return answer

    async def _text(self, path: str) -> str:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.address}{path}") as found:
            assert found.status == 200
            return await found.text()

    def names(self, path: str, user: str = "guest") -> list[str]:
        status, rows = self.ask("GET", path, user)
        assert status == 200, rows
        return [row["name"] for row in rows]
