"""Members of different releases in one cluster: it serves, and what is new is not written before all know it."""

from __future__ import annotations

from pamqp import commands

from cluster.versions import VersionRange
from node.duties.membership_duties import AGAIN_MS, LEVELS_AGAIN_MS
from tests.broker.three_brokers import TICK_MS, NodeWorld, ThreeBrokers

OLD, NEW = VersionRange(1, 1), VersionRange(1, 2)
LONGER_THAN_ALL_PAUSES = 2 * (LEVELS_AGAIN_MS + AGAIN_MS) // TICK_MS


def start_anew(brokers: ThreeBrokers, id: int, levels: VersionRange) -> None:
    """The node ends, and a process of a release that knows these levels goes on with its data."""
    brokers.cut.add(id)
    for other in brokers.ids:
        if other != id:
            brokers.nodes[other].engine.peer_down(id, brokers.now_ms)
    for _ in range(40):
        brokers.step()
    brokers.levels[id] = levels
    life = 1 + (brokers.nodes[id].engine.incarnation >> 20)
    node = brokers.nodes[id] = NodeWorld(brokers, id, life)
    brokers.cut.discard(id)
    for other in brokers.ids:
        if other != id:
            node.engine.peer_up(other, brokers.now_ms)
            brokers.nodes[other].engine.peer_up(id, brokers.now_ms)
    brokers.run_until(lambda: is_back(brokers, id))


def is_back(brokers: ThreeBrokers, id: int) -> bool:
    record = brokers.nodes[brokers.leader() or id].engine.catalog.node(id)
    node = brokers.nodes[id].engine
    return brokers.leader() != 0 and record is not None and record.incarnation == node.incarnation and all(
        group.leader and group.sender.idle for group in node.host.groups.values()
    )


def levels(brokers: ThreeBrokers) -> list[int]:
    return [node.engine.catalog.level for node in brokers.nodes.values()]


def serves(brokers: ThreeBrokers, name: str) -> None:
    """A client of each node declares a queue, and finds those of the others."""
    for id, node in brokers.nodes.items():
        client = node.client()
        client.send(1, commands.Queue.Declare(queue=f"{name}-{id}", durable=True))
        brokers.run_until(lambda client=client: client.received)  # type: ignore[misc]
        (declared,) = client.take()
        assert isinstance(declared, commands.Queue.DeclareOk), declared
    for node in brokers.nodes.values():
        assert all(node.engine.catalog.queue("/", f"{name}-{id}") is not None for id in brokers.ids)


def test_a_cluster_of_one_release_raises_its_level_by_itself() -> None:
    brokers = ThreeBrokers(levels=NEW)
    brokers.run_until(lambda: levels(brokers) == [2, 2, 2])


def test_nodes_are_upgraded_one_by_one_and_the_level_follows_the_last() -> None:
    brokers = ThreeBrokers(levels=OLD)
    for id in brokers.ids:
        serves(brokers, f"before-{id}")
        for _ in range(LONGER_THAN_ALL_PAUSES):
            brokers.step()
        assert levels(brokers) == [1, 1, 1]
        start_anew(brokers, id, NEW)
    brokers.run_until(lambda: levels(brokers) == [2, 2, 2])
    serves(brokers, "after")
    states = [node.engine.catalog.snapshot() for node in brokers.nodes.values()]
    assert states[0] == states[1] == states[2]


def test_a_member_that_is_down_holds_the_level_back() -> None:
    """It could come back as what it was."""
    brokers = ThreeBrokers(levels=OLD)
    start_anew(brokers, 1, NEW)
    start_anew(brokers, 2, NEW)
    brokers.cut.add(3)
    for id in (1, 2):
        brokers.nodes[id].engine.peer_down(3, brokers.now_ms)
    for _ in range(LONGER_THAN_ALL_PAUSES):
        brokers.step()
    assert levels(brokers)[:2] == [1, 1]


def test_one_may_go_back_until_the_level_is_raised() -> None:
    brokers = ThreeBrokers(levels=OLD)
    start_anew(brokers, 1, NEW)
    start_anew(brokers, 2, NEW)
    start_anew(brokers, 1, OLD)
    start_anew(brokers, 3, NEW)
    for _ in range(LONGER_THAN_ALL_PAUSES):
        brokers.step()
    assert levels(brokers) == [1, 1, 1]
    serves(brokers, "mixed")
    start_anew(brokers, 1, NEW)
    brokers.run_until(lambda: levels(brokers) == [2, 2, 2])
