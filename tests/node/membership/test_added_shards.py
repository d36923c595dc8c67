"""Shards that are added while clients use the cluster: every node has them, whenever it hears of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.group.settings import BOOTSTRAP_INDEX
from mayfly.cluster.raft import HardState
from mayfly.cluster.versions import LEVEL_SHARDS_ADDED, LEVELS
from mayfly.node.catalog import AddShards, DeclareQueue, Done, QueueDeclared, Refusal
from mayfly.node.membership.duties import AGAIN_MS
from simulation.cluster.memory_store import MemoryStore
from tests.node.broker.three_brokers import SHARDS, TICK_MS, NodeWorld, ThreeBrokers, start_anew
from tests.node.conftest import Delivery

ADDED = range(SHARDS + 1, SHARDS + 5)


def give(brokers: ThreeBrokers, id: int, *given: Any) -> list[Any]:
    """Give a node commands for the catalog in one turn; their answers."""
    answers: list[Any] = []
    for command in given:
        brokers.nodes[id].engine.submit_catalog(command, answers.append)
    brokers.run_until(lambda: len(answers) == len(given))
    return answers


def add(brokers: ThreeBrokers, id: int = 1) -> None:
    """Add shards where the others have so many queues that none is near enough."""
    fill(brokers, id)
    assert give(brokers, id, AddShards(ADDED[-1])) == [Done()]


def fill(brokers: ThreeBrokers, id: int) -> None:
    give(brokers, id, *(DeclareQueue("/", f"old{number}", durable=True) for number in range(8 * SHARDS)))


def have(brokers: ThreeBrokers, *ids: int) -> bool:
    """Whether these nodes have all shards, each with a leader, and nothing is on its way there."""
    groups = [brokers.nodes[id].engine.host.groups for id in ids]
    return all([*each] == [*range(ADDED[-1] + 1)] for each in groups) and all(
        group.leader and group.sender.idle for each in groups for group in each.values()
    )


def are_alike(brokers: ThreeBrokers) -> bool:
    states = [[shard.digest() for shard in node.engine.shards.values()] for node in brokers.nodes.values()]
    return states[0] == states[1] == states[2]


def serve(brokers: ThreeBrokers, name: str, *ids: int) -> set[int]:
    """Clients of these nodes make queues and use them; the shards where these are."""
    shards: set[int] = set()
    for id in ids:
        served: list[object] = []
        brokers.nodes[id].engine.serve(served.append)
        brokers.run_until(lambda: served)  # noqa: B023
        client = brokers.nodes[id].client()
        queue = f"{name}-{id}"
        client.send(1, commands.Queue.Declare(queue=queue, durable=True))
        client.send(1, commands.Confirm.Select())
        brokers.run_until(lambda: len(client.received) == 2)  # noqa: B023
        client.publish(1, queue, b"kept")
        brokers.run_until(lambda: len(client.received) == 3)  # noqa: B023
        assert isinstance(client.take()[2], commands.Basic.Ack)
        client.send(1, commands.Basic.Get(queue=queue, no_ack=True))
        brokers.run_until(partial(getattr, client, "received"))
        (got,) = client.take(1)
        assert isinstance(got, Delivery)
        record = brokers.nodes[id].engine.catalog.queue("/", queue)
        assert record is not None
        shards.add(record.shard)
    return shards


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_new_shards_serve_clients_of_every_node(place: str) -> None:
    brokers = ThreeBrokers()
    add(brokers, brokers.leader() if place == "leader" else brokers.followers()[0])
    brokers.run_until(lambda: have(brokers, 1, 2, 3))
    assert serve(brokers, "after", 1, 2, 3) <= {*ADDED}
    brokers.run_until(lambda: are_alike(brokers))
    leaders = [brokers.nodes[1].engine.host.groups[shard].leader for shard in ADDED]
    assert {*leaders} == {1, 2, 3}, "led where the plan has it"


def test_a_queue_is_declared_in_the_entry_that_adds_its_shard() -> None:
    brokers = ThreeBrokers()
    id = brokers.followers()[0]
    answers = give(brokers, id, AddShards(ADDED[-1]), *(DeclareQueue("/", f"q{n}", durable=True) for n in range(3)))
    shards = [answer.queue.shard for answer in answers[1:] if isinstance(answer, QueueDeclared)]
    assert len(shards) == 3


def test_a_client_that_declares_a_queue_in_that_entry_is_answered() -> None:
    """What follows in the queue's shard is given while the catalog is in the middle of the entry."""
    brokers = ThreeBrokers()
    id = brokers.followers()[0]
    fill(brokers, id)
    client = brokers.nodes[id].client()
    brokers.nodes[id].engine.submit_catalog(AddShards(ADDED[-1]), lambda _: None)
    client.send(1, commands.Queue.Declare(queue="q", durable=True))
    brokers.run_until(partial(getattr, client, "received"))
    assert isinstance(client.take()[0], commands.Queue.DeclareOk)
    record = brokers.nodes[id].engine.catalog.queue("/", "q")
    assert record is not None
    assert record.shard in ADDED


