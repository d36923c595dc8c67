"""FastStream: an application as a process, on aio-pika's robust connection.

FastStream 0.7 declares the direct reply-to address passively before anything else.
"""

import asyncio
from pathlib import Path

import aio_pika
import pytest

from tests.integration.nodes import Nodes
from tests.interop.support import APPLICATIONS, NO_PYTHON_CLIENTS, WITHIN_S, Program, dead, fresh, python, url

pytest.importorskip("faststream", reason=NO_PYTHON_CLIENTS)
from faststream.rabbit import RabbitBroker

pytestmark = [pytest.mark.processes]


def served(nodes: Nodes, folder: Path, prefix: str) -> Program:
    """`faststream run`, connected to node 1."""
    environment = {"BROKER_URL": url(nodes, 1), "TASK_QUEUE": prefix, "PYTHONPATH": str(APPLICATIONS)}
    return Program(python("faststream", "run", "faststream_app:app"), folder, environment)


async def double(nodes: Nodes, prefix: str, *numbers: int) -> list[int]:
    """Publish numbers as they come; what comes back, in order of size."""
    for id in (2, 3):
        nodes.until_told(id)
    async with RabbitBroker(url(nodes, 2)) as broker, await aio_pika.connect(url(nodes, 3)) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(prefix + "-out", durable=True)
        for number in numbers:
            await broker.publish(number, routing_key=f"number.{number}", exchange=prefix)
        doubles: set[int] = set()
        async with queue.iterator(timeout=WITHIN_S) as messages:
            async for message in messages:
                async with message.process():
                    doubles.add(int(message.body))
                if {2 * number for number in numbers} <= doubles:
                    break
        return sorted(doubles)


def test_subscribers_and_publishers(whole: Nodes, tmp_path: Path) -> None:
    prefix = fresh("stream")
    with served(whole, tmp_path, prefix) as program:
        program.until_it_prints("started successfully")
        assert asyncio.run(double(whole, prefix, 1, 2, 3)) == [2, 4, 6]


def test_requests(whole: Nodes, tmp_path: Path) -> None:
    """`request` asks through the direct reply-to address."""
    prefix = fresh("stream")

    async def ask() -> int:
        whole.until_told(2)
        async with RabbitBroker(url(whole, 2)) as broker:
            answer = await broker.request(9, prefix + "-square", timeout=WITHIN_S)
            return int(await answer.decode())

    with served(whole, tmp_path, prefix) as program:
        program.until_it_prints("started successfully")
        assert asyncio.run(ask()) == 81


@pytest.mark.interop_long
def test_the_application_comes_back_with_its_node(whole: Nodes, tmp_path: Path) -> None:
    prefix = fresh("stream")
    with served(whole, tmp_path, prefix) as program:
        program.until_it_prints("started successfully")
        assert asyncio.run(double(whole, prefix, 1)) == [2]
        with dead(whole, 1):
            pass
        assert asyncio.run(double(whole, prefix, 5, 6)) == [10, 12]
