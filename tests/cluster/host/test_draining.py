"""A node that drains gives away what it leads and is given nothing, until it is revived or starts again."""

from typing import Any

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.group import Group
from mayfly.cluster.host.draining import REMEMBERED_MS
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.leader_balance import STABLE_BEFORE_TRANSFER_MS
from tests.cluster.host.three_hosts import TICK_MS, Cluster

GROUPS = 6
LONG_STEPS = 30_000 // TICK_MS


def leaders(cluster: Cluster) -> list[int]:
    return [cluster.leader(group) for group in range(GROUPS)]


def settled(cluster: Cluster) -> bool:
    return leaders(cluster) == [1, 2, 3, 1, 2, 3]


def balanced(**settings: Any) -> Cluster:
    cluster = Cluster(3, groups=GROUPS, **settings)
    cluster.run_until(lambda: settled(cluster))
    return cluster


def test_leaders_go_within_a_few_ticks_and_do_not_come_back() -> None:
    """The pause is one handover; what is given meanwhile is answered, once."""
    cluster = balanced()
    answers: list[object] = []
    for group in range(GROUPS):
        cluster.nodes[3].host.submit(group, [b"abcd"], 4, True, answers.append)
    cluster.nodes[1].host.set_draining(True)
    for _ in range(4):
        cluster.step()
    assert 1 not in leaders(cluster) and 0 not in leaders(cluster)
    assert len(answers) == GROUPS and all(isinstance(answer, int) for answer in answers)
    for _ in range(LONG_STEPS):
        cluster.step()
        assert 1 not in leaders(cluster)
    assert sorted(leaders(cluster)) == [2, 2, 2, 3, 3, 3]


def test_a_revived_node_gets_its_leaders_back() -> None:
    cluster = balanced()
    cluster.nodes[1].host.set_draining(True)
    cluster.run_until(lambda: 1 not in leaders(cluster))
    cluster.nodes[1].host.set_draining(False)
    cluster.run_until(lambda: settled(cluster), limit=2 * STABLE_BEFORE_TRANSFER_MS // TICK_MS)


def test_a_restart_ends_it() -> None:
    """The mark is in memory alone, its own and that of its peers."""
    cluster = balanced()
    cluster.nodes[1].host.set_draining(True)
    cluster.run_until(lambda: 1 not in leaders(cluster))
    cluster.kill(1)
    cluster.step()
    cluster.start(1)
    assert not cluster.nodes[1].host.leadership.drains(1, cluster.now)
    cluster.run_until(lambda: settled(cluster), limit=(REMEMBERED_MS + 2 * STABLE_BEFORE_TRANSFER_MS) // TICK_MS)


def test_two_that_drain_leave_all_to_the_third_and_the_last_one_keeps_what_it_leads() -> None:
    cluster = balanced()
    for node in (1, 2):
        cluster.nodes[node].host.set_draining(True)
    cluster.run_until(lambda: set(leaders(cluster)) == {3}, limit=60)
    cluster.nodes[3].host.set_draining(True)
    assert not cluster.nodes[3].host.leadership.can_hand_over(cluster.now)
    for _ in range(LONG_STEPS):
        cluster.step()
    assert set(leaders(cluster)) == {3}


def test_nobody_waits_for_nodes_that_are_gone() -> None:
    """With one of the others dead the second takes all; with both gone there is nobody to hand over to."""
    cluster = balanced()
    cluster.kill(2)
    cluster.nodes[1].host.set_draining(True)
    cluster.run_until(lambda: set(leaders(cluster)) == {3})
    cluster.kill(3)
    cluster.step()
    assert not cluster.nodes[1].host.leadership.can_hand_over(cluster.now)


def test_it_leads_when_nobody_else_can() -> None:
    """Draining is a wish, not a refusal: when the others are lost but for one voter, a majority still serves."""
    cluster = balanced()
    cluster.nodes[1].host.set_draining(True)
    cluster.nodes[2].host.set_draining(True)
    cluster.run_until(lambda: set(leaders(cluster)) == {3})
    cluster.kill(3)
    cluster.run_until(lambda: 0 not in leaders(cluster) and set(leaders(cluster)) <= {1, 2})


def test_a_successor_that_has_not_caught_up_is_waited_for() -> None:
    cluster = balanced()
    cluster.cut = {2, 3}
    host = cluster.nodes[1].host
    host.set_draining(True)
    cluster.step()
    assert host.leadership.can_hand_over(cluster.now)
    cluster.cut = set()
    cluster.run_until(lambda: 1 not in leaders(cluster) and 0 not in leaders(cluster))


def test_nonsense_is_left_out() -> None:
    cluster = balanced()
    frame = Frame(cluster.now)
    frame.notices.append((notice_kinds.DRAINING, b"yes"))
    cluster.nodes[2].host.receive(1, frame, cluster.now)
    cluster.nodes[2].host.set_draining(True)
    cluster.run_until(lambda: 2 not in leaders(cluster) and 1 in leaders(cluster))


class Looked(dict[int, Group]):
    """Groups of a host, and how often somebody went through them."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


def test_who_leads_what_is_counted_once_for_all_that_is_handed_over() -> None:
    """With thousands of groups a tick would take seconds, were all looked at for each that is led here."""
    cluster = balanced()
    cluster.nodes[1].host.set_draining(True)
    host = cluster.nodes[1].host
    groups = host.leadership.groups = Looked(host.groups)
    assert host.leadership.can_hand_over(cluster.now)
    assert groups.times == 1
    led = [group for group in dict.values(groups) if group.leads]
    assert len(led) == 2
    host.leadership.drain(cluster.now)
    assert groups.times == 3
    assert sorted(group.raw.raft.lead_transferee for group in led) == [2, 3]
