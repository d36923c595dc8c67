"""At rest a queue is led by the node of the client that declared it, unless its arguments or policies say otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.versions import LEVEL_LEADER_LOCATORS, LEVELS, VersionRange
from mayfly.node.catalog import QueueRecord, SetPolicy
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.readings import policy_of

SHARDS = 6


def at_rest(levels: VersionRange = LEVELS) -> ThreeBrokers:
    """Three nodes at their highest level, and each leads what the plan has it lead."""
    brokers = ThreeBrokers(shards=SHARDS, levels=levels)
    brokers.run_until(
        lambda: all(
            node.engine.catalog.level == levels.highest
            and all(
                group.leader == node.engine.catalog.members.plan[id][0] for id, group in node.engine.host.groups.items()
            )
            for node in brokers.nodes.values()
        )
    )
    return brokers


def declare(brokers: ThreeBrokers, id: int, name: str, **arguments: Any) -> QueueRecord:
    """Through a client of the node."""
    client = brokers.nodes[id].client()
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.send(1, commands.Queue.Declare(queue=name, durable=True, arguments=named))
    brokers.run_until(lambda: client.received)
    (declared,) = client.take()
    assert isinstance(declared, commands.Queue.DeclareOk), declared
    records = [node.engine.catalog.queue("/", name) for node in brokers.nodes.values()]
    assert records[0] is not None and records[1:] == [records[0]] * 2, "all replicas have it in the same shard"
    return records[0]


def led_by(brokers: ThreeBrokers, record: QueueRecord) -> list[int]:
    return [id for id, node in brokers.nodes.items() if node.engine.host.groups[record.shard].leads]


@pytest.fixture(scope="module")
def brokers() -> ThreeBrokers:
    return at_rest()


def test_a_queue_is_led_by_the_node_of_the_client_that_declares_it(brokers: ThreeBrokers) -> None:
    for id in brokers.ids:
        records = [declare(brokers, id, f"near-{id}-{number}") for number in range(2)]
        assert [led_by(brokers, record) for record in records] == [[id], [id]]
        assert records[0].shard != records[1].shard
        again = [declare(brokers, other, f"near-{id}-0") for other in brokers.ids]
        assert again == [records[0]] * 3, "declared again, it stays"


def test_a_queue_goes_where_its_arguments_want_it(brokers: ThreeBrokers) -> None:
    for number in range(8):
        local = declare(brokers, 1, f"local-{number}", queue_type="quorum", queue_leader_locator="client-local")
        assert led_by(brokers, local) == [1]
    led = set()
    for number in range(4):
        counts = brokers.nodes[1].engine.catalog.shard_queue_counts
        record = declare(brokers, 1, f"balanced-{number}", queue_master_locator="min-masters")
        assert counts[record.shard - 1] == min(counts)
        led.update(led_by(brokers, record))
    assert led == {2, 3}, "node 1 has most of the queues"


def test_a_queue_goes_where_its_policy_wants_it(brokers: ThreeBrokers) -> None:
    """It is the declaring node that knows: what a pattern matches may differ between replicas."""
    answers: list[object] = []
    command = SetPolicy("/", "spread", "^spread", {"queue-leader-locator": "balanced"})
    brokers.nodes[2].engine.submit_catalog(command, answers.append)
    catalogs = [node.engine.catalog for node in brokers.nodes.values()]
    brokers.run_until(lambda: answers and all(policy_of(catalog, "/", "spread") for catalog in catalogs))
    for number in range(3):
        counts = brokers.nodes[1].engine.catalog.shard_queue_counts
        near = brokers.nodes[1].engine.catalog.members.shards_led_by(1)
        assert min(counts[shard - 1] for shard in near) > min(counts)
        assert declare(brokers, 1, f"spread-{number}").shard == counts.index(min(counts)) + 1


def test_members_of_the_release_before_keep_all_at_its_rule() -> None:
    brokers = at_rest(VersionRange(1, LEVEL_LEADER_LOCATORS - 1))
    shards = [declare(brokers, 1, f"q{number}", queue_leader_locator="client-local").shard for number in range(SHARDS)]
    assert shards == list(range(1, SHARDS + 1))
