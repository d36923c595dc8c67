"""Whether a node's ticks may come late: what is due, on whole nodes."""

import pytest

from mayfly.cluster.group.clock import GroupClock
from tests.node.broker.three_brokers import TICK_MS, ThreeBrokers

LATE_MS = 2 * TICK_MS


@pytest.fixture
def brokers() -> ThreeBrokers:
    brokers = ThreeBrokers(shards=1)
    for _ in range(40):
        brokers.step()
    return brokers


def waiting(brokers: ThreeBrokers, late_ms: int = LATE_MS) -> set[int]:
    """The nodes whose ticks may come that late."""
    now_ms = brokers.now_ms
    return {id for id, node in brokers.nodes.items() if node.engine.can_wait(now_ms, now_ms + late_ms)}


def leader(brokers: ThreeBrokers) -> int:
    return next(id for id, node in brokers.nodes.items() if node.engine.host.groups[1].leads)


def test_t7_the_node_that_leads_does_not_wait_when_a_message_is_due(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[2].client()
    client.declare("q", arguments={"x-message-ttl": 1_000})
    client.publish(1, "q")
    brokers.settle()
    assert waiting(brokers) == {1, 2, 3}
    for _ in range(40):
        before_ms = brokers.now_ms
        if waiting(brokers) != {1, 2, 3}:
            break
        brokers.step()
    assert waiting(brokers) == {1, 2, 3} - {leader(brokers)}
    group = brokers.nodes[leader(brokers)].engine.host.groups[1]
    shard = brokers.nodes[leader(brokers)].engine.shards[1]
    due_ms = shard.next_message_due_ms()
    assert group.clock.current_ms(before_ms) < due_ms <= group.clock.current_ms(before_ms) + LATE_MS


def test_l4_the_node_that_leads_does_not_wait_when_a_lease_ends(brokers: ThreeBrokers) -> None:
    brokers.nodes[2].client().declare("q", arguments={"x-expires": 1_000})
    brokers.settle()
    assert waiting(brokers) == {1, 2, 3}
    brokers.run_until(lambda: waiting(brokers) != {1, 2, 3}, steps=40)
    assert waiting(brokers) == {1, 2, 3} - {leader(brokers)}
    shard = brokers.nodes[leader(brokers)].engine.shards[1]
    assert shard.queue_ids()
    brokers.run_until(lambda: not shard.queue_ids(), steps=4)


def test_l4_no_tick_waits_for_longer_than_leases_are_charged_for(brokers: ThreeBrokers) -> None:
    brokers.settle()
    assert waiting(brokers, GroupClock.LONGEST_LED_STEP_MS) == {1, 2, 3}
    assert waiting(brokers, GroupClock.LONGEST_LED_STEP_MS + 1) == set()


def test_t7_what_is_due_in_a_queue_of_this_node_alone_is_not_waited_for(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[2].client()
    client.declare("q", durable=False, exclusive=True, arguments={"x-message-ttl": 1_000})
    client.publish(1, "q")
    brokers.settle()
    assert waiting(brokers) == {1, 2, 3}
    brokers.run_until(lambda: waiting(brokers) != {1, 2, 3}, steps=40)
    assert waiting(brokers) == {1, 3}


def test_a_replica_says_with_which_tick_it_may_stand_for_election(brokers: ThreeBrokers) -> None:
    lost = brokers.leader()
    brokers.cut.add(lost)
    follower = next(id for id in brokers.nodes if id != lost)
    host = brokers.nodes[follower].engine.host
    terms = {id: group.term for id, group in host.groups.items()}
    for _ in range(60):
        ticks = host.ticks_to_election()
        host.tick(brokers.now_ms)
        campaigns = any(group.raw.has_ready() for group in host.groups.values() if group.leader in (0, lost))
        assert not campaigns or ticks == 1
        if campaigns:
            break
    else:
        raise AssertionError(f"nobody campaigned: {terms}")
    assert ticks == 1
