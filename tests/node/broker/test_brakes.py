"""Brakes as clients see them (RULES R5): on one node with fake time, and on three whose leaders die."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pamqp import commands

from mayfly.node.catalog import ClearPolicy
from tests.node.broker.test_policies import apply, put
from tests.node.broker.test_stream_copies import call, declare, pass_ms, record
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Client

BRAKE: dict[str, Any] = {
    "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-dead-letter-brake-rate": 1,
    "x-dead-letter-brake-window": 5000,
}  # fmt: skip
LIMIT = 5
FLAGS = pytest.mark.parametrize("flags", [{"durable": True}, {"durable": False}, {"exclusive": True}])


def reject_all(client: Client, most: int = 1000) -> int:
    """Reject what was delivered, and what is delivered for it, at most so much; how much it was."""
    count = 0
    while count < most and (found := [each for each in client.take(1) if hasattr(each, "body")]):
        for each in found:
            client.send(1, commands.Basic.Reject(each.tag, requeue=False))
        count += len(found)
    return count


@FLAGS
def test_r5_a_consumer_that_rejects_all_is_stopped_and_tries_again_later(
    world: Any, client: Client, flags: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mayfly.node.duties.brake_watch"):
        client.declare("dead")
        client.declare("q", arguments=BRAKE, **flags)
        for number in range(40):
            client.publish(1, "q", b"%d" % number)
        client.send(1, commands.Basic.Qos(prefetch_count=2))
        client.send(1, commands.Basic.Consume(queue="q", consumer_tag="t"))
        assert LIMIT < reject_all(client) <= LIMIT + 2
        assert isinstance(client.get("q"), commands.Basic.GetEmpty)
        world.advance(4000)
        assert reject_all(client) == 0
        world.advance(1500)
        assert LIMIT < reject_all(client) <= LIMIT + 2
        world.advance(300)
    lines = [each.getMessage() for each in caplog.records]
    assert lines[0].startswith("queue 'q' in vhost '/' is on brake: ")
    assert lines[0].endswith(" messages have failed within 5000 ms")
    assert lines[1] == "queue 'q' in vhost '/' is no longer on brake"
    assert len(lines) == 3


def test_r5_a_policy_puts_a_brake_on_a_queue_that_is_there_and_takes_it_away(world: Any, client: Client) -> None:
    client.declare("q")
    for number in range(20):
        client.publish(1, "q", b"%d" % number)
    put(world, {"dead-letter-brake-rate": 0.1})
    world.advance(500)
    client.send(1, commands.Basic.Qos(prefetch_count=1))
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="t"))
    assert reject_all(client) == 2
    apply(world, ClearPolicy("/", "p"))
    world.advance(500)
    assert reject_all(client) == 18


def test_r5_it_lasts_though_the_leader_dies_and_ends_by_the_shards_clock() -> None:
    """R5: whichever node leads, the queue delivers nothing for the window, and does again after it."""
    brokers = ThreeBrokers(shards=1)
    client = brokers.nodes[1].client(channel=False)
    client.open_channel(confirms=True)
    declare(brokers, client, "dead", {})
    declare(brokers, client, "q", BRAKE)
    shard = record(brokers, "q").shard

    def leader() -> int:
        return next((id for id, node in brokers.nodes.items() if node.engine.host.groups[shard].established), 0)

    if leader() == 1:
        brokers.nodes[1].engine.host.groups[shard].raw.transfer_leader(2)
        brokers.run_until(lambda: leader() > 1)
    for number in range(30):
        client.publish(1, "q", b"%d" % number)
    client.send(1, commands.Basic.Qos(prefetch_count=1))
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="t"))
    rejected = 0
    for _ in range(20):
        pass_ms(brokers, 50)
        rejected += reject_all(client)
    assert rejected == LIMIT + 1
    braked_ms = brokers.now_ms
    gone = leader()
    brokers.cut.add(gone)
    for _ in range(6):
        pass_ms(brokers, 500)
        assert reject_all(client) == 0
    assert leader() not in (0, gone)
    brokers.cut.discard(gone)
    while not (count := reject_all(client, 1)):
        pass_ms(brokers, 100)
        assert brokers.now_ms < braked_ms + 10_000
    assert brokers.now_ms >= braked_ms + 4000
    assert count == 1
    held = [node.engine.shards[shard] for node in brokers.nodes.values()]
    pass_ms(brokers, 2000)
    assert len({each.digest() for each in held}) == 1
    assert call(brokers, client, commands.Queue.Declare(queue="dead", durable=True)).message_count >= LIMIT + 2
