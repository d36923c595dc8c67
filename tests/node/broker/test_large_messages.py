"""A large message goes to one shard after the other; nothing but its channel waits for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import pytest
from pamqp import body as bodies
from pamqp import commands, frame, header

from mayfly.node.broker.cluster_facade import OnDone, ShardHandle
from mayfly.node.broker.large_publishes import LargePublishes
from mayfly.node.limits import LARGE_PUBLISH_BYTES, LARGE_PUBLISHES_BYTES, MESSAGE_BYTES, MIB
from tests.node.conftest import Client, World, closed

QUEUES = 8
LARGE = bytes(MIB)
"""Large in so many shards."""


class Held:
    """The way to a shard, which keeps what is large until it is let go."""

    def __init__(self, sent: Sent, handle: ShardHandle) -> None:
        self.shard_id = handle.shard_id
        self.submit, self.acknowledge, self.content = handle.submit, handle.acknowledge, handle.content
        self._sent, self._handle = sent, handle

    def submit_in_pieces(self, command: bytes, done: OnDone | None) -> None:
        self._sent.under_way.append((self.shard_id, partial(self._handle.submit_in_pieces, command, done)))

    def publish(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        go = partial(self._handle.publish, parts, size_bytes, done)
        if size_bytes < len(LARGE) // 2:
            go()
        else:
            self._sent.under_way.append((self.shard_id, go))

    def publish_in_pieces(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        self.publish(parts, size_bytes, done)


class Sent:
    """What is large on its way to shards."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way: list[tuple[int, Callable[[], None]]] = []
        shard = world.cluster.shard
        monkeypatch.setattr(world.cluster, "shard", lambda shard_id: Held(self, shard(shard_id)))

    @property
    def shards(self) -> list[int]:
        return [shard for shard, _ in self.under_way]

    def let_one_go(self, world: World) -> None:
        self.under_way.pop(0)[1]()
        world.settle()


@pytest.fixture
def world() -> World:
    return World(shards=QUEUES)


