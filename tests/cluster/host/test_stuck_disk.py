"""A leader whose disk hangs makes room for others, and is not elected again and again."""

import pytest

from mayfly.cluster.host.disk_watch import DiskWatch
from mayfly.cluster.host.draining import REMEMBERED_MS, Draining
from mayfly.cluster.host.host import HANGS_AFTER_ELECTION_TIMEOUTS
from mayfly.cluster.limits import SLOW_BYTES_PER_MS
from mayfly.cluster.raft import MessageType, RaftMessage
from tests.cluster.host.three_hosts import TICK_MS, Cluster

ELECTION_TIMEOUT_MS = 500
HANGS_AFTER_MS = HANGS_AFTER_ELECTION_TIMEOUTS * ELECTION_TIMEOUT_MS


class HangingCluster(Cluster):
    """`hang` makes a node's disk take a write and not finish it; `go_on` finishes it."""

    def go_on(self, id: int) -> None:
        self.stuck.discard(id)
        host = self.nodes[id].host
        write = host._writes.under_way
        assert write is not None
        self.nodes[id].store.write(write)
        host.persisted(self.now)

    def hang(self, id: int) -> None:
        """Until the next write is under way and longer than it may be."""
        self.stuck.add(id)
        self.run_until(lambda: self.nodes[id].host.writing)


def _submit(cluster: Cluster, node: int, heard: list[object], group: int = 0) -> None:
    cluster.nodes[node].host.submit(group, [b"word"], 4, True, heard.append)


def _hung(groups: int = 1) -> tuple[HangingCluster, int, list[object]]:
    cluster = HangingCluster(3, groups=groups)
    cluster.run_until(lambda: all(cluster.leader(group) for group in range(groups)))
    cluster.run_until(lambda: all(node.host.groups[0].sender.idle for node in cluster.nodes.values()))
    old, heard = cluster.leader(), list[object]()
    _submit(cluster, old, heard)
    cluster.hang(old)
    return cluster, old, heard


def _others_lead(cluster: Cluster, old: int) -> bool:
    return any(node.host.groups[0].established for id, node in cluster.nodes.items() if id != old)


def test_others_take_over_from_a_leader_that_hangs_on_its_disk() -> None:
    cluster, old, _ = _hung()
    began = cluster.now
    cluster.run_until(lambda: _others_lead(cluster, old))
    assert cluster.now - began <= 4 * ELECTION_TIMEOUT_MS
    assert not cluster.nodes[old].host.groups[0].leads
    heard: list[object] = []
    other = next(id for id in cluster.ids if id != old)
    _submit(cluster, other, heard)
    cluster.run_until(lambda: heard)


def test_groups_it_leads_without_writing_are_given_up_too() -> None:
    """They would hang with the first message that comes for them."""
    cluster, old, _ = _hung(groups=4)
    led = [group for group in range(4) if cluster.nodes[old].host.groups[group].leads]
    cluster.run_until(lambda: not any(cluster.nodes[old].host.groups[group].leads for group in led))
    cluster.run_until(
        lambda: all(any(n.host.groups[group].established for n in cluster.nodes.values()) for group in led)
    )
    for group in led:
        assert not cluster.nodes[old].host.groups[group].leads


