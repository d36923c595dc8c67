"""One run of schedules: messages wait for their time and for retries, some are cancelled, nodes fail in turn, calm,
the judgement.

Each node leads a queue in which messages wait, one behind a delayed exchange, and one whose messages come back some
times and wait for each retry. What is given back says how often it came, so that nothing hides behind a redelivery.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pika
from pamqp import commands

from simulation.node.amqp_client import AmqpClient, ReceivedMessage
from simulation.node.checker import Violation
from simulation.node.history import ACK, CONFIRMED, REQUEUE, Cancel, Publish
from simulation.node.world import content_of, id_of
from tests.failover.leases import Leases
from tests.integration.clients import connect, declare_led_by
from tests.integration.nodes import Nodes, wait_for
from tests.integration.operators import ask
from tests.reliability.chaos import ENDED_WITHIN_S, LOGIN, Run, clients_of, hit_until, with_nodes
from tests.reliability.clients import PREFETCH, Client, Clients, Consumer, Publisher
from tests.reliability.dead_letters import ARRIVED_WITHIN_S, EMPTIED_WITHIN_S
from tests.reliability.faults import DRIFT_PPM, Surroundings
from tests.reliability.schedule_judging import (
    GIVEN_BACK,
    NO_CLOCK_FAULTS,
    Attempt,
    ClockFaults,
    Place,
    Retry,
    counts_of,
    fault_of_delay,
    judge_schedules,
)

DELAYS_MS: Final = ((0, 0), (1, 300), (300, 3_000), (300, 3_000), (3_000, 12_000))
"""A message waits for a time from one of these ranges."""
RETRIED_DELAYS_MS: Final = ((0, 0), (0, 0), (1, 1_000))
"""The same where it has to wait for retries as well."""
CANCELLED_SHARE: Final = 0.25
TOO_LATE_SHARE: Final = 0.1
"""A cancel comes at a random moment of the wait, or so much of it later."""
RETURNS: Final = 4
"""A message comes back 0 to 3 times of its consumers' will, by its number."""
RETRIES: Final = (
    Retry(200, 500),
    Retry(100, 1_000, multiplier=2, jitter=1),
    Retry(300, 600, only_failed=True),
)
"""For the nodes in turn."""
SIZES: Final = (0, 20, 300)


@dataclass(slots=True)
class ScheduleRun(Run):
    """What is to be run, and what has come of it. `seconds` of its base means nothing here."""

    messages: int = 5_000
    """So many that wait for their time are confirmed, and so many retries come, before the faults end."""
    scheduled: int = 0
    retried: int = 0
    took_s: float = 0.0
    """How long that took."""
    places: list[Place] = field(default_factory=list)
    last_due_us: int = 0
    """When the last message that was confirmed was due."""
    leases: Leases | None = None
    """Queues that nobody uses, in a run with wrong clocks."""
    last_arrival_us: int = 0
    """When nothing waited any more, and nothing was left in the queues, on every node."""


class SchedulePublisher(Publisher):
    """Publishes messages that wait, and cancels some of them when they are confirmed, as their own publishes.

    A cancel that nobody has decided about is asked for again, as it is documented.
    """

    def __init__(
        self, run: ScheduleRun, clients: Clients, name: str, home: int, random: Random, place: Place, gap_s: float
    ) -> None:
        super().__init__(clients, name, home, random, place.queue, gap_s, SIZES)
        self._run = run
        self._place = place
        self._to_cancel: list[tuple[int, int]] = []
        """When, and which message."""

    def _publish(self, client: AmqpClient, stream: int) -> None:
        if self._to_cancel and self._to_cancel[0][0] <= self.clients.now_us():
            self._cancel(client, heapq.heappop(self._to_cancel)[1])
        else:
            self._schedule(client, stream)

    def _schedule(self, client: AmqpClient, stream: int) -> None:
        clients = self.clients
        clients.next_message += 1
        number = clients.next_message
        least, most = self.random.choice(DELAYS_MS if self._place.retry is None else RETRIED_DELAYS_MS)
        delay_ms = self.random.randint(least, most)
        headers: dict[str, Any] = {}
        if self._place.exchange or self.random.random() < 0.5:
            headers["x-delay"] = delay_ms
        else:
            headers["x-deliver-at"] = round(1_000 * time.time()) + delay_ms
        publish = Publish(number, stream, number, (self.queue,), None, clients.now_us(), delay_ms=delay_ms)
        # One says how long from its enqueue on, the other when by the clock, which may be before its enqueue.
        publish.exact = "x-delay" in headers
        clients.history.publishes[number] = publish
        properties = commands.Basic.Properties(message_id=str(number), delivery_mode=2, headers=headers)
        content = content_of(number, self.random.choice(SIZES))
        self._pending[client.publish(self._place.exchange, self.queue, content, properties)] = publish

    def _cancel(self, client: AmqpClient, number: int) -> None:
        clients = self.clients
        cancel = Cancel(number, self.queue, clients.now_us())
        clients.history.cancels.append(cancel)
        properties = commands.Basic.Properties(headers={"x-schedule-cancel": str(number)})
        # By its content it is known again if it comes back because nothing was waiting.
        tag = client.publish(self._place.exchange, self.queue, content_of(number, 0), properties)
        self._pending[tag] = cancel

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        answered = self._pending.get(tag)
        super().on_confirm(tag, acknowledged)
        now_us = self.clients.now_us()
        if isinstance(answered, Cancel):
            if not acknowledged:
                heapq.heappush(self._to_cancel, (now_us + 200_000, answered.message_id))
        elif answered is not None and answered.outcome == CONFIRMED:
            self._run.scheduled += self._place.retry is None
            due_us = answered.invoked_us + 1_000 * answered.delay_ms
            if self.random.random() < CANCELLED_SHARE and due_us > now_us:
                at_us = now_us + round((due_us - now_us) * self.random.uniform(0, 1 + TOO_LATE_SHARE))
                heapq.heappush(self._to_cancel, (at_us, answered.message_id))


