"""Leaders go where they are preferred once, and then stay: counted over minutes of simulated time."""

import pytest

from mayfly.cluster.host.leader_balance import LONGEST_PAUSE_MS, STABLE_BEFORE_TRANSFER_MS
from mayfly.cluster.raft import MessageType, RaftMessage
from tests.cluster.host.three_hosts import TICK_MS, Cluster

GROUPS = 6
WATCHED_STEPS = 120_000 // TICK_MS


def settled(cluster: Cluster) -> bool:
    return [cluster.leader(group) for group in range(GROUPS)] == [1, 2, 3, 1, 2, 3]


class Watch:
    """The leaders that each group has had, in order, without repetitions in a row."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.leaders: list[list[int]] = [[cluster.leader(group)] for group in range(GROUPS)]

    def step(self, steps: int = 1) -> None:
        for _ in range(steps):
            self._cluster.step()
            for group, seen in enumerate(self.leaders):
                leader = self._cluster.leader(group)
                if leader not in (0, seen[-1]):
                    seen.append(leader)


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_after_a_restart_each_leader_moves_away_once_and_back_once(victim: int) -> None:
    """Two minutes after it: no group changed its leader a third time, and others' groups not at all."""
    cluster = Cluster(3, groups=GROUPS)
    cluster.run_until(lambda: settled(cluster))
    watch = Watch(cluster)
    preferred = [seen[0] for seen in watch.leaders]
    cluster.kill(victim)
    watch.step(2_000 // TICK_MS)
    cluster.start(victim)
    watch.step(WATCHED_STEPS)
    assert settled(cluster)
    for home, seen in zip(preferred, watch.leaders, strict=True):
        if home == victim:
            assert len(seen) == 3 and seen[0] == seen[2] == home != seen[1]
        else:
            assert seen == [home]


def test_a_node_that_restarts_every_few_seconds_takes_nothing_from_the_others() -> None:
    """It is not given its groups back before it has been up for a while, and nobody else's move."""
    cluster = Cluster(3, groups=GROUPS)
    cluster.run_until(lambda: settled(cluster))
    watch = Watch(cluster)
    for _ in range(10):
        cluster.kill(2)
        watch.step(1_000 // TICK_MS)
        cluster.start(2)
        watch.step((STABLE_BEFORE_TRANSFER_MS - 500) // TICK_MS)
    for group, seen in enumerate(watch.leaders):
        assert len(seen) == (2 if seen[0] == 2 else 1), f"group {group} went {seen}"
    watch.step(WATCHED_STEPS)
    assert settled(cluster)


def test_a_node_that_cannot_keep_the_lead_gets_it_ever_more_rarely() -> None:
    """What node 1 sends as a leader is lost. Each of the others tries it after pauses that double up to a minute."""
    cluster = Cluster(3, groups=GROUPS)
    cluster.run_until(lambda: settled(cluster))

    def loses(sender: int, to: int, message: RaftMessage) -> bool:
        return sender == 1 and message.type in (MessageType.APP, MessageType.HEARTBEAT)

    cluster.loses = loses
    attempts: list[int] = []
    was = False
    for step in range(600_000 // TICK_MS):
        cluster.step()
        leads = cluster.nodes[1].host.groups[0].leads
        if leads and not was:
            attempts.append(step * TICK_MS)
        was = leads
    print(attempts)
    late = [attempt for attempt in attempts if attempt >= 300_000]
    assert 2 <= len(late) <= 2 * (300_000 // LONGEST_PAUSE_MS + 1), attempts
    cluster.loses = lambda sender, to, message: False
    cluster.run_until(lambda: settled(cluster), 2 * LONGEST_PAUSE_MS // TICK_MS)
