"""Ordinary clients, and publishers and consumers that go on in threads while nodes die."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiormq
import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from mayfly.node.duties.catalog_spread import SPREAD_WITHIN_MS
from tests.integration.nodes import Nodes
from tests.waiting import BOUND_S, wait_for

Result = TypeVar("Result")

PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
PUBLISHED_WITHIN_S: Final = 10 * BOUND_S
"""For as many messages as a test likes."""
_MOST_NAMES: Final = 100


def connect(nodes: Nodes, id: int, blocked_after_s: float | None = None, **parameters: Any) -> BlockingConnection:
    """A pika connection to a node that knows what others have answered. `blocked_after_s`: it gives up when it was
    blocked for so long."""
    nodes.until_told(id)
    address = nodes.plan(id).amqp
    parameters.setdefault("credentials", pika.PlainCredentials(*nodes.login))
    return BlockingConnection(
        pika.ConnectionParameters(
            address.host, address.port, heartbeat=0, socket_timeout=BOUND_S, stack_timeout=2 * BOUND_S,
            blocked_connection_timeout=blocked_after_s, **parameters,
        )
    )


def made_known(nodes: Nodes, change: Callable[[], Result]) -> Result:
    """Change the catalog through a node; what is answered. The other nodes know of it as soon as that is there, but for
    those that took too long to say so: they are waited for."""
    began_s = time.monotonic()
    result = change()
    if time.monotonic() - began_s >= SPREAD_WITHIN_MS / 1000:
        for id in nodes.ids:
            nodes.until_told(id)
    return result


@contextlib.contextmanager
def channel(nodes: Nodes, id: int, confirms: bool = False) -> Iterator[BlockingChannel]:
    """A pika channel on a connection of its own. It gives up when it was blocked for two minutes: a test would wait for
    ever for what one before it has filled."""
    connection = connect(nodes, id, blocked_after_s=120)
    try:
        opened = connection.channel()
        if confirms:
            opened.confirm_delivery()
        yield opened
    finally:
        if connection.is_open:
            connection.close()


def url(nodes: Nodes, id: int) -> str:
    """For aio-pika."""
    user, password = (quote(each, safe="") for each in nodes.login)
    return f"amqp://{user}:{password}@{nodes.plan(id).amqp}/?heartbeat=0"


def declare_led_by(
    nodes: Nodes,
    where: BlockingChannel,
    prefix: str,
    suits: Callable[[int], bool],
    arguments: dict[str, Any] | None = None,
) -> str:
    """Declare a durable queue whose shard's leader suits, by trying names all over the shards; its name. It is the
    planned leader, and leads when this returns."""
    name = _declare_suitable(where, prefix, lambda name: suits(nodes.planned_leader(name)), nodes, 1, arguments)
    leader = nodes.planned_leader(name)
    wait_for(lambda: nodes.leader_of(name) == leader, f"{name} led by node {leader}")
    return name


def declare_in_shard(
    nodes: Nodes,
    where: BlockingChannel,
    prefix: str,
    shard: int,
    arguments: dict[str, Any] | None = None,
    witness: int = 1,
) -> str:
    """Declare a durable queue of this shard, by trying names; its name. The witness knows it when this returns."""
    return _declare_suitable(
        where, prefix, lambda name: (nodes.queue(witness, name) or {})["shard"] == shard, nodes, witness, arguments
    )


def _declare_suitable(
    where: BlockingChannel,
    prefix: str,
    suits: Callable[[str], bool],
    nodes: Nodes,
    witness: int,
    arguments: dict[str, Any] | None,
) -> str:
    spread = {"x-queue-leader-locator": "balanced", **(arguments or {})}
    unsuitable: list[str] = []
    try:
        for number in range(_MOST_NAMES):
            name = f"{prefix}-{number}"
            where.queue_declare(name, durable=True, arguments=spread)
            wait_for(partial(nodes.queue, witness, name), f"{name} at node {witness}")
            if suits(name):
                return name
            unsuitable.append(name)
    finally:
        # Only now: a shard that became empty again would be the first choice for the next queue.
        for name in unsuitable:
            where.queue_delete(name)
    raise AssertionError(f"none of {_MOST_NAMES} names suits")


def publish_all(nodes: Nodes, id: int, queue: str, bodies: Sequence[bytes], **properties: Any) -> None:
    """Publish to a queue through a node; returns when all are confirmed, fails if one is not."""
    nodes.until_told(id)

    async def run() -> None:
        connection = await aiormq.connect(url(nodes, id))
        try:
            opened = await connection.channel()
            given = aiormq.spec.Basic.Properties(delivery_mode=2, **properties)
            window = asyncio.Semaphore(500)

            async def one(body: bytes) -> None:
                async with window:
                    answer = await opened.basic_publish(body, routing_key=queue, properties=given)
                    assert isinstance(answer, aiormq.spec.Basic.Ack), answer

            await asyncio.gather(*(one(body) for body in bodies))
        finally:
            await connection.close()

    asyncio.run(asyncio.wait_for(run(), PUBLISHED_WITHIN_S))


def drain(nodes: Nodes, id: int, queue: str) -> list[tuple[bytes, bool]]:
    """Consume everything that is in a queue now; (body, redelivered)."""
    found: list[tuple[bytes, bool]] = []
    with channel(nodes, id) as opened:
        count = opened.queue_declare(queue, passive=True).method.message_count
        if count:
            opened.basic_qos(prefetch_count=1000)
            for method, _, body in opened.consume(queue, inactivity_timeout=BOUND_S):
                assert method is not None, f"{len(found)} of {count} messages came"
                found.append((body, bool(method.redelivered)))
                if len(found) == count:
                    opened.basic_ack(method.delivery_tag, multiple=True)
                    break
                if len(found) % 500 == 0:
                    opened.basic_ack(method.delivery_tag, multiple=True)
            opened.cancel()
    return found


class Publisher(threading.Thread):
    """Publishes numbered messages with confirms through one node, a bounded number at a time, until stopped."""

    def __init__(
        self,
        nodes: Nodes,
        id: int,
        queue: str,
        *,
        count: int | None = None,
        window: int = 50,
        rate: float = 1000.0,
        size: int = 0,
        expiration_ms: int | None = None,
    ) -> None:
        """`count` ends it by itself; `rate` is messages per second at most."""
        super().__init__(name=f"publisher on node {id}", daemon=True)
        self._nodes = nodes
        self._id = id
        self._url = url(nodes, id)
        self._queue = queue
        self._count = count
        self._window = window
        self._rate = rate
        self._filling = b"." * size
        self._expiration_ms = expiration_ms
        self._stopping = threading.Event()
        self.sent_at_s: list[float] = []
        self.confirmed: list[int] = []
        self.confirmed_at_s: list[float] = []
        self.refused: list[int] = []
        self.error: str | None = None

    def run(self) -> None:
        """The thread."""
        try:
            self._nodes.until_told(self._id)
            asyncio.run(self._publish())
        except BaseException as error:  # whatever the client raises is what a user would have seen
            self.error = repr(error)

    async def _publish(self) -> None:
        connection = await aiormq.connect(self._url)
        opened = await connection.channel()
        properties = aiormq.spec.Basic.Properties(
            delivery_mode=2, expiration=None if self._expiration_ms is None else str(self._expiration_ms)
        )
        window = asyncio.Semaphore(self._window)
        tasks: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []

        async def one(number: int) -> None:
            try:
                await opened.basic_publish(
                    b"%d %b" % (number, self._filling), routing_key=self._queue, properties=properties
                )
            except aiormq.DeliveryError:
                self.refused.append(number)
            except BaseException as error:
                failures.append(error)
            else:
                self.confirmed.append(number)
                self.confirmed_at_s.append(time.monotonic())
            finally:
                window.release()

        began_s = time.monotonic()
        while not self._stopping.is_set() and not failures and (self._count is None or self.sent < self._count):
            await window.acquire()
            task = asyncio.ensure_future(one(self.sent))
            self.sent_at_s.append(time.monotonic())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            ahead_s = began_s + self.sent / self._rate - time.monotonic()
            await asyncio.sleep(ahead_s if ahead_s > 0.001 else 0)
        if tasks:
            await asyncio.wait(tasks, timeout=BOUND_S)
        if tasks:
            failures.append(AssertionError(f"no confirm for {len(tasks)} messages"))
        if failures:
            raise failures[0]
        await connection.close()

    @property
    def sent(self) -> int:
        """How many messages were published, confirmed or not."""
        return len(self.sent_at_s)

    def stop(self) -> None:
        """Publish nothing more; confirms may still come."""
        self._stopping.set()

    def finish(self) -> None:
        """Stop publishing, and wait for the confirms of what was published. No error may have come up."""
        self._stopping.set()
        self.join(2 * BOUND_S)
        assert not self.is_alive(), f"{self.name} hangs"
        assert self.error is None, f"{self.name}: {self.error}"

    def until_confirmed(self, more: int, within_s: float = BOUND_S) -> None:
        """Wait until so many more messages are confirmed than now."""
        goal = len(self.confirmed) + more
        wait_for(
            lambda: len(self.confirmed) >= goal or self.error, f"{more} more confirms at the {self.name}", within_s
        )
        assert self.error is None, self.error

    def longest_pause_ms(self) -> int:
        """The longest time between two confirms."""
        return round(1000 * max((later - earlier for earlier, later in pairwise(self.confirmed_at_s)), default=0.0))


class Delivery:
    """What a consumer got."""

    __slots__ = ("at_s", "body", "headers", "redelivered")

    def __init__(self, body: bytes, redelivered: bool, headers: dict[str, Any]) -> None:
        self.body = body
        self.redelivered = redelivered
        self.headers = headers
        self.at_s = time.monotonic()

    @property
    def number(self) -> int:
        """Of a message that a `Publisher` published."""
        return int(self.body.split(b" ", 1)[0])


class Consumer(threading.Thread):
    """Takes messages through one node and acknowledges each, until stopped."""

    def __init__(self, nodes: Nodes, id: int, queue: str, *, prefetch: int = 200, acknowledge: bool = True) -> None:
        super().__init__(name=f"consumer on node {id}", daemon=True)
        self._nodes = nodes
        self._id = id
        self._queue = queue
        self._prefetch = prefetch
        self._acknowledge = acknowledge
        self._stopping = threading.Event()
        self.consuming = threading.Event()
        self.cancelled = False
        self.deliveries: list[Delivery] = []
        self.error: str | None = None

    def run(self) -> None:
        """The thread."""
        try:
            connection = connect(self._nodes, self._id)
            opened = connection.channel()
            opened.basic_qos(prefetch_count=self._prefetch)
            opened.add_on_cancel_callback(self._on_cancel)
            opened.basic_consume(self._queue, self._on_message)
            self.consuming.set()
            while not self._stopping.is_set():
                connection.process_data_events(time_limit=0.05)
            connection.close()
        except BaseException as error:  # whatever the client raises is what a user would have seen
            self.error = repr(error)
            self.consuming.set()

    def _on_message(self, opened: Any, method: Any, properties: Any, body: bytes) -> None:
        self.deliveries.append(Delivery(body, method.redelivered, properties.headers or {}))
        if self._acknowledge:
            opened.basic_ack(method.delivery_tag)

    def _on_cancel(self, method: Any) -> None:
        self.cancelled = True

    def begin(self) -> "Consumer":
        """Start, and return when it consumes."""
        self.start()
        assert self.consuming.wait(BOUND_S), f"{self.name} does not get to consume"
        assert self.error is None, self.error
        return self

    @property
    def numbers(self) -> list[int]:
        """Numbers of the messages that came, in the order in which they came."""
        return [delivery.number for delivery in self.deliveries]

    def until_received(self, count: int, within_s: float = BOUND_S) -> None:
        """Wait until so many messages have come in all."""
        wait_for(
            lambda: len(self.deliveries) >= count or self.error, f"{count} messages at the {self.name}", within_s
        )
        assert self.error is None, self.error

    def finish(self) -> None:
        """Close the connection. No error may have come up."""
        self.abandon()
        assert not self.is_alive(), f"{self.name} hangs"
        assert self.error is None, f"{self.name}: {self.error}"

    def abandon(self) -> None:
        """End, for a consumer whose node was killed."""
        self._stopping.set()
        self.join(BOUND_S)


def judge(publisher: Publisher, consumers: Sequence[Consumer]) -> None:
    """Nothing confirmed is lost, nothing came twice or was marked as redelivered, and one consumer saw it in order."""
    came = sorted(number for consumer in consumers for number in consumer.numbers)
    assert len(came) == len(set(came)), f"{len(came) - len(set(came))} messages came twice"
    lost = sorted(set(publisher.confirmed) - set(came))
    assert not lost, f"{len(lost)} confirmed messages are lost: {lost[:10]}"
    invented = sorted(set(came) - set(range(publisher.sent)))
    assert not invented, invented[:10]
    for consumer in consumers:
        assert consumer.numbers == sorted(consumer.numbers), f"out of order at the {consumer.name}"
        again = [delivery.number for delivery in consumer.deliveries if delivery.redelivered]
        assert not again, f"redelivered to a consumer that was there all the time: {again[:10]}"
