"""Transient queues that clients of other nodes use: notices, sessions, what happens when a node goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from mayfly.node import notice_kinds
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.cluster_facade import OnDone, ShardHandle
from mayfly.node.catalog import Catalog, CatalogCommand
from mayfly.node.numbers import TRANSIENT_SHARD_BASE, node_of, transient_shard
from mayfly.node.shard.effects import ConsumerCancelled, Deliver
from mayfly.node.shard.message import Message
from mayfly.node.shard.results import (
    Applied,
    Attached,
    Deleted,
    Detached,
    GetResult,
    Gone,
    Published,
    Purged,
    QueueCounts,
    Refused,
)
from mayfly.node.shard.room import Room
from mayfly.node.transient import streams
from mayfly.node.transient.remote_shard import HEARTBEAT_MS, SILENCE_MS
from mayfly.node.transient.transient_shards import TransientShards
from tests.node.broker.direct_cluster import DirectCluster
from tests.node.entry_payloads import EntryPayloads
from tests.node.readings import statistics_of


class Node(DirectCluster):
    """A node of several: its own brokers and transient shard, one catalog for all."""

    def __init__(self, network: Network, node_id: int, catalog: Catalog) -> None:
        super().__init__(1, now_ms=network.now_ms, node_id=node_id, catalog=catalog)
        del self.shards[transient_shard(node_id)]
        self.transient = TransientShards(
            node_id, self.incarnation, self, network.sender(node_id), lambda: self.events, lambda: None
        )

    def shard(self, shard_id: int) -> ShardHandle:
        if shard_id > TRANSIENT_SHARD_BASE:
            return self.transient.handle(node_of(shard_id))
        return super().shard(shard_id)

    def transfer(self, target_shard: int, command: bytes) -> None:
        if target_shard > TRANSIENT_SHARD_BASE:
            self.transient.transfer(target_shard, command)
        else:
            super().transfer(target_shard, command)

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        if target_shard > TRANSIENT_SHARD_BASE:
            return self.transient.received_up_to(target_shard, queue, source)
        return super().received_up_to(target_shard, queue, source)

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        if target_shard > TRANSIENT_SHARD_BASE:
            return self.transient.room(target_shard, queue, source, next_bytes)
        return super().room(target_shard, queue, source, next_bytes)

    def submit_catalog(self, command: CatalogCommand, done: OnDone) -> None:
        super().submit_catalog(command, done)

    def tick(self, now_ms: int) -> None:
        super().tick(now_ms)
        self.transient.tick(now_ms)

    def pump(self, now_ms: int | None = None) -> None:
        for _ in range(3):
            super().pump(now_ms)
            self.transient.pump(self.now_ms)


class Network:
    """Carries notices between nodes, in order; can lose some and go down."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.nodes: dict[int, Node] = {}
        self.queue: list[tuple[int, int, int, bytes]] = []
        self.lose: Callable[[int], bool] = lambda kind: False
        self.up = True

    def sender(self, origin: int) -> Any:
        def send(node_id: int, kind: int, payload: bytes) -> None:
            if self.up and not self.lose(kind):
                self.queue.append((origin, node_id, kind, payload))

        return send

    def carry(self) -> bool:
        queue, self.queue = self.queue, []
        for origin, node_id, kind, payload in queue:
            self.nodes[node_id].transient.notice(origin, kind, payload)
        return bool(queue)

    def break_streams(self) -> None:
        self.up = False
        self.queue.clear()
        for node in self.nodes.values():
            for other in self.nodes:
                if other != node.node_id:
                    node.transient.peer_down(other)

    def mend_streams(self) -> None:
        self.up = True
        for node in self.nodes.values():
            for other in self.nodes:
                if other != node.node_id:
                    node.transient.peer_up(other)


class Pair:
    """Two nodes, each with a world of clients (see conftest)."""

    def __init__(self, world_class: Any) -> None:
        self.network = Network()
        catalog = Catalog(1)
        self.worlds = []
        for node_id in (1, 2):
            node = Node(self.network, node_id, catalog)
            self.network.nodes[node_id] = node
            world = world_class()
            world.cluster = node
            world.broker = Broker(node, lambda: random.randbytes(16))
            node.events = world.broker
            world.add_user("guest", "guest", ".*", ".*", ".*")
            world.settle = lambda world=world: self.settle()
            self.worlds.append(world)
        self._settle_one = world_class.settle
        self.network.mend_streams()

    def settle(self) -> None:
        for _ in range(20):
            for world in self.worlds:
                self._settle_one(world)
            if not self.network.carry():
                return

    def advance(self, ms: int, step_ms: int = 100) -> None:
        end = self.network.now_ms + ms
        while self.network.now_ms < end:
            self.network.now_ms = min(end, self.network.now_ms + step_ms)
            for node in self.network.nodes.values():
                node.tick(self.network.now_ms)
            self.settle()


