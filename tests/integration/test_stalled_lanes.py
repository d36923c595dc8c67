"""Five real nodes, three voters a shard: two nodes die, one shard has no leader, a queue is full, all others go on
(RULES D8)."""

import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from mayfly.cluster.host.placement import voters
from tests.integration.clients import Consumer, channel, declare_in_shard, publish_all
from tests.integration.nodes import START_WITHIN_S, Nodes
from tests.integration.operators import mayfly
from tests.integration.replica_sets import until_led
from tests.waiting import wait_for

pytestmark = [pytest.mark.processes]

NODES: Final = 5
SHARDS: Final = 5
VOTERS: Final = 3
DEAD: Final = (1, 4)
SURVIVORS: Final = (2, 3, 5)
SOURCE: Final = 1
"""The shard in which messages die; its voters are nodes 2, 3 and 4."""
MESSAGES: Final = 400
ROOM: Final = 5
"""Of the queue that is full."""


def leaderless() -> list[int]:
    """The groups that have lost a majority of their voters; group 0 is the catalog."""
    ids = list(range(1, NODES + 1))
    return [group for group in range(SHARDS + 1) if len(set(DEAD) & set(voters(group, ids, VOTERS))) > VOTERS // 2]


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Nodes]:
    nodes = Nodes(folder, NODES, {"shards": SHARDS, "replication_factor": VOTERS, "session_timeout_ms": 60_000})
    try:
        nodes.start()
        nodes.until_serving(START_WITHIN_S)
        nodes.until_balanced()
        yield nodes
    except BaseException:
        nodes.stop()
        raise
    nodes.close()


def lanes(nodes: Nodes, id: int) -> dict[str, tuple[int, str]]:
    """Queue -> how many dead letters wait for it, and for what, as a node has it."""
    rows = json.loads(mayfly(nodes, id, "deadletters", "list", "--json"))["lanes"]
    return {row["queue"]: (row["messages"], row["waits_for"]) for row in rows}


def without_leader(nodes: Nodes, id: int) -> list[int]:
    return sorted(nodes.leaders(id).get(0, []))


def led_by_survivors(nodes: Nodes) -> bool:
    """Whether all survivors know leaders that live, for all groups but those that can't have one."""
    return all(
        without_leader(nodes, id) == leaderless() and not set(DEAD) & nodes.leaders(id).keys() for id in SURVIVORS
    )


def has_all(consumer: Consumer, count: int) -> None:
    """So many have come, once each and in the order in which they died."""
    consumer.until_received(count)
    assert consumer.numbers == list(range(count)), consumer.name
    assert not any(delivery.redelivered for delivery in consumer.deliveries)


def test_d6_d7_d8_a_target_without_a_leader_holds_no_other_lane(cluster: Nodes) -> None:
    """Each message dies into queues of all shards, one of which has no majority, and into one that is full and refuses.
    The others get everything meanwhile, though the source's shard changes its leader too; that one gets it when its
    voters are back, the full one when it is consumed, both once and in order.
    """
    (stalled,) = leaderless()
    assert stalled != SOURCE
    full_shard = next(shard for shard in range(1, SHARDS + 1) if shard not in (stalled, SOURCE))
    with channel(cluster, SURVIVORS[0]) as where:
        where.exchange_declare("dead", "fanout", durable=True)
        declare = partial(declare_in_shard, cluster, where, witness=SURVIVORS[0])
        targets = {shard: declare(f"target{shard}", shard) for shard in range(1, SHARDS + 1)}
        arguments = {"x-message-ttl": 200, "x-dead-letter-exchange": "dead"}
        source = declare("source", SOURCE, arguments)
        limits = {"x-max-length": ROOM, "x-overflow": "reject-publish"}
        full = declare("full", full_shard, limits)
        for target in (full, *targets.values()):
            where.queue_bind(target, "dead")
    cluster.kill(*DEAD)
    wait_for(partial(led_by_survivors, cluster), "leaders of all shards but one", every_s=0.05)

    free = {shard: target for shard, target in targets.items() if shard != stalled}
    consumers = [
        Consumer(cluster, id, target).begin()
        for id, target in zip(itertools.cycle(SURVIVORS), free.values(), strict=False)
    ]
    bodies = [b"%d " % number for number in range(2 * MESSAGES)]
    publish_all(cluster, SURVIVORS[1], source, bodies[:MESSAGES])
    for consumer in consumers:
        has_all(consumer, MESSAGES)
    old = until_led(cluster, source, SURVIVORS[0])
    new = next(id for id in voters(SOURCE, list(cluster.ids), VOTERS) if id not in (old, *DEAD))
    mayfly(cluster, SURVIVORS[0], "shards", "transfer", str(SOURCE), cluster.plan(new).name)
    wait_for(
        lambda: all(cluster.leader_of(source, id) == new for id in SURVIVORS), f"node {new} leads the source's shard"
    )
    publish_all(cluster, SURVIVORS[2], source, bodies[MESSAGES:])
    for consumer in consumers:
        has_all(consumer, 2 * MESSAGES)
    waiting = {targets[stalled]: (2 * MESSAGES, "leader"), full: (2 * MESSAGES - ROOM, "room")}
    wait_for(lambda: all(lanes(cluster, id) == waiting for id in SURVIVORS), "two lanes alone wait", every_s=0.05)
    wait_for(lambda: all(without_leader(cluster, id) == [stalled] for id in SURVIVORS), "leaders of all other shards")

    cluster.start(*DEAD)
    cluster.until_serving(START_WITHIN_S)
    consumers.append(Consumer(cluster, DEAD[0], targets[stalled]).begin())
    has_all(consumers[-1], 2 * MESSAGES)
    wait_for(lambda: all(cluster.ready(id, full) == ROOM for id in SURVIVORS), "a full queue, as all have it")
    consumers.append(Consumer(cluster, SURVIVORS[0], full).begin())
    has_all(consumers[-1], 2 * MESSAGES)
    wait_for(
        lambda: all(lanes(cluster, id) == {} and cluster.metric(id, "mayfly_outbox") == 0 for id in cluster.ids),
        "empty outboxes everywhere", every_s=0.05,
    )  # fmt: skip
    cluster.until_well()
    # What would come twice has come by now: nothing is on its way, and no queue has anything.
    assert all(cluster.ready(id, target) == 0 for id in cluster.ids for target in (full, *targets.values()))
    for consumer in consumers:
        has_all(consumer, 2 * MESSAGES)
        consumer.finish()
