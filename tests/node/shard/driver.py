"""Drives shards with entries as a replicated log would: several batches an entry, at any offset."""

from collections.abc import Sequence
from struct import pack

from mayfly.cluster.group.sessions import SessionKey
from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.content_header import EXPIRATION
from mayfly.node.shard import commands
from mayfly.node.shard.effects import ConsumerCancelled, Deliver
from mayfly.node.shard.message import Message
from mayfly.node.shard.results import Published
from mayfly.node.shard.settings import ShardQueueSettings, encode_terms
from mayfly.node.shard.shard import Shard
from tests.node.shard.declared import check_declared

A: SessionKey = (1, 7)
B: SessionKey = (2, 9)
LEADER = None


class Close:
    """Stands in an entry for the end of a session."""

    def __init__(self, session: SessionKey) -> None:
        self.session = session


Batch = tuple[SessionKey | None, bytes]


class Entry:
    """One log entry: batches of sessions behind each other, after some bytes that are not the shard's."""

    def __init__(self, index: int, time_ms: int, led_ms: int, batches: Sequence[Batch | Close]) -> None:
        self.index = index
        self.time_ms = time_ms
        self.led_ms = led_ms
        self.steps: list[tuple[SessionKey | None, int, int] | Close] = []
        data = b"entry"
        for batch in batches:
            if isinstance(batch, Close):
                self.steps.append(batch)
                continue
            data += b"batch"
            self.steps.append((batch[0], len(data), len(data) + len(batch[1])))
            data += batch[1]
        self.data = data + b"end"

    def apply(self, shard: Shard) -> list[object]:
        """Apply it; all answers in order."""
        results: list[object] = []
        shard.begin(self.index, self.time_ms, self.led_ms, self.data)
        for step in self.steps:
            if isinstance(step, Close):
                shard.session_closed(step.session)
            else:
                results += shard.apply(*step)
        shard.finish()
        return results


class Driver:
    """A shard with its log, at a time that tests move by hand; led time moves with it unless told.

    Its first entry says the feature level, that of a new cluster; with ``level`` 0 none does, as in the log of a
    release from before there were levels."""

    def __init__(
        self, local_node: int = 1, expiries: int = 2000, deliveries: int = 10_000, level: int = LEVEL_HIGHEST
    ) -> None:
        self.bounds = (expiries, deliveries)
        self.shard = Shard(3, local_node, expiries, deliveries)
        self.log: dict[int, Entry] = {}
        self.index = 0
        self.time_ms = 1_000_000
        self.led_ms = 50_000
        self.released: list[int] = []
        self.effects: list[object] = []
        self.untold_level = level

    def pass_ms(self, milliseconds: int) -> None:
        """Time goes on, with a leader."""
        self.time_ms += milliseconds
        self.led_ms += milliseconds

    def entry(self, *batches: Batch | Close) -> list[object]:
        """Apply one entry; the answers."""
        self.index += 1
        if self.untold_level:
            batches = ((LEADER, commands.encode_raise_level(self.untold_level)), *batches)
            self.untold_level = 0
        entry = Entry(self.index, self.time_ms, self.led_ms, batches)
        self.log[self.index] = entry
        results = entry.apply(self.shard)
        self.effects += self.shard.take_effects()
        self.released += self.shard.take_released()
        return results

    def run(self, *encoded: bytes, session: SessionKey | None = A) -> list[object]:
        """Commands of one session in one entry; the answers."""
        return self.entry((session, b"".join(encoded)))

    def guarded(self, *publishes: bytes) -> tuple[list[int], list[int]]:
        """Publishes, or changes of what waits, behind a guard: which were refused, and which are nowhere."""
        (answer,) = self.run(commands.encode_guard(len(publishes)), *publishes)
        assert isinstance(answer, Published)
        return answer.refused, answer.nowhere

    def lead(self, *encoded: bytes) -> None:
        """Commands of the leader in one entry."""
        assert self.run(*encoded, session=LEADER) == []

    def tick(self) -> None:
        """What the leader's ticker does, once."""
        if self.shard.due_messages(self.time_ms):
            self.lead(commands.encode_expire_due())
        for queue_id, epoch in self.shard.due_leases(self.led_ms):
            self.lead(commands.encode_expire_queue(queue_id, epoch))

    def create(self, queue_id: int, **settings: object) -> None:
        """A queue called q<id>."""
        made = ShardQueueSettings(name=f"q{queue_id}", **settings)  # type: ignore[arg-type]
        check_declared(made)
        self.run(commands.encode_create_queue(queue_id, made))

    def body(self, message: Message) -> str:
        """The body of a message, out of the log."""
        start = message.offset + message.key_length + message.header_length
        return self.log[message.index].data[start : start + message.body_length].decode()

    def content(self, message: Message) -> bytes:
        """The whole content of a message, out of the log."""
        return self.log[message.index].data[message.offset : message.offset + message.content_length]

    def get(self, queue_id: int, no_ack: bool = True, holder: int = 99) -> str | None:
        """The body of what basic.get gives."""
        message = self.get_message(queue_id, no_ack, holder)
        return None if message is None else self.body(message)

    def get_message(self, queue_id: int, no_ack: bool = True, holder: int = 99) -> Message | None:
        """What basic.get gives."""
        (result,) = self.run(commands.encode_get(queue_id, holder, no_ack))
        message = result.message  # type: ignore[attr-defined]
        assert message is None or isinstance(message, Message)
        return message

    def drain(self, queue_id: int) -> list[str]:
        """Bodies of everything that basic.get gives."""
        bodies = []
        while (body := self.get(queue_id)) is not None:
            bodies.append(body)
        return bodies

    def deliveries(self) -> list[tuple[int, int, str]]:
        """(consumer, delivery id, body) of the deliveries since the last call."""
        found = []
        for effect in self.effects:
            if isinstance(effect, Deliver):
                for place, message in enumerate(effect.messages):
                    found.append((effect.consumer_id, effect.first_delivery_id + place, self.body(message)))
        self.effects = [effect for effect in self.effects if not isinstance(effect, Deliver)]
        return found

    def delivered(self, consumer: int) -> list[str]:
        """Bodies delivered to one consumer since the last call of this or `deliveries`."""
        return [body for who, _, body in self.deliveries() if who == consumer]

    def cancelled(self) -> list[int]:
        """Consumers cancelled since the last call."""
        found = [effect.consumer_id for effect in self.effects if isinstance(effect, ConsumerCancelled)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, ConsumerCancelled)]
        return found

    def ready(self, queue_id: int) -> int:
        """How many messages are ready, as declare-ok would say, without a use of the queue."""
        statistics = self.shard.queue_statistics(queue_id)
        assert statistics is not None
        return statistics.ready

    def exists(self, queue_id: int) -> bool:
        """Whether the queue is here."""
        return queue_id in self.shard.queue_ids()

    def replay(self, local_node: int = 2) -> Shard:
        """Another replica that applied the same log."""
        other = Shard(3, local_node, *self.bounds)
        for entry in self.log.values():
            entry.apply(other)
        return other


