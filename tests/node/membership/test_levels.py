"""Members of different releases in one cluster: it serves, and what is new is not written before all know it."""

from __future__ import annotations

from functools import partial
from typing import Any

from pamqp import commands

from mayfly.cluster.raft import RaftMessage
from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES, LEVEL_QUORUM_PRIORITIES, LEVELS, VersionRange
from mayfly.node.membership.duties import AGAIN_MS, LEVELS_AGAIN_MS
from mayfly.node.numbers import CATALOG_GROUP
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers, start_anew
from tests.node.conftest import Delivery

OLD, NEW = VersionRange(1, 1), VersionRange(1, 2)
LONGER_THAN_ALL_PAUSES = 2 * (LEVELS_AGAIN_MS + AGAIN_MS) // TICK_MS


def levels(brokers: ThreeBrokers) -> list[int]:
    return [node.engine.catalog.level for node in brokers.nodes.values()]


def are_at(brokers: ThreeBrokers, level: int) -> bool:
    """Whether all nodes know the cluster at that level."""
    return levels(brokers) == [level] * 3


def serves(brokers: ThreeBrokers, name: str) -> None:
    """A client of each node declares a queue, and finds those of the others."""
    for id, node in brokers.nodes.items():
        client = node.client()
        client.send(1, commands.Queue.Declare(queue=f"{name}-{id}", durable=True))
        brokers.run_until(partial(getattr, client, "received"))
        (declared,) = client.take()
        assert isinstance(declared, commands.Queue.DeclareOk), declared
    for node in brokers.nodes.values():
        assert all(node.engine.catalog.queue("/", f"{name}-{id}") is not None for id in brokers.ids)


def levels_founded_at(brokers: ThreeBrokers) -> set[int]:
    """The level at which those that are there came to know the members."""
    return {node.levels[0] for id, node in brokers.nodes.items() if id not in brokers.cut}


def test_a_cluster_of_one_release_begins_at_its_level() -> None:
    """Nothing is served before there are members: so a client never sees another one."""
    brokers = ThreeBrokers(levels=NEW)
    assert levels_founded_at(brokers) == {2}
    assert levels(brokers) == [2, 2, 2]


def test_it_begins_at_it_also_while_a_founder_is_missing() -> None:
    brokers = ThreeBrokers(levels=NEW, cut=[3])
    assert levels_founded_at(brokers) == {2}
    assert levels(brokers) == [2, 2, 1]


def test_an_older_founder_that_is_there_keeps_the_level_down() -> None:
    """Whoever of them proposes it first: the others' word is waited for."""
    for old in (1, 2, 3):
        brokers = ThreeBrokers(levels={id: OLD if id == old else NEW for id in (1, 2, 3)})
        assert levels_founded_at(brokers) == {1}
        for _ in range(LONGER_THAN_ALL_PAUSES):
            brokers.step()
        assert levels(brokers) == [1, 1, 1]
        start_anew(brokers, old, NEW)
        brokers.run_until(partial(are_at, brokers, 2))


class LateInTheCatalog(ThreeBrokers):
    """Node 3 is heard from the start, but what is about the catalog is lost on its way to and from it, up to a time."""

    lost_until_ms = 1_000_000 + AGAIN_MS

    def _is_lost(self, sender: int, to: int, group: int, message: RaftMessage) -> bool:
        late = group == CATALOG_GROUP and 3 in (sender, to) and self.now_ms < self.lost_until_ms
        return late or super()._is_lost(sender, to, group, message)


class HardlyInTheCatalog(LateInTheCatalog):
    """...for very long."""

    lost_until_ms = 1_000_000 + 10 * AGAIN_MS

    def _begun(self) -> bool:
        return all(self.nodes[id].engine.catalog.members.founded for id in (1, 2))


def test_the_word_of_a_founder_that_is_heard_is_waited_for_but_not_for_ever() -> None:
    brokers = LateInTheCatalog(levels={1: NEW, 2: NEW, 3: OLD})
    assert levels_founded_at(brokers) == {1}
    brokers = HardlyInTheCatalog(levels=NEW)
    assert brokers.now_ms < brokers.lost_until_ms
    assert levels(brokers) == [2, 2, 1]


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
    """It knows the level, as all do; and could come back as what it was before."""
    brokers = ThreeBrokers(levels=OLD)
    start_anew(brokers, 2, NEW)
    start_anew(brokers, 3, NEW)
    brokers.cut.add(3)
    for id in (1, 2):
        brokers.nodes[id].engine.peer_down(3, brokers.now_ms)
    start_anew(brokers, 1, NEW)
    for _ in range(LONGER_THAN_ALL_PAUSES):
        brokers.step()
    assert levels(brokers) == [1, 1, 1]
    brokers.cut.discard(3)
    for id in (1, 2):
        brokers.nodes[id].engine.peer_up(3, brokers.now_ms)
        brokers.nodes[3].engine.peer_up(id, brokers.now_ms)
    brokers.run_until(lambda: levels(brokers) == [2, 2, 2])


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


