"""Simulated clients: each has one connection to some node, does its part, and moves to another node when
that fails.

They know what a client knows. Every random decision is drawn from the actor's own stream, so that what
one of them does depends on the cluster only through what it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from cluster.simulator.events import MILLISECOND_US, SECOND_US
from cluster.simulator.randomness import exponential_us, stream
from node.simulation.amqp_client import AmqpClient, Message, Refused
from node.simulation.history import (
    ACK,
    CONFIRMED,
    DECLARE,
    GET,
    IN_DOUBT,
    PASSIVE,
    REFUSED,
    REJECT,
    REQUEUE,
    RETURNED,
    Attachment,
    Delivery,
    Publish,
    Removal,
)
from node.simulation.sockets import Wire
from node.simulation.topology import QueuePlan
from node.simulation.world import CLIENT_DELAY_US, World, content_of, deaths_of, id_of


class Actor:
    """A client that connects, works while connected, and connects again; until `finish`."""

    patience_us = 4 * SECOND_US
    """How long it waits for an answer before it tries another node."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = stream(world.seed, f"actor {name}")
        self.client: AmqpClient | None = None
        self.node = 0
        self.finished = False
        self.unsettled: dict[int, Delivery] = {}
        self.attachments: dict[str, Attachment] = {}
        self._wire: Wire | None = None
        self._life = 0

    # ------------------------------------------------------------------ to be filled in

    def begin(self) -> None:
        """The channel is open."""

    def ended(self) -> None:
        """The connection is gone."""

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        """A publish was answered."""

    def on_returned(self, message: Message) -> None:
        """A publish had no queue."""

    # ------------------------------------------------------------------ connection

    def start(self) -> None:
        """Begin to connect."""
        self._connect()

    def finish(self) -> None:
        """Stop for good."""
        self.finished = True
        self.drop()

    def drop(self) -> None:
        """Let go of the connection without a word, as a client that is killed does."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.drop_by_client()
        if self.client is not None:
            self.client.broken()

    def later(self, mean_us: int, action: Callable[[], None]) -> None:
        """Do something on this connection after a while."""
        life = self._life

        def act() -> None:
            if self._life == life and self.client is not None and not self.client.closed:
                action()

        self.world.queue.after(1_000 + exponential_us(self.random, mean_us, 10 * mean_us), act)

    def _connect(self) -> None:
        if self.finished:
            return
        world = self.world
        self._life += 1
        life = self._life
        self.node = self.random.choice(list(world.cluster.machines))
        machine = world.cluster.machines[self.node]
        wire = self._wire = Wire(world.queue, world.wires, CLIENT_DELAY_US)
        client = AmqpClient(wire.write_from_client, lambda answer: self._opened(life), self._closed)
        self.client = client
        client.on_message = self._on_message
        client.on_confirm = self.on_confirm
        client.on_returned = self.on_returned
        client.on_cancelled = self._on_cancelled
        wire.to_client = client.receive
        wire.client_broken = client.broken
        machine.on_crash.append(lambda: self._machine_died(life))
        world.connect(machine, wire, client.broken)
        self.give_up_unless(lambda: client.ready)

    def _opened(self, life: int) -> None:
        if self._life == life:
            self.begin()

    def _machine_died(self, life: int) -> None:
        """The node is dead; its client does not know yet, the history does."""
        if self._life == life:
            for attachment in self.attachments.values():
                self.world.released(attachment)

    def _closed(self, error: Refused | None) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.drop_by_client()
        self.client = None
        self._life += 1
        for attachment in self.attachments.values():
            self.world.released(attachment)
        self.attachments.clear()
        self.unsettled.clear()
        self.ended()
        if not self.finished:
            delay = self.random.randint(20, 200) * MILLISECOND_US
            self.world.queue.after(delay, self._connect)

    def give_up_unless(self, happened: Callable[[], bool]) -> None:
        """Drop the connection unless something has happened when the patience ends."""
        life, began_us = self._life, self.world.queue.now_us

        def judge() -> None:
            if self._life == life and not happened():
                self.world.history.given_up.append((began_us, self.name, self.node))
                self.world.cluster.trace.add("gives up", self.name, self.node)
                self.drop()

        self.world.queue.after(self.patience_us, judge)

    def call(self, method: Frame, answer: Callable[[Any], None]) -> None:
        """Call a method; only a good answer reaches `answer`: after a bad one the connection is over."""
        done: list[bool] = []

        def answered(result: Any) -> None:
            done.append(True)
            if not isinstance(result, Refused):
                answer(result)

        if self.client is not None:
            self.client.call(method, answered)
            self.give_up_unless(lambda: bool(done))

    # ------------------------------------------------------------------ declaring

    def declare(self, plan: QueuePlan, answer: Callable[[], None], passive: bool = False) -> None:
        """Declare a queue, which renews its lease."""
        invoked_us = self.world.queue.now_us

        def declared(result: Any) -> None:
            self.world.renewed(plan.name, PASSIVE if passive else DECLARE, invoked_us)
            answer()

        arguments = None if passive else arguments_of(plan)
        self.call(
            commands.Queue.Declare(0, plan.name, passive, durable=True, arguments=arguments), declared
        )

    # ------------------------------------------------------------------ consuming

    def consume(self, queue: str, prefetch: int, answer: Callable[[str], None]) -> None:
        """Attach a consumer; `answer` gets its tag."""
        invoked_us = self.world.queue.now_us
        self.world.next_holder += 1
        tag = f"{self.name}.{self.world.next_holder}"

        def consuming(result: Any) -> None:
            attachment = Attachment(queue, tag, invoked_us, self.world.queue.now_us)
            self.attachments[tag] = attachment
            self.world.attached(self.node, attachment)
            answer(tag)

        self.queues_of_tags[tag] = queue
        self.world.history.touched.setdefault(queue)
        self.call(commands.Basic.Qos(0, prefetch), lambda result: None)
        self.call(commands.Basic.Consume(0, queue, tag), consuming)

    @property
    def queues_of_tags(self) -> dict[str, str]:
        """Which queue each consumer tag of this actor belongs to."""
        tags: dict[str, str] = self.__dict__.setdefault("_queues_of_tags", {})
        return tags

    def cancel(self, tag: str, answer: Callable[[], None]) -> None:
        """Cancel a consumer."""
        attachment = self.attachments.pop(tag, None)
        if attachment is not None:
            self.world.released(attachment)
        self.call(commands.Basic.Cancel(tag), lambda result: answer())

    def _on_cancelled(self, tag: str) -> None:
        attachment = self.attachments.pop(tag, None)
        if attachment is not None:
            self.world.released(attachment)
        self.on_cancelled(tag)

    def on_cancelled(self, tag: str) -> None:
        """The broker cancelled a consumer."""
        self.drop()

    def get(self, queue: str, answer: Callable[[], None]) -> None:
        """Get one message, if there is one, and settle it after a while."""
        invoked_us = self.world.queue.now_us
        holder = f"{self.name}.get.{self._life}"
        self.world.history.touched.setdefault(queue)

        def got(result: Any) -> None:
            self.world.renewed(queue, GET, invoked_us)
            if isinstance(result, Message):
                self.take(queue, holder, result)
            answer()

        self.call(commands.Basic.Get(0, queue), got)

    def _on_message(self, message: Message) -> None:
        self.take(self.queues_of_tags[message.consumer_tag], message.consumer_tag, message)

    def take(self, queue: str, holder: str, message: Message) -> Delivery:
        """A message has come: record it, and settle it after a while."""
        delivery = self.record(queue, holder, message)
        self.unsettled[message.delivery_tag] = delivery
        self.later(20 * MILLISECOND_US, lambda: self.settle(message.delivery_tag))
        return delivery

    def record(self, queue: str, holder: str, message: Message, draining: bool = False) -> Delivery:
        """Write a delivery into the history, and whether it is what was published (RULES T11, D4)."""
        world = self.world
        message_id = id_of(message.body)
        deaths = deaths_of(message.properties.headers)
        publish = world.history.publishes.get(message_id)
        intact = message_id >= 0
        if publish is not None:
            ttl = None if deaths or publish.ttl_ms is None else str(publish.ttl_ms)
            intact = message.properties.expiration == ttl and message.properties.message_id == str(
                message_id
            )
        delivery = Delivery(
            world.queue.now_us, queue, message_id, holder, message.redelivered, deaths, intact, draining
        )
        world.delivered(delivery)
        return delivery

    def outcome(self) -> str:
        """What to answer to a delivery."""
        return ACK

    def settle(self, tag: int) -> None:
        """Settle a delivery of this connection."""
        delivery = self.unsettled.pop(tag, None)
        if delivery is None or self.client is None:
            return
        outcome = self.outcome()
        self.world.settled(delivery, outcome)
        if outcome == ACK:
            self.client.settle(commands.Basic.Ack(tag))
        elif self.random.random() < 0.5:
            self.client.settle(commands.Basic.Nack(tag, False, outcome == REQUEUE))
        else:
            self.client.settle(commands.Basic.Reject(tag, outcome == REQUEUE))


def arguments_of(plan: QueuePlan) -> dict[str, Any]:
    """The arguments of a queue's declare."""
    arguments: dict[str, Any] = {}
    if plan.message_ttl_ms is not None:
        arguments["x-message-ttl"] = plan.message_ttl_ms
    if plan.expires_ms is not None:
        arguments["x-expires"] = plan.expires_ms
    if plan.dead_letter_exchange is not None:
        arguments["x-dead-letter-exchange"] = plan.dead_letter_exchange
    if plan.dead_letter_routing_key is not None:
        arguments["x-dead-letter-routing-key"] = plan.dead_letter_routing_key
    return arguments


