"""A node whose disk is slow, but never hangs, leads nothing as long as others have quicker ones."""

from collections.abc import Sequence

import pytest

from mayfly.cluster.host.disk_pace import FORGIVEN_AFTER_MS, LONGEST_MS, SHORTEST_MS, WRITES, DiskPace
from mayfly.cluster.host.frame import Frame
from tests.cluster.host.three_hosts import TICK_MS, Cluster

GROUPS = 3
ELECTION_TIMEOUT_MS = 500
SLOW_MS = ELECTION_TIMEOUT_MS // 3


class SlowCluster(Cluster):
    """Each write of a node takes `write_ms`, or `leading_ms` more while it leads something; counts changes of
    leaders."""

    def __init__(self, write_ms: Sequence[int], leading_ms: int = 0) -> None:
        self.write_ms = dict(enumerate(write_ms, 1))
        self.leading_ms = leading_ms
        self.due: dict[int, int] = {}
        self.terms_led: set[tuple[int, int]] = set()
        super().__init__(len(write_ms), groups=GROUPS)

    def _pump(self) -> None:
        for id, node in self.nodes.items():
            if self.due.get(id, self.now + 1) <= self.now:
                write = node.host._writes.under_way
                assert write is not None
                node.store.write(write)
                del self.due[id]
                node.host.persisted(self.now)
            output = node.host.pump(self.now)
            if output.write is not None:
                leads = any(group.leads for group in node.host.groups.values())
                self.due[id] = self.now + self.write_ms[id] + self.leading_ms * leads
            frames: dict[int, Frame] = output.frames
            self._mail += [(id, to, frame) for to, frame in frames.items()]
            self.terms_led |= {(group.id, group.term) for group in node.host.groups.values() if group.leads}

    def go_on(self, for_ms: int) -> int:
        """Commands for all groups all the time; how often one got another leader meanwhile."""
        before = len(self.terms_led)
        for _ in range(for_ms // TICK_MS):
            for group in range(GROUPS):
                leader = self.leader(group)
                if leader and self.nodes[leader].host.groups[group].sender.idle:
                    self.nodes[leader].host.submit(group, [b"word"], 4, True, lambda result: None)
            self.step()
        return len(self.terms_led) - before

    def led_by(self) -> list[int]:
        return [self.leader(group) for group in range(GROUPS)]


def begun(write_ms: Sequence[int], leading_ms: int = 0) -> SlowCluster:
    """All groups are led by their preferred nodes, with quick disks, before those become what they are."""
    cluster = SlowCluster([0] * len(write_ms))
    cluster.run_until(lambda: cluster.led_by() == [1, 2, 3])
    cluster.write_ms = dict(enumerate(write_ms, 1))
    cluster.leading_ms = leading_ms
    return cluster


def test_a_node_with_a_slow_disk_hands_its_leads_over_once_and_gets_them_back_when_it_is_quick() -> None:
    cluster = begun([300, 0, 0])
    assert cluster.go_on(20_000) == 1
    assert 1 not in cluster.led_by()
    assert cluster.nodes[1].host.disk.late_writes == 0, "it never hung"
    assert cluster.go_on(60_000) == 0, "others do not hand it back, and it does not stand"
    assert 1 not in cluster.led_by()
    cluster.write_ms[1] = 0
    assert cluster.go_on(30_000) == 1
    assert cluster.led_by() == [1, 2, 3]
    told = [line for line in cluster.nodes[1].told if "the disk of" in line]
    assert told == [
        "the disk of node 1 is slow: it hands its leads to nodes with quicker ones",
        "the disk of node 1 is quick again",
    ]


def test_where_two_of_three_are_slow_the_third_leads_all() -> None:
    cluster = begun([300, 0, 250])
    # The first to be slow does not know yet that the other one will be.
    assert cluster.go_on(30_000) in (2, 3)
    assert cluster.led_by() == [2, 2, 2]
    assert cluster.go_on(30_000) == 0


@pytest.mark.parametrize("write_ms", [[300, 300, 300], [250, 300, 350], [60, 60, 60], [0, 100, 150]])
def test_disks_that_are_all_slow_or_all_quick_change_no_leader(write_ms: list[int]) -> None:
    cluster = begun(write_ms)
    assert cluster.go_on(60_000) == 0
    assert cluster.led_by() == [1, 2, 3]


@pytest.mark.parametrize(
    "write_ms", [[700, 700, 700], [3000, 3000, 3000], [1200, 700, 2000], [0, 700, 700], [1500, 0, 1500]]
)
def test_disks_of_a_majority_that_are_later_than_an_election_change_no_leader(write_ms: list[int]) -> None:
    """All of them seem to hang; but nobody could be elected without one of them. What is given is committed, at their
    pace, and with quick disks all is at once as it was."""
    cluster = begun(write_ms)
    assert cluster.go_on(60_000) == 0
    assert cluster.led_by() == [1, 2, 3]
    at_least = 60_000 // (5 * max(write_ms))
    assert all(len(node.machines[0].commands) >= at_least for node in cluster.nodes.values())
    cluster.write_ms = dict.fromkeys(cluster.nodes, 0)
    assert cluster.go_on(5_000) == 0
    assert cluster.led_by() == [1, 2, 3]


@pytest.mark.parametrize("write_ms", [520, 600, 700])
def test_one_of_three_that_is_later_than_an_election_leads_nothing(write_ms: int) -> None:
    """By however little: also where no write is so late that it resigns."""
    cluster = begun([write_ms, 0, 0])
    assert cluster.go_on(20_000) == 1
    assert 1 not in cluster.led_by()


def test_a_disk_that_hangs_is_given_up_though_one_of_the_others_is_slow() -> None:
    """Not after the time that is for disks of which all are late: sessions would end before."""
    cluster = begun([0, 0, 300])
    cluster.go_on(15_000)
    assert cluster.nodes[3].host.disk_pace.slow and 1 in cluster.led_by()
    cluster.write_ms[1] = 10**9
    cluster.go_on(10 * ELECTION_TIMEOUT_MS)
    assert cluster.led_by() == [2, 2, 2]


def test_disks_that_are_slow_only_under_the_load_of_leading_are_changed_ever_more_seldom() -> None:
    """Each is slow with what it leads, and quick without."""
    cluster = begun([0, 0, 0], leading_ms=300)
    changes = [cluster.go_on(60_000) for _ in range(6)]
    assert sum(changes) <= 12 * GROUPS
    assert sum(changes[3:]) < sum(changes[:3]) or sum(changes) == 0


def test_a_node_that_stops_hands_over_to_slow_ones_if_there_are_no_others() -> None:
    cluster = begun([300, 300, 300])
    cluster.go_on(20_000)
    assert all(node.host.disk_pace.slow for node in cluster.nodes.values())
    cluster.nodes[1].host.set_draining(True)
    assert cluster.go_on(5_000) == 1
    assert 1 not in cluster.led_by()


@pytest.mark.parametrize(("words", "slow"), [(1, True), (250_000, False)])
def test_writes_that_take_what_their_size_explains_are_not_a_slow_disk(words: int, slow: bool) -> None:
    cluster = SlowCluster([0])
    cluster.run_until(lambda: cluster.leader(0) == 1)
    host = cluster.nodes[1].host
    cluster.write_ms[1] = 200  # 1 MB explains 50 ms of that
    for _ in range(WRITES + 2):
        cluster.run_until(lambda: host.groups[0].sender.idle and not host.writing)
        host.submit(0, [b"word" * words], 4 * words, True, lambda result: None)
        cluster.step()
    assert host.disk_pace.slow is slow


def pace_of(pace: DiskPace, write_ms: int, now_ms: int, writes: int = WRITES) -> int:
    """So many writes, one after the other; the time then."""
    for _ in range(writes):
        now_ms += max(1, write_ms)
        pace.took(write_ms, now_ms)
    return now_ms


def test_some_long_writes_are_not_a_slow_disk() -> None:
    pace = DiskPace(SLOW_MS)
    now_ms = 0
    for _ in range(20):
        now_ms = pace_of(pace, 400, pace_of(pace, 1, now_ms, 8), 7)
        assert not pace.slow
    pace_of(pace, 400, now_ms, 8)
    assert pace.slow


def test_between_the_bounds_it_stays_what_it_was() -> None:
    between_ms = SLOW_MS * 3 // 4
    pace = DiskPace(SLOW_MS)
    now_ms = pace_of(pace, between_ms, 0, 100)
    assert not pace.slow
    now_ms = pace_of(pace, SLOW_MS + 1, now_ms)
    assert pace.slow
    now_ms = pace_of(pace, between_ms, now_ms + LONGEST_MS, 100)
    assert pace.slow
    pace_of(pace, SLOW_MS // 2 - 1, now_ms)
    assert not pace.slow


def test_each_time_it_is_slow_for_longer_and_after_a_good_while_as_the_first_time() -> None:
    pace = DiskPace(SLOW_MS)
    now_ms = 0
    periods: list[int] = []
    for _ in range(10):
        now_ms = pace_of(pace, 400, now_ms)
        assert pace.slow
        since_ms = now_ms
        while pace.slow:
            now_ms = pace_of(pace, 1, now_ms + 999, 1)
        periods.append(now_ms - since_ms)
    assert periods == [pytest.approx(min(2**time * SHORTEST_MS, LONGEST_MS), abs=2000) for time in range(10)]
    now_ms = pace_of(pace, 400, now_ms + FORGIVEN_AFTER_MS)
    pace_of(pace, 1, now_ms + SHORTEST_MS)
    assert not pace.slow
