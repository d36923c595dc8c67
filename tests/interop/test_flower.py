"""Flower, as it is, beside a node: its tab of the broker, which it fills from the management API."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.interop.support import APPLICATIONS, NO_PYTHON_CLIENTS, Program, fresh, python
from tests.node.http.real_node import Node
from tests.waiting import wait_for

pytest.importorskip("flower", reason=NO_PYTHON_CLIENTS)

pytestmark = [pytest.mark.processes]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node")
    yield node
    node.stop()


def page_of(socket: Path, path: str) -> str:
    """What Flower shows there; nothing while it does not listen yet."""

    async def ask() -> str:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
            session.get(f"http://flower{path}") as answer,
        ):
            return await answer.text()

    try:
        return asyncio.run(ask())
    except aiohttp.ClientConnectionError:
        return ""


def test_its_tab_of_the_broker_shows_the_queues_of_the_application(node: Node, tmp_path: Path) -> None:
    """With what is held and ready, and how many consume."""
    queue = fresh("tasks")
    node.channel.queue_declare(queue, durable=True)
    for number in range(3):
        node.channel.basic_publish("", queue, json.dumps([[number, number], {}, {}]).encode())
    node.channel.basic_get(queue)
    socket = tmp_path / "flower"
    environment = {
        "BROKER_URLS": f"amqp://guest:guest@127.0.0.1:{node.parts.listener.port}/%2F", "TASK_QUEUE": queue,
        "PYTHONPATH": str(APPLICATIONS),
    }  # fmt: skip
    words = python("celery", "--app", "celery_tasks", "flower", f"--unix-socket={socket}")

    def cells() -> list[str]:
        text = page_of(socket, "/broker")
        row = re.search(rf"<td>{queue}</td>(.*?)</tr>", text, re.DOTALL)
        return [] if row is None else re.findall(r"<td[^>]*>(.*?)</td>", row[1])

    with Program([*words, f"--broker-api=http://guest:guest@{node.address}/api/"], tmp_path, environment):
        wait_for(lambda: cells()[:4] == ["3", "1", "2", "0"], "messages, held, ready, consumers", every_s=0.2)