def content_header(body: bytes, ttl_ms: int = -1) -> bytes:
    """The content header of a message with no properties but the expiration, as publishes store it."""
    if ttl_ms < 0:
        return pack(">HHQH", 60, 0, len(body), 0)
    expiration = str(ttl_ms).encode()
    return pack(">HHQHB", 60, 0, len(body), EXPIRATION, len(expiration)) + expiration


def publish(body: str, *queue_ids: int, ttl_ms: int = -1, header: bytes = b"") -> bytes:
    """A PUBLISH with this body, and the ``header`` that goes with it if none is given."""
    parts: list[bytes] = []
    octets = body.encode()
    header = header or content_header(octets, ttl_ms)
    size = commands.encode_publish(parts, queue_ids or (1,), ttl_ms, b"\x00\x01q", header, octets)
    encoded = b"".join(parts)
    assert len(encoded) == size
    return encoded


def attach(
    queue_id: int,
    consumer: int,
    prefetch: int = 0,
    no_ack: bool = False,
    exclusive: bool = False,
    priority: int = 0,
    window_bytes: int = 0,
) -> bytes:
    """An ATTACH with defaults."""
    return commands.encode_attach(queue_id, consumer, prefetch, no_ack, exclusive, priority, window_bytes)


def update_queue(queue_id: int, settings: ShardQueueSettings) -> bytes:
    """UPDATE_QUEUES for one queue, whose names stay what they are."""
    check_declared(settings)
    return commands.encode_update_queues(encode_terms(settings), (queue_id,))


def noop() -> bytes:
    """NOOP: a barrier. Answers Done."""
    return bytes((commands.NOOP,))


def encode_settle_up_to(queue_id: int, holder_id: int, outcome: int, up_to: int) -> bytes:
    """SETTLE everything that the holder holds with a delivery id <= `up_to`: no node sends it, but logs may hold it."""
    head = commands.SETTLE_HEAD.pack(commands.SETTLE, outcome, commands.UP_TO, 0, queue_id, holder_id)
    return head + commands.NUMBER.pack(up_to)


def encode_prefetch(queue_id: int, consumer_id: int, prefetch: int) -> bytes:
    """PREFETCH, which shards obey and no node gives: from now on so many unsettled messages for this consumer, 0 is no
    limit. No answer."""
    return commands.PREFETCH_HEAD.pack(commands.PREFETCH, prefetch, queue_id, consumer_id)


def encode_transfer(
    source: int, lane: int, first_sequence: int, contents: Sequence[commands.LetterContent]
) -> bytes:
    """A TRANSFER of contents that are in no log."""
    return b"".join(commands.transfer_parts(source, lane, first_sequence, contents))
