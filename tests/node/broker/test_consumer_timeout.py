"""Deliveries that are not acknowledged in time: their consumer is cancelled, or their channel closed (RULES Q3)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.versions import LEVEL_CONSUMER_TIMEOUTS
from mayfly.node.broker.consumer_timeout import DeliveryMarks
from mayfly.node.broker.unacknowledged import DeliveryHolder, Unacknowledged
from mayfly.node.catalog import Catalog, DeclareQueue, RaiseLevel, Refusal, SetPolicy
from mayfly.node.catalog.arguments import unbuilt_refusal
from mayfly.node.limits import CONSUMER_TIMEOUT_LOOKS, CONSUMER_TIMEOUT_MS
from mayfly.node.shard.commands import ACK
from tests.node.broker.test_unacknowledged import oldest_tag
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
def holding(world: World) -> Client:
    """A client that holds one message by a consumer, and takes no cancel notices."""
    client = world.client(capabilities={})
    client.declare("q")
    client.publish(1, "q", b"held")
    (delivery,) = client.consume("q")
    assert delivery.body == b"held"
    return client


def test_q3_without_cancel_notices_a_channel_is_closed_and_its_messages_go_back(world: World, holding: Client) -> None:
    """RULES Q3."""
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
        holding.send(1, commands.Basic.Ack(oldest_tag(channel.unacknowledged)))
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
        client = world.client(capabilities={})
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
            waited_ms = marks.waited_ms(oldest_tag(tags), tags.next_tag, now_ms, 100) if tags.count else 0
            since_ms = now_ms - times[oldest_tag(tags)] if tags.count else 0
            assert since_ms - (now_ms - looked_ms) <= waited_ms <= since_ms, now_ms
            longest_ms, looked_ms = max(longest_ms, waited_ms), now_ms
            assert len(marks._marks) <= waited_ms // 100 + 2
    assert longest_ms > 300


QUORUM = {"x-queue-type": "quorum"}


def cancels(client: Client) -> list[str]:
    return [str(item.consumer_tag) for item in client.take() if isinstance(item, commands.Basic.Cancel)]


def hold(client: Client, queue: str, tag: str = "tag", timeout_ms: int | None = None) -> int:
    """Publish one message to a queue, and have a new consumer hold it; its delivery tag."""
    client.publish(1, queue)
    arguments: Any = {} if timeout_ms is None else {"x-consumer-timeout": timeout_ms}
    client.send(1, commands.Basic.Consume(queue=queue, consumer_tag=tag, arguments=arguments))
    consumed, delivery = client.take(1)
    assert isinstance(consumed, commands.Basic.ConsumeOk)
    return int(delivery.tag)


def declare(client: Client, queue: str, **arguments: Any) -> None:
    client.send(1, commands.Queue.Declare(queue=queue, durable=True, arguments=QUORUM | arguments))
    (declared,) = client.take(1)
    assert isinstance(declared, commands.Queue.DeclareOk), declared


def set_policy(world: World, definition: dict[str, Any], operator: bool = False) -> None:
    command = SetPolicy("/", "p", "", definition, operator=operator)
    assert not isinstance(world.cluster.catalog.apply(command), Refusal)


def test_q3_a_consumer_is_cancelled_and_what_it_holds_returns(world: World, client: Client) -> None:
    """RULES Q3, golden timeout4.consumer_cancelled: by the consumer's argument; a late acknowledgement does nothing."""
    declare(client, "q")
    other = world.client()
    held = hold(client, "q", timeout_ms=1000)
    client.publish(1, "q", b"behind")
    (behind,) = client.take(1)
    wait(client, 999, 50)
    assert cancels(client) == [] and other.count("q") == 0
    wait(client, 400, 50)
    assert cancels(client) == ["tag"]
    back = other.get("q", no_ack=False)
    assert back.body == b"m" and back.method.redelivered
    assert back.properties.headers == {"x-acquired-count": 1}
    assert other.count("q") == 1
    client.send(1, commands.Basic.Ack(held))
    client.send(1, commands.Basic.Ack(behind.tag, multiple=True))
    client.send(1, commands.Basic.Qos(prefetch_count=1))
    assert [type(item) for item in client.take(1)] == [commands.Basic.QosOk]
    assert other.count("q") == 1
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="tag"))
    _, delivery = client.take(1)
    assert delivery.body == b"behind"
    client.send(1, commands.Basic.Ack(delivery.tag))
    wait(client, 2 * LATEST_MS, 5_000)
    assert closes(client) == [] and client.count("q") == 0


def test_q3_what_was_got_closes_the_channel(world: World, client: Client) -> None:
    """RULES Q3, golden timeout4.of_the_queue_and_of_get: there is no consumer to cancel."""
    declare(client, "q", **{"x-consumer-timeout": 1000})
    client.publish(1, "q")
    assert client.get("q", no_ack=False).body == b"m"
    wait(client, 1400, 50)
    (close,) = closes(client)
    assert close.reply_text == TEXT.replace("1800000", "1000")
    assert world.client().get("q").properties.headers == {"x-acquired-count": 1}


