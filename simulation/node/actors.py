"""The parts that simulated clients play."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pamqp import commands
from pamqp.base import Frame

from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.randomness import stream
from simulation.node.actor import Actor, arguments_of
from simulation.node.amqp_client import ReceivedMessage
from simulation.node.history import (
    ACK,
    CONFIRMED,
    IN_DOUBT,
    REFUSED,
    REJECT,
    REQUEUE,
    RETURNED,
    ROLLED_BACK,
    Cancel,
    Delivery,
    Publish,
    Removal,
    Trade,
)
from simulation.node.topology import QueuePlan
from simulation.node.world import World, content_of, id_of


class Founder(Actor):
    """Declares every exchange and queue of the topology, in order, until all are there."""

    def __init__(self, world: World, name: str, done: Callable[[], None]) -> None:
        super().__init__(world, name)
        self._done = done

    def begin(self) -> None:
        topology = self.world.topology
        steps: list[Frame] = [
            commands.Exchange.Declare(
                0, exchange.name, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
            )
            if exchange.delays
            else commands.Exchange.Declare(0, exchange.name, "fanout", durable=True)
            for exchange in topology.exchanges.values()
        ]
        plans = [plan for plan in topology.queues.values() if plan.expires_ms is None]
        steps += [
            commands.Queue.Declare(0, plan.name, durable=True, arguments=arguments_of(plan))
            for plan in plans
        ]
        for bound in topology.exchanges.values():
            steps += [commands.Queue.Bind(0, queue, bound.name, "") for queue in bound.queues]
        self._next(deque(steps))

    def _next(self, steps: deque[Frame]) -> None:
        """One after the other: with slow disks all of them take longer than one has patience for."""
        if steps:
            self.call(steps.popleft(), lambda result: self._next(steps))
        else:
            self._complete()

    def _complete(self) -> None:
        self.finish()
        self._done()


class PublishingActor(Actor):
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
        publish = Publish(message_id, self.stream, message_id, queues, ttl_ms, world.queue.now_us)
        properties = self.properties(publish)
        if world.topology.queues[queues[0]].max_priority is not None:
            publish.priority = properties.priority = self.random.randint(0, 3)
        world.published(publish)
        tag = self.client.publish(exchange, key, content_of(message_id, size), properties)
        self.pending[tag] = publish
        self.give_up_unless(lambda: tag not in self.pending)

    def properties(self, publish: Publish) -> commands.Basic.Properties:
        """With which the message goes."""
        return commands.Basic.Properties(
            message_id=str(publish.message_id),
            delivery_mode=2,
            expiration=None if publish.ttl_ms is None else str(publish.ttl_ms),
            headers={"sequence": publish.message_id} if self.random.random() < 0.3 else None,
        )

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        publish = self.pending.pop(tag, None)
        if publish is not None and publish.outcome == IN_DOUBT:
            self.world.completed(publish, CONFIRMED if acknowledged else REFUSED)

    def on_returned(self, message: ReceivedMessage) -> None:
        for publish in self.pending.values():
            if publish.message_id == id_of(message.body):
                self.world.completed(publish, RETURNED)


_CANCELLED: Final = 0.2
"""So many publishes of a scheduler are followed by a cancel..."""
_RESCHEDULED: Final = 0.4
"""...and so many of these have what waits be due at another time instead."""


class Scheduler(PublishingActor):
    """Publishes to a queue that allows schedules: most messages say when they are due, and some are cancelled or
    rescheduled."""

    delays_ms = (0, 0, 60, 300, 300, 900, 1_600)

    def __init__(
        self, world: World, name: str, targets: list[PublishingActor.Target], gap_us: int, until_us: int
    ) -> None:
        super().__init__(world, name, targets, gap_us, until_us)
        self.cancels: dict[int, Cancel] = {}
        self._rescheduling = stream(world.seed, f"reschedules {name}")

    def begin(self) -> None:
        self.cancels = {}
        super().begin()

    def publish(self, target: PublishingActor.Target) -> None:
        """Publish one message; now and then cancel one from before as well."""
        super().publish(target)
        if self.client is None or self.random.random() > _CANCELLED:
            return
        world = self.world
        queue = target[2][0]
        message_id = world.next_message - self.random.choice((0, 1, 2, 5))
        known = world.history.publishes.get(message_id)
        if known is None or queue not in known.queues:
            return
        cancel = Cancel(message_id, queue, world.queue.now_us)
        headers: dict[str, Any] = {"x-schedule-cancel": str(message_id)}
        # One at a time: of two that are returned nobody could tell which is which.
        if self._rescheduling.random() < _RESCHEDULED and not self._is_changing(message_id):
            cancel.delay_ms = headers["x-delay"] = self._rescheduling.choice(self.delays_ms)
            cancel.clock_ms = world.shard_clock_ms(queue)
        world.history.cancels.append(cancel)
        properties = commands.Basic.Properties(headers=headers)
        self.cancels[self.client.publish(target[0], target[1], b"", properties)] = cancel

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        cancel = self.cancels.pop(tag, None)
        if cancel is None:
            super().on_confirm(tag, acknowledged)
        elif cancel.outcome == IN_DOUBT and acknowledged:
            self._completed(cancel, CONFIRMED)

    def on_returned(self, message: ReceivedMessage) -> None:
        headers = message.properties.headers or {}
        if "x-schedule-cancel" not in headers:
            super().on_returned(message)
            return
        for cancel in self.cancels.values():
            is_meant = str(cancel.message_id) == headers["x-schedule-cancel"]
            if cancel.outcome == IN_DOUBT and is_meant and cancel.delay_ms == headers.get("x-delay", -1):
                self._completed(cancel, RETURNED)
                return

    def _is_changing(self, message_id: int) -> bool:
        return any(cancel.message_id == message_id for cancel in self.cancels.values())

    def _completed(self, cancel: Cancel, outcome: str) -> None:
        cancel.outcome = outcome
        cancel.completed_us = self.world.queue.now_us
        self.world.cluster.trace.add("cancel", cancel.message_id, outcome)

    def properties(self, publish: Publish) -> commands.Basic.Properties:
        properties = super().properties(publish)
        clock_ms = self.world.shard_clock_ms(publish.queues[0])
        publish.delay_ms = self.random.choice(self.delays_ms)
        publish.exact = clock_ms < 0 or self.random.random() < 0.7
        headers = {"x-delay": publish.delay_ms} if publish.exact else {"x-deliver-at": clock_ms + publish.delay_ms}
        properties.headers = {**(properties.headers or {}), **headers}
        return properties


class Delayer(PublishingActor):
    """Publishes to a delayed exchange: most messages wait in it."""

    delays_ms = (0, 60, 300, 300, 900, 1_600)

    def properties(self, publish: Publish) -> commands.Basic.Properties:
        properties = super().properties(publish)
        publish.delay_ms = self.random.choice(self.delays_ms)
        properties.headers = {**(properties.headers or {}), "x-delay": publish.delay_ms}
        return properties


class Trader(PublishingActor):
    """In transactions takes a message from a queue, gives another for it, and publishes some elsewhere; sometimes it
    changes its mind."""

    mode = commands.Tx.Select()
    most_in_queue = 4

    def __init__(self, world: World, name: str, queue: str, further: PublishingActor.Target, until_us: int) -> None:
        super().__init__(world, name, [further], 0, until_us)
        self.queue = queue
        self.taken: tuple[int, Delivery] | None = None
        self.given: list[Publish] = []

    def begin(self) -> None:
        self.world.next_stream += 1
        self.stream = self.world.next_stream
        self.taken = None
        self.get(self.queue, self._trade)

    def take(self, queue: str, holder: str, message: ReceivedMessage) -> Delivery:
        delivery = self.record(queue, holder, message)
        self.taken = (message.delivery_tag, delivery)
        return delivery

    def _trade(self) -> None:
        world = self.world
        if self.client is None:
            return
        if world.queue.now_us >= self.until_us:
            self.finish()
            return
        taken = self.taken
        if taken is None and sum(exchange.taken is None for exchange in world.history.exchanges) >= self.most_in_queue:
            self.later(200 * MILLISECOND_US, lambda: self.get(self.queue, self._trade))
            return
        self.given = []
        self.publish(("", self.queue, (self.queue,), (None,)))
        for _ in range(self.random.randint(0, 3)):
            self.publish(self.targets[0])
        if self.random.random() < 0.2:
            self.call(commands.Tx.Rollback(), lambda result: self._rolled_back())
            return
        if taken is not None:
            self.client.settle(commands.Basic.Ack(taken[0]))
            world.settled(taken[1], ACK)
        numbers = [publish.message_id for publish in self.given]
        message_id = None if taken is None else taken[1].message_id
        world.history.exchanges.append(Trade(self.queue, message_id, numbers[0], tuple(numbers[1:])))
        self.call(commands.Tx.Commit(), lambda result: self._committed())

    def publish(self, target: PublishingActor.Target) -> None:
        super().publish(target)
        self.given += self.pending.values()
        self.pending.clear()

    def ended(self) -> None:
        for publish in self.given:
            if publish.completed_us is None:
                publish.completed_us = self.world.queue.now_us
        super().ended()

    def _committed(self) -> None:
        for publish in self.given:
            self.world.completed(publish, CONFIRMED)
        self.taken = None
        self.later(50 * MILLISECOND_US, lambda: self.get(self.queue, self._trade))

    def _rolled_back(self) -> None:
        for publish in self.given:
            self.world.completed(publish, ROLLED_BACK)
        self.later(50 * MILLISECOND_US, self._trade)


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


class Reluctant(Actor):
    """Consumes a queue without a prefetch, and again and again reads nothing for a while."""

    def __init__(self, world: World, name: str, queue: str, until_us: int) -> None:
        super().__init__(world, name)
        self.queue = queue
        self.until_us = until_us

    def begin(self) -> None:
        self.consume(self.queue, 0, lambda tag: self._stop_reading())

    def _stop_reading(self) -> None:
        if self.world.queue.now_us >= self.until_us:
            self.finish()
            return
        self._read(False)
        self.later(SECOND_US, self._read_again)

    def _read_again(self) -> None:
        self._read(True)
        self.later(200 * MILLISECOND_US, self._stop_reading)

    def _read(self, reads: bool) -> None:
        if self.client is not None:
            self.world.cluster.trace.add("reads" if reads else "reads nothing", self.name)
            self.client.wire.let_client_read(reads)


class Getter(Worker):
    """Takes messages one by one with basic.get."""

    def begin(self) -> None:
        self.get(self.queue, self._again)

    def _again(self) -> None:
        if self.world.queue.now_us >= self.until_us:
            self.finish()
        else:
            self.later(200 * MILLISECOND_US, self.begin)


class Leaseholder(PublishingActor):
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


class Remover(PublishingActor):
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


class Tourist(Actor):
    """Has queues of the connection's own, which live on one node only and go with it."""

    def __init__(self, world: World, name: str, until_us: int) -> None:
        super().__init__(world, name)
        self.until_us = until_us
        self.visits = 0

    def begin(self) -> None:
        self.visits += 1
        arguments: Any = {
            "x-message-ttl": 200,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{self.name}.{self.visits}.dead",
        }
        names = (f"{self.name}.{self.visits}", f"{self.name}.{self.visits}.dead")
        for queue in names:
            method = commands.Queue.Declare(0, queue, exclusive=True, arguments=arguments)
            self.call(method, lambda result: None)
            arguments = None
        self.call(commands.Basic.Get(0, names[0]), lambda result: self._write(names))

    def _write(self, names: tuple[str, str]) -> None:
        client = self.client
        if client is None:
            return
        for number in range(3):
            client.publish("", names[0], b"%d" % number, commands.Basic.Properties())
        self.later(
            800 * MILLISECOND_US, lambda: self.call(commands.Basic.Get(0, names[1], True), self._leave)
        )

    def _leave(self, result: Any) -> None:
        if self.world.queue.now_us >= self.until_us:
            self.finish()
        elif self.client is not None and self.random.random() < 0.5:
            self.client.close()
        else:
            self.drop()


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

    def is_done(self) -> bool:
        """Whether it takes from every queue."""
        return len(self.drained) == len(self.queues)

    def ended(self) -> None:
        self.drained.clear()

    def take(self, queue: str, holder: str, message: ReceivedMessage) -> Delivery:
        return self.record(queue, holder, message, draining=True)
