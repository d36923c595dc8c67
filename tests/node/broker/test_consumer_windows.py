"""What a shard gives a consumer whose node lags behind is bounded: the node tells what the client takes, as it does."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, frame

from mayfly.cluster.versions import LEVEL_CONSUMER_WINDOWS, LEVEL_HIGHEST, VersionRange
from mayfly.node.broker.consumer_windows import ConsumerWindows
from mayfly.node.broker.pressure import Pressure
from mayfly.node.catalog import RaiseLevel
from mayfly.node.limits import (
    CONNECTION_WINDOWS_BYTES,
    CONSUMER_WINDOW_BYTES,
    CONSUMER_WINDOW_LEAST_BYTES,
    OUTPUT_HIGH_WATER_BYTES,
)
from mayfly.node.shard.commands import FLOW, TAKEN, TAKEN_HEAD
from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.shard import Shard
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import World
from tests.node.readings import statistics_of
from tests.node.transient.test_transient_shards import Pair

WINDOW_BYTES = 40_000
BODY = bytes(1000)
MESSAGE_BYTES = 1000 + 256 + 30
"""What one counts for, or some more."""
MESSAGES = 200


class Told:
    """A shard's handle that notes what a consumer has given it, and while it `is_late` keeps it to itself."""

    def __init__(self, consumer: Any) -> None:
        self.handle = consumer.handle
        self.commands: list[bytes] = []
        self.is_late = False
        consumer.handle = self

    def submit(self, command: bytes, done: Any) -> None:
        self.commands.append(command)
        if not self.is_late:
            self.handle.submit(command, done)

    def taken(self) -> list[int]:
        """What it said was taken."""
        return [TAKEN_HEAD.unpack(each)[3] for each in self.commands if each[0] == TAKEN]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)


def told(client: Any) -> Told:
    return Told(client.connection.channels[1].consumers["tag"])


def holder(*shards: Shard) -> Holder:
    """The one consumer that is attached."""
    holders = [each for shard in shards for queue in shard._state.queues.values() for each in queue.holders.values()]
    (found,) = [each for each in holders if each.attached]
    return found


def holder_in(world: Any) -> Holder:
    return holder(*(local.shard for local in world.cluster.shards.values()))


def publish(client: Any, count: int = MESSAGES, queue: str = "q") -> None:
    client.send_bytes(b"".join(client.publish_bytes(1, queue, b"%06d" % number + BODY) for number in range(count)))


def numbers(deliveries: list[Any]) -> list[int]:
    return [int(each.body[:6]) for each in deliveries]


@pytest.fixture(params=[True, False], ids=["replicated", "transient"])
def consuming(request: pytest.FixtureRequest, world: Any, client: Any) -> Any:
    """A client that consumes a queue with a small window, without a prefetch."""
    world.broker.settings.consumer_window_bytes = WINDOW_BYTES
    client.declare("q", durable=request.param)
    client.consume("q", no_ack=True)
    return client


