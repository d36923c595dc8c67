"""The outsider's clients over aiormq, against real nodes: the same plans as in the simulator, the same history."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import aiormq
from aiormq.abc import DeliveredMessage
from pamqp import commands

from simulation.outsider.judging.history import (
    ACK,
    CANCEL,
    CONFIRMED,
    CONSUME,
    DECLARE,
    DELETE,
    EMPTY,
    FAIL,
    GET,
    OK,
    PASSIVE,
    PURGE,
    REFUSED,
    REJECT,
    REQUEUE,
    RETURNED,
    DeclaredQueue,
)
from simulation.outsider.recorder import NO_ANSWER, Answer, Consuming, HandedMessage, Recorder, closed
from simulation.outsider.workload import (
    BAD_ARGUMENTS,
    BIND,
    DROP,
    EXCHANGE,
    PUBLISH,
    ClientPlan,
    ClientStep,
    Outgoing,
    arguments_of,
    body_of,
)

PATIENCE_S = 10.0
AGAIN_S = 0.2
CODES: dict[type[BaseException], int] = {
    aiormq.exceptions.ChannelNotFoundEntity: 404,
    aiormq.exceptions.ChannelPreconditionFailed: 406,
    aiormq.exceptions.ChannelAccessRefused: 403,
    aiormq.exceptions.ChannelLockedResource: 405,
}
BROKEN = (aiormq.exceptions.AMQPError, OSError, asyncio.TimeoutError, asyncio.CancelledError, RuntimeError)
"""What a library raises when a node is gone; RuntimeError: of a transport that is closed already."""


class Surroundings:
    """What the clients of a run share: the clock, the addresses of nodes, and the history."""

    def __init__(self, recorder: Recorder, urls: dict[int, str], queues: Sequence[DeclaredQueue]) -> None:
        self.recorder = recorder
        self.urls = urls
        self.queues = {queue.name: queue for queue in queues}
        self.nodes = tuple(urls)
        self._began_s = time.monotonic()

    def now_us(self) -> int:
        """Time since the history's begin."""
        return int((time.monotonic() - self._began_s) * 1_000_000)


