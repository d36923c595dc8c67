"""What a node keeps in memory of entries that hold messages: where they are likely to be looked at again."""

import pytest
from pamqp import commands

from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Delivery

SHARD = 1
MESSAGES = 20
BODY = b"x" * 1000


@pytest.fixture
def brokers() -> ThreeBrokers:
    """Three nodes, one shard, and a queue in it."""
    brokers = ThreeBrokers(shards=1)
    brokers.nodes[1].client().declare("q")
    return brokers


def leader(brokers: ThreeBrokers) -> int:
    return next(id for id, node in brokers.nodes.items() if node.engine.host.groups[SHARD].leads)


def publish(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client()
    for _ in range(MESSAGES):
        client.publish(1, "q", BODY)
    for _ in range(5):
        brokers.step()


def cached(brokers: ThreeBrokers, id: int) -> int:
    """How many of the shard's entries that hold messages are in the node's memory."""
    engine = brokers.nodes[id].engine
    return sum(engine.host.cache.get(SHARD, index) is not None for index in engine.shards[SHARD].live_entries())


def test_messages_that_wait_are_in_the_memory_of_the_leader_alone(brokers: ThreeBrokers) -> None:
    publish(brokers)
    others = [id for id in brokers.ids if id != leader(brokers)]
    assert cached(brokers, leader(brokers)) > 0
    assert [cached(brokers, id) for id in others] == [0, 0]


def test_they_stay_in_memory_where_they_are_delivered(brokers: ThreeBrokers) -> None:
    at, other = [id for id in brokers.ids if id != leader(brokers)]
    client = brokers.nodes[at].client()
    client.send(1, commands.Basic.Qos(prefetch_count=1))
    client.consume("q")
    publish(brokers)
    assert cached(brokers, at) > 0
    assert cached(brokers, other) == 0
    client.send(1, commands.Basic.Cancel(consumer_tag="tag"))
    for _ in range(5):
        brokers.step()
    assert cached(brokers, at) == 0


def test_what_is_not_in_memory_any_more_is_delivered(brokers: ThreeBrokers) -> None:
    publish(brokers)
    at = next(id for id in brokers.ids if id != leader(brokers))
    client = brokers.nodes[at].client()
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="tag"))
    for _ in range(5):
        brokers.step()
    delivered = [each.body for each in client.take(1) if isinstance(each, Delivery)]
    assert delivered == [BODY] * MESSAGES
