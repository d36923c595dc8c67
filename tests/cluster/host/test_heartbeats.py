"""The heartbeats of all groups in one notice mean what their messages meant."""

from itertools import pairwise

import pytest

from mayfly.cluster import notice_kinds
from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.raft import MessageType, RaftMessage
from tests.cluster.host.heartbeat_messages import heartbeats_as_messages
from tests.cluster.host.three_hosts import TICK_MS, Cluster, Node


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    for _ in range(20):
        cluster.step()
    return cluster


def beat(cluster: Cluster) -> dict[int, Frame]:
    """Ticks of the leader until its heartbeat is due: the frames that it sends."""
    host = cluster.nodes[cluster.leader()].host
    for _ in range(2):
        cluster.now += TICK_MS
        host.tick(cluster.now)
        frames = host.pump(cluster.now).frames
        if any(heartbeats_as_messages(notice, 1, 2) for frame in frames.values() for notice in frame.notices):
            return frames
    raise AssertionError("no heartbeat in two ticks")


def follower(cluster: Cluster) -> Node:
    return next(node for id, node in cluster.nodes.items() if id != cluster.leader())


def tick_all(cluster: Cluster) -> list[tuple[int, int, Frame]]:
    """A tick of all nodes, and what each sends with it to each other, as sender, receiver and frame; it has arrived."""
    cluster.now += TICK_MS
    frames: list[tuple[int, int, Frame]] = []
    for id, node in cluster.nodes.items():
        node.host.tick(cluster.now)
        frames += [(id, to, frame) for to, frame in node.host.pump(cluster.now).frames.items()]
    for sender, to, frame in frames:
        cluster.nodes[to].host.receive(sender, frame, cluster.now)
    return frames


def test_an_idle_cluster_sends_no_messages_and_stays_as_it_is(cluster: Cluster) -> None:
    leader, term = cluster.leader(), follower(cluster).host.groups[0].term
    said: list[RaftMessage] = []
    for _ in range(100):
        said += [message for _, _, frame in tick_all(cluster) for _, message in frame.raft]
    assert not said
    assert cluster.leader() == leader
    assert {node.host.groups[0].term for node in cluster.nodes.values()} == {term}


def words(cluster: Cluster, ticks: int) -> dict[tuple[int, int], list[int]]:
    """With which ticks each node says something to each other, by sender and receiver."""
    heard: dict[tuple[int, int], list[int]] = {}
    for tick in range(ticks):
        for sender, to, _ in tick_all(cluster):
            heard.setdefault((sender, to), []).append(tick)
    return heard


def test_nodes_at_rest_say_half_as_much_and_stay_as_they_are() -> None:
    cluster = Cluster(3, election_ticks=14)
    cluster.run_until(lambda: cluster.leader() != 0)
    for _ in range(20):
        cluster.step()
    leader, term = cluster.leader(), follower(cluster).host.groups[0].term
    usual = words(cluster, 120)
    for node in cluster.nodes.values():
        node.host.pace.at_rest = True
    words(cluster, 4)
    resting = words(cluster, 120)
    for said in resting.values():
        assert {after - before for before, after in pairwise(said)} == {4}
    followers = [pair for pair in usual if leader in pair]
    assert len(followers) == 4 and all(len(usual[pair]) == 60 for pair in followers)
    assert cluster.leader() == leader
    assert {node.host.groups[0].term for node in cluster.nodes.values()} == {term}
    cluster.nodes[leader].host.pace.at_rest = False
    for to, said in words(cluster, 40).items():
        assert to[0] != leader or len(said) == 20


@pytest.mark.parametrize(("rests", "most_ticks"), [((), 6), ((0, 1), 4), ((1,), 8)])
def test_whoever_has_nothing_to_say_is_heard_twice_in_an_election_timeout(
    rests: tuple[int, ...], most_ticks: int
) -> None:
    """But once when it has just come to rest. `rests`: in which of two times each node does."""
    cluster = Cluster(3, groups=0, election_ticks=14)
    said: dict[tuple[int, int], list[int]] = {}
    for part in range(60):
        for id, node in cluster.nodes.items():
            node.host.pace.at_rest = part // id % 2 in rests
        for pair, ticks in words(cluster, 5).items():
            said.setdefault(pair, []).extend(5 * part + tick for tick in ticks)
    assert len(said) == 6
    assert max(after - before for ticks in said.values() for before, after in pairwise(ticks)) == most_ticks


@pytest.mark.parametrize(
    ("heartbeat_ticks", "election_ticks", "tick_ms", "expected"),
    [(2, 14, 50, 4), (2, 12, 50, 4), (2, 11, 50, 2), (1, 7, 100, 2), (5, 100, 50, 10), (6, 100, 50, 6), (1, 3, 5, 1)],
)
def test_there_are_fewer_heartbeats_at_rest_where_enough_are_left(
    heartbeat_ticks: int, election_ticks: int, tick_ms: int, expected: int
) -> None:
    """An election timeout has three of them, and leases are charged for all of the time (L4)."""
    group = GroupSettings(election_ticks, heartbeat_ticks, 4, 1, 1, 1, 1, 1, 1, 1)
    settings = HostSettings(1, [1], 1, tick_ms, election_ticks * tick_ms, 0, group)
    assert settings.heartbeat_ticks_at_rest == expected