def test_it_is_not_elected_again_while_it_hangs_and_soon_after() -> None:
    """Not by its own wish, and not because others hand over to it (it is the preferred leader)."""
    cluster, old, heard = _hung()
    assert old == 1
    cluster.run_until(lambda: _others_lead(cluster, old))
    for _ in range(10_000 // TICK_MS):
        cluster.step()
        assert not cluster.nodes[old].host.groups[0].leads
    cluster.go_on(old)
    ended = cluster.now
    while cluster.now - ended < ELECTION_TIMEOUT_MS - TICK_MS:
        cluster.step()
        assert not cluster.nodes[old].host.groups[0].leads
    cluster.run_until(lambda: heard)
    cluster.run_until(lambda: cluster.leader() == old)


def test_others_do_not_stall_their_groups_for_a_preferred_leader_that_would_not_take_them() -> None:
    """A leader that hands over proposes nothing until the attempt is given up."""
    cluster, old, heard = _hung(groups=4)
    hosts = {id: node.host for id, node in cluster.nodes.items()}
    preferred = [group for group in range(4) if hosts[old].leadership.preferred(group) == old]
    assert len(preferred) > 1
    cluster.run_until(lambda: all(cluster.leader(group) not in (0, old) for group in preferred))

    def step() -> None:
        cluster.step()
        for host in hosts.values():
            assert all(host.groups[group].raw.raft.lead_transferee != old for group in preferred)
        assert not hosts[2].leadership.drains(old, cluster.now), "who counts the nodes that stay counts this one"

    for _ in range(20_000 // TICK_MS):
        step()
    cluster.go_on(old)
    ended = cluster.now
    while cluster.now - ended < ELECTION_TIMEOUT_MS - TICK_MS:
        step()
    cluster.run_until(lambda: heard)
    cluster.run_until(lambda: all(cluster.leader(group) == old for group in preferred))


def test_who_has_not_heard_of_it_hands_over_in_vain() -> None:
    cluster, old, _ = _hung()
    cluster.run_until(lambda: _others_lead(cluster, old))
    leader = next(node for id, node in cluster.nodes.items() if id != old and node.host.groups[0].established)
    cluster.go_on(old)
    ended = cluster.now
    cluster.step()
    leader.host.groups[0].raw.transfer_leader(old)
    assert leader.host.groups[0].raw.raft.lead_transferee == old
    while cluster.now - ended < ELECTION_TIMEOUT_MS - TICK_MS:
        cluster.step()
        assert not cluster.nodes[old].host.groups[0].leads


def test_a_word_that_is_not_said_again_is_forgotten() -> None:
    """The node may have started again."""
    draining = Draining()
    assert draining.heard(1, b"\x02", 1000)
    assert draining.disk_is_late(1, 1000 + REMEMBERED_MS) and not draining.disk_is_late(1, 1001 + REMEMBERED_MS)
    assert draining.wants_no_lead(1, 1000 + REMEMBERED_MS) and not draining.drains(1, 1000 + REMEMBERED_MS)
    assert not draining.wants_no_lead(1, 1001 + REMEMBERED_MS)
    assert draining.heard(1, b"\x02", 9000) and draining.heard(1, b"\x00", 9001)
    assert not draining.wants_no_lead(1, 9002)


def _late_again_and_again(cluster: HangingCluster, id: int) -> None:
    """A node's disk hangs so often that it is on probation for much longer than the limit."""
    for _ in range(6):
        _submit(cluster, id, [])
        cluster.hang(id)
        _let_an_election_timeout_pass(cluster)
        cluster.go_on(id)
    cluster.step()


def _let_an_election_timeout_pass(cluster: HangingCluster) -> None:
    began = cluster.now
    cluster.run_until(lambda: cluster.now - began > ELECTION_TIMEOUT_MS)


def _asked_to_stand(cluster: HangingCluster, by: int) -> list[int]:
    """Whom a node asks from now on."""
    asked: list[int] = []

    def note(sender: int, to: int, message: RaftMessage) -> bool:
        if sender == by and message.type == MessageType.TIMEOUT_NOW:
            asked.append(to)
        return False

    cluster.loses = note
    return asked


def _led_by_first() -> HangingCluster:
    cluster = HangingCluster(3)
    cluster.run_until(lambda: cluster.leader() == 1)
    cluster.run_until(lambda: all(node.host.groups[0].sender.idle for node in cluster.nodes.values()))
    return cluster


def _hang_first_until_it_resigns(cluster: HangingCluster) -> None:
    _submit(cluster, 1, [])
    cluster.hang(1)
    cluster.run_until(lambda: not cluster.nodes[1].host.groups[0].leads)


@pytest.mark.parametrize(("late", "heir"), [(2, 3), (3, 2)])
def test_who_resigns_asks_nobody_whose_disk_was_late(late: int, heir: int) -> None:
    """That one would not stand: the group would have no leader until a follower's patience is at its end."""
    cluster = _led_by_first()
    _late_again_and_again(cluster, late)
    asked = _asked_to_stand(cluster, 1)
    _hang_first_until_it_resigns(cluster)
    assert not cluster.nodes[late].host.disk.may_lead(cluster.now)
    assert asked == [heir]
    resigned = cluster.now
    cluster.run_until(lambda: cluster.leader() == heir)
    assert cluster.now - resigned <= 2 * TICK_MS


def test_where_all_disks_were_late_nobody_is_asked() -> None:
    """It resigns after a long time, as its own may hang for ever; others stand although they were late."""
    cluster = _led_by_first()
    for id in (2, 3):
        _late_again_and_again(cluster, id)
    assert cluster.leader() == 1
    asked = _asked_to_stand(cluster, 1)
    hung = cluster.now
    _hang_first_until_it_resigns(cluster)
    assert HANGS_AFTER_MS <= cluster.now - hung <= HANGS_AFTER_MS + 2 * ELECTION_TIMEOUT_MS
    assert asked == []
    resigned = cluster.now
    cluster.run_until(lambda: _others_lead(cluster, 1))
    assert cluster.now - resigned <= 4 * ELECTION_TIMEOUT_MS


@pytest.mark.parametrize("alone", [False, True])
def test_who_drains_is_asked_only_where_there_is_nobody_else(alone: bool) -> None:
    cluster = _led_by_first()
    cluster.nodes[2].host.set_draining(True)
    if alone:
        cluster.kill(3)
        for _ in range(3 * ELECTION_TIMEOUT_MS // TICK_MS):
            cluster.step()
    cluster.step()
    asked = _asked_to_stand(cluster, 1)
    _hang_first_until_it_resigns(cluster)
    assert asked == [2 if alone else 3]


def test_what_it_had_proposed_is_applied_once() -> None:
    cluster, old, heard = _hung()
    cluster.run_until(lambda: _others_lead(cluster, old))
    cluster.go_on(old)
    cluster.run_until(lambda: heard)
    cluster.run_until(lambda: len({tuple(n.machines[0].commands) for n in cluster.nodes.values()}) == 1)
    assert cluster.nodes[old].machines[0].commands.count(b"word") == 1


def test_a_node_alone_keeps_the_lead() -> None:
    cluster = HangingCluster(1)
    cluster.run_until(lambda: cluster.leader() == 1)
    heard: list[object] = []
    _submit(cluster, 1, heard)
    cluster.hang(1)
    for _ in range(40):
        cluster.step()
    assert cluster.leader() == 1
    cluster.go_on(1)
    cluster.run_until(lambda: heard)


def test_a_disk_that_hangs_again_and_again_waits_twice_as_long_each_time() -> None:
    watch = DiskWatch(500)
    now, waits = 0, []
    for _ in range(9):
        watch.began(now)
        assert watch.may_lead(now + 500)
        now += 501
        assert not watch.may_lead(now)
        watch.ended(now)
        ended = now
        while not watch.may_lead(now):
            now += 100
        waits.append(now - ended)
    assert waits == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]
    assert watch.late_writes == 9
    now += DiskWatch.FORGIVEN_AFTER_MS
    watch.began(now)
    watch.ended(now + 501)
    assert watch.may_lead(now + 501 + 500)


@pytest.mark.parametrize("took_ms", [0, 1, 500])
def test_a_write_in_time_is_none_of_its_business(took_ms: int) -> None:
    watch = DiskWatch(500)
    watch.began(1000)
    watch.ended(1000 + took_ms)
    assert watch.may_lead(1000 + took_ms) and watch.late_writes == 0


@pytest.mark.parametrize("stopped", [True, False])
def test_the_time_in_which_a_process_was_stopped_is_not_the_disks(stopped: bool) -> None:
    watch = DiskWatch(500)
    for now in range(0, 1000, TICK_MS):
        watch.looked(now)
    watch.began(now)
    for look in [now + 7000] if stopped else range(now, now + 7001, TICK_MS):
        watch.looked(look)
    watch.ended(now + 7000)
    assert watch.may_lead(now + 7000) == stopped
    assert watch.late_writes == (0 if stopped else 1)


def test_a_large_write_may_take_as_long_as_its_size_explains() -> None:
    watch = DiskWatch(500)
    watch.looked(0)
    watch.began(0, 16 * 1024 * 1024)
    assert not watch.is_stuck(1_300)
    assert watch.is_stuck(500 + 16 * 1024 * 1024 // SLOW_BYTES_PER_MS + 1)
    watch.ended(1_300)
    assert watch.late_writes == 0 and watch.may_lead(1_300)
    # The next, small one has the usual time.
    watch.began(1_300)
    assert watch.is_stuck(1_801)
