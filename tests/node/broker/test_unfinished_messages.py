"""Messages that come in pieces: an alarm stops them, and what has come of them is bounded and given back."""

from __future__ import annotations

import pytest
from pamqp import body, commands, frame, header

from mayfly.node.broker.operation import AmqpError
from mayfly.node.broker.settings import BrokerSettings
from mayfly.node.limits import MIB, UNFINISHED_BYTES, UNFINISHED_PERCENT, unfinished_bytes
from tests.node.conftest import Client, World

BODY_BYTES = 100_000
HALF_BYTES = BODY_BYTES // 2


def announced(size: int, channel: int = 1, table: str = "") -> bytes:
    """A publish and its header."""
    properties = commands.Basic.Properties(headers={"table": table})
    publish = frame.marshal(commands.Basic.Publish(routing_key="q"), channel)
    return publish + frame.marshal(header.ContentHeader(body_size=size, properties=properties), channel)


def begun(size: int = BODY_BYTES, half: int = HALF_BYTES) -> bytes:
    """A publish, and half of its only body frame."""
    return announced(size) + b"\x03\x00\x01" + size.to_bytes(4, "big") + bytes(half)


def rest(size: int = BODY_BYTES, half: int = HALF_BYTES) -> bytes:
    """What makes it whole."""
    return bytes(size - half) + b"\xce"


def half(channel: int, size: int = HALF_BYTES) -> bytes:
    """A publish with the first of two body frames."""
    return announced(2 * size, channel) + second_half(channel, size)


def second_half(channel: int, size: int = HALF_BYTES) -> bytes:
    """The other one."""
    return frame.marshal(body.ContentBody(bytes(size)), channel)


def told(client: Client) -> list[str]:
    """What the client was told of alarms since the last call."""
    return [getattr(method, "reason", "unblocked") for method in client.take(0)]


def refusal(client: Client, channel: int) -> str:
    (closed,) = client.take(channel)
    assert isinstance(closed, commands.Channel.Close), closed
    assert (closed.reply_code, closed.class_id, closed.method_id) == (406, 60, 40)
    return str(closed.reply_text).removeprefix("PRECONDITION_FAILED - ")


def with_limits(of_node: int, of_connection: int) -> World:
    world = World()
    unfinished = world.broker.unfinished
    unfinished._most_bytes, unfinished._most_bytes_of_connection = of_node, of_connection
    return world


# -- alarms -----------------------------------------------------------------------


def test_half_a_message_is_stopped_by_an_alarm_that_is_on(world: World, client: Client) -> None:
    """Of a client that has published nothing before. Nothing of the message is kept but what was read with it."""
    client.declare("q")
    world.alarm("low on memory")
    assert client.connection.pressure.wants_reading
    client.send_bytes(begun())
    assert told(client) == ["low on memory"]
    assert not client.connection.pressure.wants_reading
    assert world.broker.unfinished.size_bytes == 0
    world.alarm(None)
    assert told(client) == ["unblocked"]
    assert client.connection.pressure.wants_reading
    client.send_bytes(rest())
    assert client.count("q") == 1


def test_half_a_message_makes_a_publisher_before_an_alarm(world: World, client: Client) -> None:
    client.declare("q")
    client.send_bytes(begun())
    assert client.connection.pressure.wants_reading
    world.alarm("low on disk")
    assert told(client) == ["low on disk"]
    assert not client.connection.pressure.wants_reading
    world.alarm(None)
    client.send_bytes(rest())
    assert told(client) == ["unblocked"]
    assert client.count("q") == 1


@pytest.mark.parametrize("when", ["connected", "connecting"])
def test_a_client_that_connects_for_each_publish_gets_nothing_in_during_an_alarm(world: World, when: str) -> None:
    """Everything from the first publish on waits, in order, and is done when the alarm is over."""
    watching = world.client()
    watching.declare("q")
    client = world.client() if when == "connected" else None
    world.alarm("low on memory")
    client = client or world.client()
    client.send(1, commands.Confirm.Select())
    assert isinstance(client.take(1)[-1], commands.Confirm.SelectOk)
    close = frame.marshal(commands.Channel.Close(200, "", 0, 0), 1)
    client.send_bytes(client.publish_bytes(1, "q", b"1") + client.publish_bytes(1, "q", b"2") + close)
    assert told(client) == ["low on memory"]
    assert not client.take(1) and watching.count("q") == 0
    world.alarm(None)
    assert [type(method).__name__ for method in client.take(1)][-1] == "CloseOk"
    assert [watching.get("q").body for _ in range(2)] == [b"1", b"2"]


def test_an_alarm_that_nobody_met_leaves_nothing(world: World, client: Client) -> None:
    client.declare("q")
    world.alarm("low on memory")
    assert client.count("q") == 0
    world.alarm(None)
    assert not told(client)
    client.publish(1, "q")
    assert client.count("q") == 1


