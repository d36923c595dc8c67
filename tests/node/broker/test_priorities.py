"""x-max-priority as clients see it, on replicated queues and on those of one node."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.node.broker.three_brokers import ThreeBrokers

SENT = (("a", None), ("b", 3), ("c", 9), ("d", 5), ("e", 1), ("f", 3), ("g", 0))
IN_ORDER = [b"c", b"d", b"b", b"f", b"e", b"a", b"g"]


@pytest.mark.parametrize("durable", [True, False])
def test_higher_priorities_first(client: Any, durable: bool) -> None:
    """The order recorded of RabbitMQ 3.10.8."""
    client.declare("q", durable=durable, arguments={"x-max-priority": 5})
    for body, priority in SENT:
        client.publish(1, "q", body.encode(), priority=priority)
    got = client.consume("q")
    assert [each.body for each in got] == IN_ORDER
    assert [each.properties.priority for each in got[:2]] == [9, 5], "the property is the publisher's"
    client.send(1, commands.Basic.Nack(delivery_tag=got[-1].tag, multiple=True, requeue=True))
    assert [(each.body, each.method.redelivered) for each in client.take(1)] == [(body, True) for body in IN_ORDER]


def test_a_quorum_queue_has_none(client: Any) -> None:
    got = client.declare("q", arguments={"x-queue-type": "quorum", "x-max-priority": 5})
    assert got.reply_text == (
        "PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'q' in vhost '/' of queue type "
        "rabbit_quorum_queue"
    )


def test_a_dead_letter_keeps_its_place(world: Any, client: Any) -> None:
    """RULES D9."""
    client.declare("dead", arguments={"x-max-priority": 5})
    dying = {"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare("q", arguments=dying)
    client.publish(1, "q", b"low", priority=1)
    client.publish(1, "q", b"high", priority=4)
    world.advance(400)
    assert [client.get("dead").body for _ in range(2)] == [b"high", b"low"]


@pytest.mark.parametrize("durable", [True, False])
def test_through_another_node(durable: bool) -> None:
    brokers = ThreeBrokers()
    home, elsewhere = brokers.nodes[1].client(), brokers.nodes[2].client()
    home.send(1, commands.Queue.Declare(queue="q", durable=durable, arguments={"x-max-priority": 5}))
    brokers.run_until(lambda: home.received)
    for body, priority in SENT:
        elsewhere.publish(1, "q", body.encode(), priority=priority)
    brokers.settle()
    elsewhere.send(1, commands.Basic.Consume(queue="q", consumer_tag="t", no_ack=True))
    brokers.run_until(lambda: len(elsewhere.received) >= 1 + 3 * len(SENT))
    _, *got = elsewhere.take(1)
    assert [each.body for each in got] == IN_ORDER