def test_a_client_that_reads_gets_everything_and_what_it_took_is_told_by_quarters(world: Any, consuming: Any) -> None:
    said = told(consuming)
    publish(world.client())
    assert numbers(consuming.take(1)) == list(range(MESSAGES))
    steps = [after - before for before, after in zip([0, *said.taken()], said.taken(), strict=False)]
    assert steps and all(WINDOW_BYTES // 4 <= step <= WINDOW_BYTES + MESSAGE_BYTES for step in steps)
    who = holder_in(world)
    assert who.window_bytes == WINDOW_BYTES
    # It is told as the shard counts it: else credit would leak away in the course of time.
    assert who.given_bytes == consuming.connection.channels[1].consumers["tag"]._taken_bytes
    assert who.given_bytes - who.taken_bytes < WINDOW_BYTES // 4


def test_few_messages_are_not_told_at_all(world: Any, consuming: Any) -> None:
    said = told(consuming)
    publish(world.client(), 5)
    assert len(consuming.take(1)) == 5
    assert said.commands == []


def test_what_comes_back_with_a_longer_header_counts_as_before(world: Any, client: Any) -> None:
    """A delivery count is added to the header on its way to the client: it is not in the log."""
    world.broker.settings.consumer_window_bytes = 10 * MESSAGE_BYTES
    client.declare("q", arguments={"x-queue-type": "quorum"})
    client.consume("q")
    publish(client, 5)
    for _ in range(10):
        client.send(1, commands.Basic.Nack(delivery_tag=0, multiple=True, requeue=True))
    client.take(1)
    assert holder_in(world).given_bytes == client.connection.channels[1].consumers["tag"]._taken_bytes


def test_nothing_is_told_while_the_client_does_not_read(world: Any, consuming: Any) -> None:
    """What is under way when its socket is full ends with the window, and goes on when the socket has drained."""
    said = told(consuming)
    pressure = consuming.connection.pressure
    # The pause comes late: the shard does not hear of it.
    said.is_late = True
    pressure.set_output_blocked(True)
    publish(world.client())
    assert [each[0] for each in said.commands] == [FLOW] and said.taken() == []
    got = numbers(consuming.take(1))
    assert WINDOW_BYTES - MESSAGE_BYTES < len(got) * (len(BODY) + 256) < WINDOW_BYTES + MESSAGE_BYTES
    assert holder_in(world).room() == 0
    said.is_late = False
    pressure.set_output_blocked(False)
    world.settle()
    assert said.taken()[0] == holder_in(world).given_bytes or len(said.taken()) > 1
    assert got + numbers(consuming.take(1)) == list(range(MESSAGES))


def test_a_drained_node_tells_nothing_before_it_serves_again(world: Any, consuming: Any) -> None:
    said = told(consuming)
    said.is_late = True
    world.broker.stop_deliveries()
    publish(world.client())
    assert said.taken() == [] and len(consuming.take(1)) < MESSAGES / 2
    said.is_late = False
    world.broker.resume()
    world.settle()
    assert holder_in(world).given_bytes > MESSAGES * len(BODY)


def test_what_one_socket_takes_is_bounded_by_its_buffer_and_a_window(world: Any, client: Any) -> None:
    """The output of a client that takes nothing, with the largest window."""
    client.declare("q")
    world.broker.settings.consumer_window_bytes = CONSUMER_WINDOW_BYTES
    other = world.client()
    for _ in range(250):
        other.publish(1, "q", bytes(100_000))
    client.connection.host.wake = lambda: None
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="tag", no_ack=True))
    unsent_bytes = client.connection.amqp.output.size_bytes
    assert OUTPUT_HIGH_WATER_BYTES < unsent_bytes < OUTPUT_HIGH_WATER_BYTES + CONSUMER_WINDOW_BYTES + 110_000


def test_many_consumers_of_a_connection_share_what_one_may_have(world: Any, client: Any) -> None:
    """The n-th gets the n-th part, but for a least one, so that a thousand have some 24 windows."""
    pressure: Pressure = client.connection.pressure
    client.declare("q")
    windows = []
    for number in range(1000):
        windows.append(pressure.next_window_bytes())
        channel = number % 50 + 1
        if channel > 1 and number < 50:
            client.open_channel(channel)
        client.consume("q", str(number), channel)
    assert windows[:2] == [CONSUMER_WINDOW_BYTES] * 2
    assert windows[3] == CONNECTION_WINDOWS_BYTES // 4
    assert windows[-1] == CONSUMER_WINDOW_LEAST_BYTES
    assert sum(windows) < 192 * 1024 * 1024
    client.call(2, commands.Channel.Close(200, "bye", 0, 0))
    assert pressure.next_window_bytes() == CONSUMER_WINDOW_LEAST_BYTES


