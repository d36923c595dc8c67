"""Streams as clients for RabbitMQ's use them, unchanged (RULES J1): publish with confirms, read from the start, the end
and an offset, on several nodes."""

import asyncio
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.integration.nodes import Nodes
from tests.interop.support import WITHIN_S, fresh, run, urls
from tests.interop.test_other_languages import PROGRAMS, node_js, ruby

aio_pika = pytest.importorskip("aio_pika")

pytestmark = [pytest.mark.processes]

COUNT = 60
STREAM: dict[str, Any] = {"x-queue-type": "stream"}
Numbered = list[tuple[int, bytes]]
ALL: Numbered = [(number, b"%d" % number) for number in range(COUNT)]


def read_with_pika(connection: pika.BlockingConnection, stream: str, start: int | str, count: int) -> Numbered:
    channel = connection.channel()
    channel.basic_qos(prefetch_count=10)
    got: Numbered = []

    def take(opened: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append((properties.headers["x-stream-offset"], body))
        opened.basic_ack(method.delivery_tag)
        if len(got) == count:
            opened.stop_consuming()

    channel.basic_consume(stream, take, arguments={"x-stream-offset": start})
    connection.call_later(WITHIN_S, channel.stop_consuming)
    channel.start_consuming()
    channel.close()
    return got


def test_j1_pika(whole: Nodes) -> None:
    one, two = (pika.BlockingConnection(pika.URLParameters(address)) for address in urls(whole)[:2])
    with one, two:
        stream = fresh("pika-stream")
        channel = one.channel()
        channel.confirm_delivery()
        channel.queue_declare(stream, durable=True, arguments=STREAM)
        for _, body in ALL:
            channel.basic_publish("", stream, body, mandatory=True)
        whole.until_told(2)
        assert read_with_pika(two, stream, "first", COUNT) == ALL
        assert read_with_pika(one, stream, 25, COUNT - 25) == ALL[25:]
        assert read_with_pika(two, stream, "last", 1) == ALL[-1:]
        assert channel.queue_declare(stream, passive=True).method.message_count == COUNT
        with pytest.raises(pika.exceptions.AMQPError):
            two.channel().basic_get(stream)
        one.channel().queue_delete(stream)


def test_j1_aio_pika(whole: Nodes) -> None:
    """A robust queue's iterator, which begins where it is told."""

    async def read(connection: Any, stream: str, start: int | str, count: int) -> Numbered:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        queue = await channel.get_queue(stream)
        got: Numbered = []
        async with queue.iterator(arguments={"x-stream-offset": start}, timeout=WITHIN_S) as messages:
            async for message in messages:
                got.append((message.headers["x-stream-offset"], message.body))
                await message.ack()
                if len(got) == count:
                    break
        await channel.close()
        return got

    async def main() -> None:
        connections = [await aio_pika.connect_robust(address) for address in urls(whole)[:2]]
        channel = await connections[0].channel()
        stream = fresh("aio-pika-stream")
        await channel.declare_queue(stream, durable=True, arguments=STREAM)
        for _, body in ALL:
            await channel.default_exchange.publish(aio_pika.Message(body), stream)
        whole.until_told(2)
        assert await read(connections[1], stream, "first", COUNT) == ALL
        assert await read(connections[0], stream, 25, COUNT - 25) == ALL[25:]
        assert await read(connections[1], stream, "last", 1) == ALL[-1:]
        await channel.queue_delete(stream)
        for connection in connections:
            await connection.close()

    asyncio.run(asyncio.wait_for(main(), 2 * WITHIN_S))


def test_j1_faststream(whole: Nodes) -> None:
    """Its own two tests of streams, by their sense: a subscriber with an offset, and its default, from the end on."""
    rabbit = pytest.importorskip("faststream.rabbit")

    async def main() -> tuple[Numbered, list[bytes]]:
        # A broker declares a queue once, on the channel of whoever is first: that of a reader needs a prefetch.
        publishing, reading = (rabbit.RabbitBroker(address) for address in urls(whole)[:2])
        stream = rabbit.RabbitQueue(fresh("faststream-stream"), queue_type=rabbit.QueueType.STREAM, durable=True)
        behind, ahead = asyncio.Event(), asyncio.Event()
        old: Numbered = []
        new: list[bytes] = []
        channel = rabbit.Channel(prefetch_count=10)
        await publishing.connect()
        declared = await publishing.declare_queue(stream)
        for _, body in ALL:
            await publishing.publish(body, stream)
        whole.until_told(2)

        async def from_the_first(message: Any) -> None:
            old.append((message.headers["x-stream-offset"], message.body))
            if len(old) == COUNT:
                behind.set()

        async def from_now_on(message: Any) -> None:
            new.append(message.body)
            ahead.set()

        annotate(from_the_first, from_now_on)
        reading.subscriber(stream, channel=channel, consume_args={"x-stream-offset": "first"})(from_the_first)
        reading.subscriber(stream, channel=channel)(from_now_on)
        await reading.start()
        await asyncio.wait_for(behind.wait(), WITHIN_S)
        # Its handlers run side by side.
        seen = sorted(old)
        await publishing.publish(b"new", stream)
        await asyncio.wait_for(ahead.wait(), WITHIN_S)
        await declared.delete(if_unused=False, if_empty=False)
        await reading.stop()
        await publishing.stop()
        return seen, new

    def annotate(*handlers: Any) -> None:
        for handler in handlers:
            handler.__annotations__["message"] = rabbit.RabbitMessage

    seen, new = asyncio.run(asyncio.wait_for(main(), 2 * WITHIN_S))
    assert (seen, new) == (ALL, [b"new"])


def test_j1_amqplib(whole: Nodes, tmp_path: Path) -> None:
    words = [*node_js("amqplib_stream.js"), fresh("amqplib-stream"), *urls(whole)[:2]]
    assert "all well" in run(words, tmp_path)


def test_j1_rascal(whole: Nodes, tmp_path: Path) -> None:
    assert "all well" in run([*node_js("rascal_stream.js"), fresh("rascal-stream"), *urls(whole)], tmp_path)


def test_j1_bunny(whole: Nodes, tmp_path: Path) -> None:
    words = [*ruby()[:1], PROGRAMS / "bunny_stream.rb", fresh("bunny-stream"), *urls(whole)[:2]]
    assert "all well" in run(words, tmp_path)
