"""A replica whose stored log is damaged says nothing until its state has come from the others."""

import random

import pytest

from mayfly.cluster import limits
from mayfly.cluster.group.rebuilding import Rebuild, decode_request
from mayfly.cluster.log.batch import CorruptEntry, CorruptStore, GroupWrite, StoredGroup, WriteBatch
from mayfly.cluster.raft import Entry, HardState, MessageType, RaftMessage, Snapshot, SnapshotMetadata
from tests.cluster.host.three_hosts import Cluster


def _submit(cluster: Cluster, count: int, tag: bytes = b"w") -> list[bytes]:
    """Have so many commands applied everywhere."""
    words = [tag + b"%03d" % number for number in range(count)]
    heard: list[object] = []
    node = cluster.nodes[cluster.leader()]
    for word in words:
        node.host.submit(0, [word], 4, True, heard.append)
        cluster.step()
    cluster.run_until(lambda: len(heard) == count)
    return words


def _same(cluster: Cluster, size: int = 3) -> bool:
    commands = {tuple(node.machines[0].commands) for node in cluster.nodes.values()}
    return len(commands) == 1 and len(cluster.nodes) == size


def _running() -> tuple[Cluster, int, list[bytes]]:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    words = _submit(cluster, 20)
    cluster.run_until(lambda: _same(cluster))
    return cluster, cluster.leader(), words


def _damage(cluster: Cluster, id: int) -> None:
    """Stop the node, and damage the tenth entry of its log."""
    index = cluster.stores[id].load()[0].entries[10][0]
    cluster.kill(id)
    cluster.stores[id].rot(0, index)


@pytest.mark.parametrize("leader_too", [True, False])
def test_a_damaged_replica_is_rebuilt_from_the_leader(leader_too: bool) -> None:
    cluster, leader, words = _running()
    victim = leader if leader_too else next(id for id in cluster.ids if id != leader)
    _damage(cluster, victim)
    if leader_too:
        cluster.run_until(lambda: cluster.leader() not in (0, victim))
    cluster.start(victim)
    replica = cluster.nodes[victim].host.groups[0]
    assert replica.rebuild is not None
    assert cluster.nodes[victim].machines[0].commands == []
    cluster.run_until(lambda: replica.rebuild is None)
    cluster.run_until(lambda: _same(cluster))
    assert cluster.nodes[victim].machines[0].commands == words
    assert cluster.stores[victim].load()[0].damage == ""
    more = _submit(cluster, 5, b"x")
    cluster.run_until(lambda: cluster.nodes[victim].machines[0].commands == words + more)


def test_it_neither_votes_nor_leads_nor_acknowledges_until_then() -> None:
    """With its vote, the node that missed the last entries would win and they would be lost."""
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    leader = cluster.leader()
    behind, victim = (id for id in cluster.ids if id != leader)
    _submit(cluster, 15)
    cluster.run_until(lambda: _same(cluster))
    cluster.kill(behind)
    _submit(cluster, 5, b"x")  # on the leader and the victim alone
    _damage(cluster, victim)
    cluster.kill(leader)
    vote = cluster.stores[victim].load()[0].hard_state
    cluster.start(behind)
    cluster.start(victim)
    for _ in range(200):
        cluster.step()
        assert not any(node.host.groups[0].leads for node in cluster.nodes.values())
    raft = cluster.nodes[victim].host.groups[0].raw.raft
    assert (raft.term, raft.vote) == (vote.term, vote.vote)
    assert cluster.stores[victim].load()[0].hard_state == vote
    cluster.start(leader)
    cluster.run_until(lambda: _same(cluster))
    assert len(cluster.nodes[victim].machines[0].commands) == 20