class RealConnection:
    """One connection with one channel."""

    def __init__(self, client: RealClient, node: int) -> None:
        self.client = client
        self.around = client.around
        self.node = node
        self.number = self.around.recorder.connection()
        self._consuming: dict[str, Consuming] = {}
        self._consumers = 0
        self._settling: set[asyncio.Task[None]] = set()
        self._connection: aiormq.abc.AbstractConnection | None = None
        self.channel: aiormq.abc.AbstractChannel | None = None

    async def open(self) -> None:
        """Connect, with confirms. Raises one of `BROKEN`."""
        async with asyncio.timeout(PATIENCE_S):
            self._connection = await aiormq.connect(self.around.urls[self.node])
            self.channel = await self._connection.channel(publisher_confirms=True)

    async def close(self, polite: bool) -> None:
        """End it, and say so in the history; what is held is given back with that."""
        for task in list(self._settling):
            task.cancel()
        self.around.recorder.ended(
            self.client.plan.name, self.number, self.node, self.around.now_us(), polite
        )
        if self._connection is not None:
            with contextlib.suppress(*BROKEN):
                await asyncio.wait_for(self._connection.close(), PATIENCE_S)

    async def call(
        self, kind: str, queue: str, method: Callable[[aiormq.abc.AbstractChannel], Awaitable[Any]], **more: Any
    ) -> bool:
        """Do it and record what comes of it; False if the channel is gone with that."""
        assert self.channel is not None
        sent_us = self.around.now_us()
        message, alive = None, True
        try:
            result = await asyncio.wait_for(method(self.channel), PATIENCE_S)
        except BROKEN as error:
            answer, alive = closed(CODES.get(type(error), 0), self.around.now_us()), False
        else:
            answer = Answer(OK, 0, self.around.now_us())
            if isinstance(result, DeliveredMessage):
                if isinstance(result.delivery, commands.Basic.GetEmpty):
                    answer = Answer(EMPTY, 0, answer.at_us)
                else:
                    message = self._take(queue, result, None, sent_us, bool(more.get("no_ack")))
        if queue:
            self.around.recorder.called(
                self.client.plan.name, self.number, self.node, kind, queue, sent_us, answer, message=message, **more
            )
        return alive

    async def consume(self, step: ClientStep) -> bool:
        """Begin to consume."""
        if any(consuming.queue == step.queue for consuming in self._consuming.values()):
            return True
        self._consumers += 1
        tag = f"c{self._consumers}"
        consuming = Consuming(step.queue, tag, step.prefetch, self.around.now_us())
        self._consuming[tag] = consuming

        async def delivered(message: DeliveredMessage) -> None:
            self._take(consuming.queue, message, consuming, consuming.room_since_us, False)

        async def begin(channel: aiormq.abc.AbstractChannel) -> None:
            await channel.basic_qos(prefetch_count=step.prefetch)
            await channel.basic_consume(step.queue, delivered, consumer_tag=tag)

        return await self.call(CONSUME, step.queue, begin, tag=tag, prefetch=step.prefetch)

    async def cancel(self, queue: str) -> bool:
        """Stop consuming, if anybody here does."""
        for tag, consuming in list(self._consuming.items()):
            if consuming.queue == queue:
                return await self._stop(queue, tag)
        return True

    async def _stop(self, queue: str, tag: str) -> bool:
        alive = await self.call(CANCEL, queue, lambda channel: channel.basic_cancel(tag), tag=tag)
        self._consuming.pop(tag, None)
        return alive

    async def publish(self, outgoing: Outgoing) -> bool:
        """Send, and wait for the confirm."""
        assert self.channel is not None
        headers: Any = None if outgoing.delay_ms is None else {"x-delay": outgoing.delay_ms}
        properties = commands.Basic.Properties(
            delivery_mode=2, expiration=outgoing.expiration, priority=outgoing.priority, headers=headers
        )
        sent_us, alive = self.around.now_us(), True
        try:
            result = await asyncio.wait_for(
                self.channel.basic_publish(
                    body_of(outgoing.message, outgoing.size), exchange=outgoing.exchange,
                    routing_key=outgoing.routing_key, properties=properties, mandatory=True,
                ),
                PATIENCE_S,
            )  # fmt: skip
            outcome = REFUSED if isinstance(result, commands.Basic.Nack) else CONFIRMED
            answer = Answer(outcome, 0, self.around.now_us())
        except aiormq.exceptions.PublishError:
            answer = Answer(RETURNED, 0, self.around.now_us())
        except aiormq.exceptions.DeliveryError:
            answer = Answer(REFUSED, 0, self.around.now_us())
        except BROKEN as error:
            code = CODES.get(type(error), 0)
            answer, alive = closed(code, self.around.now_us()) if code else NO_ANSWER, False
        self.around.recorder.published(self.client.plan.name, self.number, self.node, outgoing, sent_us, answer)
        return alive

    def _take(
        self, queue: str, message: DeliveredMessage, consuming: Consuming | None, since_us: int, no_ack: bool
    ) -> int:
        properties: Any = message.header.properties
        delivery: Any = message.delivery
        headers = properties.headers or {}
        seen = HandedMessage(message.body, bool(delivery.redelivered), properties.expiration, headers, no_ack)
        tag = "" if consuming is None else consuming.tag
        handed = self.around.recorder.handed(
            self.client.plan.name, self.number, self.node, queue, tag, self.around.now_us(), since_us, seen
        )
        if consuming is not None:
            consuming.holds.add(handed.number)
        if not no_ack:
            how, hold_us = self.client.mind()
            task = asyncio.create_task(self._settle(handed.number, delivery.delivery_tag, how, hold_us, consuming))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
        return handed.message

    async def _settle(self, handed: int, tag: int, how: str, hold_us: int, consuming: Consuming | None) -> None:
        await asyncio.sleep(hold_us / 1_000_000)
        assert self.channel is not None
        now_us = self.around.now_us()
        self.around.recorder.settled(handed, how, now_us)
        if consuming is not None:
            if consuming.prefetch and len(consuming.holds) >= consuming.prefetch:
                consuming.room_since_us = now_us
            consuming.holds.discard(handed)
        with contextlib.suppress(*BROKEN):
            if how == ACK:
                await self.channel.basic_ack(tag)
            elif how == REQUEUE:
                await self.channel.basic_nack(tag, requeue=True)
            else:
                await self.channel.basic_reject(tag, requeue=how == FAIL)


