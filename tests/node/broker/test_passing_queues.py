"""Queues that come and go while their client stays: its node keeps nothing of them, and the end of a client costs what
it has left."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.catalog import CatalogCommand, DeleteVhost, RemoveQueues
from mayfly.node.limits import QUEUES_BURIED_PER_COMMAND
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Client, World

MOST_KEPT = 8
"""Holders of basic.get whose queues are gone, at most, where there are no others."""


def pass_by(client: Any, name: str, **options: Any) -> None:
    """Declare, consume, cancel: the queue goes with its last consumer."""
    client.send(
        1,
        commands.Queue.Declare(queue=name, exclusive=True, auto_delete=True, **options),
        commands.Basic.Consume(queue=name, consumer_tag="c"),
        commands.Basic.Cancel(consumer_tag="c"),
    )
    kinds = [type(item) for item in client.take(1)]
    assert kinds == [commands.Queue.DeclareOk, commands.Basic.ConsumeOk, commands.Basic.CancelOk]


def test_exclusive_queues_that_are_gone_are_forgotten(world: World, client: Client) -> None:
    for number in range(1000):
        pass_by(client, f"q{number}")
    assert client.connection.exclusive_queues == {}
    assert not list(world.cluster.catalog.queues())


def test_those_of_three_nodes_are_forgotten_as_well() -> None:
    cluster = ThreeBrokers()
    client = cluster.nodes[2].client()
    client.send(1, commands.Queue.Declare(queue="stays", exclusive=True))
    for number in range(3):
        client.take()
        client.send(
            1,
            commands.Queue.Declare(queue=f"q{number}", exclusive=True, auto_delete=True),
            commands.Basic.Consume(queue=f"q{number}", consumer_tag="c"),
        )
        cluster.run_until(lambda: any(isinstance(item, commands.Basic.ConsumeOk) for _, item in client.received))
        assert len(client.connection.exclusive_queues) == 2
        client.send(1, commands.Basic.Cancel(consumer_tag="c"))
        cluster.run_until(lambda: len(client.connection.exclusive_queues) == 1)
    (stays,) = client.connection.exclusive_queues
    catalog = cluster.nodes[2].engine.catalog
    assert [record.id for record in catalog.queues()] == [stays]
    client.connection.lost()
    cluster.run_until(lambda: not list(catalog.queues()))


def test_however_an_exclusive_queue_goes_it_is_forgotten(world: World, client: Client) -> None:
    """Its lease runs out, it is deleted, its vhost goes; declared again it is known again."""
    kept = client.connection.exclusive_queues
    client.declare("leased", durable=False, exclusive=True, arguments={"x-expires": 1000})
    client.declare("deleted", durable=False, exclusive=True)
    client.declare("stays", durable=False, exclusive=True)
    assert len(kept) == 3
    world.advance(2000)
    assert len(kept) == 2
    client.call(1, commands.Queue.Delete(queue="deleted"))
    assert len(kept) == 1
    client.declare("deleted", durable=False, exclusive=True)
    assert len(kept) == 2
    world.cluster.submit_catalog(DeleteVhost("/"), lambda _: None)
    world.settle()
    assert kept == {}


def test_the_end_of_a_connection_takes_its_queues_in_slices(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, the next slice when the one before has left the catalog; another client's stay."""
    other = world.client()
    other.declare("others", durable=False, exclusive=True)
    count = 2 * QUEUES_BURIED_PER_COMMAND + QUEUES_BURIED_PER_COMMAND // 2
    for number in range(count):
        client.send(1, commands.Queue.Declare(queue=f"q{number}", exclusive=True, nowait=True))
    assert len(client.connection.exclusive_queues) == count
    removals: list[tuple[int, int]] = []
    submit = world.cluster.submit_catalog

    def watched(command: CatalogCommand, done: Any) -> None:
        if isinstance(command, RemoveQueues):
            removals.append((len(command.ids), len(list(world.cluster.catalog.queues()))))
        submit(command, done)

    monkeypatch.setattr(world.cluster, "submit_catalog", watched)
    # What the shard buries besides, in slices of its own, is not looked at here.
    monkeypatch.setattr(
        world.cluster, "remove_queues", lambda ids, done: submit(RemoveQueues(ids), lambda _: done(True))
    )
    client.lose()
    assert [ids for ids, _ in removals] == [QUEUES_BURIED_PER_COMMAND, QUEUES_BURIED_PER_COMMAND, 500]
    assert [left for _, left in removals] == [count + 1, count + 1 - 1000, count + 1 - 2000]
    assert [record.name for record in world.cluster.catalog.queues()] == ["others"]


@pytest.mark.parametrize("messages", [0, 1])
def test_basic_get_keeps_no_holders_of_queues_that_are_gone(world: World, client: Client, messages: int) -> None:
    """Whether something was got or not; what is held of a queue that is gone can still be settled."""
    (channel,) = client.connection.channels.values()
    client.declare("stays")
    client.publish(1, "stays")
    stays = client.get("stays", no_ack=False)
    for number in range(200):
        client.declare(f"q{number}")
        for _ in range(messages):
            client.publish(1, f"q{number}")
        got = client.get(f"q{number}", no_ack=False)
        assert hasattr(got, "tag") == bool(messages)
        client.call(1, commands.Queue.Delete(queue=f"q{number}"))
        assert len(channel.get_holders) <= MOST_KEPT + 2
    assert channel.unacknowledged.count == 1 + 200 * messages
    client.send(1, commands.Basic.Ack(channel.unacknowledged.next_tag - 1, True))
    assert client.take(1) == [] and channel.open
    client.publish(1, "stays")
    again = client.get("stays", no_ack=False)
    assert again.tag == stays.tag + 200 * messages + 1
    client.call(1, commands.Channel.Close(200, "bye", 0, 0))
    client.open_channel(1)
    assert client.count("stays") == 1, "what is held of a queue that stays is given back"


def test_holders_of_queues_that_stay_are_kept(world: World, client: Client) -> None:
    """Many of them: each gives back what it holds when the channel ends."""
    count = 5 * MOST_KEPT
    for number in range(count):
        client.declare(f"q{number}")
        client.publish(1, f"q{number}")
        client.get(f"q{number}", no_ack=False)
    client.call(1, commands.Channel.Close(200, "bye", 0, 0))
    client.open_channel(1)
    assert [client.count(f"q{number}") for number in range(count)] == [1] * count