def test_a_member_with_a_limit_holds_the_level_until_it_comes_without_and_all_may_go_back_before() -> None:
    held = NEW.limited(1)
    brokers = ThreeBrokers(levels=OLD)
    for levels_of_all in (held, OLD, held):
        for id in brokers.ids:
            start_anew(brokers, id, levels_of_all)
        for _ in range(LONGER_THAN_ALL_PAUSES):
            brokers.step()
        assert levels(brokers) == [1, 1, 1]
    start_anew(brokers, 1, NEW)
    start_anew(brokers, 2, NEW)
    for _ in range(LONGER_THAN_ALL_PAUSES):
        brokers.step()
    assert levels(brokers) == [1, 1, 1]
    start_anew(brokers, 3, NEW)
    brokers.run_until(partial(are_at, brokers, 2))
    serves(brokers, "after")


def test_a_limit_below_the_clusters_level_lowers_nothing() -> None:
    brokers = ThreeBrokers(levels=NEW)
    start_anew(brokers, 2, NEW.limited(1))
    for _ in range(LONGER_THAN_ALL_PAUSES):
        brokers.step()
    assert levels(brokers) == [2, 2, 2]
    serves(brokers, "limited")


def held_by(brokers: ThreeBrokers, id: int) -> tuple[Any, Delivery]:
    """A client of that node that has the message of q, and as what it came."""
    client = brokers.nodes[id].client()
    got: list[Any] = []

    def is_there() -> bool:
        client.send(1, commands.Basic.Get(queue="q"))
        brokers.run_until(partial(getattr, client, "received"))
        got[:] = client.take(1)
        return isinstance(got[0], Delivery)

    brokers.run_until(is_there)
    return client, got[0]


def are_alike(brokers: ThreeBrokers) -> bool:
    """Whether all replicas of all shards have the same state."""
    states = [[shard.digest() for shard in node.engine.shards.values()] for node in brokers.nodes.values()]
    return states[0] == states[1] == states[2]


def shards_are_told(brokers: ThreeBrokers) -> bool:
    """Whether all replicas of all shards have the highest level."""
    return {shard.level for node in brokers.nodes.values() for shard in node.engine.shards.values()} == {LEVELS.highest}


def test_q1_nacks_count_until_all_members_know_that_they_do_not() -> None:
    """RULES Q1, and ends of nodes' sessions: in a cluster of before, upgraded node by node, and once all are new."""
    old = LEVELS.limited(LEVEL_FAILED_DELIVERIES - 1)
    brokers = ThreeBrokers(levels=old)
    first = brokers.nodes[1].client()
    first.send(1, commands.Queue.Declare(queue="q", durable=True, arguments={"x-queue-type": "quorum"}))
    brokers.run_until(partial(getattr, first, "received"))
    first.publish(1, "q")
    failed = acquired = 0
    for are_new in (False, True):
        for id in (1, 2, 3):
            client, got = held_by(brokers, id)
            headers = got.properties.headers or {}
            assert (headers.get("x-acquired-count", 0), headers.get("x-delivery-count", 0)) == (acquired, failed)
            client.send(1, commands.Basic.Nack(delivery_tag=got.tag))
            brokers.settle()
            held_by(brokers, id)
            start_anew(brokers, id, LEVELS)
            acquired += 2
            failed += 0 if are_new else 2
        brokers.run_until(partial(are_at, brokers, LEVELS.highest))
        brokers.run_until(partial(shards_are_told, brokers))
    brokers.run_until(partial(are_alike, brokers))


def test_q2_quorum_queues_have_priorities_once_all_members_know_it() -> None:
    """RULES Q2: a queue from before gets them when the last member is new, and what waits in it is as without."""
    old = LEVELS.limited(LEVEL_QUORUM_PRIORITIES - 1)
    brokers = ThreeBrokers(levels=old)
    first = brokers.nodes[1].client()
    first.send(1, commands.Queue.Declare(queue="q", durable=True, arguments={"x-queue-type": "quorum"}))
    brokers.run_until(partial(getattr, first, "received"))
    priority: int | None
    for body, priority in ((b"one", 0), (b"two", 31)):
        first.publish(1, "q", body, priority=priority)
    brokers.settle()
    for id in (1, 2, 3):
        start_anew(brokers, id, LEVELS)
    brokers.run_until(partial(are_at, brokers, LEVELS.highest))
    brokers.run_until(partial(have_priorities, brokers))
    client = brokers.nodes[2].client()
    for body, priority in ((b"usual", None), (b"low", 3), (b"high", 5)):
        client.publish(1, "q", body, priority=priority)
    brokers.settle()
    bodies = []
    for _ in range(5):
        client.send(1, commands.Basic.Get(queue="q", no_ack=True))
        brokers.run_until(partial(getattr, client, "received"))
        bodies.append(client.take(1)[0].body)
    assert bodies == [b"high", b"one", b"two", b"usual", b"low"]
    brokers.run_until(partial(are_alike, brokers))


def have_priorities(brokers: ThreeBrokers) -> bool:
    """Whether every replica's queues were told of their priorities."""
    shards = [shard for node in brokers.nodes.values() for shard in node.engine.shards.values()]
    queues = [queue for shard in shards for queue in map(shard.queue, shard.queue_ids())]
    return bool(queues) and all(queue is not None and queue.max_priority == 31 for queue in queues)
