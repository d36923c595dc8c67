"""Deliveries that are not acknowledged in time close their channel (RabbitMQ 3.10, `consumer_timeout`)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp import commands

from mayfly.node.broker.consumer_timeout import DeliveryMarks
from mayfly.node.broker.unacknowledged import DeliveryHolder, Unacknowledged
from mayfly.node.limits import CONSUMER_TIMEOUT_LOOKS, CONSUMER_TIMEOUT_MS
from mayfly.node.shard.commands import ACK
from tests.node.conftest import Client, World

TICK_MS = 500
LATEST_MS = CONSUMER_TIMEOUT_MS + 2 * (CONSUMER_TIMEOUT_MS // CONSUMER_TIMEOUT_LOOKS + TICK_MS)
TEXT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000 ms. "
    "This timeout value can be configured, see consumers doc guide to learn more"
)


def wait(client: Client, ms: int, tick_ms: int = TICK_MS) -> None:
    """Time passes for a connection as its socket tells it, and for the cluster."""
    world = client.world
    end = world.cluster.now_ms + ms
    while world.cluster.now_ms < end:
        world.cluster.tick(min(end, world.cluster.now_ms + tick_ms))
        client.connection.tick(world.cluster.now_ms)
        world.settle()


def closes(client: Client) -> list[Any]:
    return [item for item in client.take() if isinstance(item, commands.Channel.Close)]


@pytest.fixture
def holding(world: World, client: Client) -> Client:
    """A client that holds one message by a consumer."""
    client.declare("q")
    client.publish(1, "q", b"held")
    (delivery,) = client.consume("q")
    assert delivery.body == b"held"
    return client


def test_a_channel_is_closed_and_its_messages_go_back(world: World, holding: Client) -> None:
    holding.open_channel(2)
    wait(holding, CONSUMER_TIMEOUT_MS - 1)
    assert closes(holding) == [] and holding.count("q", 2) == 0
    wait(holding, LATEST_MS - CONSUMER_TIMEOUT_MS + 1)
    (close,) = closes(holding)
    assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (406, TEXT, 0, 0)
    assert not holding.connection.over
    again = holding.get("q", 2)
    assert again.body == b"held" and again.method.redelivered
    holding.send(1, commands.Channel.CloseOk())
    holding.open_channel(1)
    wait(holding, 2 * LATEST_MS)
    assert closes(holding) == []


def test_what_was_got_times_out_as_well(world: World, client: Client) -> None:
    client.declare("q")
    client.publish(1, "q")
    assert client.get("q", no_ack=False).body == b"m"
    wait(client, LATEST_MS)
    assert [close.reply_text for close in closes(client)] == [TEXT]


def test_who_acknowledges_in_time_goes_on(world: World, holding: Client) -> None:
    """Always something is held, and never for long; and what needs no acknowledgement is nothing."""
    holding.declare("other")
    holding.consume("other", "without", no_ack=True)
    for tag in range(1, 60):
        holding.publish(1, "other")
        holding.publish(1, "q")
        wait(holding, CONSUMER_TIMEOUT_MS // 10, 30_000)
        held = [item for item in holding.take(1) if hasattr(item, "tag") and item.method.consumer_tag == "tag"]
        assert len(held) == 1, tag
        (channel,) = holding.connection.channels.values()
        holding.send(1, commands.Basic.Ack(channel.unacknowledged.oldest_tag))
    assert closes(holding) == []


def test_the_oldest_counts_whatever_comes_and_goes_behind_it(world: World, holding: Client) -> None:
    for _ in range(60):
        holding.publish(1, "q")
        (delivery,) = [item for item in holding.take(1) if hasattr(item, "tag")]
        holding.send(1, commands.Basic.Ack(delivery.tag))
        wait(holding, LATEST_MS // 60, 10_000)
        if holding.received:
            break
    wait(holding, 60)
    assert [close.reply_text for close in closes(holding)] == [TEXT]


def test_it_can_be_set_and_switched_off() -> None:
    for timeout_ms, latest_ms in ((5_000, 5_000 + 4 * TICK_MS), (0, None)):
        world = World()
        world.broker.settings.consumer_timeout_ms = timeout_ms
        client = world.client()
        client.declare("q")
        client.publish(1, "q")
        client.consume("q")
        wait(client, 4_999)
        assert closes(client) == []
        wait(client, 10 * LATEST_MS if latest_ms is None else latest_ms - 4_999, 2000 if latest_ms is None else TICK_MS)
        texts = [close.reply_text for close in closes(client)]
        assert texts == ([] if latest_ms is None else [TEXT.replace("1800000", "5000")])


@pytest.mark.parametrize("seed", range(20))
def test_waiting_times_are_never_too_long_and_little_too_short(seed: int) -> None:
    """Against the time of each delivery; and few marks are kept."""
    chance = random.Random(seed)
    tags, marks, holder = Unacknowledged(), DeliveryMarks(), DeliveryHolder(1, 1, 1)
    times: dict[int, int] = {}
    looked_ms, longest_ms = 0, 0
    for now_ms in range(0, 20_000, 10):
        if chance.random() < 0.3:
            for tag in range(first := tags.hold(holder, len(times) + 1, 2), first + 2):
                times[tag] = now_ms
        open_tags = tags.outstanding(0, True)
        if open_tags and chance.random() < (0.1 if now_ms % 5_000 < 2_500 else 0.4):
            tags.settle(chance.choice(open_tags[:3]), chance.random() < 0.3, ACK)
        if now_ms - looked_ms >= 100:
            waited_ms = marks.waited_ms(tags, now_ms)
            since_ms = now_ms - times[tags.oldest_tag] if tags.count else 0
            assert since_ms - (now_ms - looked_ms) <= waited_ms <= since_ms, now_ms
            longest_ms, looked_ms = max(longest_ms, waited_ms), now_ms
            assert len(marks._marks) <= waited_ms // 100 + 2
    assert longest_ms > 300
