"""What the end of clients costs a node: as much as they had, and nothing squared. As `test_shard_costs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

import pytest
from pamqp import commands

from tests.cost.growth import SMALL, TIMES, is_linear
from tests.cost.metered import MeteredCopy


@cache
def copy() -> MeteredCopy:
    return MeteredCopy("mayfly.node", beside=("tests.node",))


def new_world() -> Any:
    world = copy().module("tests.node.conftest").World(shards=2)
    world.guest = world.client()
    world.guest.declare("q")
    return world


Made = tuple[Any, Callable[[], object]]
"""A world, and what is measured in it."""


def consumers_of_a_channel(n: int) -> Any:
    world = new_world()
    world.running = False
    world.ending = world.client(channel=False)
    world.running = True
    world.ending.open_channel()
    for place in range(n):
        world.ending.call(1, commands.Basic.Consume(queue="q", consumer_tag=f"c{place}"))
    return world


def with_messages(n: int) -> Any:
    world = consumers_of_a_channel(n)
    world.guest.send_bytes(b"".join(world.guest.publish_bytes(1, "q") for _ in range(n)))
    return world


def with_many_messages(n: int) -> Any:
    world = consumers_of_a_channel(1)
    world.guest.send_bytes(b"".join(world.guest.publish_bytes(1, "q") for _ in range(n)))
    return world


def channels(n: int) -> Any:
    world = consumers_of_a_channel(0)
    for channel in range(2, n + 2):
        world.ending.open_channel(channel)
        world.ending.call(channel, commands.Basic.Consume(queue="q", consumer_tag="c"))
    return world


def gets(n: int) -> Any:
    world = consumers_of_a_channel(0)
    for place in range(n):
        world.guest.declare(f"q{place}")
        world.guest.publish(1, f"q{place}")
        world.ending.get(f"q{place}", no_ack=False)
    return world


def exclusive_queues(n: int) -> Any:
    world = consumers_of_a_channel(0)
    for place in range(n):
        world.ending.declare(f"q{place}", exclusive=True, durable=False)
    return world


def lose(world: Any) -> object:
    return world.ending.lose()


def close_channel(world: Any) -> object:
    return world.ending.call(1, commands.Channel.Close(200, "", 0, 0))


def delete_queue(world: Any) -> object:
    return world.guest.call(1, commands.Queue.Delete(queue="q"))


def end_sessions(world: Any) -> object:
    for shard in (1, 2):
        world.cluster.lose_session(shard)
    return world.settle()


def cancel_all(world: Any) -> object:
    tags = list(world.ending.connection.channels[1].consumers)
    return world.ending.send(1, *(commands.Basic.Cancel(consumer_tag=tag) for tag in tags))


def acknowledge_each(world: Any) -> object:
    unacknowledged = [item.tag for item in world.ending.take(1) if hasattr(item, "tag")]
    return world.ending.send(1, *(commands.Basic.Ack(delivery_tag=tag) for tag in unacknowledged))


def acknowledge_together(world: Any) -> object:
    return world.ending.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))


def recover(world: Any) -> object:
    return world.ending.call(1, commands.Basic.Recover(requeue=True))


BURDENS: Final = [
    consumers_of_a_channel, with_messages, with_many_messages, channels, gets, exclusive_queues,
]  # fmt: skip
ENDS: Final = [
    lose, close_channel, delete_queue, end_sessions, cancel_all, acknowledge_each, acknowledge_together, recover,
]  # fmt: skip


def _rows() -> Iterator[Any]:
    for burden in BURDENS:
        for end in ENDS:
            yield pytest.param(burden, end, id=f"{burden.__name__}, {end.__name__}")


@pytest.mark.parametrize(("burden", "end"), list(_rows()))
def test_an_end_costs_what_there_was(burden: Callable[[int], Any], end: Callable[[Any], object]) -> None:
    totals = []
    for n in (SMALL, TIMES * SMALL):
        world = burden(n)
        totals.append(copy().cost(partial(end, world)))
    assert is_linear(*totals), totals
