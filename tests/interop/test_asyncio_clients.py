"""aio-pika with its robust connections and its patterns, and aiormq below it."""

import asyncio
from typing import Any

import aio_pika
import aiormq
import pytest
from aio_pika.patterns import RPC, Master

from tests.integration.nodes import Nodes
from tests.interop.support import WITHIN_S, dead, fresh, url, urls

pytestmark = [pytest.mark.processes]


def test_aio_pika_publishes_and_iterates(whole: Nodes) -> None:
    async def main() -> list[bytes]:
        async with await aio_pika.connect_robust(url(whole, 1)) as one, await aio_pika.connect(url(whole, 2)) as two:
            channel = await one.channel(on_return_raises=True)
            await channel.set_qos(prefetch_count=10)
            exchange = await channel.declare_exchange(fresh("logs"), aio_pika.ExchangeType.FANOUT, durable=True)
            queue = await channel.declare_queue(fresh("logs"), durable=True, arguments={"x-message-ttl": 600_000})
            await queue.bind(exchange)
            whole.until_told(2)
            elsewhere = await (await two.channel()).get_exchange(exchange.name)
            message = aio_pika.Message(b"0", delivery_mode=aio_pika.DeliveryMode.PERSISTENT, headers={"n": [1, "two"]})
            await elsewhere.publish(message, "")
            await asyncio.gather(*(exchange.publish(aio_pika.Message(b"%d" % number), "") for number in range(1, 40)))
            got: list[bytes] = []
            async with queue.iterator(timeout=WITHIN_S) as messages:
                async for arrived in messages:
                    async with arrived.process(requeue=True):
                        got.append(arrived.body)
                        if arrived.body == b"0":
                            assert arrived.headers["n"] == [1, "two"]
                    if len(got) == 40:
                        break
            with pytest.raises(aio_pika.exceptions.DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b""), fresh("nowhere"))
            await queue.delete(if_unused=False, if_empty=False)
            return got

    assert sorted(map(int, asyncio.run(main()))) == list(range(40))


def test_aio_pika_patterns(whole: Nodes) -> None:
    """RPC and Master as aio-pika brings them: exclusive answer queues, TTL and dead letters of requests."""

    async def main() -> tuple[int, list[int]]:
        connections = [await aio_pika.connect_robust(address) for address in urls(whole)[:2]]
        served, asked = [await RPC.create(await connection.channel()) for connection in connections]
        name, tasks = fresh("square"), fresh("tasks")

        async def square(x: int) -> int:
            return x * x

        await served.register(name, square, auto_delete=True)
        whole.until_told(2)
        answer = await asyncio.wait_for(asked.call(name, {"x": 7}), WITHIN_S)

        async def fail() -> None:
            raise ZeroDivisionError

        await served.register(name + "-fails", fail, auto_delete=True)
        whole.until_told(2)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(asked.call(name + "-fails"), WITHIN_S)

        done: list[int] = []
        all_done = asyncio.Event()

        async def worker(*, task_id: int) -> None:
            done.append(task_id)
            if len(done) == 10:
                all_done.set()

        masters = [Master(await connection.channel()) for connection in connections]
        await masters[0].create_worker(tasks, worker, auto_delete=True)
        whole.until_told(2)
        for number in range(10):
            await masters[1].create_task(tasks, {"task_id": number})
        await asyncio.wait_for(all_done.wait(), WITHIN_S)
        for connection in connections:
            await connection.close()
        return answer, done

    answer, done = asyncio.run(main())
    assert answer == 49
    assert sorted(done) == list(range(10))


def test_aiormq(whole: Nodes) -> None:
    async def main() -> None:
        connection = await aiormq.connect(url(whole, 3))
        channel = await connection.channel(publisher_confirms=True)
        name = fresh("aiormq")
        declared = await channel.queue_declare(name, durable=True)
        assert (declared.queue, declared.message_count) == (name, 0)
        confirmation = await channel.basic_publish(b"one", routing_key=name, mandatory=True)
        assert isinstance(confirmation, aiormq.spec.Basic.Ack)
        got: asyncio.Queue[Any] = asyncio.Queue()
        consumed = await channel.basic_consume(name, got.put)
        message = await asyncio.wait_for(got.get(), WITHIN_S)
        assert message.body == b"one"
        await channel.basic_nack(message.delivery_tag, requeue=True)
        message = await asyncio.wait_for(got.get(), WITHIN_S)
        assert message.delivery.redelivered
        await channel.basic_ack(message.delivery_tag)
        await channel.basic_cancel(str(consumed.consumer_tag))
        with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed):
            await channel.queue_declare(name, durable=True, arguments={"x-max-length": 5})
        again = await connection.channel()
        assert (await again.queue_delete(name)).message_count == 0
        await connection.close()

    asyncio.run(main())


@pytest.mark.interop_long
def test_a_robust_connection_comes_back_with_its_node(whole: Nodes) -> None:
    """The consumer declares nothing anew: aio-pika restores channel, queue, binding and consumer by itself."""

    async def main() -> None:
        name = fresh("robust")
        consuming = await aio_pika.connect_robust(url(whole, 1), reconnect_interval=0.2)
        channel = await consuming.channel()
        await channel.set_qos(prefetch_count=5)
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.DIRECT, durable=True)
        queue = await channel.declare_queue(name, durable=True)
        await queue.bind(exchange, "k")
        own = await channel.declare_queue(exclusive=True)
        await own.bind(exchange, "own")
        got: set[bytes] = set()

        async def take(message: Any) -> None:
            async with message.process():
                got.add(message.body)

        await queue.consume(take)
        await own.consume(take)
        whole.until_told(2)
        publishing = await aio_pika.connect_robust(url(whole, 2), reconnect_interval=0.2)
        elsewhere = await (await publishing.channel(on_return_raises=True)).get_exchange(name)
        await elsewhere.publish(aio_pika.Message(b"before"), "k")
        await until(lambda: b"before" in got)

        def die_and_return() -> None:
            with dead(whole, 1):
                pass

        dying = asyncio.create_task(asyncio.to_thread(die_and_return))
        for number in range(20):
            await elsewhere.publish(aio_pika.Message(b"meanwhile %d" % number), "k")
        await dying
        await until(lambda: len(got) == 21)
        await until_published(elsewhere, got)
        await consuming.close()
        await publishing.close()

    async def until_published(exchange: Any, got: set[bytes]) -> None:
        """The exclusive queue is there again once the robust connection is: until then publishes are returned."""
        while b"own" not in got:
            try:
                await exchange.publish(aio_pika.Message(b"own"), "own")
            except aio_pika.exceptions.DeliveryError:
                await asyncio.sleep(0.05)
                continue
            await until(lambda: b"own" in got)

    async def until(so: Any) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not so():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    asyncio.run(main())