def test_its_hard_state_is_kept_over_crashes_in_the_middle() -> None:
    cluster, leader, words = _running()
    victim = next(id for id in cluster.ids if id != leader)
    before = cluster.stores[victim].load()[0].hard_state
    _damage(cluster, victim)
    for _ in range(3):
        cluster.start(victim)
        assert cluster.nodes[victim].host.groups[0].rebuild is not None
        assert cluster.nodes[victim].host.groups[0].term == before.term
        cluster.kill(victim)
    cluster.start(victim)
    cluster.run_until(lambda: _same(cluster))
    assert cluster.nodes[victim].machines[0].commands == words


@pytest.mark.parametrize(("later_terms", "more_entries"), [(3, 0), (3, 5), (0, 5), (1, 1)])
def test_an_idle_leader_that_cannot_cover_what_the_replica_said_makes_way(later_terms: int, more_entries: int) -> None:
    """The replica stood for election where nobody heard it, or took entries that nobody else has. Nothing is written
    after it, so no later entry of this leader will ever cover that."""
    cluster, _, words = _running()
    leader = cluster.leader()
    victim = next(id for id in cluster.ids if id != leader)
    cluster.run_until(lambda: len({store.load()[0].entries[-1] for store in cluster.stores.values()}) == 1)
    cluster.kill(victim)
    said = GroupWrite(0)
    before = cluster.stores[victim].load()[0].hard_state
    last = cluster.stores[leader].load()[0].entries[-1][0]
    said.entries = [Entry(term=before.term, index=last + 1 + more, data=b"") for more in range(more_entries)]
    said.hard_state = HardState(before.term + later_terms, victim if later_terms else before.vote, before.commit)
    batch = WriteBatch()
    batch.groups[0] = said
    cluster.stores[victim].write(batch)
    cluster.stores[victim].rot(0, last)
    cluster.start(victim)
    replica = cluster.nodes[victim].host.groups[0]
    assert replica.rebuild is not None and replica.rebuild.last_index == last + more_entries
    cluster.run_until(lambda: replica.rebuild is None and _same(cluster))
    assert cluster.nodes[victim].machines[0].commands == words
    assert cluster.nodes[victim].host.groups[0].term > before.term


def test_where_nobody_knows_how_far_its_log_had_come_a_later_term_covers_it() -> None:
    """Its log file was made anew (`cluster.store.salvage`). No index is enough, so who leads gives the lead away."""
    cluster, _, words = _running()
    leader = cluster.leader()
    victim = next(id for id in cluster.ids if id != leader)
    cluster.kill(victim)
    before = cluster.stores[victim].load()[0].hard_state
    stored = StoredGroup(before, None, [], [])
    stored.damage, stored.last_index = "pages", limits.MAX_INDEX
    cluster.stores[victim].load = lambda: {0: stored}  # type: ignore[method-assign]
    cluster.start(victim)
    del cluster.stores[victim].load
    replica = cluster.nodes[victim].host.groups[0]
    assert replica.rebuild is not None
    cluster.run_until(lambda: replica.rebuild is None and _same(cluster))
    assert cluster.nodes[victim].machines[0].commands == words
    assert replica.term > before.term


def test_damage_on_most_voters_is_told_by_all_with_the_nodes_until_it_is_less() -> None:
    cluster, leader, _ = _running()
    victims = [id for id in cluster.ids if id != leader]
    for victim in victims:
        _damage(cluster, victim)
    for victim in victims:
        cluster.start(victim)
    cluster.kill(leader)
    cluster.start(leader)
    hosts = [node.host for node in cluster.nodes.values()]
    cluster.run_until(lambda: all(host.beyond_repair(cluster.now) == {0: victims} for host in hosts))
    cluster.kill(victims[0])
    cluster.run_until(lambda: not hosts[leader - 1].beyond_repair(cluster.now))


def test_one_damaged_voter_of_two_is_beyond_repair() -> None:
    """There may be two for a moment while a node is replaced. A leader that is still there can rebuild it; none can be
    chosen."""
    cluster = Cluster(2)
    cluster.run_until(lambda: cluster.leader() != 0)
    _submit(cluster, 20)
    cluster.run_until(lambda: _same(cluster, 2))
    victim = 3 - cluster.leader()
    _damage(cluster, victim)
    cluster.run_until(lambda: cluster.leader() == 0)
    cluster.start(victim)
    cluster.run_until(lambda: all(node.host.beyond_repair(cluster.now) for node in cluster.nodes.values()))
    assert cluster.nodes[victim].host.beyond_repair(cluster.now) == {0: [victim]}


