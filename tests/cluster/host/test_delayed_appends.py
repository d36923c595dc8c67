"""Followers that a majority does without hear of entries a little later, many at once."""

import pytest

from mayfly.cluster.host.delayed_appends import HELD_MS, LARGE_BYTES, LATE_MS, MOST_BYTES, SUSPENDED_MS
from mayfly.cluster.limits import LARGE_WRITE_BYTES
from mayfly.cluster.raft import MessageType, RaftMessage
from tests.cluster.host.three_hosts import TICK_MS, Cluster


@pytest.fixture
def quiet() -> Cluster:
    """Three nodes without consumers; a command of the leader's own node, committed and heard of everywhere."""
    return prepared(Cluster(3))


def prepared(cluster: Cluster) -> Cluster:
    cluster.run_until(lambda: all(cluster.leader(group) for group in range(cluster.groups)))
    for node in cluster.nodes.values():
        for machine in node.machines.values():
            machine.attending = ()
    for _ in range(30):
        cluster.step()
    return cluster


def publish(cluster: Cluster, node: int, word: bytes = b"word", after_ms: int = 1) -> None:
    cluster.now += after_ms
    cluster.nodes[node].host.submit(0, [word], len(word), False, None)
    cluster.exchange()


def log_ends(cluster: Cluster) -> dict[int, int]:
    return {id: node.host.groups[0].raw.raft.raft_log.last_index() for id, node in cluster.nodes.items()}


def delayed_of(cluster: Cluster) -> list[int]:
    """Who has not got the end of the leader's log."""
    ends = log_ends(cluster)
    return [id for id, end in ends.items() if end < ends[cluster.leader()]]


def followers(cluster: Cluster) -> list[int]:
    return [id for id in cluster.ids if id != cluster.leader()]


def appends(cluster: Cluster, to: int) -> list[int]:
    """From now on: how many entries each append for a node has."""
    said: list[int] = []

    def note(sender: int, receiver: int, message: RaftMessage) -> bool:
        if receiver == to and message.type == MessageType.APP and message.entries:
            said.append(len(message.entries))
        return False

    cluster.loses = note
    return said


def test_one_follower_is_spared_and_gets_all_at_once(quiet: Cluster) -> None:
    leader = quiet.leader()
    publish(quiet, leader)
    (delayed,) = delayed_of(quiet)
    said = appends(quiet, delayed)
    for _ in range(9):
        publish(quiet, leader)
    assert quiet.nodes[leader].machines[0].commands[-10:] == [b"word"] * 10, "committed without the delayed"
    assert said == []
    due_ms = quiet.nodes[leader].host.pump(quiet.now).due_ms
    assert due_ms == quiet.now - 9 + HELD_MS
    quiet.now = due_ms
    quiet.exchange()
    assert said == [10]
    assert delayed_of(quiet) == []


def test_the_spare_is_not_who_leads_next_when_the_leader_dies() -> None:
    for group in range(4):
        cluster = prepared(Cluster(3, groups=4))
        leader = cluster.leader(group)
        cluster.now += 1
        cluster.nodes[leader].host.submit(group, [b"word"], 4, False, None)
        cluster.exchange()
        ends = {
            id: node.host.groups[group].raw.raft.raft_log.last_index() for id, node in cluster.nodes.items()
        }
        (delayed,) = [id for id in cluster.ids if ends[id] < ends[leader]]
        cluster.kill(leader)
        cluster.step()
        assert cluster.leader(group) != 0, "at its first attempt"
        assert cluster.leader(group) != delayed


@pytest.mark.parametrize("place", [0, 1])
def test_a_node_whose_client_waits_is_not_spared(quiet: Cluster, place: int) -> None:
    attending = followers(quiet)[place]
    quiet.nodes[quiet.leader()].machines[0].attending = (attending,)
    publish(quiet, quiet.leader())
    assert attending not in delayed_of(quiet)
    assert len(delayed_of(quiet)) == 1


@pytest.mark.parametrize("place", [0, 1])
def test_a_node_that_gave_the_command_is_not_spared(quiet: Cluster, place: int) -> None:
    giver = followers(quiet)[place]
    publish(quiet, giver)
    assert quiet.nodes[giver].machines[0].commands[-1] == b"word"
    assert giver not in delayed_of(quiet)
    assert len(delayed_of(quiet)) == 1


