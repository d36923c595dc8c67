"""Queues over RabbitMQ's management API: listed and deleted, on a node as in the product."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import aiohttp
import pika
import pytest
from yarl import URL

from mayfly.node.catalog import AddVhost, PutUser, SetPermissions
from mayfly.node.catalog.passwords import make_password_hash
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.assembly import Node as Parts
from mayfly.node.shell.process import NodeProcess
from tests.node.http.served import address_of
from tests.waiting import BOUND_S

NOT_FOUND = (404, {"error": "Object Not Found", "reason": "Not Found"})


class Node:
    """A node in a thread of its own, asked over HTTP and by a client in `/`."""

    def __init__(self, folder: Path) -> None:
        here = Address("127.0.0.1", 0)
        self.settings = NodeSettings(
            data_dir=folder, amqp_address=here, http_address=here, peer_address=here, frames_address=here, shards=2
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._process = NodeProcess(self.settings)
        self.parts: Parts = self.run(self._process.start())
        port = self.parts.listener.port
        self.connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
        self.channel = self.connection.channel()

    def run(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(BOUND_S)

    def stop(self) -> None:
        if self.connection.is_open:
            self.connection.close()
        self.run(self._process.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND_S)

    def add_user(self, name: str, tag: str, configure: str | None) -> None:
        """With the password of its name, and in `/` these permissions if any."""
        command = self.parts.cluster.command
        self.run(command(PutUser(name, make_password_hash(name, b"saltsalt", n=16), (tag,))))
        if configure is not None:
            self.run(command(SetPermissions(name, "/", configure, ".*", ".*")))

    def ask(self, method: str, path: str, user: str = "guest") -> tuple[int, Any]:
        """Status and JSON (None: empty) of an answer."""
        return self.run(self._ask(method, path, user))  # type: ignore[no-any-return]

    async def _ask(self, method: str, path: str, user: str) -> tuple[int, Any]:
        encoded = base64.b64encode(f"{user}:{user}".encode()).decode()
        url = URL(f"http://{address_of(self.parts.http)}{path}", encoded=True)
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Basic {encoded}"}) as session,
            session.request(method, url) as found,
        ):
            return found.status, await found.json() if found.content_length else None

    def names(self, path: str, user: str = "guest") -> list[str]:
        status, rows = self.ask("GET", path, user)
        assert status == 200, rows
        return [row["name"] for row in rows]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.run(node.parts.cluster.command(AddVhost("other")))
    node.add_user("mine", "management", "^mine")
    node.add_user("watch", "monitoring", None)
    node.add_user("nobody", "policymaker", None)
    yield node
    node.stop()


def test_queues_are_listed_by_who_may_see_them(node: Node) -> None:
    node.channel.queue_declare("listed b", durable=True)
    node.channel.queue_declare("listed a", auto_delete=True)
    for path, user in (("/api/queues", "guest"), ("/api/queues/%2F", "mine"), ("/api/queues", "watch")):
        assert node.names(path, user) == ["listed a", "listed b"]
    rows = node.ask("GET", "/api/queues")[1]
    assert rows[1] == node.ask("GET", "/api/queues/%2F/listed%20b")[1]
    assert node.names("/api/queues", "nobody") == node.names("/api/queues/other") == []
    assert node.ask("GET", "/api/queues/%2F", "nobody")[0] == 401
    assert node.ask("GET", "/api/queues/none")[0] == 404
    for name in ("listed a", "listed b"):
        node.channel.queue_delete(name)


@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_is_deleted(node: Node, durable: bool) -> None:
    path = "/api/queues/%2F/mine%2Fto%20go"
    assert node.ask("DELETE", path) == NOT_FOUND
    node.channel.queue_declare("mine/to go", durable=durable)
    node.channel.basic_publish("", "mine/to go", b"m")
    node.channel.queue_declare("mine/to go", passive=True)
    assert node.ask("DELETE", path, "mine") == (204, None)
    assert node.ask("GET", path) == node.ask("DELETE", path) == NOT_FOUND
    assert node.channel.queue_declare("mine/to go", durable=durable).method.message_count == 0
    assert node.ask("DELETE", path) == (204, None)


def test_a_queue_is_not_deleted_against_its_conditions_or_by_who_may_not(node: Node) -> None:
    node.channel.queue_declare("kept", durable=True)
    path = "/api/queues/%2F/kept"
    node.channel.confirm_delivery()
    node.channel.basic_publish("", "kept", b"m")
    reason = "queue 'kept' in vhost '/' not empty"
    assert node.ask("DELETE", f"{path}?if-empty=true") == (400, {"error": "bad_request", "reason": reason})
    node.channel.basic_consume("kept", lambda *_: None)
    reason = "queue 'kept' in vhost '/' in use"
    assert node.ask("DELETE", f"{path}?if-unused=true") == (400, {"error": "bad_request", "reason": reason})
    assert node.ask("DELETE", path, "mine")[0] == 401
    assert node.ask("DELETE", path, "nobody")[0] == 401
    assert node.ask("DELETE", path, "watch")[0] == 401
    assert node.names("/api/queues") == ["kept"]
    assert node.ask("DELETE", path) == (204, None)


def test_an_exclusive_queue_belongs_to_its_connection(node: Node) -> None:
    node.channel.queue_declare("its own", exclusive=True)
    status, answer = node.ask("DELETE", "/api/queues/%2F/its%20own")
    assert (status, answer["error"]) == (400, "bad_request")
    assert "cannot obtain exclusive access to locked queue 'its own'" in answer["reason"]
    node.channel.queue_delete("its own")
