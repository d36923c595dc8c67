"""Clients of the streams of a run: they publish to one of them and read it and its copies, each from a place of its own
(RULES J1, J4), messages with TTLs and of several keys among them (J2, J3, J5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import commands

from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.node.actor import Actor
from simulation.node.actors import PublishingActor
from simulation.node.amqp_client import ReceivedMessage
from simulation.node.history import Delivery, Publish, Read
from simulation.node.topology import GATHERED, MIRROR, STREAM
from simulation.node.world import World, content_of, id_of

MARKER_TTL_MS = 2_000
_ARGUMENTS: dict[str, dict[str, Any]] = {
    STREAM: {"x-allow-msg-ttl": True, "x-delete-marker-ttl": MARKER_TTL_MS // 1000},
    MIRROR: {"x-mirror": STREAM, "x-stream-key-index": True},
    GATHERED: {"x-sources": [STREAM, MIRROR]},
}
"""In an order in which they can be declared. The copies keep what leaves the first."""
_EXCHANGE = "amq.topic"
_KEYS = ("stream.a", "stream.b", "stream.c")
_TTLS: tuple[tuple[int | None, Any], ...] = (
    (None, None), (None, None), (None, "never"), (2_000, "1s"), (2_000, 2), (3_500, "3.5s"), (6_000, "6"),
)
"""In ms, and as it is published; below that of the markers it is theirs. The first key has none of the first three: it
dies out again and again, and leaves markers."""


def _declare_all(actor: Actor, done: Callable[[], None]) -> None:
    """Declare the streams that are not there, one after the other."""
    names = iter(_ARGUMENTS)

    def go_on(_: object) -> None:
        name = next(names, None)
        if name is None:
            done()
        else:
            arguments = {"x-queue-type": "stream", **_ARGUMENTS[name]}
            actor.call(commands.Queue.Declare(0, name, durable=True, arguments=arguments), go_on)

    go_on(None)


class Appender(PublishingActor):
    """Publishes to the stream, each message once."""

    def __init__(self, world: World, name: str, gap_us: int, until_us: int) -> None:
        super().__init__(world, name, [("", STREAM, (STREAM,), (None, 50))], gap_us, until_us)

    def begin(self) -> None:
        _declare_all(self, self._bind)

    def _bind(self) -> None:
        bind = commands.Queue.Bind(0, STREAM, _EXCHANGE, "stream.*")
        self.call(bind, lambda result: super(Appender, self).begin())

    def publish(self, target: PublishingActor.Target) -> None:
        if self.client is None:
            return
        world = self.world
        world.next_message += 1
        message_id = world.next_message
        expiration_ms = self.random.choice(target[3])
        key = self.random.choice(_KEYS)
        ttl_ms, said = self.random.choice(_TTLS[3:] if key == _KEYS[0] else _TTLS)
        headers: dict[str, Any] = {"x-stream-offset": 5} if self.random.random() < 0.2 else {}
        if said is not None:
            headers[self.random.choice(("Nats-TTL", "x-ttl"))] = said
        properties = commands.Basic.Properties(
            delivery_mode=2, expiration=None if expiration_ms is None else str(expiration_ms), headers=headers or None,
        )
        publish = Publish(message_id, self.stream, message_id, (STREAM,), ttl_ms, world.queue.now_us, key=key)
        world.history.appended[message_id] = publish
        world.cluster.trace.add("append", message_id)
        content = content_of(message_id, self.random.choice((0, 20, 300, 3_000)))
        tag = self.client.publish(_EXCHANGE, key, content, properties)
        self.pending[tag] = publish
        self.give_up_unless(lambda: tag not in self.pending)


class Reader(Actor):
    """Reads a stream, sometimes leaves, and goes on behind what it has read last; or begins anew."""

    def __init__(self, world: World, name: str, stream: str = STREAM, final: bool = False) -> None:
        super().__init__(world, name)
        self.read_stream = stream
        self.final = final
        self.prefetch = 200 if final else self.random.choice((1, 3, 50))
        self.place = -1
        self._begins = -1
        self._only_key = ""

    def begin(self) -> None:
        _declare_all(self, self._consume)

    def _consume(self) -> None:
        if self.final or self.random.random() < 0.2:
            self.place = -1
        self._begins = self.place
        self.world.next_holder += 1
        tag = f"{self.name}.{self.world.next_holder}"
        self.queues_of_tags[tag] = self.read_stream
        start: Any = "first" if self.place < 0 else self.place
        arguments = {"x-stream-offset": start}
        has_keys = self.read_stream != GATHERED
        self._only_key = "" if self.final or self.random.random() < 0.7 else self.random.choice(_KEYS) * has_keys
        if self._only_key:
            arguments["x-stream-filter-key"] = self._only_key
        self.call(commands.Basic.Qos(0, self.prefetch), lambda result: None)
        consume = commands.Basic.Consume(0, self.read_stream, tag, arguments=arguments)
        self.call(consume, lambda result: self.later(2 * SECOND_US, lambda: self._restless(tag)))

    def _restless(self, tag: str) -> None:
        if self.final:
            return
        roll = self.random.random()
        if roll < 0.2:
            self.drop()
        elif roll < 0.3 and self.client is not None:
            self.client.close()
        elif roll < 0.5:
            self.cancel(tag, lambda: self.later(300 * MILLISECOND_US, self._consume))
        else:
            self.later(2 * SECOND_US, lambda: self._restless(tag))

    def take(self, queue: str, holder: str, message: ReceivedMessage) -> Delivery:
        world = self.world
        headers: Any = message.properties.headers or {}
        offset, message_id = int(headers.get("x-stream-offset", -1)), id_of(message.body)
        source, _, source_offset = str(headers.get("x-stream-source", "")).partition(" ")
        world.history.reads.append(
            Read(
                world.queue.now_us, holder, self._begins, offset, message_id, message.redelivered, self.final,
                message.routing_key, self._only_key, str(headers.get("x-marker-reason", "")), self.read_stream,
                source, int(source_offset or -1),
            )
        )
        world.cluster.trace.add("read", message_id, holder, offset)
        self.place = max(self.place, offset + 1)
        delivery = Delivery(world.queue.now_us, queue, message_id, holder, message.redelivered)
        self.unsettled[message.delivery_tag] = delivery
        self.later(20 * MILLISECOND_US, lambda: self.settle(message.delivery_tag))
        return delivery