class Founder(Actor):
    """Declares every exchange and queue of the topology, in order, until all are there."""

    def __init__(self, world: World, name: str, done: Callable[[], None]) -> None:
        super().__init__(world, name)
        self._done = done

    def begin(self) -> None:
        topology = self.world.topology
        steps: list[Frame] = [
            commands.Exchange.Declare(0, exchange, "fanout", durable=True)
            for exchange in topology.exchanges
        ]
        plans = [plan for plan in topology.queues.values() if plan.expires_ms is None]
        steps += [
            commands.Queue.Declare(0, plan.name, durable=True, arguments=arguments_of(plan))
            for plan in plans
        ]
        for bound in topology.exchanges.values():
            steps += [commands.Queue.Bind(0, queue, bound.name, "") for queue in bound.queues]
        for step in steps[:-1]:
            self.call(step, lambda result: None)
        self.call(steps[-1], lambda result: self._complete())

    def _complete(self) -> None:
        self.finish()
        self._done()


class Publisher(Actor):
    """Publishes to its targets, each message once, with a window of unconfirmed ones.

    A target is (exchange, routing key, queues it reaches, TTLs to choose from).
    """

    Target = tuple[str, str, tuple[str, ...], tuple[int | None, ...]]

    def __init__(
        self, world: World, name: str, targets: list[Target], gap_us: int, until_us: int
    ) -> None:
        super().__init__(world, name)
        self.targets = targets
        self.gap_us = gap_us
        self.until_us = until_us
        self.window = self.random.choice((1, 5, 50))
        self.pending: dict[int, Publish] = {}
        self.stream = 0

    def begin(self) -> None:
        self.world.next_stream += 1
        self.stream = self.world.next_stream
        self._next()

    def ended(self) -> None:
        for publish in self.pending.values():
            publish.completed_us = self.world.queue.now_us
        self.pending.clear()

    def _next(self) -> None:
        if self.world.queue.now_us >= self.until_us:
            if not self.pending:
                self.finish()
                return
        elif len(self.pending) < self.window:
            for _ in range(self.random.choice((1, 1, 1, 4))):
                self.publish(self.random.choice(self.targets))
        self.later(self.gap_us, self._next)

    def publish(self, target: Target) -> None:
        """Publish one message."""
        if self.client is None:
            return
        world = self.world
        exchange, key, queues, ttls = target
        world.next_message += 1
        message_id = world.next_message
        ttl_ms = self.random.choice(ttls)
        size = self.random.choice((0, 20, 300, 300, 3_000))
        properties = commands.Basic.Properties(
            message_id=str(message_id),
            delivery_mode=2,
            expiration=None if ttl_ms is None else str(ttl_ms),
            headers={"sequence": message_id} if self.random.random() < 0.3 else None,
        )
        publish = Publish(message_id, self.stream, message_id, queues, ttl_ms, world.queue.now_us)
        world.published(publish)
        tag = self.client.publish(exchange, key, content_of(message_id, size), properties)
        self.pending[tag] = publish
        self.give_up_unless(lambda: tag not in self.pending)

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        publish = self.pending.pop(tag, None)
        if publish is not None and publish.outcome == IN_DOUBT:
            self.world.completed(publish, CONFIRMED if acknowledged else REFUSED)

    def on_returned(self, message: Message) -> None:
        for publish in self.pending.values():
            if publish.message_id == id_of(message.body):
                self.world.completed(publish, RETURNED)


