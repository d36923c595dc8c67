"""Clients for a cluster whose nodes die: they publish, consume, move to another node, and write down what they saw.

They speak through the simulator's AMQP client, here over real sockets, and keep the simulator's kind of history, so
that the simulator's checker judges it. All of them live in one asyncio loop in one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final

from pamqp import commands

from mayfly.node.settings.kinds import Address
from simulation.node.amqp_client import AmqpClient, BrokerRefused, ReceivedMessage
from simulation.node.history import (
    ACK,
    CONFIRMED,
    IN_DOUBT,
    REFUSED,
    RETURNED,
    Attachment,
    Cancel,
    Delivery,
    History,
    Publish,
)
from simulation.node.world import content_of, deaths_of, id_of

CONSUMING: Final = "consuming"
POLLING: Final = "polling"
MIXED: Final = "mixed"
"""How the two consumers of a queue get their messages: both by deliveries, both by `basic.get`, one in each way."""
PREFETCH: Final = 40
WINDOW: Final = 40
CONNECT_WITHIN_S: Final = 3.0
PATIENCE_S: Final = 2.5
"""Without an answer for this long a client leaves its node: longer than an election takes."""
HOME_AFTER_S: Final = 4.0
"""So long a client stays at another node before it tries the one where it belongs."""
SIZES: Final = (0, 20, 300, 1_000, 1_000, 4_000)


class Clients(threading.Thread):
    """Publishers and consumers at some nodes."""

    def __init__(self, nodes: Mapping[int, Address], login: tuple[str, str], seed: int) -> None:
        super().__init__(name="clients", daemon=True)
        self.nodes = nodes
        self.login = login
        self.history = History()
        self.confirms: dict[str, list[tuple[int, int]]] = {}
        """Per publisher: when confirms came, and from which node."""
        self.homes: dict[str, tuple[int, str]] = {}
        """Per publisher: the node where it belongs, and the queue it publishes to."""
        self.moves: dict[str, list[tuple[int, int]]] = {}
        """Per publisher: when it connected, and to which node; 0 when it left of its own will."""
        self.refusals: list[tuple[int, str, int, str]] = []
        """When a node closed a client's channel or connection: to whom, which node, and its words."""
        self.cancelled: list[tuple[int, str, int]] = []
        """When a node cancelled a consumer: whom, and which node."""
        self.places: dict[str, int] = {}
        """Who holds deliveries, by the name in the history -> the node it is connected to."""
        self.proven: dict[int, int] = {}
        """Message -> since when its acknowledgement is known to have been applied (see `Consumer`)."""
        self.failure: BaseException | None = None
        self.next_message = 0
        self.next_stream = 0
        self._origin_ns = time.monotonic_ns()
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._random = Random(seed)
        self._publishers: list[Publisher] = []
        self._consumers: list[Client] = []

    # ------------------------------------------------------------------ for the driver, from its own thread

    def run(self) -> None:
        """The thread."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def now_us(self) -> int:
        """Microseconds since these clients were made."""
        return (time.monotonic_ns() - self._origin_ns) // 1_000

    def begin(self, publishers: Sequence[Publisher], consumers: Sequence[Client]) -> None:
        """Start the thread with these."""
        self.start()
        self._publishers = [*publishers]
        for publisher in publishers:
            self._spawn(publisher.run())
        self.consume(consumers)

    def consume(self, consumers: Sequence[Client]) -> None:
        """Begin to consume."""
        self._consumers = [*self._consumers, *consumers]
        for consumer in consumers:
            self._spawn(consumer.run())

    def stop_publishing(self, within_s: float) -> None:
        """Publish nothing more, and wait until every message is answered for or its connection is gone."""
        self._finish(list(self._publishers), within_s)

    def stop_consuming(self, within_s: float) -> None:
        """Close the consumers' connections."""
        self._finish(self._consumers, within_s)

    def drain(self, queues: Sequence[str]) -> None:
        """Take whatever is left in the queues and keep it."""
        self._consumers = []
        self.consume(
            [Consumer(self, f"{queue} drain", min(self.nodes), self._random, queue, draining=True) for queue in queues]
        )

    def confirmed(self) -> int:
        """Messages that were confirmed up to now."""
        return sum(map(len, list(self.confirms.values())))

    def outstanding(self) -> int:
        """Confirmed messages that nobody has acknowledged yet."""
        publishes, deliveries = list(self.history.publishes.values()), list(self.history.deliveries)
        taken = {delivery.message_id for delivery in deliveries if delivery.settled}
        return sum(publish.outcome == CONFIRMED and publish.message_id not in taken for publish in publishes)

    def end(self) -> None:
        """Stop the thread. Raises what a client failed of, if one did."""
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            self.join(10)
            self.history.ended_us = self.now_us()
        self.check()

    def check(self) -> None:
        """Raise what a client failed of, if one did: that is a defect of the clients."""
        if self.failure is not None:
            raise self.failure

    # ------------------------------------------------------------------ for the clients, in the loop

    def fail(self, error: BaseException) -> None:
        """Something happened that cannot be."""
        self.failure = self.failure or error

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def watched() -> None:
            try:
                await work
            except Exception as error:
                self.fail(error)

        def spawn() -> None:
            self._tasks.append(self._loop.create_task(watched()))

        self._loop.call_soon_threadsafe(spawn)

    def _finish(self, clients: Sequence[Client], within_s: float) -> None:
        for client in clients:
            client.finishing = True
        deadline_s = time.monotonic() + within_s
        while not all(client.finished for client in clients):
            self.check()
            if time.monotonic() > deadline_s:
                raise AssertionError(f"{[c.name for c in clients if not c.finished]} do not end within {within_s} s")
            time.sleep(0.02)

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._loop.call_soon(self._loop.stop)


