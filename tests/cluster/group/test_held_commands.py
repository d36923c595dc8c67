"""Commands that nobody waits for wait for company, a few ms."""

from mayfly.cluster.group.sessions import NOT_HELD, SessionSender
from mayfly.cluster.host.host import NEVER
from tests.cluster.host.three_hosts import Cluster

HELD_MS = 5


def sender() -> SessionSender:
    return SessionSender(1, 7, window=2, max_batch_bytes=100, unhurried_ms=HELD_MS)


def sent(sender: SessionSender, now_ms: int) -> list[bytes]:
    sender.hold(now_ms)
    return [batch[-batch[-1] :] for batch in sender.unsent(now_ms, 1000)]


def give(sender: SessionSender, name: bytes, hurried: bool) -> None:
    """A command that ends with the length of its batch so far."""
    sender.add([name], 1, False, None, hurried)


def test_what_nobody_waits_for_goes_when_its_time_has_come() -> None:
    it = sender()
    give(it, b"\1", False)
    assert sent(it, 100) == sent(it, 104) == []
    assert it.held_until_ms == 105
    assert not it.idle
    assert sent(it, 105) == [b"\1"]
    assert it.held_until_ms == NOT_HELD


def test_it_goes_with_the_next_command_that_somebody_waits_for_and_before_it() -> None:
    it = sender()
    give(it, b"\1", False)
    assert sent(it, 100) == []
    give(it, b"\2", True)
    assert sent(it, 101) == [b"\1\2"]
    assert it.held_until_ms == NOT_HELD
    give(it, b"\1", False)
    assert sent(it, 200) == []
    assert it.held_until_ms == 205


def test_it_goes_at_once_when_it_is_hurried_after_all() -> None:
    it = sender()
    give(it, b"\1", False)
    assert sent(it, 100) == []
    it.hurry()
    assert sent(it, 100) == [b"\1"]


def test_what_is_full_does_not_wait() -> None:
    it = SessionSender(1, 7, window=2, max_batch_bytes=1, unhurried_ms=HELD_MS)
    give(it, b"\1", False)
    give(it, b"\1", False)
    assert sent(it, 100) == [b"\1"]
    assert sent(it, 104) == []
    assert sent(it, 105) == [b"\1"]


def led() -> Cluster:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    cluster.run_until(lambda: all(node.host.groups[0].sender.idle for node in cluster.nodes.values()))
    return cluster


def hold(cluster: Cluster, node: int) -> None:
    cluster.nodes[node].host.submit(0, [b"held"], 4, False, None, False)


def applied(cluster: Cluster) -> bool:
    return b"held" in cluster.nodes[cluster.leader()].machines[0].commands


def test_the_host_says_when_it_must_be_pumped_again() -> None:
    cluster = led()
    host = cluster.nodes[1].host
    assert host.pump(cluster.now).due_ms == NEVER
    hold(cluster, 1)
    assert host.pump(cluster.now).due_ms == host.pump(cluster.now + 4).due_ms == cluster.now + HELD_MS
    cluster.exchange()
    assert not applied(cluster)
    cluster.now += HELD_MS
    assert host.pump(cluster.now).due_ms == NEVER
    cluster.run_until(lambda: applied(cluster))


def test_a_leaders_own_go_with_the_commands_of_other_nodes() -> None:
    cluster = led()
    leader = cluster.leader()
    hold(cluster, leader)
    cluster.exchange()
    assert not applied(cluster)
    index = cluster.nodes[leader].host.groups[0].applied
    cluster.nodes[1 + leader % 3].host.submit(0, [b"word"], 4, False, None)
    cluster.exchange()
    assert applied(cluster)
    assert cluster.nodes[leader].host.groups[0].applied == index + 1


def test_a_read_does_not_wait_for_what_was_held() -> None:
    cluster = led()
    hold(cluster, 2)
    cluster.exchange()
    heard: list[object] = []
    cluster.nodes[2].host.read_index(0, heard.append)
    cluster.exchange()
    assert heard == [None]
    assert applied(cluster)


def test_without_a_leader_nothing_is_due_over_and_over() -> None:
    cluster = led()
    follower = next(id for id in cluster.ids if id != cluster.leader())
    host = cluster.nodes[follower].host
    hold(cluster, follower)
    assert host.pump(cluster.now).due_ms == cluster.now + HELD_MS
    host.groups[0].raw.forget_leader()
    assert host.pump(cluster.now + HELD_MS).due_ms == NEVER


def test_what_was_held_is_not_due_once_it_is_hurried_though_it_cannot_be_sent() -> None:
    """Else a node without a leader is pumped again and again."""
    cluster = led()
    follower = next(id for id in cluster.ids if id != cluster.leader())
    host = cluster.nodes[follower].host
    hold(cluster, follower)
    assert host.pump(cluster.now).due_ms == cluster.now + HELD_MS
    host.groups[0].raw.forget_leader()
    host.submit(0, [b"word"], 4, False, None)
    assert host.pump(cluster.now + 1).due_ms == NEVER
    assert host.pump(cluster.now + 2 * HELD_MS).due_ms == NEVER