def test_nobody_is_spared_where_all_wait(quiet: Cluster) -> None:
    quiet.nodes[quiet.leader()].machines[0].attending = None
    publish(quiet, quiet.leader())
    assert delayed_of(quiet) == []


def test_a_spare_is_asked_when_the_majority_is_late_and_nobody_is_spared_for_a_while(quiet: Cluster) -> None:
    leader = quiet.leader()
    publish(quiet, leader)
    (delayed,) = delayed_of(quiet)
    quick = next(id for id in followers(quiet) if id != delayed)
    quiet.loses = lambda sender, to, message: sender == quick and message.type == MessageType.APP_RESP
    began_ms = quiet.now
    publish(quiet, leader, b"late")
    assert quiet.nodes[leader].machines[0].commands[-1] != b"late"
    quiet.now = quiet.nodes[leader].host.pump(quiet.now).due_ms
    quiet.exchange()
    assert quiet.now == began_ms + 1 + LATE_MS
    assert quiet.nodes[leader].machines[0].commands[-1] == b"late"
    publish(quiet, leader, b"next")
    assert quiet.nodes[leader].machines[0].commands[-1] == b"next", "committed with the one that was spared"
    quiet.loses = lambda sender, to, message: False
    for _ in range(SUSPENDED_MS // TICK_MS):
        publish(quiet, leader, b"soon", after_ms=0)
        assert delayed_of(quiet) == []
        quiet.step()
    publish(quiet, leader, b"then")
    assert len(delayed_of(quiet)) == 1


def test_without_a_quick_majority_nobody_is_spared(quiet: Cluster) -> None:
    leader = quiet.leader()
    quick, delayed = followers(quiet)
    quiet.kill(quick)
    publish(quiet, leader)
    assert quiet.nodes[leader].machines[0].commands[-1] == b"word"
    assert log_ends(quiet)[delayed] == log_ends(quiet)[leader]


def test_what_is_large_or_has_become_so_goes_at_once(quiet: Cluster) -> None:
    leader = quiet.leader()
    publish(quiet, leader)
    (delayed,) = delayed_of(quiet)
    said = appends(quiet, delayed)
    publish(quiet, leader, b"L" * LARGE_BYTES)
    assert said[-1] == 1
    assert delayed_of(quiet) == []
    said.clear()
    piece = LARGE_BYTES // 2
    for _ in range(MOST_BYTES // piece):
        publish(quiet, leader, b"p" * piece, after_ms=0)
    assert sum(said) >= MOST_BYTES // piece - 1


def refusals(cluster: Cluster) -> list[RaftMessage]:
    """What followers refuse from now on."""
    refused: list[RaftMessage] = []

    def note(sender: int, to: int, message: RaftMessage) -> bool:
        if message.reject:
            refused.append(message)
        return False

    cluster.loses = note
    return refused


def test_a_frame_takes_along_what_is_held_in_order(quiet: Cluster) -> None:
    leader = quiet.leader()
    publish(quiet, leader)
    (delayed,) = delayed_of(quiet)
    refused = refusals(quiet)
    for number in range(20):
        publish(quiet, leader, after_ms=0)
        if number % 3 == 2:
            heard: list[object] = []
            quiet.nodes[delayed].host.read_index(0, heard.append)
            quiet.exchange()
            assert heard == [None]
            assert delayed_of(quiet) == []
    assert refused == []


def test_what_is_held_goes_before_what_may_not_wait(quiet: Cluster) -> None:
    leader = quiet.leader()
    publish(quiet, leader, b"held")
    (delayed,) = delayed_of(quiet)
    refused = refusals(quiet)
    quiet.nodes[leader].machines[0].attending = (delayed,)
    publish(quiet, leader, b"soon")
    assert quiet.nodes[delayed].machines[0].commands[-2:] == [b"held", b"soon"]
    assert refused == []


def test_a_lead_is_handed_to_a_spare_without_waiting(quiet: Cluster) -> None:
    leader = quiet.leader()
    publish(quiet, leader)
    (delayed,) = delayed_of(quiet)
    quiet.nodes[leader].host.groups[0].raw.transfer_leader(delayed)
    quiet.nodes[leader].host._dirty[0] = None
    quiet.exchange()
    quiet.exchange()
    assert quiet.leader() == delayed


def test_a_spare_that_stands_for_election_first_costs_no_timeout(quiet: Cluster) -> None:
    leader = quiet.leader()
    publish(quiet, leader)
    (delayed,) = delayed_of(quiet)
    quick = next(id for id in followers(quiet) if id != delayed)
    quiet.kill(leader)
    later = quiet.nodes[quick].host.groups[0].raw.raft
    later.election_elapsed = 0
    quiet.nodes[delayed].host.groups[0].raw.campaign()
    quiet.nodes[delayed].host._dirty[0] = None
    quiet.exchange()
    quiet.step()
    quiet.step()
    assert quiet.leader() == quick


def test_of_five_replicas_two_are_spared() -> None:
    cluster = prepared(Cluster(5))
    publish(cluster, cluster.leader())
    assert cluster.nodes[cluster.leader()].machines[0].commands[-1] == b"word"
    assert len(delayed_of(cluster)) <= 2
    if len(cluster.nodes[cluster.leader()].host.groups[0].conf_state.voters) == 5:
        assert len(delayed_of(cluster)) == 2


def test_a_leader_is_told_of_its_own_write_only_where_somebody_waits_for_it(quiet: Cluster) -> None:
    """Its own disk decides nothing before a follower has answered, and that wakes it anyway."""
    leader = quiet.nodes[quiet.leader()]
    leader.host.submit(0, [b"word"], 4, False, None)
    output = leader.host.pump(quiet.now)
    assert output.write is not None
    assert not output.write_waits
    (follower,) = output.frames
    quiet.nodes[follower].host.receive(leader.id, output.frames[follower], quiet.now)
    answer = quiet.nodes[follower].host.pump(quiet.now)
    assert answer.write is not None
    assert answer.write_waits, "a follower's answer waits for its disk"
    leader.host.submit(0, [b"next"], 4, False, None)
    leader.store.write(output.write)
    leader.host.persisted(quiet.now)
    second = leader.host.pump(quiet.now)
    assert second.write is not None
    assert not second.write_waits


def test_a_write_that_begins_after_its_appends_have_left_is_waited_for() -> None:
    """The answer may be here before it ends."""
    cluster = prepared(Cluster(3, groups=2))
    node = cluster.nodes[1]
    led = [group for group in (0, 1) if node.host.groups[group].leads]
    if len(led) < 2:
        other = next(group for group in (0, 1) if group not in led)
        cluster.nodes[cluster.leader(other)].host.groups[other].raw.transfer_leader(1)
        cluster.nodes[cluster.leader(other)].host._dirty[other] = None
        cluster.run_until(lambda: cluster.leader(0) == cluster.leader(1) == 1)
    node.host.submit(0, [b"word"], 4, False, None)
    first = node.host.pump(cluster.now)
    node.host.submit(1, [b"word"], 4, False, None)
    assert node.host.pump(cluster.now).write is None, "one write at a time"
    assert first.write is not None
    node.store.write(first.write)
    node.host.persisted(cluster.now)
    second = node.host.pump(cluster.now)
    assert second.write is not None
    assert second.write_waits


def test_a_write_that_others_gather_behind_is_waited_for() -> None:
    """One that is large is divided: nobody answers for the part that has not begun."""
    cluster = prepared(Cluster(3, groups=2))
    node = cluster.nodes[1]
    for group in (0, 1):
        if not node.host.groups[group].leads:
            leader = cluster.nodes[cluster.leader(group)].host
            leader.groups[group].raw.transfer_leader(1)
            leader._dirty[group] = None
    cluster.run_until(lambda: cluster.leader(0) == cluster.leader(1) == 1)
    for group in (0, 1):
        node.host.submit(group, [bytes(LARGE_WRITE_BYTES)], LARGE_WRITE_BYTES, False, None)
    output = node.host.pump(cluster.now)
    assert output.write is not None
    assert len(output.write.groups) == 1
    assert output.write_waits


def test_a_single_voter_waits_for_its_own_disk() -> None:
    cluster = prepared(Cluster(1))
    cluster.nodes[1].host.submit(0, [b"word"], 4, False, None)
    output = cluster.nodes[1].host.pump(cluster.now)
    assert output.write is not None
    assert output.write_waits