@pytest.fixture
def pair(world: Any) -> Pair:
    return Pair(type(world))


def test_a_queue_is_used_from_the_other_node(pair: Pair) -> None:
    owner, guest = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False)
    guest.call(1, commands.Confirm.Select())
    guest.send_bytes(b"".join(guest.publish_bytes(1, "q", b"%d" % i, message_id=str(i)) for i in range(5)))
    assert guest.acks() == [(5, True, False)]
    assert guest.count("q") == 5
    got = guest.get("q", no_ack=False)
    assert (got.body, got.properties.message_id, got.method.message_count) == (b"0", "0", 4)
    guest.send(1, commands.Basic.Nack(delivery_tag=got.tag, requeue=True))
    got = guest.consume("q")
    assert [each.body for each in got] == [b"0", b"1", b"2", b"3", b"4"]
    assert [each.method.redelivered for each in got] == [True, False, False, False, False]
    guest.send(1, commands.Basic.Ack(delivery_tag=got[-1].tag, multiple=True))
    owner.publish(1, "q", b"from home")
    assert [each.body for each in guest.take(1)] == [b"from home"]
    assert owner.declare("q", durable=False).consumer_count == 1
    assert guest.call(1, commands.Queue.Purge(queue="q")).message_count == 0
    owner.call(1, commands.Queue.Delete(queue="q"))
    (cancel,) = guest.take(1)
    assert isinstance(cancel, commands.Basic.Cancel)


def test_a_guest_that_leaves_gives_back_what_it_held(pair: Pair) -> None:
    owner, guest = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False)
    owner.publish(1, "q")
    assert len(guest.consume("q")) == 1
    guest.lose()
    got = owner.declare("q", durable=False)
    assert (got.message_count, got.consumer_count) == (1, 0)


def test_auto_delete_with_its_last_consumer_elsewhere(pair: Pair) -> None:
    owner, guest = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False, auto_delete=True)
    guest.consume("q")
    guest.call(1, commands.Basic.Cancel(consumer_tag="tag"))
    assert owner.call(1, commands.Queue.Declare(queue="q", passive=True)).reply_code == 404


def test_when_the_stream_breaks_both_sides_let_go(pair: Pair) -> None:
    owner, guest = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False)
    owner.publish(1, "q")
    guest.consume("q")
    guest.open_channel(2, confirms=True)
    pair.network.break_streams()
    pair.settle()
    assert [type(item) for item in guest.take(1)] == [commands.Basic.Cancel]
    got = owner.declare("q", durable=False)
    assert (got.message_count, got.consumer_count) == (1, 0)
    guest.publish(2, "q")
    assert guest.acks(2) == [(1, False, True)]
    refused = guest.call(1, commands.Basic.Get(queue="q"))
    assert refused.reply_text == "NOT_FOUND - home node of queue 'q' in vhost '/' is down or inaccessible"
    pair.network.mend_streams()
    guest.send(1, commands.Channel.CloseOk())
    guest.open_channel(1)
    assert guest.get("q").method.redelivered


def test_commands_under_way_when_the_stream_breaks_are_lost(pair: Pair) -> None:
    owner, guest = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False)
    guest.call(1, commands.Confirm.Select())
    pair.network.lose = lambda kind: True
    guest.send_bytes(guest.publish_bytes(1, "q") * 3)
    assert guest.acks() == []
    pair.network.break_streams()
    pair.settle()
    assert guest.acks() == [(3, True, True)]


@pytest.mark.parametrize("kind", [notice_kinds.REQUEST, notice_kinds.EVENTS])
def test_a_lost_notice_ends_the_session_instead_of_hanging(pair: Pair, kind: int) -> None:
    owner, guest = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False)
    guest.consume("q", no_ack=True)
    pair.network.lose = lambda each: each == kind
    guest.send(1, commands.Confirm.Select())
    guest.publish(1, "q")
    pair.network.lose = lambda each: False
    guest.take(1)
    pair.advance(2 * HEARTBEAT_MS + 200)
    cancelled = [item for item in guest.take(1) if isinstance(item, commands.Basic.Cancel)]
    assert len(cancelled) == 1
    assert owner.declare("q", durable=False).consumer_count == 0
    guest.consume("q", no_ack=True)
    owner.publish(1, "q", b"again")
    assert b"again" in [each.body for each in guest.take(1)]