@pytest.fixture
def sent(world: World, monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(world, monkeypatch)


@pytest.fixture
def client(world: World, sent: Sent) -> Client:
    """Its queues, all in different shards, are bound to amq.fanout."""
    client = world.client()
    for number in range(QUEUES):
        client.declare(f"q{number}")
        client.send(1, commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"))
    shards = {record.shard for record in world.cluster.catalog.queues()}
    assert len(shards) == QUEUES
    client.open_channel(2, confirms=True)
    client.open_channel(3, confirms=True)
    client.take()
    return client


def publish_large(client: Client, channel: int = 2, body: bytes = LARGE) -> None:
    parts = [
        frame.marshal(commands.Basic.Publish(exchange="amq.fanout", routing_key=""), channel),
        frame.marshal(header.ContentHeader(0, len(body), commands.Basic.Properties()), channel),
    ]
    step = 100_000
    parts += [frame.marshal(bodies.ContentBody(body[at : at + step]), channel) for at in range(0, len(body), step)]
    client.send_bytes(b"".join(parts))


def test_one_shard_after_the_other_gets_a_large_message(world: World, client: Client, sent: Sent) -> None:
    publish_large(client)
    seen: list[int] = []
    while sent.under_way:
        assert len(sent.shards) == 1, "one at a time"
        seen += sent.shards
        assert client.acks(2) == []
        sent.let_one_go(world)
    assert sorted(seen) == list(range(1, QUEUES + 1))
    assert client.acks(2) == [(1, False, False)]
    assert [client.count(f"q{number}") for number in range(QUEUES)] == [1] * QUEUES
    assert world.broker.large_publishes.under_way_bytes == 0


def test_only_its_channel_waits_and_keeps_its_order(world: World, client: Client, sent: Sent) -> None:
    publish_large(client)
    client.publish(2, "q7", b"behind")
    client.publish(3, "q7", b"another channel's")
    assert client.acks(3) == [(1, False, False)] and client.acks(2) == []
    while sent.under_way:
        sent.let_one_go(world)
    assert client.acks(2) == [(2, True, False)]
    came = [client.get("q7").body for _ in range(3)]
    assert [len(each) for each in came] == [len(b"another channel's"), len(LARGE), len(b"behind")]


def test_all_channels_of_a_node_stand_in_one_line(world: World, client: Client, sent: Sent) -> None:
    other = world.client()
    other.open_channel(2, confirms=True)
    line = world.broker.large_publishes
    line._most_bytes = len(LARGE) + 1_000
    publish_large(client)
    publish_large(other)
    while sent.under_way:
        assert len(sent.under_way) == 1, "one at a time"
        assert line.under_way_bytes < len(LARGE) + 1_000
        sent.let_one_go(world)
    assert client.acks(2) == other.acks(2) == [(1, False, False)]
    assert client.count("q0") == 2 and line.under_way_bytes == 0


def test_a_client_that_goes_meanwhile_has_published(world: World, client: Client, sent: Sent) -> None:
    """And the line goes on."""
    watching = world.client()
    publish_large(client)
    client.lose()
    while sent.under_way:
        sent.let_one_go(world)
    assert [watching.count(f"q{number}") for number in range(QUEUES)] == [1] * QUEUES
    assert world.broker.large_publishes.under_way_bytes == 0
    assert world.broker.waiting_events.size_bytes == 0


def test_what_is_refused_behind_a_large_message_comes_after_it(world: World, client: Client, sent: Sent) -> None:
    """All in one read: an exchange that is not there closes the channel when the large one is where it belongs."""
    world.broker.large_publishes._most_bytes = 1
    half = bytes(120_000)
    parts = [client.publish_bytes(2, "", half, exchange="amq.fanout") for _ in range(6)]
    parts.append(client.publish_bytes(2, "", b"", exchange="missing"))
    client.send_bytes(b"".join(parts))
    while sent.under_way:
        assert client.take(2) == []
        sent.let_one_go(world)
    *confirms, refused = client.take(2)
    assert closed(refused)[:2] == ("channel", 404)
    assert confirms and confirms[-1].delivery_tag == 6
    client.send(2, commands.Channel.CloseOk())
    assert client.count("q0") == 6


def test_a_message_is_not_larger_than_is_set(client: Client) -> None:
    """As RabbitMQ 4.3.6 says it, and by default as there (recorded: `message size 17825792 is larger than ...`)."""
    assert MESSAGE_BYTES == 16_777_216 == client.world.broker.settings.connection.max_message_bytes
    size = 17_825_792
    publish = frame.marshal(commands.Basic.Publish(routing_key="q0"), 2)
    client.send_bytes(publish + frame.marshal(header.ContentHeader(0, size, commands.Basic.Properties()), 2))
    (refused,) = client.take(2)
    assert closed(refused) == (
        "channel", 406, "PRECONDITION_FAILED - message size 17825792 is larger than configured max size 16777216"
    )


def test_the_line_lets_in_what_fits_and_two_whatever_their_size() -> None:
    """So one whose shard has no leader leaves room for another."""
    line = LargePublishes(100, 100)
    turns: list[int] = []
    for number, size in enumerate((60, 40, 500, 10, 10)):
        line.enter(number, size, lambda _, number=number: turns.append(number))  # type: ignore[misc]
    assert turns == [0, 1]
    line.leave(0, 60)
    assert turns == [0, 1, 2, 3]
    line.leave(1, 40)
    assert turns == [0, 1, 2, 3, 4]
    line.leave(3, 10)
    line.leave(4, 10)
    line.enter(5, 700, lambda _: turns.append(5))
    line.enter(6, 1, lambda _: turns.append(6))
    assert turns == [0, 1, 2, 3, 4, 5]
    line.leave(2, 500)
    assert turns[-1] == 6
    line.leave(5, 700)
    line.leave(6, 1)
    assert line.under_way_bytes == line.waiting_bytes == 0
    assert LARGE_PUBLISH_BYTES <= MESSAGE_BYTES <= LARGE_PUBLISHES_BYTES


def test_a_shard_that_does_not_answer_keeps_those_for_others_from_nothing() -> None:
    line = LargePublishes(100, 100)
    turns: list[int] = []
    for number, shard in enumerate((7, 7, 8, 7, 8)):
        line.enter(shard, 40, lambda _, number=number: turns.append(number))  # type: ignore[misc]
    assert turns == [0, 2]
    line.leave(8, 40)
    assert turns == [0, 2, 4]
    line.leave(8, 40)
    line.leave(7, 40)
    assert turns == [0, 2, 4, 1] and line.under_way_bytes == 40


CLOSES = {
    "channel": (2, commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0)),
    "connection": (0, commands.Connection.Close(reply_code=200, reply_text="", class_id=0, method_id=0)),
}


@pytest.mark.parametrize("what", CLOSES)
def test_what_was_sent_before_an_orderly_close_counts(world: World, client: Client, sent: Sent, what: str) -> None:
    """As in RabbitMQ: it only waits behind a large message. Messages are there, and acknowledged ones do not come
    again."""
    watching = world.client()
    for body in (b"1", b"2", b"3"):
        watching.publish(1, "q1", body)
    first, second, _ = client.consume("q1", channel=2)
    publish_large(client)
    client.publish(2, "q7", b"behind")
    client.send(2, commands.Basic.Ack(delivery_tag=second.tag, multiple=True))
    client.send(2, commands.Exchange.Declare(exchange="made", exchange_type="direct", durable=True, nowait=True))
    number, close = CLOSES[what]
    client.take()
    client.send(number, close)
    assert [type(each).__name__ for each in client.take()] == ["CloseOk"]
    while sent.under_way:
        sent.let_one_go(world)
    assert watching.count("q7") == 2
    assert watching.count("q1") == 2
    assert {watching.get("q1").body for _ in range(2)} == {b"3", LARGE}
    assert world.cluster.catalog.exchange("/", "made") is not None
    assert world.broker.waiting_events.size_bytes == world.broker.consumers.windows.open_bytes == 0
    assert client.connection.pressure.waiting_bytes == 0
    assert client.take() == []
    assert first.tag < second.tag


def test_an_acknowledgement_of_all_is_of_what_came_before_the_close(world: World, client: Client, sent: Sent) -> None:
    """What is delivered to a channel that is closed nobody has seen."""
    watching = world.client()
    client.consume("q1", channel=2)
    publish_large(client)
    client.send(2, commands.Basic.Ack(delivery_tag=0, multiple=True), CLOSES["channel"][1])
    watching.publish(1, "q1", b"not seen")
    while sent.under_way:
        sent.let_one_go(world)
    assert sorted(len(watching.get("q1").body) for _ in range(2)) == [len(b"not seen"), len(LARGE)]


def test_a_channel_opened_with_the_same_number_hears_nothing_of_the_one_before(
    world: World, client: Client, sent: Sent
) -> None:
    publish_large(client)
    client.publish(2, "nowhere", b"returned", mandatory=True)
    client.publish(2, "q7", b"behind")
    client.take()
    client.send(2, CLOSES["channel"][1], commands.Channel.Open())
    while sent.under_way:
        sent.let_one_go(world)
    assert [type(each).__name__ for each in client.take()] == ["CloseOk", "OpenOk"]
    assert client.count("q7") == 2


def test_after_an_error_behind_a_large_message_nothing_counts(world: World, client: Client, sent: Sent) -> None:
    publish_large(client)
    client.publish(2, "q7", b"before")
    client.send(2, commands.Basic.Ack(delivery_tag=77))
    client.publish(2, "q7", b"after")
    client.send(*CLOSES["channel"])
    while sent.under_way:
        sent.let_one_go(world)
    assert client.count("q7") == 2
    assert world.broker.waiting_events.size_bytes == 0


def test_what_is_not_committed_before_the_close_does_not_count(world: World, client: Client, sent: Sent) -> None:
    client.open_channel(4)
    publish_large(client, 4)
    client.send(4, commands.Tx.Select())
    client.publish(4, "q7", b"committed")
    client.send(4, commands.Tx.Commit())
    client.publish(4, "q7", b"not committed")
    client.send(4, CLOSES["channel"][1])
    while sent.under_way:
        sent.let_one_go(world)
    assert client.count("q7") == 2
    assert world.broker.open_transactions.size_bytes == 0 == world.broker.waiting_events.size_bytes


def test_the_line_does_not_grow_the_stack_where_a_shard_answers_at_once() -> None:
    """A node that is lost answers so for its queues, to all who wait."""
    line = LargePublishes(100, 100)
    depths: list[int] = []

    def turn(_: object) -> None:
        depths.append(len(inspect.stack(0)))
        line.leave(7, 60)

    line.enter(7, 60, lambda _: None)
    for _ in range(50):
        line.enter(7, 60, turn)
    line.leave(7, 60)
    assert len(depths) == 50 and len(set(depths)) == 1
    assert line.under_way_bytes == 0