@pytest.mark.parametrize("away", [1, 2, 3])
def test_a_first_voter_that_was_away_begins_as_the_others_did(away: int) -> None:
    """RULES C1. It hears of the shard long after the others have used it, and takes up its log from the beginning."""
    brokers = ThreeBrokers()
    others = [id for id in brokers.ids if id != away]
    brokers.cut.add(away)
    brokers.run_until(lambda: brokers.leader() in others)
    add(brokers, others[0])
    brokers.run_until(lambda: have(brokers, *others))
    assert serve(brokers, "meanwhile", *others) <= {*ADDED}
    assert [*brokers.nodes[away].engine.shards] == [*range(1, SHARDS + 1)]
    brokers.cut.clear()
    brokers.run_until(lambda: have(brokers, 1, 2, 3))
    brokers.run_until(lambda: are_alike(brokers))
    serve(brokers, "after", away)
    for shard in ADDED:
        assert brokers.stores[away].load()[shard].snapshot is not None


def test_all_begin_late_and_alike() -> None:
    """All nodes die before any has begun a shard that the log of the catalog has."""
    stores = {id: MemoryStore() for id in (1, 2, 3)}
    brokers = ThreeBrokers(stores.__getitem__)
    add(brokers)
    brokers.run_until(lambda: have(brokers, 1, 2, 3))
    for store in stores.values():
        for shard in ADDED:
            del store._groups[shard]
    brokers.cut.update(brokers.ids)
    for id in brokers.ids:
        start(brokers, id)
    brokers.cut.clear()
    meet(brokers)
    brokers.run_until(lambda: have(brokers, 1, 2, 3))
    assert serve(brokers, "after", 1, 2, 3) <= {*ADDED}


def start(brokers: ThreeBrokers, id: int) -> None:
    brokers.nodes[id] = NodeWorld(brokers, id, 1 + (brokers.nodes[id].engine.incarnation >> 20))


def meet(brokers: ThreeBrokers) -> None:
    for id, node in brokers.nodes.items():
        for other in brokers.ids:
            if other != id:
                node.engine.peer_up(other, brokers.now_ms)


def test_what_was_stored_of_them_is_there_after_a_start() -> None:
    brokers = ThreeBrokers()
    add(brokers)
    brokers.run_until(lambda: have(brokers, 1, 2, 3))
    client = brokers.nodes[1].client()
    for command in (commands.Queue.Declare(queue="q", durable=True), commands.Confirm.Select()):
        client.send(1, command)
    brokers.run_until(lambda: len(client.received) == 2)
    client.publish(1, "q", b"kept")
    brokers.run_until(lambda: len(client.received) == 3)
    for id in brokers.ids:
        start_anew(brokers, id, LEVELS)
    brokers.run_until(lambda: have(brokers, 1, 2, 3))
    record = brokers.nodes[1].engine.catalog.queue("/", "q")
    assert record is not None
    assert record.shard in ADDED
    assert all(
        brokers.nodes[id].engine.host.groups[record.shard].applied > BOOTSTRAP_INDEX for id in brokers.ids
    )
    again = brokers.nodes[2].client()
    again.send(1, commands.Basic.Get(queue="q", no_ack=True))
    brokers.run_until(partial(getattr, again, "received"))
    assert isinstance(again.take(1)[0], Delivery)


def test_nothing_is_said_in_a_new_group_before_its_beginning_is_on_disk() -> None:
    """A vote that is counted is on disk, and behind the group's beginning there."""
    brokers = ThreeBrokers()
    late = brokers.followers()[0]
    brokers.stuck.add(late)
    add(brokers, brokers.leader())
    for _ in range(3):
        brokers.step()
    engine = brokers.nodes[late].engine
    assert not brokers.stores[late].load().keys() & {*ADDED}
    for shard in ADDED:
        if shard in engine.host.groups:
            assert engine.host.groups[shard].committed <= BOOTSTRAP_INDEX
    brokers.stuck.clear()
    brokers.run_until(lambda: have(brokers, 1, 2, 3))
    for shard in ADDED:
        assert brokers.stores[late].load()[shard].hard_state != HardState()
    brokers.run_until(lambda: are_alike(brokers))


def test_below_its_level_nothing_is_added() -> None:
    brokers = ThreeBrokers(levels=LEVELS.limited(LEVEL_SHARDS_ADDED - 1), shards_per_node=ADDED[-1])
    (refused,) = give(brokers, 1, AddShards(ADDED[-1]))
    assert isinstance(refused, Refusal)
    for _ in range(4 * AGAIN_MS // TICK_MS):
        brokers.step()
    assert brokers.nodes[1].engine.catalog.shard_count == SHARDS


def test_a_count_that_follows_the_members_is_reached_when_all_are_there() -> None:
    per_node = SHARDS
    brokers = ThreeBrokers(shards_per_node=per_node, cut=[3])
    for _ in range(4 * AGAIN_MS // TICK_MS):
        brokers.step()
    assert brokers.nodes[1].engine.catalog.shard_count == SHARDS
    brokers.cut.clear()
    meet(brokers)
    brokers.run_until(lambda: all(len(node.engine.shards) == 3 * per_node for node in brokers.nodes.values()))
    serve(brokers, "after", 1, 2, 3)
    for _ in range(4 * AGAIN_MS // TICK_MS):
        brokers.step()
    assert brokers.nodes[1].engine.catalog.shard_count == 3 * per_node