class Worker(Actor):
    """Consumes a queue: mostly acknowledges, sometimes gives back or rejects, and now and then leaves."""

    def __init__(
        self,
        world: World,
        name: str,
        queue: str,
        until_us: int,
        reject: float = 0.0,
        requeue: float = 0.1,
    ) -> None:
        super().__init__(world, name)
        self.queue = queue
        self.until_us = until_us
        self.reject = reject
        self.requeue = requeue
        self.prefetch = self.random.choice((1, 3, 20))

    def begin(self) -> None:
        self.consume(self.queue, self.prefetch, self._consuming)

    def _consuming(self, tag: str) -> None:
        self.later(2 * SECOND_US, lambda: self._restless(tag))

    def _restless(self, tag: str) -> None:
        if self.world.queue.now_us >= self.until_us:
            self.finish()
            return
        roll = self.random.random()
        if roll < 0.2:
            self.drop()
        elif roll < 0.3 and self.client is not None:
            self.client.close()
        elif roll < 0.5:
            self.cancel(tag, lambda: self.later(300 * MILLISECOND_US, self.begin))
        else:
            self.later(2 * SECOND_US, lambda: self._restless(tag))

    def outcome(self) -> str:
        roll = self.random.random()
        if roll < self.reject:
            return REJECT
        return REQUEUE if roll < self.reject + self.requeue else ACK