def test_a_publish_whose_method_comes_in_pieces_is_held_as_well(world: World, client: Client) -> None:
    client.declare("q")
    world.alarm("low on memory")
    octets = client.publish_bytes(1, "q", b"one") + client.publish_bytes(1, "q", b"two")
    client.send_bytes(octets[:20])
    client.send_bytes(octets[20:])
    assert told(client) == ["low on memory"]
    world.alarm(None)
    assert client.count("q") == 2


def test_a_held_client_that_goes_leaves_nothing(world: World, client: Client) -> None:
    client.declare("q")
    world.alarm("low on memory")
    client.send_bytes(client.publish_bytes(1, "q"))
    client.lose()
    world.alarm(None)
    other = world.client()
    assert other.count("q") == 0


# -- limits -----------------------------------------------------------------------


def test_half_messages_on_many_channels_are_bounded() -> None:
    """Of twenty channels the halves of ten fit: each further one costs the largest, which is the last."""
    most_bytes = 10 * HALF_BYTES + 1000
    world = with_limits(1 << 40, most_bytes)
    client = world.client(channel=False)
    for channel in range(1, 21):
        client.open_channel(channel)
    for channel in range(1, 21):
        client.send_bytes(half(channel, HALF_BYTES + channel))
        assert min(channel, 10) * HALF_BYTES < world.broker.unfinished.size_bytes <= most_bytes
    for channel in range(11, 21):
        text = f"the unfinished messages of this connection are larger than {most_bytes} bytes"
        assert refusal(client, channel) == text
    client.send(11, commands.Channel.CloseOk())
    client.open_channel(11)
    client.declare("q", 11)
    for channel in range(1, 11):
        client.send_bytes(second_half(channel, HALF_BYTES + channel))
    assert world.broker.unfinished.size_bytes == 0
    assert client.count("q", 11) == 10


def test_what_comes_of_a_refused_message_is_dropped() -> None:
    world = with_limits(1 << 40, HALF_BYTES)
    client = world.client()
    client.send_bytes(begun(2 * HALF_BYTES, HALF_BYTES))
    assert refusal(client, 1).startswith("the unfinished messages of this connection")
    for _ in range(3):
        client.send_bytes(bytes(HALF_BYTES // 3))
    assert world.broker.unfinished.size_bytes == 0
    client.send_bytes(bytes(HALF_BYTES - HALF_BYTES // 3 * 3) + b"\xce")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.declare("q")
    client.publish(1, "q")
    assert client.count("q") == 1


def test_who_holds_most_of_a_node_loses_it() -> None:
    """Not who comes last."""
    most_bytes = 4 * HALF_BYTES + 1000
    world = with_limits(most_bytes, 1 << 40)
    holding, other, modest = world.client(), world.client(), world.client()
    other.declare("q")
    for channel in (2, 3):
        holding.open_channel(channel)
    for channel in (1, 2, 3):
        holding.send_bytes(half(channel))
    other.send_bytes(half(1))
    assert world.broker.unfinished.size_bytes <= most_bytes
    modest.send_bytes(half(1, 2000))
    text = f"the unfinished messages of this node are larger than {most_bytes} bytes"
    assert refusal(holding, 1) == text
    assert world.broker.unfinished.size_bytes <= most_bytes
    other.send_bytes(second_half(1))
    modest.send_bytes(second_half(1, 2000))
    watching = world.client()
    assert watching.count("q") == 2


@pytest.mark.parametrize("end", ["whole", "channel", "refused", "lost", "closed", "framing"])
def test_what_has_come_is_given_back_at_the_end(world: World, client: Client, end: str) -> None:
    """Headers count as well: they may be as large as a frame."""
    client.declare("q")
    client.send_bytes(announced(BODY_BYTES, table="x" * 10_000))
    assert 10_000 < world.broker.unfinished.size_bytes < 11_000
    client.send_bytes(second_half(1))
    assert world.broker.unfinished.size_bytes > 10_000 + HALF_BYTES
    if end == "whole":
        client.send_bytes(second_half(1))
    elif end == "channel":
        client.connection.channels[1].fail(AmqpError(406, "for a test"), 0, 0)
        client.connection.tick(world.cluster.now_ms)
    elif end == "refused":
        client.send_bytes(second_half(1, BODY_BYTES))
    elif end == "lost":
        client.lose()
    elif end == "closed":
        client.connection.fail(AmqpError(541, "for a test"), 0, 0)
    else:
        client.send_bytes(b"\x03\x00\x01\x00\x00\x00\x01xx")
    assert world.broker.unfinished.size_bytes == 0
    assert client.connection.unfinished_bytes == 0


def test_the_limit_of_a_node_goes_by_its_memory() -> None:
    assert unfinished_bytes(0) == unfinished_bytes(1 << 40) == UNFINISHED_BYTES
    assert unfinished_bytes(200 * MIB) == 2 * UNFINISHED_PERCENT * MIB
    assert BrokerSettings().unfinished_bytes == UNFINISHED_BYTES