def test_q3_a_consumer_that_its_client_has_cancelled_closes_the_channel(world: World, client: Client) -> None:
    """RULES Q3: nobody is there for a cancel notice."""
    declare(client, "q")
    hold(client, "q", timeout_ms=1000)
    client.send(1, commands.Basic.Cancel("tag"))
    client.take()
    wait(client, 1400, 50)
    assert len(closes(client)) == 1


@pytest.mark.parametrize(
    "queue_ms, policy_ms, operator_ms, consumer_ms, ms",
    [
        (None, None, None, None, 5000),
        (2000, None, None, None, 2000),
        (None, 2000, None, None, 2000),
        (None, 7000, None, None, 7000),
        (3000, 2000, None, None, 2000),
        (2000, 3000, None, None, 2000),
        (None, 3000, 2000, None, 2000),
        (2000, 1000, None, 3000, 3000),
        (None, None, None, 9000, 9000),
    ],
)
def test_q3_whose_timeout_counts(
    world: World, queue_ms: int | None, policy_ms: int | None, operator_ms: int | None, consumer_ms: int | None, ms: int
) -> None:
    """RULES Q3: the consumer's own, else the lowest of the queue's and the policies', else the node's (5 s here)."""
    world.broker.settings.consumer_timeout_ms = 5_000
    for value, operator in ((policy_ms, False), (operator_ms, True)):
        if value is not None:
            set_policy(world, {"consumer-timeout": value}, operator)
    client = world.client()
    declare(client, "q", **({} if queue_ms is None else {"x-consumer-timeout": queue_ms}))
    hold(client, "q", timeout_ms=consumer_ms)
    wait(client, ms - 1, 100)
    assert cancels(client) == []
    wait(client, 2 * (max(100, ms // 60) + 100), 50)
    assert cancels(client) == ["tag"]


def test_q3_others_on_the_channel_go_on(world: World, client: Client) -> None:
    """RULES Q3: each by its own time, whatever is older, or moves on."""
    for queue in ("slow", "quick", "patient"):
        declare(client, queue)
    old = hold(client, "slow", "slow")
    hold(client, "quick", "quick", 1000)
    hold(client, "patient", "patient", 30_000)
    wait(client, 1400, 50)
    assert cancels(client) == ["quick"]
    wait(client, 26_000, 500)
    assert cancels(client) == []
    client.send(1, commands.Basic.Ack(old))
    wait(client, 6_000, 500)
    assert cancels(client) == ["patient"]
    assert closes(client) == []


@pytest.mark.parametrize(
    "value, fault", [(-1, "{value_negative,-1}"), ("60000", '"expected integer, got longstr"')]
)
def test_q3_bad_timeouts_are_refused(world: World, client: Client, value: Any, fault: str) -> None:
    """RULES Q3, golden args4.timeouts_and_retries: of queues and of consumers; classic queues have none."""
    where = "invalid arg '{}' for queue 'q' in vhost '/'"
    for key in ("x-consumer-timeout", "x-consumer-disconnected-timeout"):
        client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments=QUORUM | {key: value}))
        (close,) = closes(client)
        assert close.reply_text == f"PRECONDITION_FAILED - {where.format(key)}: {fault}"
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)
    declare(client, "q")
    timeout: Any = {"x-consumer-timeout": value}
    client.send(1, commands.Basic.Consume(queue="q", arguments=timeout))
    (close,) = closes(client)
    assert close.reply_text == f"PRECONDITION_FAILED - {where.format('x-consumer-timeout')}: {fault}"
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.send(1, commands.Queue.Declare(queue="classic", durable=True, arguments={"x-consumer-timeout": 60_000}))
    (close,) = closes(client)
    assert close.reply_text.endswith("'classic' in vhost '/' of queue type rabbit_classic_queue")


@pytest.mark.parametrize("level", [LEVEL_CONSUMER_TIMEOUTS - 1, LEVEL_CONSUMER_TIMEOUTS])
def test_q3_arguments_and_policies_wait_for_the_level(level: int) -> None:
    """RULES Q3: an older member knows neither argument nor key; a log from before has arguments that nobody judged."""
    catalog = Catalog(1)
    catalog.apply(RaiseLevel(level, ()))
    refused = isinstance(catalog.apply(SetPolicy("/", "p", "", {"consumer-timeout": 1000})), Refusal)
    assert refused == (level < LEVEL_CONSUMER_TIMEOUTS)
    arguments = QUORUM | {"x-consumer-timeout": "abc"}
    answer = catalog.apply(DeclareQueue("/", "q", True, False, False, arguments))
    assert isinstance(answer, Refusal) == (level >= LEVEL_CONSUMER_TIMEOUTS)
    assert (unbuilt_refusal("/", "q", arguments, level) is None) == (level >= LEVEL_CONSUMER_TIMEOUTS)
    if not refused:
        return
    queue = catalog.queue("/", "q")
    assert queue is not None and catalog.consumer_timeout_ms(queue) is None
