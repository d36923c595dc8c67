"""Three whole nodes of which one falls silent, or many queues are busy: what the catalog's leader does about it."""

from __future__ import annotations

import pytest

from mayfly.cluster.versions import LEVEL_PLANS, VersionRange
from mayfly.node.catalog import MemberRecord
from mayfly.node.membership.plan_duty import BACK_AFTER_PART
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers

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