class RealClient:
    """One client and its plan; connects to the next node when one does not answer."""

    def __init__(self, around: Surroundings, plan: ClientPlan, random: Random) -> None:
        self.around = around
        self.plan = plan
        self._random = random
        self._node = around.nodes.index(plan.first_node)
        self._connection: RealConnection | None = None

    def mind(self) -> tuple[str, int]:
        """What becomes of a message, and after what time."""
        manners, drawn = self.plan.manners, self._random.random()
        hold_us = int(self._random.random() * 2 * manners.hold_us)
        for how, share in ((REQUEUE, manners.requeue), (REJECT, manners.reject), (FAIL, manners.fail)):
            if drawn < share:
                return how, hold_us
            drawn -= share
        return ACK, hold_us

    async def run(self) -> None:
        """All steps, one after the other."""
        for step in self.plan.steps:
            await asyncio.sleep(step.pause_us / 1_000_000)
            connection = await self._connected()
            if not await self._do(connection, step):
                self._connection = None
                await connection.close(polite=False)

    async def finish(self) -> None:
        """Close politely."""
        if self._connection is not None:
            await self._connection.close(polite=True)

    async def _connected(self) -> RealConnection:
        while self._connection is None:
            connection = RealConnection(self, self.around.nodes[self._node])
            try:
                await connection.open()
            except BROKEN:
                await connection.close(polite=False)
                self._node = (self._node + 1) % len(self.around.nodes)
                await asyncio.sleep(AGAIN_S)
            else:
                self._connection = connection
        return self._connection

    async def _do(self, connection: RealConnection, step: ClientStep) -> bool:
        """False when the connection is of no more use."""
        queue = step.queue
        if step.kind == DROP:
            return False
        if step.kind == PUBLISH:
            return all(await asyncio.gather(*map(connection.publish, step.outgoing)))
        if step.kind == CONSUME:
            return await connection.consume(step)
        if step.kind == CANCEL:
            return await connection.cancel(queue)
        if step.kind == DECLARE and step.bad >= 0:
            return await connection.call(DECLARE, queue, _declare(queue, BAD_ARGUMENTS[step.bad]), bad=True)
        return await connection.call(
            step.kind, "" if step.kind in (BIND, EXCHANGE) else queue, self._method_of(step), no_ack=step.no_ack
        )

    def _method_of(self, step: ClientStep) -> Callable[[aiormq.abc.AbstractChannel], Awaitable[Any]]:
        queue = step.queue
        arguments: Any = arguments_of(self.around.queues[queue]) if queue in self.around.queues else None
        methods: dict[str, Callable[[aiormq.abc.AbstractChannel], Awaitable[Any]]] = {
            EXCHANGE: lambda channel: channel.exchange_declare(step.exchange, exchange_type="fanout", durable=True),
            BIND: lambda channel: channel.queue_bind(queue, step.exchange),
            DECLARE: _declare(queue, arguments),
            PASSIVE: lambda channel: channel.queue_declare(queue, passive=True),
            DELETE: lambda channel: channel.queue_delete(queue),
            PURGE: lambda channel: channel.queue_purge(queue),
            GET: lambda channel: channel.basic_get(queue, no_ack=step.no_ack),
        }
        return methods[step.kind]


def _declare(queue: str, arguments: Any) -> Callable[[aiormq.abc.AbstractChannel], Awaitable[Any]]:
    return lambda channel: channel.queue_declare(queue, durable=True, arguments=arguments)