class Getter(Worker):
    """Takes messages one by one with basic.get."""

    def begin(self) -> None:
        self.get(self.queue, self._again)

    def _again(self) -> None:
        if self.world.queue.now_us >= self.until_us:
            self.finish()
        else:
            self.later(200 * MILLISECOND_US, self.begin)


class Leaseholder(Publisher):
    """Keeps leased queues alive in every way there is, and forgets them now and then (RULES L2, L3)."""

    def __init__(self, world: World, name: str, plans: list[QueuePlan], until_us: int) -> None:
        super().__init__(world, name, [], 0, until_us)
        self.plans = plans

    def begin(self) -> None:
        self.world.next_stream += 1
        self.stream = self.world.next_stream
        plan = self.random.choice(self.plans)
        self.declare(plan, lambda: self._next_of(plan))

    def _next_of(self, plan: QueuePlan) -> None:
        expires_us = (plan.expires_ms or 0) * MILLISECOND_US
        self.later(
            self.random.choice((expires_us // 10, expires_us // 2, expires_us)), lambda: self._act(plan)
        )

    def _act(self, plan: QueuePlan) -> None:
        if self.world.queue.now_us >= self.until_us:
            self.finish()
            return
        action = self.random.choice(("declare", "passive", "get", "consume", "publish", "drop", "change"))

        def again() -> None:
            self._next_of(plan)

        if action in ("declare", "passive"):
            self.declare(plan, again, passive=action == "passive")
        elif action == "get":
            self.get(plan.name, again)
        elif action == "consume":
            self.consume(plan.name, 5, lambda tag: self._hold(plan, tag))
        elif action == "publish":
            self.publish(("", plan.name, (plan.name,), (None, 500)))
            again()
        elif action == "change":
            self.begin()
        else:
            self.drop()

    def _hold(self, plan: QueuePlan, tag: str) -> None:
        """Stay attached for a time that may be longer than the lease."""
        expires_us = (plan.expires_ms or 0) * MILLISECOND_US
        self.later(expires_us, lambda: self.cancel(tag, lambda: self._next_of(plan)))


class Remover(Publisher):
    """Fills a queue of its own, empties or deletes it, and makes it anew."""

    def __init__(self, world: World, name: str, plan: QueuePlan, until_us: int) -> None:
        super().__init__(world, name, [("", plan.name, (plan.name,), (None,))], 0, until_us)
        self.plan = plan

    def begin(self) -> None:
        self.world.next_stream += 1
        self.stream = self.world.next_stream
        self.declare(self.plan, self._fill)

    def _fill(self) -> None:
        if self.world.queue.now_us >= self.until_us:
            if not self.pending:
                self.finish()
            else:
                self.later(300 * MILLISECOND_US, self._fill)
            return
        for _ in range(self.random.randint(1, 5)):
            self.publish(self.targets[0])
        self.later(500 * MILLISECOND_US, self._remove)

    def _remove(self) -> None:
        roll = self.random.random()
        purge = roll < 0.3
        if roll > 0.8:
            self.get(self.plan.name, self._fill)
            return
        removal = Removal(self.plan.name, self.world.queue.now_us, None, purge)
        self.world.history.removals.append(removal)
        self.world.cluster.trace.add("purge" if purge else "delete", self.plan.name)

        def removed(result: Any) -> None:
            removal.completed_us = self.world.queue.now_us
            if purge:
                self._fill()
            else:
                self.begin()

        method = (
            commands.Queue.Purge(0, self.plan.name) if purge else commands.Queue.Delete(0, self.plan.name)
        )
        self.call(method, removed)


class Drainer(Actor):
    """In the end takes everything there is from a queue, and keeps it."""

    def __init__(self, world: World, name: str, queues: list[str]) -> None:
        super().__init__(world, name)
        self.queues = queues
        self.drained: dict[str, str] = {}

    def begin(self) -> None:
        for queue in self.queues:
            self.world.next_holder += 1
            tag = f"{self.name}.{self.world.next_holder}"
            self.queues_of_tags[tag] = queue
            self._drain(queue, tag)

    def _drain(self, queue: str, tag: str) -> None:
        self.call(commands.Basic.Consume(0, queue, tag), lambda result: self._started(queue))

    def _started(self, queue: str) -> None:
        self.drained[queue] = self.name

    def ended(self) -> None:
        self.drained.clear()

    def take(self, queue: str, holder: str, message: Message) -> Delivery:
        return self.record(queue, holder, message, draining=True)