def test_silence_ends_sessions(pair: Pair) -> None:
    owner, guest = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False)
    guest.consume("q")
    pair.advance(3 * SILENCE_MS)
    assert owner.declare("q", durable=False).consumer_count == 1, "beats keep a quiet session"
    pair.network.lose = lambda kind: True
    pair.advance(SILENCE_MS + 2 * HEARTBEAT_MS)
    assert owner.declare("q", durable=False).consumer_count == 0
    assert [type(item) for item in guest.take(1)] == [commands.Basic.Cancel]


def test_dead_letters_to_a_transient_queue_of_another_node(pair: Pair) -> None:
    """D6: once, though notices are lost on the way."""
    one, two = pair.worlds[0].client(), pair.worlds[1].client()
    two.declare("dead", durable=False)
    one.declare(
        "q",
        durable=False,
        arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    drop = iter([True, False, True] + [False] * 1000)
    pair.network.lose = lambda kind: kind in (notice_kinds.TRANSFER, notice_kinds.RECEIVED) and next(drop)
    one.send_bytes(b"".join(one.publish_bytes(1, "q", b"%d" % i) for i in range(10)))
    pair.advance(5000)
    assert [two.get("dead").body for _ in range(10)] == [b"%d" % i for i in range(10)]
    assert isinstance(two.get("dead"), commands.Basic.GetEmpty)
    lane = next(iter(pair.network.nodes[1].transient.local.shard.lanes()))
    assert not lane.items


def test_d2_a_full_queue_of_another_node_refuses(pair: Pair) -> None:
    owner, guest = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    guest.call(1, commands.Confirm.Select())
    guest.send_bytes(b"".join(guest.publish_bytes(1, "q", b"%d" % i) for i in range(4)))
    assert guest.acks() == [(2, True, False), (3, False, True), (4, False, True)]
    assert guest.count("q") == 2


def test_d7_d8_dead_letters_wait_for_a_full_queue_of_another_node(pair: Pair) -> None:
    """Nobody sees that queue's room from here: one message at a time tries it, and order and number are kept."""
    one, two = pair.worlds[0].client(), pair.worlds[1].client()
    two.declare("full", durable=False, arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
    arguments = {"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"}
    one.declare("q", durable=False, arguments=arguments)
    one.send_bytes(b"".join(one.publish_bytes(1, "q", b"%d" % i) for i in range(12)))
    got = []
    for _ in range(12):
        pair.advance(1500)
        assert two.count("full") <= 3
        while hasattr(answer := two.get("full"), "body"):
            got.append(answer.body)
    assert got == [b"%d" % i for i in range(12)]
    refused = sum(statistics_of(node.transient.local.shard).refused for node in pair.network.nodes.values())
    assert refused == 0, "a dead letter that waits was not refused for good"
    assert not any(lane.items for lane in pair.network.nodes[1].transient.local.shard.lanes())


def test_queues_that_the_catalog_dropped_go(pair: Pair) -> None:
    from mayfly.node.catalog import NodeLost

    owner = pair.worlds[0].client()
    owner.declare("q", durable=False)
    owner.consume("q")
    node = pair.network.nodes[1]
    node.catalog.apply(NodeLost(1, node.incarnation))
    pair.advance(2 * HEARTBEAT_MS)
    assert not list(node.transient.local.shard.queue_ids())
    assert [type(item) for item in owner.take(1)] == [commands.Basic.Cancel]


def test_every_result_survives_the_journey() -> None:
    payload = b"........\x00\x01k" + b"h" * 14 + b"body"
    message = Message(5, 8, 3, 14, 4, 100, 200, 0, 50, acquired_count=2)
    writer = streams.EventsWriter(EntryPayloads({1: payload, 5: payload}))
    results = [
        None, GetResult(message, 7, 3, False), GetResult(None, 0, 0, True), QueueCounts(1, 2, True),
        Gone(9, "expired"), Attached(4), Detached(), Refused("exclusive"), Purged(11), Deleted(12),
        Applied(), Applied([4]), Published([0, 3, 70_000]), Published([], [70_000]),
    ]  # fmt: skip
    for result in results:
        writer.result(result)
    writer.effect(Deliver(77, 3, [message, message], (1, 1)))
    writer.effect(ConsumerCancelled(77, 9, (1, 1)))
    (notice,) = writer.take(40, 2)
    events = streams.Events(notice)
    assert (events.stream, events.sequence) == (40, 2)
    items = list(events.items())
    for (is_result, got), wanted in zip(items, results, strict=False):
        assert is_result
        assert type(got) is type(wanted)
        if wanted is not None and not isinstance(wanted, GetResult):
            assert all(getattr(got, name) == getattr(wanted, name) for name in _attributes(wanted))
    deliver: Any = items[-2][1]
    for each in [*deliver.messages, items[1][1].message]:  # type: ignore[attr-defined]
        assert events.payload[each.offset : each.offset + each.content_length] == payload[8:]
        assert (each.deadline_ms, each.redelivered, each.ttl_ms) == (200, True, 50)
    assert not writer


def test_notices_are_of_bounded_size() -> None:
    payload = bytes(1000)
    messages = [Message(1, 100 * place, 0, 10, 90, 100, 200, 0, 50, acquired_count=place) for place in range(10)]
    writer = streams.EventsWriter(EntryPayloads({1: payload, 5: payload}), 350)
    writer.effect(Deliver(77, 3, messages[:8], (1, 1)))
    writer.result(GetResult(messages[8], 7, 3, False))
    writer.result(None)
    writer.result(GetResult(messages[9], 8, 2, False))
    notices = writer.take(40, 2)
    events = [streams.Events(notice) for notice in notices]
    assert [each.sequence for each in events] == [2, 3, 4, 5]
    items: list[Any] = [item for each in events for _, item in each.items()]
    assert [(item.first_delivery_id, len(item.messages)) for item in items[:3]] == [(3, 3), (6, 3), (9, 2)]
    counts = [message.acquired_count for item in items[:3] for message in item.messages]
    assert [*counts, items[3].message.acquired_count, items[5].message.acquired_count] == list(range(10))
    assert items[4] is None
    units = [(0, bytes(size)) for size in (10, 30, 50, 1, 200, 5)]
    assert [[len(data) for _, data in part] for part in streams.divided(units, 50)] == [[10, 30], [50], [1], [200], [5]]


def test_what_a_client_sends_in_one_turn_arrives_in_several_notices(pair: Pair) -> None:
    owner, far = pair.worlds[0].client(), pair.worlds[1].client()
    owner.declare("q", durable=False)
    kinds: list[int] = []

    def note(kind: int) -> bool:
        kinds.append(kind)
        return False

    pair.network.lose = note
    for _ in range(50):
        far.connection.receive(far.publish_bytes(1, "q", bytes(120_000)))
    pair.settle()
    assert owner.count("q") == 50
    assert kinds.count(notice_kinds.REQUEST) >= 50 * 120_000 / streams.NOTICE_BYTES
    kinds.clear()
    assert len(far.consume("q", no_ack=True)) >= streams.NOTICE_BYTES / 120_000
    assert kinds.count(notice_kinds.EVENTS) >= 2


@pytest.mark.parametrize("seed", range(30))
def test_garbage_harms_nobody(pair: Pair, seed: int) -> None:
    owner = pair.worlds[0].client()
    owner.declare("q", durable=False)
    owner.publish(1, "q")
    chance = random.Random(seed)
    transient = pair.network.nodes[1].transient
    for _ in range(30):
        kind = chance.choice([*range(notice_kinds.REQUEST, notice_kinds.ENDED + 1), 99])
        transient.notice(2, kind, chance.randbytes(chance.choice((0, 3, 8, 16, 20, 24, 64))))
        garbled = bytearray(streams.encode_request(chance.randint(1, 3), 1, [(3, chance.randbytes(20))]))
        garbled[chance.randrange(len(garbled))] ^= 1 << chance.randrange(8)
        transient.notice(2, notice_kinds.REQUEST, bytes(garbled))
    pair.settle()
    assert owner.get("q").body == b"m"


@pytest.mark.parametrize("durable", [False, True])
def test_what_stands_with_garbage_is_refused_and_its_session_ends(pair: Pair, durable: bool) -> None:
    """Nobody can say what of it was done: nothing is confirmed, what was held is there again."""
    node, world = pair.network.nodes[1], pair.worlds[0]
    client = world.client()
    client.declare("q", durable=durable)
    client.publish(1, "q", b"held")
    client.consume("q")
    client.open_channel(2, confirms=True)
    queue = node.catalog.queue("/", "q")
    assert queue is not None
    handle = node.shard(queue.shard)
    world.running = False
    handle.submit(b"\xee\xee", None)
    client.send_bytes(client.publish_bytes(2, "q") * 3)
    world.running = True
    pair.settle()
    assert client.acks(2) == [(3, True, True)]
    assert isinstance(client.take(1)[-1], commands.Basic.Cancel)
    assert (client.count("q"), client.get("q").body) == (1, b"held")
    client.publish(2, "q", b"next")
    assert client.acks(2) == [(4, False, False)]


def _attributes(result: object) -> list[str]:
    """The names of its fields, also where it is compiled and has no `__slots__` to ask for."""
    return [name for name in dir(result) if not name.startswith("_") and not callable(getattr(result, name))]