class _Wire(asyncio.Protocol):
    """The socket of one connection."""

    def __init__(self, user: Client) -> None:
        self._user = user
        self._transport: asyncio.Transport | None = None
        self.client: AmqpClient | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.client = self._user.client_on(transport.write)

    def data_received(self, data: bytes) -> None:
        if self.client is None:
            return
        try:
            self.client.receive(data)
        except Exception as error:
            self._user.clients.fail(error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self.client is not None:
            self.client.broken()

    def abort(self) -> None:
        """Let go of it without a word."""
        if self._transport is not None:
            self._transport.abort()
        if self.client is not None:
            self.client.broken()


class Client:
    """Connects, works while connected, connects elsewhere when that fails, and returns home after a while."""

    def __init__(self, clients: Clients, name: str, home: int, random: Random) -> None:
        self.clients = clients
        self.name = name
        self.home = home
        self.random = random
        self.node = 0
        self.client: AmqpClient | None = None
        self.finishing = False
        self.finished = False
        self.moves: list[tuple[int, int]] = []

    async def run(self) -> None:
        """Until told to finish, and nothing is left to be answered."""
        failed_at = 0
        while not self.finishing:
            away = sorted(set(self.clients.nodes) - {self.home})
            self.node = self.random.choice(away) if failed_at == self.home else self.home
            self.client = None
            wire = await self._connect()
            if wire is None or wire.client is None or not await self._until(lambda: self._ready() or self._gone()):
                failed_at = self.node
            elif self._ready():
                self.moves.append((self.clients.now_us(), self.node))
                failed_at = 0 if await self.work() else self.node
                if not failed_at:
                    self.moves.append((self.clients.now_us(), 0))
            else:
                failed_at = self.node
            if wire is not None:
                wire.abort()
            await asyncio.sleep(self.random.uniform(0.01, 0.05))
        self.finished = True

    async def _connect(self) -> _Wire | None:
        address = self.clients.nodes[self.node]
        making = asyncio.get_running_loop().create_connection(lambda: _Wire(self), address.host, address.port)
        with contextlib.suppress(OSError, TimeoutError):
            return (await asyncio.wait_for(making, CONNECT_WITHIN_S))[1]
        return None

    def client_on(self, write: Callable[[bytes], None]) -> AmqpClient:
        """A connection is there: an AMQP client that speaks on it."""
        node = self.node

        def closed(error: BrokerRefused | None) -> None:
            if error is not None:
                self.clients.refusals.append((self.clients.now_us(), self.name, node, str(error)))
            self.ended()

        client = self.client = AmqpClient(write, lambda answer: None, closed, self.clients.login)
        client.on_message = self.on_message
        client.on_confirm = self.on_confirm
        client.on_returned = self.on_returned
        return client

    async def _until(self, happened: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
        """Wait for it; False when the patience is over."""
        began_s = time.monotonic()
        while not happened():
            if time.monotonic() - began_s > within_s:
                self.clients.history.given_up.append(
                    (self.clients.now_us() - round(1e6 * within_s), self.name, self.node)
                )
                return False
            await asyncio.sleep(0.005)
        return True

    def _ready(self) -> bool:
        return self.client is not None and self.client.ready

    def _gone(self) -> bool:
        return self.client is None or self.client.closed

    async def leave(self, client: AmqpClient) -> None:
        """Close politely."""
        if not client.closed:
            client.close()
            await self._until(lambda: client.closed)

    # ------------------------------------------------------------------ to be filled in

    async def work(self) -> bool:
        """Be a client of the node; whether it left of its own will, and not because the node failed it."""
        raise NotImplementedError

    def ended(self) -> None:
        """The connection is gone."""

    def on_message(self, message: ReceivedMessage) -> None:
        """A delivery."""

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        """A publish was answered."""

    def on_returned(self, message: ReceivedMessage) -> None:
        """A publish had no queue."""


class Publisher(Client):
    """Publishes persistent messages to one queue, with a bounded number unconfirmed.

    What was not confirmed is not published again: the next message has the next id.
    """

    def __init__(
        self,
        clients: Clients,
        name: str,
        home: int,
        random: Random,
        queue: str,
        gap_s: float,
        sizes: Sequence[int] = SIZES,
        expirations_ms: Sequence[int] = (),
    ) -> None:
        """Each message has one of the sizes, in bytes, and one of the expirations, if there are any."""
        super().__init__(clients, name, home, random)
        self.queue = queue
        self.gap_s = gap_s
        self._sizes = sizes
        self._expirations_ms = expirations_ms
        self._pending: dict[int, Publish | Cancel] = {}
        self._confirms = clients.confirms.setdefault(name, [])
        clients.homes[name] = (home, queue)
        clients.moves[name] = self.moves

    async def work(self) -> bool:
        client = self.client
        assert client is not None
        self._pending = {}
        self.clients.next_stream += 1
        stream = self.clients.next_stream
        began_s = time.monotonic()
        due_s = began_s
        leaving = False
        while not client.closed:
            now_s = time.monotonic()
            leaving = leaving or self.finishing or (self.node != self.home and now_s - began_s > HOME_AFTER_S)
            if leaving and not self._pending:
                await self.leave(client)
                return True
            if self._pending:
                waited_us = self.clients.now_us() - next(iter(self._pending.values())).invoked_us
                if waited_us > 1e6 * PATIENCE_S:
                    since_us = self.clients.now_us() - waited_us
                    self.clients.history.given_up.append((since_us, self.name, self.node))
                    return False
            if not leaving and now_s >= due_s and len(self._pending) < WINDOW:
                due_s = max(due_s, now_s - 0.1) + self.gap_s * self.random.uniform(0.5, 1.5)
                self._publish(client, stream)
            await asyncio.sleep(min(0.02, max(0.001, due_s - time.monotonic())))
        return False

    def _publish(self, client: AmqpClient, stream: int) -> None:
        clients = self.clients
        clients.next_message += 1
        number = clients.next_message
        ttl_ms = self.random.choice(self._expirations_ms) if self._expirations_ms else None
        publish = Publish(number, stream, number, (self.queue,), ttl_ms, clients.now_us())
        clients.history.publishes[number] = publish
        properties = commands.Basic.Properties(
            message_id=str(number), delivery_mode=2, expiration=None if ttl_ms is None else str(ttl_ms)
        )
        tag = client.publish("", self.queue, content_of(number, self.random.choice(self._sizes)), properties)
        self._pending[tag] = publish

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        publish = self._pending.pop(tag, None)
        if publish is None or publish.outcome != IN_DOUBT:
            return
        publish.outcome = CONFIRMED if acknowledged else REFUSED
        publish.completed_us = self.clients.now_us()
        if acknowledged and isinstance(publish, Publish):
            self._confirms.append((publish.completed_us, self.node))

    def on_returned(self, message: ReceivedMessage) -> None:
        for publish in self._pending.values():
            if publish.message_id == id_of(message.body):
                publish.outcome = RETURNED
                publish.completed_us = self.clients.now_us()

    def ended(self) -> None:
        for publish in self._pending.values():
            publish.completed_us = self.clients.now_us()
        self._pending.clear()


class Consumer(Client):
    """Consumes one queue and acknowledges every message a little later, in order; `draining`: never.

    It also notes which acknowledgements must have been applied. No more than `PREFETCH` messages are outstanding with
    one consumer, so the delivery with tag n proves that those up to n - PREFETCH have been taken off the queue: no
    consumer that begins afterwards may get one of these.
    """

    def __init__(
        self, clients: Clients, name: str, home: int, random: Random, queue: str, draining: bool = False
    ) -> None:
        super().__init__(clients, name, home, random)
        self.queue = queue
        self.draining = draining
        self._connections = 0
        self._holder = ""
        self._unsettled: dict[int, Delivery] = {}
        self._unproven: dict[int, int] = {}
        self._cancelled = False
        self._attachment: Attachment | None = None

    async def work(self) -> bool:
        client = self.client
        assert client is not None
        if not await self._consume(client):
            return False
        began_s = time.monotonic()
        while not client.closed and not self._cancelled:
            away = self.node != self.home and time.monotonic() - began_s > HOME_AFTER_S
            if self.finishing or (away and not self.draining):
                self._acknowledge(client)
                await self.leave(client)
                return True
            await asyncio.sleep(self.random.uniform(0.002, 0.02))
            self._acknowledge(client)
        return False

    async def _consume(self, client: AmqpClient) -> bool:
        clients = self.clients
        self._connections += 1
        self._holder = f"{self.name}.{self._connections}"
        clients.places[self._holder] = self.node
        self._unsettled, self._unproven, self._cancelled = {}, {}, False
        client.on_cancelled = self._on_cancelled
        invoked_us = clients.now_us()
        answers: list[Any] = []
        clients.history.touched.setdefault(self.queue)
        if not self.draining:
            client.call(commands.Basic.Qos(0, PREFETCH), lambda answer: None)
        self._attachment = Attachment(self.queue, self._holder, invoked_us, invoked_us)
        clients.history.attachments.append(self._attachment)
        client.call(commands.Basic.Consume(0, self.queue, self._holder), answers.append)
        if not await self._until(lambda: bool(answers)) or isinstance(answers[0], BrokerRefused):
            return False
        self._attachment.attached_us = clients.now_us()
        return True

    def _on_cancelled(self, tag: str) -> None:
        self._cancelled = True
        self.clients.cancelled.append((self.clients.now_us(), self.name, self.node))

    def on_message(self, message: ReceivedMessage) -> None:
        clients = self.clients
        now_us = clients.now_us()
        number = id_of(message.body)
        intact = number >= 0 and message.properties.message_id == str(number)
        deaths = deaths_of(message.properties.headers)
        delivery = Delivery(
            now_us, self.queue, number, self._holder, message.redelivered, deaths, intact, self.draining
        )
        clients.history.deliveries.append(delivery)
        if self.draining:
            return
        tag = message.delivery_tag
        self._unsettled[tag] = delivery
        self._unproven[tag] = number
        proven = self._unproven.pop(tag - PREFETCH, None)
        if proven is not None:
            clients.proven.setdefault(proven, now_us)

    def _acknowledge(self, client: AmqpClient) -> None:
        """Most of what is unsettled, one by one or all with one ack."""
        if not self._unsettled or client.closed:
            return
        tags = list(self._unsettled)[: self.random.randint(1, PREFETCH)]
        for tag in tags:
            delivery = self._unsettled.pop(tag)
            delivery.settled, delivery.settled_us = ACK, self.clients.now_us()
        if self.random.random() < 0.5:
            client.settle(commands.Basic.Ack(tags[-1], multiple=True))
        else:
            for tag in tags:
                client.settle(commands.Basic.Ack(tag))

    def ended(self) -> None:
        if self._attachment is not None and self._attachment.released_us is None:
            self._attachment.released_us = self.clients.now_us()
        self._unsettled = {}


class Poller(Consumer):
    """Asks for one message after the other with `basic.get`, and acknowledges what it was given now and then."""

    async def _consume(self, client: AmqpClient) -> bool:
        clients = self.clients
        self._connections += 1
        self._holder = f"{self.name}.{self._connections}"
        clients.places[self._holder] = self.node
        self._unsettled, self._unproven, self._cancelled = {}, {}, False
        clients.history.touched.setdefault(self.queue)
        self._attachment = Attachment(self.queue, self._holder, clients.now_us(), clients.now_us())
        clients.history.attachments.append(self._attachment)
        return True

    async def work(self) -> bool:
        client = self.client
        assert client is not None
        await self._consume(client)
        began_s = time.monotonic()
        while not client.closed:
            away = self.node != self.home and time.monotonic() - began_s > HOME_AFTER_S
            if self.finishing or away:
                self._acknowledge(client)
                await self.leave(client)
                return True
            answer = await self._get(client)
            if answer is None or isinstance(answer, BrokerRefused):
                return False
            if isinstance(answer, ReceivedMessage):
                self.on_message(answer)
                # Nothing follows from a tag: any number may be with a poller.
                self._unproven = {}
            else:
                await asyncio.sleep(self.random.uniform(0.002, 0.02))
            if len(self._unsettled) >= PREFETCH // 2 or not isinstance(answer, ReceivedMessage):
                self._acknowledge(client)
        return False

    async def _get(self, client: AmqpClient) -> object:
        """The answer to a `basic.get`; None if there is none in time."""
        answers: list[object] = []
        client.call(commands.Basic.Get(0, self.queue), answers.append)
        return answers[0] if await self._until(lambda: bool(answers)) else None


def publishers_of(clients: Clients, queues: Sequence[str], seed: int, rate: float) -> list[Publisher]:
    """For each queue a publisher at each node; `rate` is messages per second in all."""
    ids = sorted(clients.nodes)
    gap_s = len(queues) * len(ids) / rate
    return [
        Publisher(clients, f"{queue} publisher {node}", node, Random(seed * 1_000 + number), queue, gap_s)
        for number, (queue, node) in enumerate((queue, node) for queue in queues for node in ids)
    ]


def consumers_of(clients: Clients, queues: Sequence[str], seed: int, how: str = CONSUMING) -> list[Client]:
    """For each queue consumers at two nodes; if it is MIXED, one of them polls."""
    ids = sorted(clients.nodes)
    kinds = {CONSUMING: (Consumer, Consumer), POLLING: (Poller, Poller), MIXED: (Consumer, Poller)}[how]
    return [
        kinds[number % 2](clients, f"{queue} consumer {node}", node, Random(seed * 1_000 + 500 + number), queue)
        for number, (queue, node) in enumerate(
            (queue, ids[(place + which) % len(ids)]) for place, queue in enumerate(queues) for which in (0, 1)
        )
    ]
