"""Large messages go in pieces: what is written, sent and logged before anybody else's small message is bounded."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp import body as bodies
from pamqp import commands, frame, header

from mayfly.cluster.group.pieces import PIECE_BYTES, PIECES_UNDER_WAY
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from mayfly.cluster.versions import LEVEL_PIECES, LEVELS, VersionRange
from simulation.cluster.memory_store import MemoryStore
from tests.node.broker.three_brokers import NodeWorld, ThreeBrokers, start_anew

SHARDS = 4
BODY = random.Random(1).randbytes(9 * PIECE_BYTES + 1)
OVERHEAD_BYTES = 4096
"""What is small beside the pieces."""


class Counting(MemoryStore):
    """Counts the octets of entries that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.octets = 0
        self.largest_write = 0
        self.largest_entry = 0

    def write(self, batch: WriteBatch) -> None:
        sizes = [len(entry.data) for write in batch.groups.values() for entry in write.entries]
        self.octets += sum(sizes)
        self.largest_write = max(self.largest_write, sum(sizes))
        self.largest_entry = max([self.largest_entry, *sizes])
        super().write(batch)


class Measured(ThreeBrokers):
    """Three brokers whose writes and frames are counted, with a queue in each of so many shards bound to amq.fanout."""

    def __init__(self, levels: VersionRange = LEVELS) -> None:
        self.counting: list[Counting] = []
        super().__init__(self._store, SHARDS, levels)
        self.largest_frame = 0
        self.watches = self._watch
        self.publisher = self.nodes[1].client()
        for number in range(SHARDS):
            # A queue is led where it is declared.
            self.nodes[1 + number % 3].client().declare(f"large{number}")
            self.publisher.send(1, commands.Queue.Bind(queue=f"large{number}", exchange="amq.fanout"))
            self.publisher.declare(f"small{number}")
        self.settle()
        self.publisher.open_channel(2, confirms=True)
        self.publisher.take()

    def _store(self, id: int) -> Counting:
        self.counting.append(Counting())
        return self.counting[-1]

    def _watch(self, frame: Frame) -> None:
        entries = sum(len(entry.data) for _, message in frame.raft for entry in message.entries)
        self.largest_frame = max(self.largest_frame, entries + sum(len(batch) for _, batch in frame.proposals))

    def publish_large(self, body: bytes = BODY, exchange: str = "amq.fanout", key: str = "", **options: Any) -> None:
        self.publisher.send_bytes(publish_bytes(2, body, exchange, key, **options))


def publish_bytes(channel: int, body: bytes, exchange: str, key: str, **options: Any) -> bytes:
    """As a client does that has everything at hand: in frames of 100 000 octets."""
    parts = [
        frame.marshal(commands.Basic.Publish(exchange=exchange, routing_key=key), channel),
        frame.marshal(header.ContentHeader(0, len(body), commands.Basic.Properties(**options)), channel),
    ]
    parts += [
        frame.marshal(bodies.ContentBody(body[start : start + 100_000]), channel)
        for start in range(0, len(body), 100_000)
    ]
    return b"".join(parts)


@pytest.fixture
def brokers() -> Measured:
    return Measured()


def shards_of_queues(brokers: Measured, prefix: str) -> set[int]:
    return {it.shard for it in brokers.nodes[1].engine.catalog.queues() if it.name.startswith(prefix)}


def ready(node: NodeWorld, queue: str) -> int:
    record = node.engine.catalog.queue("/", queue)
    assert record is not None
    return node.client().count(queue)


def test_no_write_frame_or_entry_has_more_than_some_pieces_of_a_large_message(brokers: Measured) -> None:
    """RULES D6 in small: each queue has it once, as it was."""
    shards = len(shards_of_queues(brokers, "large"))
    assert shards >= 3
    before = max(store.octets for store in brokers.counting)
    brokers.publish_large()
    brokers.run_until(lambda: brokers.publisher.acks(2) == [(1, False, False)])
    assert max(store.octets for store in brokers.counting) - before >= shards * len(BODY)
    bound = PIECES_UNDER_WAY * PIECE_BYTES + OVERHEAD_BYTES
    assert max(store.largest_entry for store in brokers.counting) <= PIECE_BYTES + OVERHEAD_BYTES
    assert max(store.largest_write for store in brokers.counting) <= bound
    assert brokers.largest_frame <= bound
    for number in range(SHARDS):
        client = brokers.nodes[1 + number % 3].client()
        assert client.get(f"large{number}").body == BODY
        assert client.count(f"large{number}") == 0


