"""Acknowledgements wait a little for other commands, unless somebody could wait for what they make room for."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pamqp import commands

from mayfly.node.engine.replicated_shard import ReplicatedShard
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Client


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers(shards=1)


@contextmanager
def at_once(brokers: ThreeBrokers) -> Iterator[None]:
    """What happens inside takes no time at all."""
    now_ms = brokers.now_ms
    brokers.patient = False
    yield
    assert brokers.now_ms == now_ms
    brokers.patient = True


def consumer(brokers: ThreeBrokers, prefetch: int, messages: int) -> tuple[Client, Client]:
    """A client that has got as much as its prefetch lets it have, and another one on another node."""
    client, other = brokers.nodes[1].client(), brokers.nodes[2].client()
    client.declare("q")
    for _ in range(messages):
        other.publish(1, "q")
    client.send(1, commands.Basic.Qos(prefetch_count=prefetch))
    client.consume("q")
    return client, other


def unsettled(brokers: ThreeBrokers) -> int:
    """As the leader of the shard has it."""
    for node in brokers.nodes.values():
        if node.engine.host.groups[1].leads:
            return sum(queue.held_count for queue in node.engine.shards[1]._state.queues.values())
    raise AssertionError("nobody leads")


def test_they_wait_while_half_of_the_prefetch_is_free_and_go_by_themselves(brokers: ThreeBrokers) -> None:
    client, _ = consumer(brokers, 10, 5)
    with at_once(brokers):
        client.send(1, commands.Basic.Ack(delivery_tag=1))
        assert unsettled(brokers) == 5
    brokers.settle()
    assert unsettled(brokers) == 4


def test_they_go_at_once_when_less_is_free(brokers: ThreeBrokers) -> None:
    client, _ = consumer(brokers, 10, 6)
    with at_once(brokers):
        client.send(1, commands.Basic.Ack(delivery_tag=1))
        assert unsettled(brokers) == 5


def test_a_full_window_opens_at_once(brokers: ThreeBrokers) -> None:
    client, _ = consumer(brokers, 1, 3)
    assert len(client.take(1)) == 0
    with at_once(brokers):
        for tag in (1, 2):
            client.send(1, commands.Basic.Ack(delivery_tag=tag))
            (delivery,) = client.take(1)
            assert delivery.tag == tag + 1


def test_held_ones_go_when_others_fill_the_window(brokers: ThreeBrokers) -> None:
    client, other = consumer(brokers, 4, 2)
    with at_once(brokers):
        client.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
        assert unsettled(brokers) == 2
        for _ in range(6):
            other.publish(1, "q")
        assert len(client.take(1)) == 4
        assert unsettled(brokers) == 4


def test_they_go_with_what_the_same_node_publishes(brokers: ThreeBrokers) -> None:
    client, _ = consumer(brokers, 10, 2)
    with at_once(brokers):
        client.send(1, commands.Basic.Ack(delivery_tag=1))
        client.publish(1, "q")
        assert unsettled(brokers) == 2


def test_returns_never_wait(brokers: ThreeBrokers) -> None:
    client, _ = consumer(brokers, 10, 2)
    client.take(1)
    with at_once(brokers):
        client.send(1, commands.Basic.Ack(delivery_tag=1), commands.Basic.Nack(delivery_tag=2, requeue=True))
        (delivery,) = client.take(1)
        assert delivery.method.redelivered
        assert unsettled(brokers) == 1


def test_holders_are_forgotten_when_nothing_is_held_any_more(brokers: ThreeBrokers) -> None:
    """Where clients poll there may be no delivery to any consumer, ever."""
    client, other = brokers.nodes[1].client(), brokers.nodes[2].client()
    client.declare("q")
    engine = brokers.nodes[1].engine
    handle = engine.shard(1)
    assert isinstance(handle, ReplicatedShard)
    most = 0
    for _ in range(20):
        other.publish(1, "q")
        client.open_channel(2)
        client.send(2, commands.Basic.Ack(delivery_tag=client.get("q", 2, no_ack=False).tag))
        most = max(most, len(handle._held_for))
        client.call(2, commands.Channel.Close(0, "", 0, 0))
    assert unsettled(brokers) == 0
    assert most == 1
