"""A node whose own disk is full says so to its clients, instead of letting them wait for what it cannot do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands

from mayfly.node.limits import NO_ROOM_AFTER_MS
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers
from tests.node.conftest import Client, closed

REFUSAL = ("connection", 506, "RESOURCE_ERROR - this node can do nothing, its disk is full")


class WithFullDisks(ThreeBrokers):
    """Of nodes in `full` each attempt to write finds no room."""

    full: frozenset[int] = frozenset()

    def step(self) -> None:
        self.stuck = set(self.full)
        super().step()
        for id in self.full:
            if self.nodes[id].write is not None:
                self.nodes[id].engine.disk_full("no room")

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.step()


@pytest.fixture
def cluster() -> WithFullDisks:
    """The node with the full disk is 2; it leads nothing when the tests begin."""
    return WithFullDisks()


def fill(cluster: WithFullDisks, *ids: int) -> None:
    """From now on, with something to write at once: each tick brings a change somewhere."""
    cluster.full = frozenset(ids)
    clerk = cluster.nodes[1].client()
    clerk.send(1, commands.Queue.Declare(queue="any", durable=True))
    cluster.step()


def until(cluster: WithFullDisks, condition: Callable[[], object]) -> None:
    cluster.run_until(condition)


def refused(client: Client) -> bool:
    ends = [got for got in client.take(0) if isinstance(got, commands.Connection.Close)]
    assert [closed(got) for got in ends] in ([], [REFUSAL])
    return bool(ends)


def test_what_waits_for_a_full_disk_is_refused_and_what_comes_then(cluster: WithFullDisks) -> None:
    node = cluster.nodes[2]
    waiting, idle = node.client(), node.client()
    fill(cluster, 2)
    waiting.send(1, commands.Queue.Declare(queue="q", durable=True))
    assert node.engine.no_room is None
    assert not refused(waiting), "it may pass"
    until(cluster, lambda: node.engine.no_room)
    assert refused(waiting)
    idle.take()
    idle.send(1, commands.Queue.Declare(queue="q2", durable=True))
    assert refused(idle)
    # Others have no part in it, and who connects is told as soon as it wants something.
    other = cluster.nodes[3].client()
    assert cluster.nodes[3].engine.no_room is None
    other.send(1, commands.Queue.Declare(queue="q3", durable=True))
    until(cluster, lambda: any(isinstance(got, commands.Queue.DeclareOk) for got in other.take(1)))
    late = node.client()
    late.send(1, commands.Basic.Get(queue="q3"))
    until(cluster, lambda: refused(late))


def test_there_is_room_again(cluster: WithFullDisks) -> None:
    node = cluster.nodes[2]
    fill(cluster, 2)
    until(cluster, lambda: node.engine.no_room)
    cluster.full = frozenset()
    until(cluster, lambda: node.engine.no_room is None)
    client = node.client()
    client.send(1, commands.Queue.Declare(queue="q", durable=True))
    until(cluster, lambda: any(isinstance(got, commands.Queue.DeclareOk) for got in client.take(1)))


def test_a_moment_without_room_is_nothing(cluster: WithFullDisks) -> None:
    node = cluster.nodes[2]
    client = node.client()
    fill(cluster, 2)
    client.send(1, commands.Queue.Declare(queue="q", durable=True))
    cluster.pass_time(NO_ROOM_AFTER_MS - 500)
    cluster.full = frozenset()
    until(cluster, lambda: any(isinstance(got, commands.Queue.DeclareOk) for got in client.take(1)))
    assert node.engine.no_room is None and not refused(client)


def test_consumers_go_elsewhere_with_what_they_hold(cluster: WithFullDisks) -> None:
    """What the shard gives a consumer of this node does not reach it; when the consumer is gone, others get it."""
    publisher, consuming = cluster.nodes[1].client(), cluster.nodes[2].client()
    publisher.declare("q")
    until(cluster, lambda: cluster.nodes[2].engine.catalog.queue("/", "q") is not None)
    consuming.consume("q", no_ack=False)
    fill(cluster, 2)
    publisher.publish(1, "q", b"for somebody")
    cluster.step()
    until(cluster, lambda: refused(consuming))
    assert consuming.take(1) == []
    other = cluster.nodes[3].client()
    came = other.consume("q", no_ack=False)

    def got() -> list[bytes]:
        came.extend(other.take(1))
        return [each.body for each in came]

    until(cluster, got)
    assert got() == [b"for somebody"]


def test_where_no_disk_has_room_consumers_stay(cluster: WithFullDisks) -> None:
    """There is nowhere to go. What they ask for is refused all the same."""
    clients = {id: cluster.nodes[id].client() for id in cluster.ids}
    clients[1].declare("q")
    until(cluster, lambda: all(node.engine.catalog.queue("/", "q") for node in cluster.nodes.values()))
    for client in clients.values():
        client.consume("q", no_ack=False)
    fill(cluster, 1, 2, 3)
    for node in cluster.nodes.values():
        node.engine.disk_full("no room")
    cluster.step()
    until(cluster, lambda: all(node.engine.no_room for node in cluster.nodes.values()))
    assert not any(refused(client) for client in clients.values())
    clients[3].send(1, commands.Basic.Get(queue="q"))
    assert refused(clients[3])
