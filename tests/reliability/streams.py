"""One run of streams: publishes with and without TTLs, readers that come and go, nodes that fail in turn, calm, the
judgement.

Each node leads a stream with markers; its mirror, which keeps what expires, is led by another one. One more stream has
them all as its sources, and keeps what expires, too. In the end, when all that has a TTL is gone, all are read from the
first to the last.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pika
from pamqp import commands

from simulation.node.amqp_client import AmqpClient, BrokerRefused, ReceivedMessage
from simulation.node.checker import Violation
from simulation.node.history import Publish, Read
from simulation.node.world import content_of, id_of
from tests.integration.clients import connect, declare_led_by
from tests.integration.nodes import Nodes, wait_for
from tests.integration.operators import ask
from tests.reliability.chaos import ENDED_WITHIN_S, LOGIN, Run, clients_of, hit_until, with_nodes
from tests.reliability.clients import HOME_AFTER_S, PREFETCH, Client, Clients, Publisher
from tests.reliability.dead_letters import ARRIVED_WITHIN_S, EMPTIED_WITHIN_S
from tests.reliability.faults import Surroundings
from tests.reliability.stream_judging import Gathered, Pair, judge_streams

MARKER_TTL_MS: Final = 2_000
TTLS: Final = ((None, None), (None, "never"), (1_000, "1"), (2_500, "2.5s"), (4_000, 4), (6_000, "6s"))
"""In ms, None for staying, and as it is published; the first two only for some keys."""
KEYS: Final = ("a", "b", "c", "d", "e", "f")
DYING_KEYS: Final = frozenset("abcd")
"""All their messages have TTLs: they die out again and again."""
SIZES: Final = (0, 20, 300)
RESTLESS_S: Final = 4.0


@dataclass(slots=True)
class StreamRun(Run):
    """What is to be run, and what has come of it. `seconds` of its base means nothing here."""

    messages: int = 5_000
    """So many are confirmed before the faults end."""
    pairs: list[Pair] = field(default_factory=list)
    gathered: Gathered | None = None

    @property
    def names(self) -> list[str]:
        """Of all its streams."""
        names = [name for pair in self.pairs for name in pair.names]
        return names if self.gathered is None else [*names, self.gathered.name]


class StreamPublisher(Publisher):
    """Publishes to one stream, with keys and TTLs. Each key has pauses, so that it dies out now and then."""

    def _publish(self, client: AmqpClient, stream: int) -> None:
        clients = self.clients
        clients.next_message += 1
        number = clients.next_message
        # Each key in turn, for longer than a TTL and a marker last.
        turn = int(time.monotonic() / (MARKER_TTL_MS / 500)) % len(KEYS)
        key = self.random.choice((KEYS[turn], KEYS[-1]))
        ttl_ms, said = self.random.choice(TTLS[2:] if key in DYING_KEYS else TTLS)
        headers: dict[str, Any] = {} if said is None else {self.random.choice(("Nats-TTL", "x-ttl")): said}
        name = f"{self.queue}.{key}"
        publish = Publish(number, stream, number, (self.queue,), ttl_ms, clients.now_us(), key=name)
        clients.history.publishes[number] = publish
        properties = commands.Basic.Properties(message_id=str(number), delivery_mode=2, headers=headers)
        content = content_of(number, self.random.choice(self._sizes))
        self._pending[client.publish("amq.topic", name, content, properties)] = publish


class StreamReader(Client):
    """Reads a stream from where it was last, leaves now and then, and begins anew sometimes; `until` an offset: once
    from the first to there."""

    def __init__(
        self, clients: Clients, name: str, home: int, random: Random, stream: str, until: int | None = None
    ) -> None:
        super().__init__(clients, name, home, random)
        self.stream = stream
        self._until_offset = until
        self._place = -1
        self._begins = -1
        self._connections = 0
        self._holder = ""
        self._unsettled: list[int] = []
        self._cancelled = False

    async def work(self) -> bool:
        client = self.client
        assert client is not None
        if not await self._consume(client):
            return False
        began_s = time.monotonic()
        stays_s = self.random.uniform(0.5, 2) * RESTLESS_S
        while not client.closed and not self._cancelled:
            self._acknowledge(client)
            here_s = time.monotonic() - began_s
            if self._until_offset is not None:
                if self._place > self._until_offset:
                    self.finishing = True
                leaving = self.finishing
            else:
                leaving = self.finishing or here_s > stays_s or (self.node != self.home and here_s > HOME_AFTER_S)
            if leaving:
                await self.leave(client)
                return True
            await self._until(lambda: bool(self._unsettled) or client.closed, 0.05)
        return False

    async def _consume(self, client: AmqpClient) -> bool:
        clients = self.clients
        self._connections += 1
        self._holder = f"{self.name}.{self._connections}"
        clients.places[self._holder] = self.node
        self._unsettled, self._cancelled = [], False
        client.on_cancelled = self._on_cancelled
        if self._until_offset is not None or self.random.random() < 0.1:
            self._place = -1
        self._begins = self._place
        start: Any = "first" if self._place < 0 else self._place
        answers: list[Any] = []
        client.call(commands.Basic.Qos(0, PREFETCH), lambda answer: None)
        consume = commands.Basic.Consume(0, self.stream, self._holder, arguments={"x-stream-offset": start})
        client.call(consume, answers.append)
        return await self._until(lambda: bool(answers)) and not isinstance(answers[0], BrokerRefused)

    def _on_cancelled(self, tag: str) -> None:
        self._cancelled = True
        self.clients.cancelled.append((self.clients.now_us(), self.name, self.node))

    def on_message(self, message: ReceivedMessage) -> None:
        headers: Any = message.properties.headers or {}
        offset = int(headers.get("x-stream-offset", -1))
        marker = str(headers.get("x-marker-reason", ""))
        source, _, source_offset = str(headers.get("x-stream-source", "")).partition(" ")
        self.clients.history.reads.append(Read(
            self.clients.now_us(), self._holder, self._begins, offset, -1 if marker else id_of(message.body),
            message.redelivered, self._until_offset is not None, message.routing_key, "", marker, self.stream,
            source, int(source_offset or -1),
        ))  # fmt: skip
        self._place = offset + 1
        self._unsettled.append(message.delivery_tag)

    def _acknowledge(self, client: AmqpClient) -> None:
        if self._unsettled and not client.closed:
            client.settle(commands.Basic.Ack(self._unsettled[-1], multiple=True))
            self._unsettled = []

    def ended(self) -> None:
        self._unsettled = []


def carry_out_streams(run: StreamRun, folder: Path, say: bool = True) -> None:
    """The whole run. Its data and logs stay in the folder."""
    with_nodes(run, folder, partial(_under_load, run, say=say))


def _under_load(run: StreamRun, nodes: Nodes, around: Surroundings, say: bool) -> None:
    run.pairs = declare_pairs(nodes)
    run.gathered = declare_gathered(nodes, run.pairs)
    clients = run.clients = clients_of(nodes, run.seed)
    clients.begin(stream_publishers(run, clients), stream_readers(run, clients))
    try:
        wait_for(lambda: len(clients.history.reads) > 100, "messages of streams")
        is_enough = partial(_is_enough, run, clients)
        hit_until(is_enough, run, nodes, around, clients, run.names, say)
        _calm(run, nodes, clients)
    except AssertionError as error:
        # What was not found may still be there: only a run that came to its end can be judged.
        run.violations.append(Violation("recovery", str(error)))
    else:
        clients.end()
        run.violations += judge_streams(clients.history, run.pairs, run.faults, run.gathered)
    finally:
        clients.end()


def _is_enough(run: StreamRun, clients: Clients) -> bool:
    return clients.confirmed() >= run.messages and run.is_hit_enough


def declare_pairs(nodes: Nodes) -> list[Pair]:
    """For each node a stream that it leads, and its mirror, which the next one leads."""
    connection = connect(nodes, 1, credentials=pika.PlainCredentials(*LOGIN))
    channel = connection.channel()
    ids = list(nodes.ids)
    pairs = []
    for number, id in enumerate(ids):
        arguments: dict[str, object] = {
            "x-queue-type": "stream", "x-allow-msg-ttl": True, "x-delete-marker-ttl": MARKER_TTL_MS // 1000,
        }  # fmt: skip
        stream = declare_led_by(nodes, channel, f"stream-{id}", partial(_is_node, id), arguments)
        channel.queue_bind(stream, "amq.topic", f"{stream}.*")
        other = ids[(number + 1) % len(ids)]
        copying: dict[str, object] = {"x-queue-type": "stream", "x-mirror": stream}
        mirror = declare_led_by(nodes, channel, f"mirror-{id}", partial(_is_node, other), copying)
        pairs.append(Pair(stream, mirror, MARKER_TTL_MS))
    connection.close()
    return pairs


def declare_gathered(nodes: Nodes, pairs: Sequence[Pair]) -> Gathered:
    """A stream with the streams of all pairs as its sources, which the last node leads."""
    connection = connect(nodes, 1, credentials=pika.PlainCredentials(*LOGIN))
    sources = {"x-queue-type": "stream", "x-sources": [pair.stream for pair in pairs]}
    last = list(nodes.ids)[-1]
    name = declare_led_by(nodes, connection.channel(), "gathered", partial(_is_node, last), sources)
    connection.close()
    return Gathered(name, pairs)


def _is_node(id: int, leader: int) -> bool:
    return leader == id


def stream_publishers(run: StreamRun, clients: Clients) -> list[Publisher]:
    """For each stream a publisher at each node."""
    where = [(pair, node) for pair in run.pairs for node in sorted(clients.nodes)]
    return [
        StreamPublisher(
            clients, f"{pair.stream} publisher {node}", node, Random(run.seed * 1_000 + number), pair.stream,
            len(where) / run.rate, SIZES,
        )
        for number, (pair, node) in enumerate(where)
    ]  # fmt: skip


def stream_readers(run: StreamRun, clients: Clients) -> list[Client]:
    """For each stream readers at two nodes, for each mirror and for what is gathered one."""
    ids = sorted(clients.nodes)
    where = [
        (name, ids[(number + which) % len(ids)])
        for number, pair in enumerate(run.pairs)
        for which, name in enumerate((pair.stream, pair.stream, pair.mirror))
    ]
    if run.gathered is not None:
        where.append((run.gathered.name, ids[0]))
    return [
        StreamReader(clients, f"{name} reader {node}", node, Random(run.seed * 1_000 + 500 + number), name)
        for number, (name, node) in enumerate(where)
    ]


def _calm(run: StreamRun, nodes: Nodes, clients: Clients) -> None:
    """No more faults: what has a TTL goes, markers too, copies catch up, and all that is left is read."""
    clients.history.calm_us = clients.now_us()
    clients.stop_publishing(within_s=ENDED_WITHIN_S)
    nodes.until_well(ARRIVED_WITHIN_S)
    wait_for(lambda: _is_settled(run, nodes), "the end of all TTLs, and copies that have all", EMPTIED_WITHIN_S, 0.2)
    clients.stop_consuming(within_s=ENDED_WITHIN_S)
    ends = {pair.mirror: _shown(nodes, pair.mirror)["next_offset"] - 1 for pair in run.pairs}
    for pair in run.pairs:
        # The stream's last one may have gone: what stays is a message that this one sees to.
        ends[pair.stream] = _publish_last(nodes, pair)
    if run.gathered is not None:
        wait_for(lambda: _is_settled(run, nodes), "copies of the last messages")
        ends[run.gathered.name] = _shown(nodes, run.gathered.name)["next_offset"] - 1
    clients.consume([
        StreamReader(clients, f"{name} final", min(clients.nodes), Random(run.seed), name, end)
        for name, end in ends.items()
    ])  # fmt: skip
    wait_for(lambda: _all_read(run, clients, ends), "all that is left", EMPTIED_WITHIN_S, 0.1)
    clients.stop_consuming(within_s=ENDED_WITHIN_S)
    _forget_last(clients, ends, run)


def _shown(nodes: Nodes, name: str) -> dict[str, Any]:
    code, shown = ask(nodes, 1, "GET", f"mayfly/queues/%2F/{name}/stream", user=LOGIN)
    return shown if code == 200 else {}


def _is_settled(run: StreamRun, nodes: Nodes) -> bool:
    for pair in run.pairs:
        stream, mirror = _shown(nodes, pair.stream), _shown(nodes, pair.mirror)
        if stream.get("expiring") != 0 or stream.get("next_offset") != mirror.get("next_offset", -1):
            return False
        if any(copy["lag"] != 0 for copy in stream["copies"]):
            return False
    return True


def _publish_last(nodes: Nodes, pair: Pair) -> int:
    """A message that says to the last reader that it is the last; its offset."""
    connection = connect(nodes, 1, credentials=pika.PlainCredentials(*LOGIN))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", f"{pair.stream}.end", b"end", mandatory=True)
    connection.close()
    end: list[int] = []

    def shown() -> bool:
        end[:] = [int(_shown(nodes, pair.stream).get("next_offset", 0)) - 1]
        return end[0] > int(_shown(nodes, pair.mirror).get("next_offset", 0)) - 2

    wait_for(shown, "the last message")
    return end[0]


def _all_read(run: StreamRun, clients: Clients, ends: dict[str, int]) -> bool:
    last: dict[str, int] = {}
    for read in list(clients.history.reads):
        if read.final:
            last[read.stream] = read.offset
    return all(last.get(name, -1) >= end for name, end in ends.items())


def _forget_last(clients: Clients, ends: dict[str, int], run: StreamRun) -> None:
    """The messages that say that they are the last are none of the run's."""
    kept = [read for read in clients.history.reads if not read.key.endswith(".end")]
    clients.history.reads[:] = kept
