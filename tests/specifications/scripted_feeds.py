"""Feeds by a script, of hosts without clients: what runs of whole nodes meet too seldom to wait for it."""

from __future__ import annotations

from tests.cluster.host.changing import Changing

GROUP = 1
WINDOW = 4
"""Of the sessions of these hosts."""


def behind_a_hole(variant: int) -> None:
    """A node without a replica is cut off with commands under way. Meanwhile the followers are made anew from
    snapshots, one after the other, and the leader dies: nobody is left who has kept what the node was to hear."""
    cluster = Changing(4 + variant % 2, everywhere=False, compact_entries=6 + variant)
    cluster.run_until(cluster.settled)
    leader, *followers = cluster.plan[GROUP]
    node = next(id for id in cluster.members if id not in cluster.plan[GROUP])
    _give(cluster, node, 3)
    for _ in range(10):
        cluster.step()
    _give(cluster, node, 2)
    host = cluster.nodes[leader].host
    cluster.exchange(lambda: host.groups[GROUP].raw.last_index > host.groups[GROUP].applied)
    cluster.cut = {node}
    for follower in followers:
        cluster.kill(follower)
        for _ in range(12 + variant):
            _give(cluster, leader, 1)
            cluster.step()
        cluster.start(follower)
        for _ in range(6):
            cluster.step()
    cluster.kill(leader)
    cluster.cut = set()
    for other in followers:
        cluster.nodes[other].host.peer_up(node, cluster.now)
        cluster.nodes[node].host.peer_up(other, cluster.now)
    for _ in range(60):
        _give(cluster, node, 1)
        cluster.step()


def _give(cluster: Changing, node: int, count: int) -> None:
    for number in range(count):
        cluster.nodes[node].host.submit(GROUP, [b"%04d" % number], 4, True, lambda result: None)
