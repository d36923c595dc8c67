"""Who hears at once that an entry is committed: whoever waits for it. The others hear with what comes next."""

import pytest

from mayfly.cluster.raft import MessageType, RaftMessage
from tests.cluster.host.three_hosts import Cluster


@pytest.fixture
def quiet() -> Cluster:
    """Three nodes, nobody of which waits for what others do; all is told."""
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    for node in cluster.nodes.values():
        node.machines[0].attending = ()
    for _ in range(20):
        cluster.step()
    return cluster


def applied(cluster: Cluster) -> dict[int, bool]:
    return {id: node.machines[0].commands[-1:] == [b"word"] for id, node in cluster.nodes.items()}


def publish(cluster: Cluster, node: int) -> None:
    cluster.nodes[node].host.submit(0, [b"word"], 4, False, None)
    cluster.exchange()


def followers(cluster: Cluster) -> list[int]:
    return [id for id in cluster.ids if id != cluster.leader()]


def test_the_node_that_gave_a_command_hears_at_once_and_the_others_with_the_next_heartbeat(quiet: Cluster) -> None:
    giver, other = followers(quiet)
    publish(quiet, giver)
    assert applied(quiet) == {quiet.leader(): True, giver: True, other: False}
    quiet.step()
    quiet.step()
    assert all(applied(quiet).values())


def test_the_audience_of_a_group_hears_at_once(quiet: Cluster) -> None:
    attending, other = followers(quiet)
    quiet.nodes[quiet.leader()].machines[0].attending = (attending,)
    publish(quiet, quiet.leader())
    assert applied(quiet) == {quiet.leader(): True, attending: True, other: False}


def test_a_read_brings_the_news_along(quiet: Cluster) -> None:
    reader, _ = followers(quiet)
    publish(quiet, quiet.leader())
    assert not applied(quiet)[reader]
    heard: list[object] = []
    quiet.nodes[reader].host.read_index(0, heard.append)
    quiet.exchange()
    assert heard == [None]
    assert applied(quiet)[reader]


def test_the_next_entry_brings_the_news_along_and_nothing_is_said_twice(quiet: Cluster) -> None:
    said: list[int] = []

    def note(sender: int, to: int, message: RaftMessage) -> bool:
        said.append(message.type)
        return False

    quiet.loses = note
    for _ in range(10):
        publish(quiet, quiet.leader())
    # One follower hears of each; the other is spared for now (tests/cluster/host/test_delayed_appends.py).
    assert said.count(MessageType.APP) == said.count(MessageType.APP_RESP) == 10


def test_a_new_leader_tells_who_had_asked_the_earlier_one(quiet: Cluster) -> None:
    """Whose commands they were it does not know, but they are given to it again."""
    old = quiet.leader()
    giver, other = followers(quiet)
    quiet.loses = lambda sender, to, message: sender == old and message.type == MessageType.APP and not message.entries
    publish(quiet, giver)
    assert not applied(quiet)[giver]
    quiet.loses = lambda sender, to, message: False
    quiet.nodes[old].host.groups[0].raw.transfer_leader(other)
    quiet.run_until(lambda: quiet.nodes[other].host.groups[0].leads)
    quiet.exchange()
    assert applied(quiet)[giver]


def test_news_alone_is_not_acknowledged_at_once(quiet: Cluster) -> None:
    """The entry was; what is said again waits for something to go with."""
    giver, _ = followers(quiet)
    said: list[int] = []

    def note(sender: int, to: int, message: RaftMessage) -> bool:
        said.append(message.type)
        return False

    quiet.loses = note
    publish(quiet, giver)
    # The entry and the news for who gave it; the other follower is spared for now.
    assert said.count(MessageType.APP) == 2
    assert said.count(MessageType.APP_RESP) == 1
