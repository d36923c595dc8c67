"""How long entries take from the leader's hands until they are committed, counted by the leader."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from mayfly.cluster.group.commit_times import COMMIT_BOUNDS_MS, NOT_KNOWN, CommitTimes
from mayfly.cluster.host.host import Host
from tests.cluster.host.three_hosts import TICK_MS, Cluster


@pytest.fixture
def cluster() -> Cluster:
    """Of three nodes, of which all have had their say."""
    cluster = Cluster(3)
    cluster.run_until(cluster.leader)
    for _ in range(20):
        cluster.step()
    return cluster


def counted(host: Host) -> int:
    return sum(host.commit_times.by_bucket)


def submit(cluster: Cluster, at: int) -> list[object]:
    heard: list[object] = []
    cluster.nodes[at].host.submit(0, [b"word"], 4, True, heard.append)
    return heard


def test_what_waits_for_followers_counts_with_its_wait_and_at_the_leader_alone(cluster: Cluster) -> None:
    leader = cluster.leader()
    host = cluster.nodes[leader].host
    before, sum_ms, by_bucket = counted(host), host.commit_times.sum_ms, list(host.commit_times.by_bucket)
    others = {id: counted(node.host) for id, node in cluster.nodes.items() if id != leader}
    cluster.frozen = set(others)
    heard = submit(cluster, leader)
    began_ms = cluster.now
    cluster.exchange()
    for _ in range(3):
        cluster.step()
    assert not heard and counted(host) == before
    cluster.frozen = set()
    cluster.run_until(lambda: heard)
    took_ms = cluster.now - began_ms
    assert took_ms >= 3 * TICK_MS
    assert (counted(host), host.commit_times.sum_ms) == (before + 1, sum_ms + took_ms)
    bucket = bisect_left(COMMIT_BOUNDS_MS, took_ms)
    assert host.commit_times.by_bucket[bucket] == by_bucket[bucket] + 1
    assert host.groups[0].awaited_commits.last_ms == took_ms
    assert {id: counted(cluster.nodes[id].host) for id in others} == others
    assert all(cluster.nodes[id].host.groups[0].awaited_commits.last_ms == NOT_KNOWN for id in others)


def test_what_waits_behind_a_write_under_way_counts_from_when_it_came(cluster: Cluster) -> None:
    leader = cluster.leader()
    host = cluster.nodes[leader].host
    cluster.stuck = {leader}
    submit(cluster, leader)
    cluster.exchange()
    cluster.step()
    heard, began_ms, before_ms = submit(cluster, leader), cluster.now, host.commit_times.sum_ms
    cluster.exchange()
    cluster.step()
    cluster.step()
    cluster.stuck = set()
    write = host._writes.under_way
    assert write is not None
    cluster.nodes[leader].store.write(write)
    host.persisted(cluster.now)
    cluster.run_until(lambda: heard)
    took_ms = cluster.now - began_ms
    assert took_ms >= 2 * TICK_MS
    assert host.groups[0].awaited_commits.last_ms == took_ms
    assert host.commit_times.sum_ms >= before_ms + took_ms


def test_what_another_leader_commits_is_not_counted(cluster: Cluster) -> None:
    leader = cluster.leader()
    host = cluster.nodes[leader].host
    before = counted(host)
    cluster.cut = {leader}
    heard = submit(cluster, leader)
    cluster.exchange()
    cluster.run_until(lambda: cluster.leader() not in (0, leader))
    cluster.cut = set()
    cluster.run_until(lambda: heard)
    assert counted(host) == before
    assert host.groups[0].awaited_commits.last_ms == NOT_KNOWN


def test_times_are_counted_up_to_and_with_each_bound() -> None:
    times = CommitTimes()
    for took_ms, entries in ((0, 1), (1, 2), (2, 1), (3, 1), (10_000, 1), (10_001, 4)):
        times.observe(entries, took_ms)
    assert times.by_bucket == [3, 1, 1, *[0] * 9, 1, 4]
    assert times.sum_ms == 2 + 2 + 3 + 10_000 + 4 * 10_001
