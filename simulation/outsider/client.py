"""A simulated client of the outsider: takes the steps of its plan one after the other, and has all it sees recorded.

A step that gets no answer in time ends its connection; the next one begins at another node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from pamqp import commands
from pamqp.base import Frame

from simulation.cluster.events import MILLISECOND_US, EventQueue, Timer
from simulation.node import amqp_client
from simulation.node.amqp_client import AmqpClient, BrokerRefused
from simulation.node.sockets import Wire
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
    message_of,
)

PATIENCE_US = 1_500 * MILLISECOND_US
AGAIN_US = 80 * MILLISECOND_US
CLIENT_DELAY_US = 300


class ClientPlace(Protocol):
    """Where clients live."""

    queue: EventQueue
    recorder: Recorder
    wires: Random
    queues: dict[str, DeclaredQueue]
    nodes: tuple[int, ...]
    slowness: int

    def connect(self, node: int, wire: Wire, refused: Callable[[], None]) -> None:
        """Open a TCP connection to a node."""
        ...


class OutsiderConnection:
    """One connection of a client, from its begin to its end."""

    def __init__(self, client: OutsiderClient, node: int) -> None:
        self.client = client
        self.place = client.place
        self.node = node
        self.number = self.place.recorder.connection()
        self.is_over = False
        self.wire = Wire(self.place.queue, self.place.wires, CLIENT_DELAY_US)
        self.amqp = AmqpClient(self.wire.write_from_client, self._ready, self._closed)
        self.amqp.on_message = self._delivered
        self.amqp.on_confirm = self._confirmed
        self.amqp.on_returned = lambda message: self._returned.add(message_of(message.body))
        self.amqp.on_cancelled = self._cancelled
        self._returned: set[int] = set()
        self._unconfirmed: dict[int, tuple[Outgoing, int]] = {}
        self._consuming: dict[str, Consuming] = {}
        self._consumers = 0
        self._code = 0
        self._polite = False

    def open(self) -> None:
        """Connect; the client is told when that is over."""
        self.wire.to_client = self.amqp.receive
        self.wire.client_broken = self.amqp.broken
        self.place.connect(self.node, self.wire, self.amqp.broken)

    def drop(self) -> None:
        """Let go of it without a word."""
        self.amqp.broken()

    def close(self) -> None:
        """Say goodbye."""
        self._polite = True
        self.amqp.close()

    def call(self, kind: str, queue: str, method: Frame, done: Callable[[], None], **more: Any) -> None:
        """Send a method, and record what comes of it."""
        sent_us = self.place.queue.now_us

        def answered(result: Any) -> None:
            now_us = self.place.queue.now_us
            message = None
            if isinstance(result, BrokerRefused):
                answer = closed(result.code, now_us)
            elif isinstance(result, amqp_client.ReceivedMessage):
                answer = Answer(OK, 0, now_us)
                message = self._got(queue, result, sent_us, bool(more.get("no_ack")))
            else:
                answer = Answer(EMPTY if isinstance(result, commands.Basic.GetEmpty) else OK, 0, now_us)
            self.place.recorder.called(
                self.client.plan.name, self.number, self.node, kind, queue, sent_us, answer, message=message, **more
            )
            if not isinstance(result, BrokerRefused):
                done()

        self.amqp.call(method, answered)

    def consume(self, step: ClientStep, done: Callable[[], None]) -> None:
        """Begin to consume with this much room."""
        self._consumers += 1
        tag = f"c{self._consumers}"
        began_us = self.place.queue.now_us
        self._consuming[tag] = Consuming(step.queue, tag, step.prefetch, began_us)

        def may_consume(result: Any) -> None:
            if not isinstance(result, BrokerRefused):
                method = commands.Basic.Consume(0, step.queue, tag)
                self.call(CONSUME, step.queue, method, done, tag=tag, prefetch=step.prefetch)

        self.amqp.call(commands.Basic.Qos(0, step.prefetch, False), may_consume)

    def cancel(self, queue: str, done: Callable[[], None]) -> bool:
        """Stop consuming from a queue; False if nobody here does."""
        for tag, consuming in list(self._consuming.items()):
            if consuming.queue == queue:
                self.call(CANCEL, queue, commands.Basic.Cancel(tag), partial(self._stopped, tag, done), tag=tag)
                return True
        return False

    def _stopped(self, tag: str, done: Callable[[], None]) -> None:
        self._consuming.pop(tag, None)
        done()

    def consumes(self, queue: str) -> bool:
        """Whether there is a consumer of it here."""
        return any(consuming.queue == queue for consuming in self._consuming.values())

    def publish(self, outgoing: Outgoing) -> None:
        """Send a message."""
        headers: dict[str, Any] | None = None if outgoing.delay_ms is None else {"x-delay": outgoing.delay_ms}
        properties = commands.Basic.Properties(
            delivery_mode=2, expiration=outgoing.expiration, priority=outgoing.priority, headers=headers
        )
        sent_us = self.place.queue.now_us
        body = body_of(outgoing.message, outgoing.size)
        tag = self.amqp.publish(outgoing.exchange, outgoing.routing_key, body, properties)
        self._unconfirmed[tag] = (outgoing, sent_us)

    def settle(self, handed: int, delivery_tag: int, how: str, consuming: Consuming | None) -> None:
        """Say what becomes of a message."""
        if self.is_over:
            return
        methods = {
            ACK: commands.Basic.Ack(delivery_tag),
            REQUEUE: commands.Basic.Nack(delivery_tag, requeue=True),
            FAIL: commands.Basic.Reject(delivery_tag, requeue=True),
            REJECT: commands.Basic.Reject(delivery_tag, requeue=False),
        }
        now_us = self.place.queue.now_us
        self.place.recorder.settled(handed, how, now_us)
        if consuming is not None:
            if consuming.prefetch and len(consuming.holds) >= consuming.prefetch:
                consuming.room_since_us = now_us
            consuming.holds.discard(handed)
        self.amqp.settle(methods[how])

    # ------------------------------------------------------------------ what comes

    def _ready(self, answer: Any) -> None:
        if isinstance(answer, BrokerRefused):
            return
        self.client.connected(self)

    def _closed(self, error: BrokerRefused | None) -> None:
        self.is_over = True
        self._code = error.code if error is not None else 0
        self.wire.drop_by_client()
        now_us = self.place.queue.now_us
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for outgoing, sent_us in unconfirmed.values():
            # Of several messages on their way a code speaks of one, and nobody knows of which.
            answer = closed(self._code, now_us) if len(unconfirmed) == 1 else NO_ANSWER
            self._record(outgoing, sent_us, answer)
        name = self.client.plan.name
        self.place.recorder.ended(name, self.number, self.node, now_us, self._polite and error is None)
        self.client.disconnected(self)

    def _record(self, outgoing: Outgoing, sent_us: int, answer: Answer) -> None:
        self.place.recorder.published(self.client.plan.name, self.number, self.node, outgoing, sent_us, answer)

    def _confirmed(self, tag: int, acknowledged: bool) -> None:
        outgoing, sent_us = self._unconfirmed.pop(tag)
        outcome = (RETURNED if outgoing.message in self._returned else CONFIRMED) if acknowledged else REFUSED
        self._record(outgoing, sent_us, Answer(outcome, 0, self.place.queue.now_us))
        if not self._unconfirmed:
            self.client.all_confirmed()

    def _cancelled(self, tag: str) -> None:
        consuming = self._consuming.pop(tag, None)
        if consuming is not None:
            self.place.recorder.cancelled(self.number, consuming, self.place.queue.now_us)

    def _delivered(self, message: amqp_client.ReceivedMessage) -> None:
        consuming = self._consuming.get(message.consumer_tag)
        if consuming is not None:
            self._take(consuming.queue, message, consuming, consuming.room_since_us, False)

    def _got(self, queue: str, message: amqp_client.ReceivedMessage, sent_us: int, no_ack: bool) -> int:
        return self._take(queue, message, None, sent_us, no_ack)

    def _take(
        self, queue: str, message: amqp_client.ReceivedMessage, consuming: Consuming | None, since_us: int, no_ack: bool
    ) -> int:
        headers: Any = message.properties.headers or {}
        seen = HandedMessage(message.body, message.redelivered, message.properties.expiration, headers, no_ack)
        tag = "" if consuming is None else consuming.tag
        handed = self.place.recorder.handed(
            self.client.plan.name, self.number, self.node, queue, tag, self.place.queue.now_us, since_us, seen
        )
        if consuming is not None:
            consuming.holds.add(handed.number)
        if not no_ack:
            how, hold_us = self.client.mind()
            self.place.queue.after(
                hold_us, lambda: self.settle(handed.number, message.delivery_tag, how, consuming)
            )
        return handed.message


class OutsiderClient:
    """One client and its plan."""

    def __init__(self, place: ClientPlace, plan: ClientPlan, random: Random) -> None:
        self.place = place
        self.plan = plan
        self._random = random
        self._todo = deque(plan.steps)
        self._node = place.nodes.index(plan.first_node) if plan.first_node in place.nodes else 0
        self.connection: OutsiderConnection | None = None
        self._patience: Timer | None = None
        self._patience_us = PATIENCE_US * place.slowness
        self._again_us = AGAIN_US * place.slowness
        self._step: ClientStep | None = None
        self._began = False
        self._waiting = 0
        self._finishing = False
        self.is_done = False

    def start(self) -> None:
        """Begin with the first step."""
        self._next()

    def finish(self) -> None:
        """Stop: whatever is held is given back by closing the connection."""
        self._finishing = True
        self._todo.clear()
        self._calm_down()
        if self.connection is not None and self.connection.amqp.ready:
            self.connection.close()
            self._patience = self.place.queue.after(self._patience_us, self._impatient)
        elif self.connection is not None:
            self.connection.drop()
        else:
            self.is_done = True

    def mind(self) -> tuple[str, int]:
        """What becomes of a message, and after what time."""
        manners, drawn = self.plan.manners, self._random.random()
        hold_us = int(self._random.random() * 2 * manners.hold_us)
        for how, share in ((REQUEUE, manners.requeue), (REJECT, manners.reject), (FAIL, manners.fail)):
            if drawn < share:
                return how, hold_us
            drawn -= share
        return ACK, hold_us

    # ------------------------------------------------------------------ connections

    def connected(self, connection: OutsiderConnection) -> None:
        """The channel is open."""
        if connection is self.connection and self._step is not None and not self._began:
            self._do(connection, self._step)

    def disconnected(self, connection: OutsiderConnection) -> None:
        """The connection is over, whatever came of the step."""
        if connection is not self.connection:
            return
        self.connection = None
        self._calm_down()
        if self._finishing:
            self.is_done = True
            return
        self._node = (self._node + 1) % len(self.place.nodes)
        if self._step is not None and not self._began:
            self.place.queue.after(self._again_us, self._connect)
        elif self._step is not None:
            self._done()

    def all_confirmed(self) -> None:
        """Nothing that was sent is without its answer."""
        if self._step is not None and self._step.kind == PUBLISH and self._began:
            self._done()

    def _connect(self) -> None:
        if self._finishing or self.connection is not None:
            return
        self.connection = OutsiderConnection(self, self.place.nodes[self._node])
        self._be_patient()
        self.connection.open()

    # ------------------------------------------------------------------ steps

    @property
    def is_idle(self) -> bool:
        """Whether all steps are done."""
        return not self._todo and self._step is None and self._waiting == 0

    def _next(self) -> None:
        if not self._todo:
            return
        step = self._todo.popleft()
        self._waiting = 1
        self.place.queue.after(step.pause_us, lambda: self._begin(step))

    def _begin(self, step: ClientStep) -> None:
        self._waiting = 0
        if self._finishing:
            return
        self._step, self._began = step, False
        if self.connection is not None and self.connection.amqp.ready:
            self._do(self.connection, step)
        elif self.connection is None:
            self._connect()

    def _done(self) -> None:
        self._calm_down()
        self._step = None
        self._next()

    def _do(self, connection: OutsiderConnection, step: ClientStep) -> None:
        self._began = True
        self._be_patient()
        kind, queue = step.kind, step.queue
        if kind == DROP:
            connection.drop()
        elif kind == PUBLISH:
            for outgoing in step.outgoing:
                connection.publish(outgoing)
        elif kind == CONSUME:
            if connection.consumes(queue):
                self._done()
            else:
                connection.consume(step, self._done)
        elif kind == CANCEL:
            if not connection.cancel(queue, self._done):
                self._done()
        elif kind == DECLARE and step.bad >= 0:
            method = commands.Queue.Declare(0, queue, durable=True, arguments=BAD_ARGUMENTS[step.bad])
            connection.call(kind, queue, method, self._done, bad=True)
        else:
            connection.call(kind, queue, method_of(step, self.place.queues), self._done, no_ack=step.no_ack)

    # ------------------------------------------------------------------ patience

    def _be_patient(self) -> None:
        self._calm_down()
        self._patience = self.place.queue.after(self._patience_us, self._impatient)

    def _calm_down(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _impatient(self) -> None:
        if self.connection is not None:
            self.connection.drop()


def method_of(step: ClientStep, queues: dict[str, DeclaredQueue]) -> Frame:
    """The AMQP method of a simple step."""
    if step.kind == DECLARE:
        arguments: Any = arguments_of(queues[step.queue])
        return commands.Queue.Declare(0, step.queue, durable=True, arguments=arguments)
    if step.kind == EXCHANGE:
        return commands.Exchange.Declare(0, step.exchange, "fanout", durable=True)
    if step.kind == BIND:
        return commands.Queue.Bind(0, step.queue, step.exchange, "")
    if step.kind == PASSIVE:
        return commands.Queue.Declare(0, step.queue, passive=True)
    if step.kind == DELETE:
        return commands.Queue.Delete(0, step.queue)
    if step.kind == PURGE:
        return commands.Queue.Purge(0, step.queue)
    if step.kind == GET:
        return commands.Basic.Get(0, step.queue, step.no_ack)
    raise AssertionError(f"no method for a step of the kind {step.kind!r}")
