"""Three whole nodes of which one falls silent, or many queues are busy: what the catalog's leader does about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp import commands

from mayfly.cluster.versions import LEVEL_PLANS, VersionRange
from mayfly.node.catalog import Catalog, MemberRecord, MoveQueue, QueueRecord
from mayfly.node.membership.plan_duty import BACK_AFTER_PART
from mayfly.node.membership.queue_loads import QueueWork
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers
from tests.node.conftest import Client

SESSION_TIMEOUT_MS = 3_000
REPLACE_AFTER_MS = 10_000


def three(levels: VersionRange | None = None) -> ThreeBrokers:
    levels = levels or VersionRange(1, LEVEL_PLANS)
    return ThreeBrokers(shards=6, levels=levels, replace_after_ms=REPLACE_AFTER_MS)


def member(brokers: ThreeBrokers, id: int) -> MemberRecord:
    record = brokers.nodes[brokers.leader()].engine.catalog.members.get(id)
    assert record is not None
    return record


def silence(brokers: ThreeBrokers, id: int) -> None:
    brokers.cut.add(id)
    for other in set(brokers.ids) - {id}:
        brokers.nodes[other].engine.peer_down(id, brokers.now_ms)
        brokers.nodes[id].engine.peer_down(other, brokers.now_ms)


def comes_back(brokers: ThreeBrokers, id: int) -> None:
    brokers.cut.discard(id)
    for other in set(brokers.ids) - {id}:
        brokers.nodes[other].engine.peer_up(id, brokers.now_ms)
        brokers.nodes[id].engine.peer_up(other, brokers.now_ms)


def pass_ms(brokers: ThreeBrokers, period_ms: int) -> None:
    for _ in range(period_ms // TICK_MS):
        brokers.step()


def test_a_silent_member_is_away_when_its_time_is_over_and_leads_nothing_in_the_plan() -> None:
    brokers = three()
    goes = brokers.followers()[0]
    silence(brokers, goes)
    pass_ms(brokers, REPLACE_AFTER_MS)
    assert not member(brokers, goes).away, "the time begins when its sessions end"
    pass_ms(brokers, 2 * SESSION_TIMEOUT_MS)
    assert member(brokers, goes).away
    members = brokers.nodes[brokers.leader()].engine.catalog.members
    assert all(goes in voters and len(voters) == 3 for voters in members.plan.values()), "nobody else could vote"
    brokers.run_until(lambda: all(voters[0] != goes for voters in members.plan.values()))


def test_a_founder_that_never_comes_is_away_when_its_time_is_over_and_may_come_late() -> None:
    brokers = ThreeBrokers(shards=6, levels=VersionRange(1, LEVEL_PLANS), replace_after_ms=REPLACE_AFTER_MS, cut={3})
    began_ms = brokers.now_ms
    leader = brokers.nodes[brokers.leader()].engine
    assert leader.catalog.node(3) is None and leader.catalog.level == LEVEL_PLANS
    brokers.run_until(lambda: member(brokers, 3).away)
    assert REPLACE_AFTER_MS - SESSION_TIMEOUT_MS < brokers.now_ms - began_ms < REPLACE_AFTER_MS + SESSION_TIMEOUT_MS
    brokers.run_until(lambda: all(voters[0] != 3 for voters in leader.catalog.members.plan.values()))
    comes_back(brokers, 3)
    brokers.run_until(lambda: not member(brokers, 3).away, 600)


def test_one_that_is_back_for_a_moment_stays_away() -> None:
    brokers = three()
    goes = brokers.followers()[0]
    silence(brokers, goes)
    brokers.run_until(lambda: member(brokers, goes).away, 600)
    for _ in range(3):
        comes_back(brokers, goes)
        pass_ms(brokers, REPLACE_AFTER_MS // BACK_AFTER_PART - 4 * TICK_MS)
        silence(brokers, goes)
        brokers.step()
        assert member(brokers, goes).away
    comes_back(brokers, goes)
    pass_ms(brokers, REPLACE_AFTER_MS // BACK_AFTER_PART + 40 * TICK_MS)
    assert not member(brokers, goes).away
    members = brokers.nodes[brokers.leader()].engine.catalog.members
    brokers.run_until(lambda: any(voters[0] == goes for voters in members.plan.values()))


def test_the_next_leader_goes_on_counting() -> None:
    brokers = three()
    first = brokers.leader()
    goes, other = brokers.followers()
    silence(brokers, goes)
    pass_ms(brokers, REPLACE_AFTER_MS)
    brokers.nodes[first].catalog_group.raw.transfer_leader(other)
    brokers.run_until(lambda: brokers.leader() == other)
    pass_ms(brokers, 2 * SESSION_TIMEOUT_MS)
    assert member(brokers, goes).away


@pytest.mark.parametrize("highest", [LEVEL_PLANS - 1, LEVEL_PLANS])
def test_nobody_is_replaced_below_the_level_of_that(highest: int) -> None:
    brokers = three(VersionRange(1, highest))
    goes = brokers.followers()[0]
    silence(brokers, goes)
    pass_ms(brokers, REPLACE_AFTER_MS + 2 * SESSION_TIMEOUT_MS)
    assert member(brokers, goes).away == (highest == LEVEL_PLANS)


def test_leaders_follow_the_load_of_their_groups() -> None:
    """One leads three busy shards, the others idle ones."""
    brokers = three()
    members = brokers.nodes[brokers.leader()].engine.catalog.members
    brokers.run_until(lambda: all(_leads(brokers, group) == voters[0] for group, voters in members.plan.items()))
    busy = [group for group, voters in members.plan.items() if voters[0] == 1 and group]
    assert len(busy) >= 2
    done = [0]
    for node in brokers.nodes.values():
        node.engine.membership.plan.loads.work = lambda group: (done[0] if group in busy else 0, 0)
    for _ in range(100 * 1000 // TICK_MS):
        done[0] += 40 * TICK_MS
        brokers.step()
    now = brokers.nodes[brokers.leader()].engine.catalog.members.plan
    assert len({now[group][0] for group in busy}) == len(busy)


def _leads(brokers: ThreeBrokers, group: int) -> int:
    return brokers.nodes[1].engine.host.groups[group].leader


HOT_FOR_MS = 15_000
BUSY = ("busy1", "busy2", "busy3")


class HotShard:
    """Three nodes, one shard of which has three busy queues; others have idle ones."""

    def __init__(self, by_load: bool = True) -> None:
        self.brokers = ThreeBrokers(shards=6, hot_for_ms=HOT_FOR_MS, by_load=by_load)
        client = self.brokers.nodes[1].client()
        self.declare(client, "first")
        self.shard = self.record("first").shard
        for name in BUSY:
            self.declare(client, name)
            self.move(name, self.shard)
        self.works: dict[int, int] = dict.fromkeys((self.record(name).id for name in BUSY), 0)
        for node in self.brokers.nodes.values():
            duty = node.engine.membership.plan
            duty.loads.work = self.work
            duty.queue_loads.works = self.queue_works

    def declare(self, client: Client, name: str) -> None:
        client.send(1, commands.Queue.Declare(queue=name, durable=True))
        self.brokers.run_until(lambda: self.catalog.queue("/", name))

    @property
    def catalog(self) -> Catalog:
        return self.brokers.nodes[self.brokers.leader()].engine.catalog

    def record(self, name: str) -> QueueRecord:
        record = self.catalog.queue("/", name)
        assert record is not None
        return record

    def move(self, name: str, shard: int) -> None:
        engine = self.brokers.nodes[1].engine
        engine.submit_catalog(MoveQueue("/", name, shard), lambda _: None)
        self.brokers.run_until(lambda: self.record(name).shard == shard)

    def work(self, group: int) -> tuple[int, int]:
        return sum(messages for queue, messages in self.works.items() if self.shard_of(queue) == group), 0

    def queue_works(self, group: int) -> Iterator[QueueWork]:
        return iter([(queue, done, 0, True) for queue, done in self.works.items() if self.shard_of(queue) == group])

    def shard_of(self, queue: int) -> int:
        record = self.catalog.queue_by_id(queue)
        return 0 if record is None else record.shard

    def pass_ms(self, period_ms: int) -> None:
        """While the queues get 40 messages in each ms."""
        for _ in range(period_ms // TICK_MS):
            for queue in self.works:
                self.works[queue] += 40 * TICK_MS
            self.brokers.step()

    def shards(self) -> list[int]:
        return [self.record(name).shard for name in BUSY]

    def moved(self) -> int:
        return sum(node.engine.membership.plan.queues_moved for node in self.brokers.nodes.values())


def test_busy_queues_of_one_shard_are_spread_over_shards_and_nodes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    hot = HotShard()
    hot.pass_ms(HOT_FOR_MS)
    assert hot.moved() == 0, "it was not hot for long"
    hot.pass_ms(6 * HOT_FOR_MS)
    assert len(set(hot.shards())) == 3 and hot.moved() == 2
    plan = hot.catalog.members.plan
    assert len({plan[shard][0] for shard in hot.shards()}) == 3
    assert sum("which is hot" in record.message for record in caplog.records) == 2
    assert hot.record("first").shard == hot.shard


def test_no_queue_moves_by_itself_while_a_node_drains_or_is_silent() -> None:
    hot = HotShard()
    goes = hot.brokers.followers()[0]
    hot.brokers.nodes[goes].engine.host.set_draining(True)
    hot.pass_ms(4 * HOT_FOR_MS)
    assert hot.moved() == 0
    hot.brokers.nodes[goes].engine.host.set_draining(False)
    silence(hot.brokers, goes)
    hot.pass_ms(4 * HOT_FOR_MS)
    assert hot.moved() == 0
    comes_back(hot.brokers, goes)
    hot.pass_ms(3 * HOT_FOR_MS)
    assert hot.moved() >= 1


def test_no_queue_moves_where_shards_count_alike() -> None:
    hot = HotShard(by_load=False)
    hot.pass_ms(5 * HOT_FOR_MS)
    assert hot.moved() == 0 and set(hot.shards()) == {hot.shard}
