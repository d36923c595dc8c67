"""Hosts whose cluster grows, shrinks and loses nodes for good: no command is lost or repeated on the way."""

from functools import partial

import pytest

from mayfly.cluster.host.membership_steps import HandOver, next_step
from mayfly.cluster.raft import ConfState
from tests.cluster.host.changing import Changing
from tests.cluster.host.three_hosts import LOST


def _talk(cluster: Changing, heard: list[object], sent: list[bytes], rounds: int = 60) -> None:
    """Every member's clients go on giving commands to every group."""
    for _ in range(rounds):
        for id in cluster.members:
            if id in cluster.nodes:
                word = b"%04x" % len(sent)
                sent.append(word)
                for group in range(cluster.groups):
                    cluster.nodes[id].host.submit(group, [word], 4, True, heard.append)
        cluster.step()


def _agree(cluster: Changing, group: int) -> bool:
    return len({tuple(cluster.nodes[id].machines[group].commands) for id in cluster.members}) == 1


def _check(cluster: Changing, heard: list[object], sent: list[bytes]) -> None:
    """All was answered, and all replicas applied all of it once."""
    cluster.run_until(lambda: len(heard) == len(sent) * cluster.groups, 600)
    assert LOST not in heard
    for group in range(cluster.groups):
        cluster.run_until(partial(_agree, cluster, group))
        assert sorted(cluster.nodes[cluster.members[0]].machines[group].commands) == sorted(sent)


@pytest.mark.parametrize("compact_entries", [20, 1 << 40])
def test_one_three_five_three_one_under_load(compact_entries: int) -> None:
    cluster = Changing(1, compact_entries=compact_entries)
    heard: list[object] = []
    sent: list[bytes] = []
    cluster.run_until(cluster.settled)
    for voting, leaving in (
        ((1, 2, 3), ()), ((1, 2, 3, 4, 5), ()), ((3, 4, 5), (1, 2)), ((3, 4, 5), ()), ((5,), (3, 4)), ((5,), ()),
    ):  # fmt: skip
        cluster.become(*voting, with_learners=leaving)
        _talk(cluster, heard, sent)
        cluster.run_until(cluster.settled, 800)
        if not leaving:
            _check(cluster, heard, sent)
            for id in [id for id in cluster.nodes if id not in cluster.members]:
                cluster.kill(id)


def test_a_dead_node_is_replaced() -> None:
    cluster = Changing(3, compact_entries=30)
    heard: list[object] = []
    sent: list[bytes] = []
    cluster.run_until(cluster.settled)
    _talk(cluster, heard, sent, 20)
    _check(cluster, heard, sent)
    cluster.kill(2)
    cluster.members = [1, 3]
    _talk(cluster, heard, sent, 20)
    cluster.become(1, 3, 4)
    _talk(cluster, heard, sent)
    cluster.run_until(cluster.settled, 800)
    _check(cluster, heard, sent)


def test_voters_are_not_given_up_before_the_new_ones_have_caught_up() -> None:
    cluster = Changing(3, groups=1)
    cluster.run_until(cluster.settled)
    cluster.become(1, 2, 4, with_learners=(3,))
    cluster.cut = {4}
    for _ in range(200):
        cluster.step()
    leader = cluster.nodes[cluster.leader()].host.groups[0]
    assert sorted(leader.conf_state.voters) == [1, 2, 3]
    assert leader.conf_state.learners == [4]
    cluster.cut = set()
    cluster.run_until(cluster.settled, 400)


@pytest.mark.parametrize("dead", [1, 2])
def test_a_voter_that_dies_holds_up_no_move_of_another_one(dead: int) -> None:
    """It is replaced when that move is over: a group that waited for it would wait for ever."""
    cluster = Changing(5, groups=2, everywhere=False)
    cluster.run_until(cluster.settled)
    first, second, _ = cluster.plan[1]
    comes, later = (id for id in cluster.members if id not in cluster.plan[1])
    dies, stays = (first, second) if dead == 1 else (second, first)
    cluster.kill(dies)
    for _ in range(30):
        cluster.step()
    cluster.plan[1] = (first, second, comes)
    cluster.follow()

    def voters() -> list[int]:
        leader = cluster.leader(1)
        return sorted(cluster.nodes[leader].host.groups[1].conf_state.voters) if leader else []

    cluster.run_until(lambda: voters() == sorted((first, second, comes)))
    cluster.plan[1] = (stays, comes, later)
    cluster.follow()
    cluster.run_until(lambda: voters() == sorted((stays, comes, later)))


def test_a_lead_is_handed_to_one_that_is_there() -> None:
    present = ConfState(voters=[1, 2, 3])
    step = next_step(present, [2, 3], [2, 3], leader=1, caught_up=lambda node: node == 3)
    assert step is None, "one of two is no majority"
    present = ConfState(voters=[1, 2, 3, 4])
    step = next_step(present, [2, 3, 4], [2, 3, 4], leader=1, caught_up=lambda node: node != 2)
    assert step == HandOver(3)


def test_leaders_stay_where_they_are_when_all_is_well() -> None:
    """No ping-pong: once settled, terms stand still."""
    cluster = Changing(3, groups=6)
    cluster.become(1, 2, 3, 4, 5)
    cluster.run_until(cluster.settled, 800)
    terms = [group.term for group in cluster.nodes[1].host.groups.values()]
    for _ in range(400):
        cluster.step()
    assert cluster.settled()
    assert [group.term for group in cluster.nodes[1].host.groups.values()] == terms


@pytest.mark.parametrize("groups", [1, 3])
def test_the_last_of_two_leads_after_a_restart_without_the_one_that_left(groups: int) -> None:
    """That the other one is out is on its disk as committed, even if nothing was written since."""
    cluster = Changing(2, groups=groups)
    cluster.run_until(lambda: all(cluster.leader(group) for group in range(groups)))
    cluster.become(1)
    cluster.run_until(
        lambda: all(group.conf_state.voters == [1] for group in cluster.nodes[1].host.groups.values())
    )
    cluster.kill(2)
    cluster.kill(1)
    cluster.ids = [1]
    cluster.start(1)
    cluster.run_until(lambda: all(cluster.leader(group) == 1 for group in range(groups)))
