"""basic.qos with global: one limit for all consumers of a channel, as RabbitMQ's classic queues have it."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from node.limits import OUTPUT_HIGH_WATER_BYTES
from tests.broker.conftest import Delivery
from tests.broker.three_brokers import ThreeBrokers


@pytest.fixture(params=[True, False], ids=["replicated", "transient"])
def filled(request: pytest.FixtureRequest, client: Any) -> Any:
    client.declare("q", durable=request.param)
    client.send_bytes(b"".join(client.publish_bytes(1, "q", b"%d" % number) for number in range(10)))
    return client


def limit(client: Any, count: int, for_all: bool = True) -> list[bytes]:
    """basic.qos; what came after qos-ok."""
    client.send(1, commands.Basic.Qos(prefetch_count=count, global_=for_all))
    got = client.take(1)
    assert sum(isinstance(item, commands.Basic.QosOk) for item in got) == 1
    return bodies([item for item in got if not isinstance(item, commands.Basic.QosOk)])


def bodies(deliveries: list[Any]) -> list[bytes]:
    return [each.body for each in deliveries]


def test_consumers_share_the_limit(filled: Any) -> None:
    limit(filled, 3)
    first = filled.consume("q", "a")
    assert bodies(first) == [b"0", b"1", b"2"] and [each.tag for each in first] == [1, 2, 3]
    assert filled.consume("q", "b") == []
    filled.send(1, commands.Basic.Ack(delivery_tag=1))
    (fourth,) = filled.take(1)
    assert fourth.tag == 4 and not fourth.method.redelivered
    filled.send(1, commands.Basic.Ack(delivery_tag=4, multiple=True))
    more = filled.take(1)
    assert [each.tag for each in more] == [5, 6, 7]
    filled.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
    assert sorted(bodies([*first, fourth, *more, *filled.take(1)])) == [b"%d" % number for number in range(10)]


def test_a_consumer_keeps_to_its_own_limit_too(filled: Any) -> None:
    limit(filled, 2, for_all=False)
    limit(filled, 3)
    assert len(filled.consume("q", "a")) == 2
    assert len(filled.consume("q", "b")) == 1


def test_a_limit_for_each_lifts_the_one_for_all(filled: Any) -> None:
    """Consumers that are there keep their own, those that follow have the new one."""
    limit(filled, 2, for_all=False)
    limit(filled, 3)
    assert len(filled.consume("q", "a")) == 2 and len(filled.consume("q", "b")) == 1
    assert len(limit(filled, 4, for_all=False)) == 1
    assert len(filled.consume("q", "c")) == 4
    assert not filled.connection.channels[1].global_prefetch.is_used


def test_the_limit_changes_for_consumers_that_are_there(filled: Any) -> None:
    limit(filled, 2)
    assert len(filled.consume("q")) == 2
    assert limit(filled, 4) == [b"2", b"3"]
    assert limit(filled, 3) == []
    filled.send(1, commands.Basic.Ack(delivery_tag=1))
    assert filled.take(1) == []
    filled.send(1, commands.Basic.Ack(delivery_tag=2))
    assert bodies(filled.take(1)) == [b"4"]
    assert limit(filled, 0) == [b"%d" % number for number in range(5, 10)]


def test_a_limit_that_comes_late(filled: Any) -> None:
    assert len(filled.consume("q")) == 10
    limit(filled, 2)
    filled.publish(1, "q", b"more")
    filled.send(1, commands.Basic.Ack(delivery_tag=8, multiple=True))
    assert filled.take(1) == []
    filled.send(1, commands.Basic.Ack(delivery_tag=9))
    assert bodies(filled.take(1)) == [b"more"]


def test_gets_and_consumers_without_acknowledgement_do_not_count(filled: Any) -> None:
    limit(filled, 2)
    tags = [filled.get("q", no_ack=False).tag for _ in range(3)]
    assert bodies(filled.consume("q", "a")) == [b"3", b"4"]
    filled.send(1, commands.Basic.Ack(delivery_tag=tags[0]))
    assert filled.take(1) == []
    assert bodies(filled.consume("q", "b", no_ack=True)) == [b"%d" % number for number in range(5, 10)]


def test_what_waits_for_a_cancelled_consumer_goes_back(world: Any, filled: Any) -> None:
    limit(filled, 2)
    filled.consume("q", "a")
    filled.consume("q", "b")
    assert isinstance(filled.call(1, commands.Basic.Cancel(consumer_tag="b")), commands.Basic.CancelOk)
    assert world.client().count("q") == 8
    filled.send(1, commands.Basic.Ack(delivery_tag=1))
    (back,) = filled.take(1)
    # It was never sent: it is where it was, and not redelivered.
    assert (back.body, back.method.redelivered) == (b"2", False)


def test_what_waits_comes_back_with_the_channel(world: Any, filled: Any) -> None:
    limit(filled, 2)
    filled.consume("q", "a")
    filled.consume("q", "b")
    filled.call(1, commands.Channel.Close(200, "bye", 0, 0))
    got = world.client().consume("q")
    assert bodies(got) == [b"%d" % number for number in range(10)]
    assert [each.method.redelivered for each in got] == [True] * 2 + [False] * 8


def test_in_a_transaction_the_commit_makes_room(filled: Any) -> None:
    filled.call(1, commands.Tx.Select())
    limit(filled, 1)
    filled.consume("q", "a")
    filled.consume("q", "b")
    filled.send(1, commands.Basic.Ack(delivery_tag=1))
    assert filled.take(1) == []
    filled.send(1, commands.Tx.Commit())
    assert sorted(type(item).__name__ for item in filled.take(1)) == ["CommitOk", "Delivery"]


def test_a_deleted_queue_leaves_nothing_waiting(world: Any, filled: Any) -> None:
    limit(filled, 2)
    filled.consume("q", "a")
    filled.consume("q", "b")
    world.client().call(1, commands.Queue.Delete(queue="q"))
    assert {item.name for item in filled.take(1)} == {"Basic.Cancel"}
    filled.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
    assert filled.take() == []


def test_a_transient_queue_of_another_node() -> None:
    brokers = ThreeBrokers()
    home, elsewhere = brokers.nodes[1].client(), brokers.nodes[2].client()
    home.send(1, commands.Queue.Declare(queue="q", durable=False))
    brokers.run_until(lambda: home.received)
    home.send_bytes(b"".join(home.publish_bytes(1, "q", b"%d" % number) for number in range(5)))
    elsewhere.send(1, commands.Basic.Qos(prefetch_count=2, global_=True))
    for tag in ("a", "b"):
        elsewhere.send(1, commands.Basic.Consume(queue="q", consumer_tag=tag))
        brokers.settle()
    got = [item for item in elsewhere.take(1) if hasattr(item, "body")]
    assert bodies(got) == [b"0", b"1"]
    elsewhere.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
    brokers.settle()
    assert len(elsewhere.take(1)) == 2


LARGE = bytes(100_000)


def fill(client: Any, *queues: str, messages: int = 100) -> None:
    for queue in queues:
        client.declare(queue)
        for _ in range(messages):
            client.publish(1, queue, LARGE)


def deliveries(world: Any, client: Any) -> int:
    """How many came to a client that reads."""
    count = 0
    for _ in range(10):
        world.advance(50)
        count += sum(isinstance(each, Delivery) for each in client.take(1))
        client.connection.pressure.set_output_blocked(False)
    return count


def test_what_waits_in_memory_is_bounded(world: Any, client: Any) -> None:
    """The shard delivers 4 MiB in one go; of four consumers with 10 MB each little more than that is held back."""
    fill(world.client(), "held", "q1", "q2", "q3")
    client.send(1, commands.Basic.Qos(prefetch_count=100, global_=True))
    got = len(client.consume("held", "held")) + deliveries(world, client)
    assert got == 100
    for queue in ("q1", "q2", "q3"):
        client.consume(queue, queue)
        assert deliveries(world, client) == 0
    channel = client.connection.channels[1]
    assert channel.global_prefetch.is_full and channel.global_prefetch.held_back_bytes < 3 * OUTPUT_HIGH_WATER_BYTES
    assert all(consumer.paused for consumer in channel.consumers.values())
    # Other reasons come and go meanwhile, and none takes another's place.
    client.connection.pressure.set_output_blocked(True)
    client.connection.pressure.set_output_blocked(False)
    world.broker.stop_deliveries()
    world.broker.resume()
    assert all(consumer.paused for consumer in channel.consumers.values())
    client.connection.pressure.set_output_blocked(True)
    client.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
    for _ in range(20):
        got += deliveries(world, client)
        client.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
    assert got + deliveries(world, client) == 400
    assert not channel.global_prefetch.is_full and channel.global_prefetch.held_back_bytes == 0
    assert not any(consumer.paused for consumer in channel.consumers.values())


def test_what_was_held_back_counts_as_output(world: Any, client: Any) -> None:
    fill(world.client(), "q1", "q2", messages=50)
    client.send(1, commands.Basic.Qos(prefetch_count=50, global_=True))
    client.consume("q1", "a")
    deliveries(world, client)
    client.consume("q2", "b")
    assert deliveries(world, client) == 0
    connection = client.connection
    connection.host.wake = lambda: None  # Its socket takes nothing.
    client.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
    assert connection.amqp.output.size_bytes > OUTPUT_HIGH_WATER_BYTES and connection.pressure.output_blocked


@pytest.mark.parametrize("durable", [True, False], ids=["replicated", "transient"])
def test_what_was_never_sent_has_come_back_no_time(world: Any, durable: bool) -> None:
    other = world.client()
    other.declare("q1", durable=durable)
    other.declare("q2", durable=durable)
    for _ in range(10):
        other.publish(1, "q1")
    other.publish(1, "q2", b"never sent")
    for _ in range(4):
        one = world.client()
        limit(one, 1)
        one.consume("q1", "a")
        assert not one.consume("q2", "b")
        one.lose()
        world.advance(100)
    last = other.get("q2")
    assert (last.body, last.method.redelivered, last.properties.headers) == (b"never sent", False, None)