class ScheduleConsumer(Consumer):
    """A consumer that gives messages back as often as their number says, where they wait for retries, and else
    acknowledges all. It also notes which of its answers must have been applied, as its base does."""

    def __init__(self, run: ScheduleRun, clients: Clients, name: str, home: int, random: Random, place: Place) -> None:
        super().__init__(clients, name, home, random, place.queue)
        self._run = run
        self._place = place
        self._attempts: dict[int, Attempt] = {}

    def on_message(self, message: ReceivedMessage) -> None:
        clients = self.clients
        now_us = clients.now_us()
        number = id_of(message.body)
        intact = number >= 0 and message.properties.message_id == str(number)
        acquired, failed = counts_of(message.properties)
        attempt = Attempt(
            now_us, self.queue, number, self._holder, message.redelivered, (), intact, acquired=acquired, failed=failed
        )
        clients.history.deliveries.append(attempt)
        self._run.retried += acquired > 0 and self._place.retry is not None
        publish = clients.history.publishes.get(number)
        fault = fault_of_delay(message.properties, publish, self._place) if publish is not None else ""
        if fault:
            self._run.violations.append(Violation("x-delay", f"message {number} in {self.queue}: {fault}"))
        tag = message.delivery_tag
        self._unsettled[tag] = attempt
        self._attempts[tag] = attempt
        # No more than so many are with one consumer: the answer to the one before them has been applied.
        proven = self._attempts.pop(tag - PREFETCH, None)
        if proven is not None:
            proven.applied_us = now_us

    def _acknowledge(self, client: AmqpClient) -> None:
        """Answer most of what is unsettled, in order."""
        if not self._unsettled or client.closed:
            return
        for tag in list(self._unsettled)[: self.random.randint(1, PREFETCH)]:
            attempt = self._unsettled.pop(tag)
            assert isinstance(attempt, Attempt)
            attempt.settled, attempt.settled_us = self._answer_to(attempt), self.clients.now_us()
            if attempt.settled == ACK:
                client.settle(commands.Basic.Ack(tag))
            elif attempt.settled == REQUEUE:
                client.settle(commands.Basic.Reject(tag, requeue=True))
            else:
                client.settle(commands.Basic.Nack(tag, multiple=False, requeue=True))

    def _answer_to(self, attempt: Attempt) -> str:
        if self._place.retry is None or attempt.acquired >= attempt.message_id % RETURNS:
            return ACK
        return REQUEUE if (attempt.message_id // RETURNS + attempt.acquired) % 2 else GIVEN_BACK

    def ended(self) -> None:
        super().ended()
        self._attempts = {}


def carry_out_schedules(run: ScheduleRun, folder: Path, say: bool = True) -> None:
    """The whole run. Its data and logs stay in the folder."""
    with_nodes(run, folder, partial(_under_load, run, say=say))


def _under_load(run: ScheduleRun, nodes: Nodes, around: Surroundings, say: bool) -> None:
    run.places = declare_places(nodes)
    clients = run.clients = clients_of(nodes, run.seed)
    clients.begin(schedule_publishers(run, clients), schedule_consumers(run, clients))
    if around.clocks is not None:
        run.leases = Leases([nodes.plan(id).amqp for id in nodes.ids], LOGIN, partial(_has_queue, nodes), nodes.ids)
        run.leases.start()
    try:
        wait_for(lambda: len(clients.history.deliveries) > 100, "messages that were due")
        is_enough = partial(_is_enough, run)
        began_s = time.monotonic()
        hit_until(is_enough, run, nodes, around, clients, [place.queue for place in run.places], say)
        run.took_s = time.monotonic() - began_s
        _calm(run, nodes, clients)
        if run.leases is not None:
            run.leases.enough()
            run.leases.join(ENDED_WITHIN_S)
    except AssertionError as error:
        # What was not found may still be there: only a run that came to its end can be judged.
        run.violations.append(Violation("recovery", str(error)))
    else:
        clients.end()
        run.violations += judge_schedules(clients.history, run.places, _clock_faults(around))
        if run.leases is not None:
            assert run.leases.failure is None, run.leases.failure
            run.violations += run.leases.judge(_clock_faults(around).fast)
    finally:
        if run.leases is not None:
            run.leases.enough()
        clients.end()


def _clock_faults(around: Surroundings) -> ClockFaults:
    if around.clocks is None:
        return NO_CLOCK_FAULTS
    return ClockFaults(DRIFT_PPM / 1e6, round(1_000 * around.clocks.widest_ms))


def _has_queue(nodes: Nodes, witness: int, queue: str) -> tuple[int, str]:
    """A node's answer to the question whether there is a queue, by what the cluster has now."""
    code, page = nodes.page(witness, f"/queues/%2F/{queue}?fresh=true")
    return code, str(page.get("error", ""))


def _is_enough(run: ScheduleRun) -> bool:
    return min(run.scheduled, run.retried) >= run.messages and run.is_hit_enough


def declare_places(nodes: Nodes) -> list[Place]:
    """For each node three queues that it leads. What waits for a delayed exchange is in a shard of its own choice."""
    connection = connect(nodes, 1, credentials=pika.PlainCredentials(*LOGIN))
    channel = connection.channel()
    allowed: dict[str, object] = {"x-allow-schedule": True}
    places = []
    for number, id in enumerate(nodes.ids):
        suits = partial(_is_node, id)
        places.append(Place(declare_led_by(nodes, channel, f"scheduled-{id}", suits, allowed)))
        exchange = f"later-{id}"
        channel.exchange_declare(
            exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        queue = declare_led_by(nodes, channel, f"routed-{id}", suits)
        channel.queue_bind(queue, exchange, queue)
        places.append(Place(queue, exchange))
        retry = RETRIES[number % len(RETRIES)]
        arguments = {**allowed, **retry.arguments()}
        places.append(Place(declare_led_by(nodes, channel, f"retried-{id}", suits, arguments), retry=retry))
    connection.close()
    return places


def _is_node(id: int, leader: int) -> bool:
    return leader == id


def schedule_publishers(run: ScheduleRun, clients: Clients) -> list[Publisher]:
    """For each queue a publisher at each node."""
    where = [(place, node) for place in run.places for node in sorted(clients.nodes)]
    return [
        SchedulePublisher(
            run, clients, f"{place.queue} publisher {node}", node, Random(run.seed * 1_000 + number), place,
            len(where) / run.rate,
        )
        for number, (place, node) in enumerate(where)
    ]  # fmt: skip


def schedule_consumers(run: ScheduleRun, clients: Clients) -> list[Client]:
    """For each queue consumers at two nodes: what one gives back may come to the other."""
    ids = sorted(clients.nodes)
    where = [(place, ids[(number + which) % len(ids)]) for number, place in enumerate(run.places) for which in (0, 1)]
    return [
        ScheduleConsumer(
            run, clients, f"{place.queue} consumer {node}", node, Random(run.seed * 1_000 + 500 + number), place
        )
        for number, (place, node) in enumerate(where)
    ]


def _calm(run: ScheduleRun, nodes: Nodes, clients: Clients) -> None:
    """No more faults: the rest becomes due, comes, and is acknowledged after its retries."""
    history = clients.history
    history.calm_us = clients.now_us()
    clients.stop_publishing(within_s=ENDED_WITHIN_S)
    run.last_due_us = max(
        publish.invoked_us + 1_000 * publish.delay_ms
        for publish in history.publishes.values()
        if publish.outcome == CONFIRMED
    )
    nodes.until_well(ARRIVED_WITHIN_S)
    wait_for(lambda: _nothing_waits(run, nodes), "the last that was due", EMPTIED_WITHIN_S, every_s=0.1)
    run.last_arrival_us = clients.now_us()
    clients.stop_consuming(within_s=ENDED_WITHIN_S)


def _nothing_waits(run: ScheduleRun, nodes: Nodes) -> bool:
    """Whether delayed exchanges, the way from them, and queues are empty, in the order in which messages go, as every
    node has it."""
    exchanges = [place.exchange for place in run.places if place.exchange]
    return all(
        all(_waiting_for(nodes, id, exchange) == 0 for exchange in exchanges)
        and nodes.status(id)["queues"]["outbox"] == 0
        and all(_is_empty(nodes, id, place.queue) for place in run.places)
        for id in nodes.ids
    )


def _waiting_for(nodes: Nodes, id: int, exchange: str) -> int:
    """Messages that wait for a delayed exchange; -1 if the node cannot tell."""
    code, answer = ask(nodes, id, "GET", f"exchanges/%2F/{exchange}", user=LOGIN)
    return int(answer.get("messages_delayed", -1)) if code == 200 else -1


def _is_empty(nodes: Nodes, id: int, queue: str) -> bool:
    info = nodes.queue(id, queue)
    return info is not None and not any(info[count] for count in ("ready", "scheduled", "unacknowledged"))
