"""A node is drained under its clients: confirmed, acknowledged, told to go, and nothing comes twice that need not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from mayfly.node.engine.drain import TEXT_OF_DRAIN, TEXT_OF_STOP, Drain, DrainSettings
from tests.node.broker.three_brokers import NodeWorld, ThreeBrokers
from tests.node.conftest import Client, Delivery

ACKS_MS, TIMEOUT_MS = 1000, 5000


class Drained:
    """Three nodes, one of which can be drained."""

    def __init__(self, notice_ms: int = 0) -> None:
        self.brokers = ThreeBrokers()
        self.id = self.brokers.leader()
        self.closed = False
        node = self.node
        self.drain = Drain(node.engine.host, node.broker, self, DrainSettings(notice_ms, ACKS_MS, TIMEOUT_MS))

    @property
    def node(self) -> NodeWorld:
        return self.brokers.nodes[self.id]

    @property
    def other(self) -> NodeWorld:
        return self.brokers.nodes[self.id % 3 + 1]

    def take_no_clients(self) -> None:
        self.closed = True

    def pending_bytes(self) -> int:
        return self.node.engine.pending_bytes()

    def begin(self, text: str = TEXT_OF_STOP) -> None:
        self.drain.begin(text, self.brokers.now_ms)
        self.brokers.settle()

    def step(self) -> None:
        self.brokers.step()
        self.drain.tick(self.brokers.now_ms)
        self.brokers.settle()

    def until(self, condition: Callable[[], object], steps: int = 400) -> int:
        """Let time pass until it is so; how many ms."""
        began_ms = self.brokers.now_ms
        for _ in range(steps):
            if condition():
                return self.brokers.now_ms - began_ms
            self.step()
        raise AssertionError(f"not within {steps} steps, the drain is at {self.drain.step}")

    def until_drained(self) -> int:
        return self.until(lambda: self.drain.state == "drained")


def close_of(client: Client) -> tuple[int, str]:
    (close,) = [item for item in client.take(0) if isinstance(item, commands.Connection.Close)]
    return close.reply_code or 0, close.reply_text


def bodies(items: list[Any]) -> list[bytes]:
    return [item.body for item in items if isinstance(item, Delivery)]


def test_an_idle_node_is_drained_within_a_few_ticks() -> None:
    world = Drained()
    client = world.node.client()
    world.begin()
    assert world.until_drained() <= 500
    assert world.closed
    assert close_of(client) == (320, f"CONNECTION_FORCED - {TEXT_OF_STOP}")
    assert not any(group.leads for group in world.node.engine.host.groups.values())


def test_what_is_delivered_is_acknowledged_before_the_close_and_comes_once() -> None:
    """The consumer has five, settles them one by one, gets no sixth; the rest goes to a consumer of another node."""
    world = Drained()
    near, far = world.node.client(), world.other.client()
    far.declare("work")
    for number in range(20):
        far.publish(1, "work", b"%d" % number)
    near.send(1, commands.Basic.Qos(prefetch_count=5))
    near.take()
    got = near.consume("work")
    assert bodies(got) == [b"0", b"1", b"2", b"3", b"4"]
    world.begin()
    for delivery in got:
        world.step()
        near.send(1, commands.Basic.Ack(delivery_tag=delivery.tag))
    world.until_drained()
    assert bodies(near.take(1)) == []
    rest = far.consume("work", no_ack=True)
    world.until(lambda: True)
    assert bodies(rest + far.take(1)) == [b"%d" % number for number in range(5, 20)]
    assert not any(item.method.redelivered for item in rest if isinstance(item, Delivery))


def test_whoever_does_not_acknowledge_holds_it_up_for_a_moment_only() -> None:
    """What it held goes to others, once the moment is over and not only when its session is."""
    world = Drained()
    near, far = world.node.client(), world.other.client()
    far.declare("work")
    far.publish(1, "work", b"held")
    assert bodies(near.consume("work")) == [b"held"]
    world.begin()
    assert ACKS_MS <= world.until_drained() <= ACKS_MS + 500
    (again,) = far.consume("work")
    assert again.body == b"held" and again.method.redelivered


def test_a_slow_consumer_gets_its_time_as_long_as_it_goes_on() -> None:
    """It takes 800 ms for each of four: more than the patience for one, less than the limit for all."""
    world = Drained()
    near = world.node.client()
    near.declare("work")
    for _ in range(4):
        near.publish(1, "work")
    got = near.consume("work")
    world.begin()
    for delivery in got:
        for _ in range(16):
            world.step()
        assert world.drain.state == "draining"
        near.send(1, commands.Basic.Ack(delivery_tag=delivery.tag))
    world.until_drained()
    assert world.other.client().count("work") == 0


def test_all_that_was_taken_is_confirmed_before_the_close() -> None:
    """The disks of the others hang while it is published: the confirm comes when they are back, then the close."""
    world = Drained()
    client = world.node.client()
    client.open_channel(2, confirms=True)
    client.declare("q", channel=2)
    world.brokers.stuck = {id for id in world.brokers.ids if id != world.id}
    client.publish(2, "q")
    world.begin()
    for _ in range(4):
        world.step()
    assert client.received == [] and world.drain.state == "draining"
    assert not client.connection.pressure.wants_reading
    world.brokers.stuck = set()
    world.until_drained()
    kinds = [type(item) for _, item in client.received]
    assert kinds == [commands.Basic.Ack, commands.Connection.Close]


def test_without_a_majority_it_ends_at_the_limit() -> None:
    world = Drained()
    client = world.node.client()
    client.open_channel(2, confirms=True)
    client.declare("q", channel=2)
    world.brokers.cut = {id for id in world.brokers.ids if id != world.id}
    client.publish(2, "q")
    world.begin()
    assert TIMEOUT_MS <= world.until_drained() <= TIMEOUT_MS + 1000
    assert client.acks(2) == []


def test_a_consumer_that_comes_late_gets_nothing() -> None:
    world = Drained()
    first, late = world.node.client(), world.node.client()
    first.declare("work")
    first.publish(1, "work")
    held = first.get("work", no_ack=False)
    world.begin()
    first.publish(1, "work")
    late.consume("work")
    world.step()
    first.send(1, commands.Basic.Ack(delivery_tag=held.tag))
    world.until_drained()
    got = late.take(1)
    assert bodies(got) in ([], [b"m"])  # one may be given before the pause is applied
    assert close_of(late)[0] == 320
    assert world.other.client().count("work") == 1


@pytest.mark.parametrize("text", [TEXT_OF_DRAIN, TEXT_OF_STOP])
def test_the_notice_comes_before_everything(text: str) -> None:
    world = Drained(notice_ms=1000)
    client = world.node.client()
    world.begin(text)
    for _ in range(15):
        world.step()
    assert world.drain.state == "draining" and not world.closed and client.take(0) == []
    world.until_drained()
    assert close_of(client) == (320, f"CONNECTION_FORCED - {text}")


def test_a_revived_node_serves_again() -> None:
    world = Drained()
    world.begin(TEXT_OF_DRAIN)
    world.until_drained()
    world.drain.revive()
    assert world.drain.state == "serving"
    world.until(lambda: any(group.leads for group in world.node.engine.host.groups.values()))
    client = world.node.client()
    client.declare("q")
    client.publish(1, "q", b"again")
    assert bodies(client.consume("q", no_ack=True)) == [b"again"]


def test_a_drain_that_is_called_off_lets_deliveries_go_on() -> None:
    world = Drained()
    client = world.node.client()
    client.declare("work")
    client.publish(1, "work", b"1")
    assert bodies(client.consume("work")) == [b"1"]
    world.begin(TEXT_OF_DRAIN)
    world.step()
    client.publish(1, "work", b"2")
    assert bodies(client.take(1)) == []
    world.drain.revive()
    world.step()
    assert bodies(client.take(1)) == [b"2"]
    assert client.connection.pressure.wants_reading
