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

from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.randomness import exponential_us, stream
from simulation.node.amqp_client import BrokerRefused, ReceivedMessage
from simulation.node.history import ACK, DECLARE, GET, PASSIVE, REQUEUE, Attachment, Delivery
from simulation.node.node_client import NodeClient
from simulation.node.topology import QueuePlan
from simulation.node.world import World, deaths_of, id_of


class Actor:
    """A client that connects, works while connected, and connects again; until `finish`."""

    patience_us = 3 * SECOND_US
    """How long it waits for an answer before it tries another node, and for a node that takes it at all."""
    mode: Frame = commands.Confirm.Select()
    """What its channel is put into."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = stream(world.seed, f"actor {name}")
        self.client: NodeClient | None = None
        self.node = 0
        self.finished = False
        self.unsettled: dict[int, Delivery] = {}
        self._life = 0
        self._seeking_us = -1

    # ------------------------------------------------------------------ to be filled in

    def begin(self) -> None:
        """The channel is open."""

    def ended(self) -> None:
        """The connection is gone."""

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        """A publish was answered."""

    def on_returned(self, message: ReceivedMessage) -> None:
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
        if self.client is not None:
            self.client.drop()

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
        now_us = world.queue.now_us
        if self._seeking_us < 0:
            self._seeking_us = now_us
        elif now_us - self._seeking_us > self.patience_us:
            world.history.given_up.append((self._seeking_us, self.name, self.node))
            world.cluster.trace.add("finds no node", self.name)
            self._seeking_us = now_us
        self._life += 1
        life = self._life
        self.node = self.random.choice(list(world.cluster.machines))
        client = self.client = NodeClient(
            world, self.node, lambda answer: self._opened(life), self._closed, self.mode
        )
        client.on_message = self._on_message
        client.on_confirm = self.on_confirm
        client.on_returned = self.on_returned
        client.on_cancelled = self._on_cancelled
        client.connect()
        self.give_up_unless(lambda: client.ready)

    def _opened(self, life: int) -> None:
        if self._life == life:
            self._seeking_us = -1
            self.begin()

    def _closed(self) -> None:
        self.client = None
        self._life += 1
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
            if not isinstance(result, BrokerRefused):
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
            if self.client is not None:
                self.client.attached(Attachment(queue, tag, invoked_us, self.world.queue.now_us))
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
        if self.client is not None:
            self.client.release(tag)
        self.call(commands.Basic.Cancel(tag), lambda result: answer())

    def _on_cancelled(self, tag: str) -> None:
        if self.client is not None:
            self.client.release(tag)
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
            if isinstance(result, ReceivedMessage):
                self.take(queue, holder, result)
            answer()

        self.call(commands.Basic.Get(0, queue), got)

    def _on_message(self, message: ReceivedMessage) -> None:
        self.take(self.queues_of_tags[message.consumer_tag], message.consumer_tag, message)

    def take(self, queue: str, holder: str, message: ReceivedMessage) -> Delivery:
        """A message has come: record it, and settle it after a while."""
        delivery = self.record(queue, holder, message)
        self.unsettled[message.delivery_tag] = delivery
        self.later(20 * MILLISECOND_US, lambda: self.settle(message.delivery_tag))
        return delivery

    def record(self, queue: str, holder: str, message: ReceivedMessage, draining: bool = False) -> Delivery:
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
        delivery.node = self.node
        if self.client is not None:
            delivery.left_us = self.client.wire.left_us
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
    if plan.max_length is not None:
        arguments["x-max-length"] = plan.max_length
        arguments["x-overflow"] = "reject-publish" if plan.refuses else "drop-head"
    if plan.delivery_limit is not None:
        arguments["x-delivery-limit"] = plan.delivery_limit
    if plan.max_priority is not None:
        arguments["x-max-priority"] = plan.max_priority
    if plan.retry_ms is not None:
        arguments |= {
            "x-delayed-retry-type": "all", "x-delayed-retry-min": plan.retry_ms,
            "x-delayed-retry-max": 3 * plan.retry_ms, "x-delayed-retry-jitter": 0.5,
        }
    if plan.expires_anywhere:
        arguments["x-expire-scope"] = "any"
    if plan.allow_schedule:
        arguments["x-allow-schedule"] = True
    return arguments