@pytest.mark.parametrize("rounds", [0, 3, 10])
def test_a_small_message_waits_for_a_few_pieces_even_in_the_same_shard(brokers: Measured, rounds: int) -> None:
    small = brokers.nodes[1].client()
    small.open_channel(2, confirms=True)
    brokers.running = False
    brokers.publish_large()
    for _ in range(rounds):
        brokers._work()
    before = [store.octets for store in brokers.counting]
    for number in range(SHARDS):
        small.publish(2, f"small{number}")
    confirmed: list[Any] = []
    for _ in range(200):
        if len(confirmed) == SHARDS:
            break
        brokers._work()
        for node in brokers.nodes.values():
            node.flush()
        confirmed += [item for item in small.take(2) if isinstance(item, commands.Basic.Ack)]
        if confirmed and confirmed[-1].delivery_tag == SHARDS:
            break
    written = max(store.octets - was for store, was in zip(brokers.counting, before, strict=True))
    assert confirmed and not brokers.publisher.acks(2)
    assert written <= 3 * PIECES_UNDER_WAY * PIECE_BYTES + OVERHEAD_BYTES
    brokers.running = True
    brokers.run_until(lambda: brokers.publisher.acks(2) == [(1, False, False)])


def test_what_a_channel_publishes_behind_a_large_message_comes_behind_it(brokers: Measured) -> None:
    """In one read of the socket, and to the same queue."""
    client = brokers.publisher
    data = b"".join(
        [
            client.publish_bytes(2, "large0", b"before"),
            frame.marshal(commands.Basic.Publish(routing_key="large0"), 2),
            frame.marshal(header.ContentHeader(0, len(BODY), commands.Basic.Properties()), 2),
            *[
                frame.marshal(bodies.ContentBody(BODY[start : start + 100_000]), 2)
                for start in range(0, len(BODY), 100_000)
            ],
            client.publish_bytes(2, "large0", b"behind"),
            client.publish_bytes(2, "large0", b"last"),
        ]
    )
    first = len(client.publish_bytes(2, "large0", b"before"))
    client.send_bytes(data[: first + 1000])
    client.send_bytes(data[first + 1000 :])
    brokers.run_until(lambda: [tag for tag, _, _ in client.acks(2)][-1:] == [4])
    assert [client.get("large0").body for _ in range(4)] == [b"before", BODY, b"behind", b"last"]
    assert max(store.largest_entry for store in brokers.counting) <= PIECE_BYTES + OVERHEAD_BYTES


def test_the_pieces_of_a_message_are_deleted_with_it(brokers: Measured) -> None:
    brokers.publish_large(exchange="", key="large1")
    brokers.run_until(lambda: brokers.publisher.acks(2))
    record = brokers.nodes[1].engine.catalog.queue("/", "large1")
    assert record is not None
    groups = [node.engine.host.groups[record.shard] for node in brokers.nodes.values()]
    for _ in range(4):
        brokers.step()
    assert [len(set(group.state_entries())) for group in groups] == [9] * 3  # nine pieces, with the last what is small
    assert brokers.nodes[2].client().get("large1").body == BODY
    for _ in range(4):
        brokers.step()
    assert not any(list(group.state_entries()) for group in groups)


def test_a_full_queue_refuses_a_message_in_pieces_and_keeps_nothing_of_it(brokers: Measured) -> None:
    brokers.publisher.declare("full", arguments={"x-max-length-bytes": 1000, "x-overflow": "reject-publish"})
    brokers.publisher.take()
    record = brokers.nodes[1].engine.catalog.queue("/", "full")
    assert record is not None
    brokers.publish_large(b"x" * 999, "", "full")
    brokers.run_until(lambda: brokers.publisher.acks(2) == [(1, False, False)])
    brokers.publish_large(exchange="", key="full")
    brokers.run_until(lambda: brokers.publisher.acks(2) == [(2, False, True)])
    group = brokers.nodes[1].engine.host.groups[record.shard]
    assert len(list(group.state_entries())) == 1


def test_below_its_level_a_large_message_is_one_entry() -> None:
    """All that knows it may come later: until then others must be able to read the log."""
    older = VersionRange(LEVELS.lowest, LEVEL_PIECES - 1)
    brokers = Measured(older)
    brokers.publish_large(exchange="", key="large0")
    brokers.run_until(lambda: brokers.publisher.acks(2) == [(1, False, False)])
    assert max(store.largest_entry for store in brokers.counting) > len(BODY)


def test_a_message_in_pieces_outlives_every_process(brokers: Measured) -> None:
    brokers.publish_large(exchange="", key="large2")
    brokers.run_until(lambda: brokers.publisher.acks(2))
    for id in brokers.ids:
        start_anew(brokers, id, LEVELS)
    assert brokers.nodes[3].client().get("large2").body == BODY