def test_one_damaged_voter_of_three_is_not_beyond_repair() -> None:
    cluster, leader, _ = _running()
    victim = next(id for id in cluster.ids if id != leader)
    _damage(cluster, victim)
    cluster.start(victim)
    while cluster.nodes[victim].host.groups[0].rebuild is not None:
        cluster.step()
        assert not any(node.host.beyond_repair(cluster.now) for node in cluster.nodes.values())


def test_a_node_alone_refuses_to_start_and_names_group_and_index() -> None:
    cluster = Cluster(1)
    cluster.run_until(lambda: cluster.leader() == 1)
    _submit(cluster, 20)
    _damage(cluster, 1)
    with pytest.raises(CorruptStore, match="no other node has this group"):
        cluster.start(1)


def test_damage_in_what_a_leader_sends_is_raised_and_not_taken_for_the_peers_fault() -> None:
    cluster, leader, _ = _running()
    other = next(id for id in cluster.ids if id != leader)
    cluster.kill(other)
    _submit(cluster, 5, b"x")
    group = cluster.nodes[leader].host.groups[0]
    cluster.nodes[leader].host.cache.discard_group(0)
    cluster.stores[leader].rot(0, group.applied)
    cluster.start(other)
    with pytest.raises(CorruptEntry, match=f"entry {group.applied} of group 0"):
        cluster.run_until(lambda: _same(cluster), 50)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_whatever_is_damaged_one_node_at_a_time(seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster(3, compact_entries=chance.choice([10, 1 << 40]))
    cluster.run_until(lambda: cluster.leader() != 0)
    said: list[bytes] = []
    for round in range(6):
        said += _submit(cluster, chance.randrange(1, 8), b"%d" % round)
        for _ in range(chance.randrange(3)):
            cluster.step()
        victim = chance.choice(cluster.ids)
        cluster.kill(victim)
        stored = cluster.stores[victim].load()[0]
        if stored.entries:
            cluster.stores[victim].rot(0, chance.choice(stored.entries)[0])
        cluster.run_until(cluster.leader)
        said += _submit(cluster, chance.randrange(3), bytes([ord("a") + round]))
        cluster.start(victim)
        other = chance.choice([id for id in cluster.ids if id != victim])
        if chance.random() < 0.5:
            cluster.kill(other)
            for _ in range(chance.randrange(60)):
                cluster.step()
            cluster.start(other)
        cluster.run_until(cluster.leader)
        cluster.run_until(lambda: _same(cluster))
        assert cluster.nodes[1].machines[0].commands == said


@pytest.mark.parametrize(
    ("index", "term", "leader_term", "covered"),
    [
        (20, 3, 3, True), (25, 3, 9, True), (19, 3, 3, False), (19, 5, 5, True), (19, 4, 5, False), (2, 4, 4, True),
        (25, 2, 2, False),
    ],
)
def test_which_snapshots_cover_what_was_acknowledged(index: int, term: int, leader_term: int, covered: bool) -> None:
    wanted = Rebuild("", 20, 3)
    snapshot = Snapshot(SnapshotMetadata(index, term), b"")
    assert wanted.is_ended_by(RaftMessage(MessageType.SNAP, 1, 2, leader_term, snapshot=snapshot)) is covered
    assert not wanted.is_ended_by(RaftMessage(MessageType.APP, 1, 2, leader_term, index=index))


def test_requests_are_read_back_and_garbage_is_not() -> None:
    read = decode_request(Rebuild("why", 20, 3).request(7))
    assert read is not None
    assert (read[0], read[1].last_index, read[1].term) == (7, 20, 3)
    assert decode_request(b"short") is None
