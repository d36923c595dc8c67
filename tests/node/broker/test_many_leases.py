"""Many queues with leases on three whole nodes: their end is bounded work, and idle ones are none."""

from collections import Counter
from collections.abc import Iterable

import pytest

from mayfly.node.catalog import Catalog, CatalogCommand, CatalogResult, DeclareQueue, QueueRecord, RemoveQueues
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.shard_leader import LEASES_RECORDED_EVERY_MS, RECONCILE_EVERY_MS
from mayfly.node.engine.engine import Engine
from mayfly.node.limits import QUEUES_BURIED_PER_COMMAND
from mayfly.node.shard import commands
from tests.node.broker.three_brokers import SHARDS, TICK_MS, ThreeBrokers

LEASE_MS = 60_000
LEASES_PER_TICK = 1000


def declare(cluster: ThreeBrokers, count: int, lease_ms: int = LEASE_MS) -> Engine:
    """Queues with a lease, in the catalog and in their shards; the node they were declared on."""
    node = cluster.nodes[1].engine
    arguments = {"x-queue-type": "quorum", "x-expires": lease_ms}
    for number in range(count):
        node.submit_catalog(DeclareQueue("/", f"lease-{number}", True, arguments=arguments), _ignore)
    cluster.settle()
    for record in node.catalog.queues():
        encoded = commands.encode_create_queue(record.id, shard_settings(node.catalog, record))
        node.shard(record.shard).submit(encoded, _ignore)
    cluster.settle()
    assert queues_left(node) == count == len(list(node.catalog.queues()))
    return node


def queues_left(node: Engine) -> int:
    """How many queues a node's shards have."""
    return sum(len(shard.queue_ids()) for shard in node.shards.values())


def test_l4_c4_ten_thousand_leases_that_end_together_end_in_bounded_steps_and_others_are_served_between() -> None:
    """RULES L4, C4: in the order of their ends; each tick a bounded part, so that other commands are never far off."""
    count = 10_000
    cluster = ThreeBrokers()
    node = declare(cluster, count)
    keep = min(record.id for record in node.catalog.queues())
    shard_of_kept = node.shards[1 if keep in node.shards[1].queue_ids() else 2].shard_id
    cluster.run_until(lambda: queues_left(node) < count, steps=LEASE_MS // TICK_MS + 20)
    before = {id: cluster.nodes[1].engine.host.groups[id].applied for id in range(SHARDS + 1)}
    commands_seen = watch_removals(cluster)
    left = queues_left(node)
    answered: list[object] = []
    rounds = 0
    while left:
        rounds += 1
        node.shard(shard_of_kept).submit(commands.encode_touch_queue(keep), answered.append)
        cluster.step()
        assert len(answered) == rounds, "a command waits behind the ends of leases"
        assert left - queues_left(node) <= SHARDS * LEASES_PER_TICK
        left = queues_left(node)
        gone_in_order(node)
    cluster.run_until(lambda: not list(node.catalog.queues()))
    cluster.run_until(lambda: not any(shard.deleted for shard in node.shards.values()))
    entries = sum(cluster.nodes[1].engine.host.groups[id].applied - index for id, index in before.items())
    assert max(commands_seen) <= QUEUES_BURIED_PER_COMMAND
    assert sum(commands_seen) <= count, "queues are taken out of the catalog again and again"
    # A part of the leases, their removal from the catalog, and word of it to the shard: an entry each; and the touches.
    assert entries <= 3 * count // LEASES_PER_TICK + 2 * SHARDS + rounds + 20


def gone_in_order(node: Engine) -> None:
    """Queues whose leases end together go in the order of their ids."""
    for shard in node.shards.values():
        if shard.deleted and len(shard.queue_ids()):
            assert max(shard.deleted) < min(shard.queue_ids())


def watch_removals(cluster: ThreeBrokers) -> list[int]:
    """How many queues each RemoveQueues that is applied from now on has, whichever node gave it."""
    seen: list[int] = []
    catalog = cluster.nodes[1].engine.catalog
    apply = catalog.apply

    def watched(command: CatalogCommand, time_ms: int = 0) -> CatalogResult:
        if isinstance(command, RemoveQueues):
            seen.append(len(command.ids))
        return apply(command, time_ms)

    catalog.apply = watched  # type: ignore[method-assign]
    return seen


class Counted(Catalog):
    """A catalog that counts the records it hands out."""

    def __init__(self, shard_count: int) -> None:
        super().__init__(shard_count)
        self.looked_at: Counter[str] = Counter()

    def queues(self, vhost: str | None = None) -> Iterable[QueueRecord]:
        for record in super().queues(vhost):
            self.looked_at["queues"] += 1
            yield record

    def queues_in_block(self, shard: int, block: int) -> list[QueueRecord]:
        found = super().queues_in_block(shard, block)
        self.looked_at["queues_in_block"] += len(found)
        return found

    def queue_by_id(self, queue_id: int) -> QueueRecord | None:
        self.looked_at["queue_by_id"] += 1
        return super().queue_by_id(queue_id)


@pytest.mark.parametrize("count", [10, 1000])
def test_idle_queues_are_not_looked_at(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """However many they are: no tick, and no comparison of catalog and shards, goes through queues without news."""
    monkeypatch.setattr("tests.node.broker.three_brokers.Catalog", Counted)
    cluster = ThreeBrokers()
    catalogs: list[Counted] = [node.engine.catalog for node in cluster.nodes.values()]  # type: ignore[misc]
    declare(cluster, count, lease_ms=10 * LEASE_MS)
    for catalog in catalogs:
        catalog.looked_at.clear()
    # The comparisons that follow the declares, which do look at all of them: each leader at those of its shards.
    for _ in range(RECONCILE_EVERY_MS // TICK_MS + 100):
        cluster.step()
    assert sum(catalog.looked_at["queues_in_block"] for catalog in catalogs) >= count
    for catalog in catalogs:
        assert catalog.looked_at["queues"] == 0
        catalog.looked_at.clear()
    frames = cluster.frames
    idle_ms = RECONCILE_EVERY_MS + 5000
    for _ in range(idle_ms // TICK_MS):
        cluster.step()
    assert [dict(catalog.looked_at) for catalog in catalogs] == [{}, {}, {}]
    # One frame from each node to each other for each heartbeat: answers go with the next. And, now and then, an entry
    # in each shard with leases, which records how far they have come.
    records = len(cluster.nodes[1].engine.shards) * (idle_ms // LEASES_RECORDED_EVERY_MS + 1)
    assert cluster.frames - frames <= 3 * 2 * idle_ms // (2 * TICK_MS) + 20 + 6 * records


def _ignore(_: object) -> None:
    """Nobody waits for the answer."""
