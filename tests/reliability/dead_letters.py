"""One run of dead letters: messages expire into queues led by other nodes, nodes fail in turn, calm, the judgement.

Nobody consumes the sources. Half of the targets are consumed all the time, which tells when dead letters arrive; the
others are left alone until all is calm, and then hold each of them once, in order: nothing hides behind a redelivery.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from simulation.node.amqp_client import ReceivedMessage
from simulation.node.checker import Violation
from simulation.node.history import CONFIRMED
from simulation.node.world import id_of
from tests.integration.clients import connect, declare_led_by
from tests.integration.nodes import Nodes, wait_for
from tests.reliability.chaos import ENDED_WITHIN_S, LOGIN, Run, clients_of, hit_until, with_nodes
from tests.reliability.clients import Client, Clients, Consumer, Publisher
from tests.reliability.dead_letter_judging import Source, Target, fault_of_death, judge_dead_letters
from tests.reliability.faults import Surroundings

QUEUE_TTL_MS: Final = 2_000
EXPIRATIONS_MS: Final = (500, 2_000, 4_000)
SIZES: Final = (0, 20, 300)
ARRIVED_WITHIN_S: Final = 180.0
"""After the last fault. No measure of speed: what has not arrived by then is missing."""
EMPTIED_WITHIN_S: Final = 900.0
"""Consumers of the targets that were left alone take as long as a busy machine takes."""


@dataclass(slots=True)
class DeadLetterRun(Run):
    """What is to be run, and what has come of it. `seconds` of its base means nothing here."""

    messages: int = 5_000
    """So many are confirmed before the faults end."""
    sources: list[Source] = field(default_factory=list)
    last_deadline_us: int = 0
    """When the last message that was confirmed was due, had it been enqueued as it was published."""
    last_arrival_us: int = 0
    """When there was nothing left in the sources and on the way, on every node."""
    repeats_dropped: int = 0
    """Transfers that came to targets again and were dropped there."""

    @property
    def targets(self) -> list[Target]:
        """Each target once."""
        return list({target.queue: target for source in self.sources for target in source.targets}.values())


class DeadLetterConsumer(Consumer):
    """A consumer of a target, which also reads what the message says of its death."""

    def __init__(self, run: DeadLetterRun, clients: Clients, name: str, home: int, random: Random, queue: str) -> None:
        super().__init__(clients, name, home, random, queue)
        self._run = run
        self._sources = {source.queue: source for source in run.sources}

    def on_message(self, message: ReceivedMessage) -> None:
        """Anything but one plain death of expiry is a broken promise."""
        super().on_message(message)
        publish = self.clients.history.publishes.get(id_of(message.body))
        if publish is not None:
            source = self._sources[publish.queues[0]]
            fault = fault_of_death(message.properties, message.redelivered, publish, source)
            if fault:
                self._run.violations.append(
                    Violation("x-death", f"message {publish.message_id} in {self.queue}: {fault}")
                )


def carry_out_dead_letters(run: DeadLetterRun, folder: Path, say: bool = True) -> None:
    """The whole run. Its data and logs stay in the folder."""
    with_nodes(run, folder, partial(_under_load, run, say=say))


def _under_load(run: DeadLetterRun, nodes: Nodes, around: Surroundings, say: bool) -> None:
    run.sources = declare_sources(nodes)
    if run.damages is not None:
        run.damages.streams.fill(nodes)
    clients = run.clients = clients_of(nodes, run.seed)
    watched = [target.queue for target in run.targets if target.consumed]
    clients.begin(dead_letter_publishers(run, clients), dead_letter_consumers(run, clients, watched))
    try:
        wait_for(lambda: len(clients.history.deliveries) > 100, "dead letters")
        queues = [source.queue for source in run.sources] + [target.queue for target in run.targets]
        is_enough = partial(_is_enough, run, clients)
        hit_until(is_enough, run, nodes, around, clients, queues, say)
        calm_dead_letters(run, nodes, clients)
    except AssertionError as error:
        # What was not found may still be there: only a run that came to its end can be judged.
        run.violations.append(Violation("recovery", str(error)))
    else:
        clients.end()
        run.violations += judge_dead_letters(clients.history, run.sources)
    finally:
        clients.end()


def _is_enough(run: DeadLetterRun, clients: Clients) -> bool:
    return clients.confirmed() >= run.messages and run.is_hit_enough


def declare_sources(nodes: Nodes) -> list[Source]:
    """For each node a source with a TTL and one for messages with expirations; their targets are led by other nodes.

    A target that is left alone gets the dead of two sources, and each of these goes to two such targets.
    """
    connection = connect(nodes, 1, credentials=pika.PlainCredentials(*LOGIN))
    channel = connection.channel()
    consumed = {id: Target(_led_by(nodes, channel, f"consumed-{id}", id), True) for id in nodes.ids}
    kept = {id: Target(_led_by(nodes, channel, f"kept-{id}", id), False) for id in nodes.ids}
    sources = []
    for id in nodes.ids:
        others = [other for other in nodes.ids if other != id]
        to_one = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": consumed[others[id % 2]].queue}
        name = _led_by(nodes, channel, f"ttl-{id}", id, {"x-message-ttl": QUEUE_TTL_MS, **to_one})
        sources.append(Source(name, QUEUE_TTL_MS, (consumed[others[id % 2]],)))
        exchange = f"dead-of-{id}"
        channel.exchange_declare(exchange, "fanout", durable=True)
        for other in others:
            channel.queue_bind(kept[other].queue, exchange)
        name = _led_by(nodes, channel, f"expirations-{id}", id, {"x-dead-letter-exchange": exchange})
        sources.append(Source(name, None, tuple(kept[other] for other in others)))
    connection.close()
    return sources


def _led_by(
    nodes: Nodes, channel: BlockingChannel, prefix: str, id: int, arguments: dict[str, object] | None = None
) -> str:
    return declare_led_by(nodes, channel, prefix, lambda leader: leader == id, arguments)


def dead_letter_publishers(run: DeadLetterRun, clients: Clients) -> list[Publisher]:
    """For each source a publisher at each node."""
    places = [(source, node) for source in run.sources for node in sorted(clients.nodes)]
    return [
        Publisher(
            clients,
            f"{source.queue} publisher {node}",
            node,
            Random(run.seed * 1_000 + number),
            source.queue,
            len(places) / run.rate,
            SIZES,
            () if source.ttl_ms else EXPIRATIONS_MS,
        )
        for number, (source, node) in enumerate(places)
    ]


def dead_letter_consumers(run: DeadLetterRun, clients: Clients, queues: Sequence[str]) -> list[Client]:
    """One for each queue, at the nodes in turn."""
    ids = sorted(clients.nodes)
    return [
        DeadLetterConsumer(
            run, clients, f"{queue} consumer", ids[place % len(ids)], Random(run.seed * 1_000 + 500 + place), queue
        )
        for place, queue in enumerate(queues)
    ]


def calm_dead_letters(run: DeadLetterRun, nodes: Nodes, clients: Clients) -> None:
    """No more faults: the rest dies and arrives, then the targets that were left alone are emptied."""
    history = clients.history
    history.calm_us = clients.now_us()
    clients.stop_publishing(within_s=ENDED_WITHIN_S)
    run.last_deadline_us = max(
        publish.invoked_us + 1_000 * ttl_ms
        for publish in history.publishes.values()
        if publish.outcome == CONFIRMED and (ttl_ms := _ttl_ms(run, publish.queues[0], publish.ttl_ms))
    )
    nodes.until_well(ARRIVED_WITHIN_S)
    wait_for(lambda: _nothing_under_way(run, nodes), "the last dead letters", ARRIVED_WITHIN_S, every_s=0.05)
    run.last_arrival_us = clients.now_us()
    kept = [target.queue for target in run.targets if not target.consumed]
    clients.consume(dead_letter_consumers(run, clients, kept))
    wait_for(
        lambda: all(_emptied(nodes, target.queue) for target in run.targets), "empty targets", EMPTIED_WITHIN_S, 0.1
    )
    clients.stop_consuming(within_s=ENDED_WITHIN_S)
    _count(run, nodes, clients)


def _ttl_ms(run: DeadLetterRun, queue: str, expiration_ms: int | None) -> int | None:
    queue_ttl_ms = next(source.ttl_ms for source in run.sources if source.queue == queue)
    return expiration_ms if queue_ttl_ms is None else queue_ttl_ms


def _nothing_under_way(run: DeadLetterRun, nodes: Nodes) -> bool:
    """Whether sources and outboxes are empty, as every node has it."""
    return all(
        nodes.status(id)["queues"]["outbox"] == 0 and all(nodes.ready(id, s.queue) == 0 for s in run.sources)
        for id in nodes.ids
    )


def _emptied(nodes: Nodes, queue: str) -> bool:
    """Whether nothing is left for consumers, nor with them."""
    info = nodes.queue(1, queue)
    return info is not None and info.get("ready") == 0 and info["unacknowledged"] == 0


def _count(run: DeadLetterRun, nodes: Nodes, clients: Clients) -> None:
    """What the broker has counted in has to be what came out: a second copy could not hide among redeliveries."""
    nodes.until_well(ARRIVED_WITHIN_S)
    for target in run.targets:
        came = {each.message_id for each in clients.history.deliveries if each.queue == target.queue}
        for id in nodes.ids:
            info = nodes.queue(id, target.queue)
            assert info is not None
            if info["enqueued"] != len(came):
                run.violations.append(
                    Violation(
                        "counted", f"node {id} has put {info['enqueued']} into {target.queue}, {len(came)} came out"
                    )
                )
            if id == min(nodes.ids):
                run.repeats_dropped += info["duplicates"]