def test_consumers_that_come_at_once_share_as_those_that_come_one_by_one(world: Any, client: Any) -> None:
    """All channels of a connection ask for one in one write: each waits for its shard while the next one comes."""
    client.declare("q")
    channels = range(2, 52)
    for channel in channels:
        client.open_channel(channel)
    attaching = b"".join(frame.marshal(commands.Basic.Consume(queue="q", no_ack=True), channel) for channel in channels)
    client.send_bytes(attaching)
    queues = [queue for local in world.cluster.shards.values() for queue in local.shard._state.queues.values()]
    windows = [who.window_bytes for queue in queues for who in queue.holders.values()]
    assert len(windows) == len(channels)
    assert sum(windows) < 80 * 1024 * 1024
    refused = client.connection.channels[3]
    client.send(3, commands.Basic.Consume(queue="missing"))
    assert not refused.is_attaching


@pytest.mark.parametrize("window_bytes", [20 * MESSAGE_BYTES, CONSUMER_WINDOW_BYTES])
def test_d8_dead_letters_go_as_fast_as_a_window_lets_them_and_none_is_turned_away(
    world: Any, client: Any, window_bytes: int
) -> None:
    """RULES D8. The queue refuses what is too much, and one message already is; its consumer has no prefetch. What is
    sent beyond the window is refused, and would come again and again."""
    world.broker.settings.consumer_window_bytes = window_bytes
    client.declare("dead", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.declare("dies", arguments={
        "x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    })  # fmt: skip
    client.consume("dead", no_ack=True)
    publish(world.client(), MESSAGES, "dies")
    for _ in range(10):
        world.advance(100)
    assert numbers(client.take(1)) == list(range(MESSAGES))
    assert sum(statistics_of(local.shard).refused_transfers for local in world.cluster.shards.values()) == 0


def leader_of(brokers: ThreeBrokers) -> int:
    (found,) = [id for id, node in brokers.nodes.items() if node.engine.host.groups[1].leads]
    return found


@pytest.mark.parametrize("level", [LEVEL_CONSUMER_WINDOWS - 1, LEVEL_HIGHEST])
def test_a_leader_gives_no_more_than_the_window_to_a_node_that_hears_late(level: int) -> None:
    """Nothing reaches the consumer's node, and the queue goes on being published to: the rest stays in the queue. Where
    not all members know windows, all of it is given."""
    brokers = ThreeBrokers(shards=1, levels=VersionRange(1, level))
    leader = leader_of(brokers)
    late, third = (id for id in brokers.ids if id != leader)
    node = brokers.nodes[late]
    node.broker.settings.consumer_window_bytes = WINDOW_BYTES
    client, other = node.client(), brokers.nodes[third].client()
    client.declare("q")
    client.consume("q", no_ack=True)
    brokers.late.add(late)
    for _ in range(4):
        publish(other, MESSAGES // 4)
        brokers.step()
    who = holder(brokers.nodes[leader].engine.shards[1])
    messages = brokers.nodes[leader].engine.shards[1].queue(who.queue_id)
    assert messages is not None
    if level < LEVEL_CONSUMER_WINDOWS:
        assert messages.ready_count() == 0
    else:
        assert WINDOW_BYTES <= who.given_bytes - who.taken_bytes < WINDOW_BYTES + MESSAGE_BYTES
        assert messages.ready_count() > MESSAGES * 0.8
        assert not brokers.nodes[leader].engine.shards[1].due_messages(brokers.now_ms)
    assert client.take(1) == []
    brokers.late.clear()
    for _ in range(5):
        brokers.step()
    assert numbers(client.take(1)) == [number % (MESSAGES // 4) for number in range(MESSAGES)]


def test_windows_come_with_the_level(world: Any, client: Any) -> None:
    """Those who are attached when it is raised go on without one."""
    brokers = ThreeBrokers(shards=1, levels={1: VersionRange(1, 3), 2: VersionRange(1, 4), 3: VersionRange(1, 4)})
    client = brokers.nodes[2].client()
    client.declare("q")
    client.consume("q", "before")
    catalog = brokers.nodes[2].engine.catalog
    assert catalog.level == 3
    nodes = tuple((node.engine.node_id, node.engine.incarnation) for node in brokers.nodes.values())
    brokers.nodes[2].engine.submit_catalog(RaiseLevel(4, nodes), lambda _: None)
    brokers.run_until(lambda: catalog.level == 4)
    client.consume("q", "after")
    windows: dict[int, int] = {}
    for each in brokers.nodes[1].engine.shards[1]._state.sessions.values():
        windows |= {who.order: who.window_bytes for who in each.values()}
    assert list(windows.values()) == [0, CONSUMER_WINDOW_BYTES]


@pytest.fixture
def pair(world: Any) -> Pair:
    return Pair(type(world))


def test_a_guest_that_hears_late_is_given_no_more_than_a_window(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transient queue of another node."""
    owner_world, guest_world = pair.worlds
    guest_world.cluster.catalog.apply(RaiseLevel(LEVEL_HIGHEST, ()))
    guest_world.broker.settings.consumer_window_bytes = WINDOW_BYTES
    owner, guest = owner_world.client(), guest_world.client()
    owner.declare("q", durable=False)
    guest.consume("q", no_ack=True)
    monkeypatch.setattr(pair.network, "carry", lambda: False)
    publish(owner)
    who = holder(owner_world.cluster.transient.local.shard)
    assert WINDOW_BYTES <= who.given_bytes - who.taken_bytes < WINDOW_BYTES + MESSAGE_BYTES
    monkeypatch.undo()
    for _ in range(5):
        pair.advance(100)
    assert numbers(guest.take(1)) == list(range(MESSAGES))
    assert who.given_bytes - who.taken_bytes < WINDOW_BYTES


# -- all consumers of a node ----------------------------------------------------------------------


def test_the_windows_of_a_node_are_bounded_together() -> None:
    """Each has something, and those that are gone give theirs back."""
    windows = ConsumerWindows(100_000, 10)
    opened = [windows.open(number, 5_000) for number in range(1_000)]
    assert opened[0] == 5_000 and opened == sorted(opened, reverse=True)
    assert opened[-1] == 10
    assert sum(opened) == windows.open_bytes <= 100_000 + 1_000 * 10
    for number in range(1_000):
        windows.close(number)
        windows.close(number)
    assert windows.open_bytes == 0
    assert windows.open(1, 5_000) == 5_000
    # No windows before all nodes know them.
    assert windows.open(2, 0) == 0


def test_slow_consumers_on_many_connections_are_given_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them reads: what all have been given is the budget, and one message over for each."""
    count, most_bytes = 40, 100 * MESSAGE_BYTES
    world = World()
    world.broker.consumers.windows = ConsumerWindows(most_bytes, MESSAGE_BYTES)
    publisher = world.client()
    publisher.declare("q")
    for _ in range(20 * count):
        publisher.publish(1, "q", BODY)
    slow = []
    for _ in range(count):
        client = world.client()
        client.connection.pressure.set_output_blocked(True)
        # As if its socket were full: nothing is reported as taken.
        client.send(1, commands.Basic.Consume(queue="q", consumer_tag="tag"))
        slow.append(client)
    assert world.broker.consumers.windows.open_bytes <= most_bytes + count * MESSAGE_BYTES
    given = sum(client.connection.channels[1].unacknowledged.count for client in slow)
    assert count <= given <= 100 + 2 * count
    for client in slow:
        client.lose()
    assert world.broker.consumers.windows.open_bytes == 0


def test_a_consumer_that_is_refused_has_no_window(world: Any, client: Any) -> None:
    client.declare("q")
    client.consume("q", exclusive=True)
    before = world.broker.consumers.windows.open_bytes
    other = world.client()
    assert isinstance(other.call(1, commands.Basic.Consume(queue="q")), commands.Channel.Close)
    assert world.broker.consumers.windows.open_bytes == before > 0
    other.send(1, commands.Channel.CloseOk())
    other.open_channel()
    other.call(1, commands.Basic.Consume(queue="missing"))
    assert world.broker.consumers.windows.open_bytes == before
    client.call(1, commands.Basic.Cancel(consumer_tag="tag"))
    assert world.broker.consumers.windows.open_bytes == 0