def test_a_leader_that_nobody_answers_steps_down(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.loses = lambda sender, to, message: to == leader and message.type == MessageType.HEARTBEAT_RESP
    for _ in range(30):
        cluster.step()
    assert not cluster.nodes[leader].host.groups[0].leads


def test_a_beat_of_an_older_term_is_answered_with_the_newer_one(cluster: Cluster) -> None:
    old = cluster.leader()
    frames = beat(cluster)
    other = follower(cluster)
    cluster.nodes[old].host.groups[0].raw.transfer_leader(other.id)
    cluster.run_until(lambda: other.host.groups[0].leads)
    other.host.receive(old, frames[other.id], cluster.now)
    (answer,) = [
        message for _, message in other.host.pump(cluster.now).frames[old].raft if message.type == MessageType.APP_RESP
    ]
    assert answer.term == other.host.groups[0].term


def test_a_beat_tells_of_a_commit(cluster: Cluster) -> None:
    node = follower(cluster)
    leader = cluster.nodes[cluster.leader()]
    cluster.loses = lambda sender, to, message: message.type == MessageType.APP and not message.entries
    leader.host.submit(0, [b"word"], 4, False, None)
    cluster.exchange()
    assert node.machines[0].commands[-1:] != [b"word"]
    cluster.step()
    cluster.step()
    assert node.machines[0].commands[-1:] == [b"word"]


def test_a_beat_about_entries_that_are_gone_tells_that_the_log_was_lost(cluster: Cluster) -> None:
    node = follower(cluster)
    group = node.host.groups[0]
    frame = Frame()
    beats = beat(cluster)[node.id].notices
    ((kind, data),) = [notice for notice in beats if notice[0] == notice_kinds.HEARTBEATS]
    frame.notices = [(kind, data[:-8] + (group.committed + 100).to_bytes(8, "little"))]
    node.host.receive(cluster.leader(), frame, cluster.now)
    assert node.host.log_lost is not None


def test_an_answer_of_a_node_that_lacks_entries_brings_them(cluster: Cluster) -> None:
    """What was sent to it got lost without its connection breaking."""
    node = follower(cluster)
    cluster.loses = lambda sender, to, message: to == node.id and message.type == MessageType.APP
    cluster.nodes[cluster.leader()].host.submit(0, [b"word"], 4, False, None)
    for _ in range(4):
        cluster.step()
    assert node.machines[0].commands[-1:] != [b"word"]
    cluster.loses = lambda sender, to, message: False
    for _ in range(6):
        cluster.step()
    assert node.machines[0].commands[-1:] == [b"word"]


@pytest.mark.parametrize("kind", [notice_kinds.HEARTBEATS, notice_kinds.ANSWERS])
@pytest.mark.parametrize("data", [b"x", b"\xff" * 90, bytes(90)])
def test_what_is_no_beat_is_refused_and_changes_nothing(cluster: Cluster, kind: int, data: bytes) -> None:
    frame = Frame()
    frame.notices = [(kind, data)]
    node = follower(cluster)
    before = (node.host.groups[0].term, node.host.groups[0].leader, node.host.groups[0].committed)
    node.host.receive(cluster.leader(), frame, cluster.now)
    assert (node.host.groups[0].term, node.host.groups[0].leader, node.host.groups[0].committed) == before


def test_a_notice_that_is_not_urgent_goes_with_the_next_heartbeat(cluster: Cluster) -> None:
    """The later of two of a kind; alone it is no reason to send anything."""
    host = cluster.nodes[cluster.leader()].host
    peer = host.peers[0]
    host.pump(cluster.now)
    for word in (b"first", b"second"):
        host.send_unhurried_notice(peer, 200, word)
        host.send_unhurried_notice(peer, 201, word)
        assert not host.pump(cluster.now).frames
    frame = beat(cluster)[peer]
    assert frame.notices[:2] == [(200, b"second"), (201, b"second")]
    assert len(frame.notices) > 2
    assert not {200, 201} & {kind for kind, _ in beat(cluster)[peer].notices}


def test_a_notice_that_is_not_urgent_goes_with_any_frame_in_order(cluster: Cluster) -> None:
    host = cluster.nodes[cluster.leader()].host
    first, second = host.peers
    host.pump(cluster.now)
    host.send_unhurried_notice(first, 200, b"word")
    host.send_notice(second, 201, b"urgent")
    assert list(host.pump(cluster.now).frames) == [second]
    host.send_notice(first, 200, b"urgent")
    host.send_unhurried_notice(first, 200, b"later")
    assert [data for _, data in host.pump(cluster.now).frames[first].notices] == [b"word", b"urgent", b"later"]


def test_what_is_given_after_a_pump_makes_the_host_busy(cluster: Cluster) -> None:
    """What applied entries bring about does not wait for the next input, or the next heartbeat."""
    host = cluster.nodes[cluster.leader()].host
    peer = host.peers[0]
    while host.busy:
        host.pump(cluster.now)
    host.send_unhurried_notice(peer, 200, b"word")
    assert not host.busy
    host.send_notice(peer, 201, b"urgent")
    assert host.busy and [data for _, data in host.pump(cluster.now).frames[peer].notices] == [b"word", b"urgent"]
    assert not host.busy
    host.send_notice(peer, 201, b"apart", unordered=True)
    assert host.busy
