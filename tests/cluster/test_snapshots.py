"""Snapshots for members that lag: the same one is offered again after a transfer that broke, and what it refers to
stays readable; nobody is left waiting for one; and what else is under way to a member is bounded."""

from collections.abc import Callable

import pytest

from cluster.group import TIMES_TOO_LONG, TIMES_TOO_LONG_WITH_AN_OFFER, Group
from cluster.log.batch import MissingEntry
from cluster.log.snapshot_codec import OutgoingSnapshot
from cluster.raft import ConfState, Message, MessageType, Snapshot
from cluster.raft.progress import ProgressState
from cluster.rebuild import Rebuild
from cluster.snapshot_offer import OFFER_KEPT_MS
from tests.cluster.three_hosts import TICK_MS, Cluster, Node

COMPACT_ENTRIES = 20
KEEP = 5


def _submit(cluster: Cluster, count: int, tag: bytes = b"w") -> None:
    for number in range(count):
        cluster.nodes[cluster.leader()].host.submit(0, [tag + b"%03d" % number], 4, False, None)
        cluster.step()


class Lagging:
    """A cluster with a member whose log is too short for anything but a snapshot, which the network loses."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(3, compact_entries=COMPACT_ENTRIES, keep=KEEP)
        cluster.run_until(lambda: cluster.leader() != 0)
        self.leader_id = cluster.leader()
        self.away = next(id for id in cluster.ids if id != self.leader_id)
        cluster.kill(self.away)
        _submit(cluster, 2 * TIMES_TOO_LONG * COMPACT_ENTRIES)
        self.lost: list[Snapshot] = []
        cluster.loses = self._loses
        cluster.start(self.away)
        cluster.run_until(lambda: self.lost)

    def _loses(self, sender: int, to: int, message: Message) -> bool:
        if message.type == MessageType.SNAP and message.snapshot is not None:
            self.lost.append(message.snapshot)
            return True
        return False

    @property
    def leader(self) -> Node:
        assert self.cluster.leader() == self.leader_id
        return self.cluster.nodes[self.leader_id]

    @property
    def group(self) -> Group:
        return self.leader.host.groups[0]

    def awaits_a_snapshot(self) -> bool:
        return self.group.raw.raft.tracker.progress[self.away].state == ProgressState.SNAPSHOT

    def fails(self) -> Snapshot:
        """The transfer broke; the snapshot that is sent next."""
        count = len(self.lost)
        self.leader.host.snapshot_sent(self.away, 0, False)
        self.cluster.run_until(lambda: len(self.lost) > count)
        return self.lost[-1]

    def same(self) -> bool:
        return self.cluster.nodes[self.away].machines[0].commands == self.leader.machines[0].commands

    def stored(self, index: int) -> bool:
        try:
            self.leader.store.read_entry(0, index)
        except MissingEntry:
            return False
        return True


def test_a_stream_that_opens_again_ends_the_wait_for_a_snapshot_that_nobody_reported() -> None:
    """Its process was gone, or its report: without this the member would get nothing for ever."""
    lagging = Lagging()
    for _ in range(200):
        lagging.cluster.step()
        assert lagging.awaits_a_snapshot()
    assert len(lagging.lost) == 1
    lagging.cluster.loses = lambda sender, to, message: False
    lagging.leader.host.peer_up(lagging.away, lagging.cluster.now)
    lagging.cluster.run_until(lagging.same)


def test_a_stream_that_opens_again_says_nothing_of_snapshots_of_groups_led_elsewhere() -> None:
    lagging = Lagging()
    other = next(id for id in lagging.cluster.ids if id not in (lagging.leader_id, lagging.away))
    lagging.cluster.nodes[other].host.peer_up(lagging.away, lagging.cluster.now)
    lagging.cluster.nodes[other].host.snapshot_sent(lagging.away, 0, False)
    for _ in range(20):
        lagging.cluster.step()
    assert lagging.awaits_a_snapshot() and len(lagging.lost) == 1


def test_the_same_snapshot_is_sent_again_with_all_that_it_refers_to() -> None:
    lagging = Lagging()
    first = lagging.lost[0]
    assert isinstance(first.body, OutgoingSnapshot)
    entries = list(first.body)
    assert len(entries) == KEEP
    # By now the state machine needs none of them any more, and the log was written often enough to be rid of them.
    _submit(lagging.cluster, 3 * COMPACT_ENTRIES, b"x")
    assert not {entry.index for entry in entries} & set(lagging.leader.machines[0].kept)
    again = lagging.fails()
    assert again.body is first.body and again.metadata == first.metadata
    assert list(first.body) == entries
    lagging.cluster.loses = lambda sender, to, message: False
    lagging.leader.host.snapshot_sent(lagging.away, 0, False)
    lagging.cluster.run_until(lagging.same)
    # What was held back for it goes when nobody has wanted it for a while.
    assert all(lagging.stored(entry.index) for entry in entries)
    for _ in range(OFFER_KEPT_MS // TICK_MS - 20):
        lagging.cluster.step()
    assert all(lagging.stored(entry.index) for entry in entries)
    lagging.cluster.run_until(lambda: not any(lagging.stored(entry.index) for entry in entries))


def test_what_a_snapshot_holds_back_is_released_after_a_restart_too() -> None:
    lagging = Lagging()
    body = lagging.lost[0].body
    assert isinstance(body, OutgoingSnapshot)
    indices = [entry.index for entry in body]
    _submit(lagging.cluster, 3 * COMPACT_ENTRIES, b"x")
    assert all(lagging.stored(index) for index in indices)
    cluster, store = lagging.cluster, lagging.leader.store
    cluster.kill(lagging.leader_id)
    cluster.start(lagging.leader_id)
    kept = set(store.load()[0].retained)
    assert not kept & set(indices)


def _compacted(lagging: Lagging) -> None:
    _submit(lagging.cluster, (TIMES_TOO_LONG_WITH_AN_OFFER + 2) * COMPACT_ENTRIES, b"x")
    assert lagging.group.log.snapshot_index() > lagging.lost[0].metadata.index


def _members_changed(lagging: Lagging) -> None:
    conf = lagging.group.conf_state
    lagging.group.conf_state = ConfState(conf.voters, [9])


def _unreadable(lagging: Lagging) -> None:
    body = lagging.lost[0].body
    assert isinstance(body, OutgoingSnapshot)
    body.failed = "entry 7 is not stored"


def _short_of_disk(lagging: Lagging) -> None:
    body = lagging.lost[0].body
    assert isinstance(body, OutgoingSnapshot)
    indices = [entry.index for entry in body]
    _submit(lagging.cluster, 2 * KEEP, b"x")
    lagging.leader.host.short_of_disk = True
    lagging.cluster.run_until(lambda: lagging.group.log.snapshot_index() > indices[-1] + KEEP)
    lagging.leader.host.short_of_disk = False
    # A transfer is no reason to keep a full disk full.
    lagging.cluster.run_until(lambda: not any(lagging.stored(index) for index in indices))


@pytest.mark.parametrize("change", [_compacted, _members_changed, _unreadable, _short_of_disk])
def test_another_snapshot_is_made_when_the_old_one_will_not_do(change: Callable[[Lagging], None]) -> None:
    lagging = Lagging()
    change(lagging)
    again = lagging.fails()
    assert again.body is not lagging.lost[0].body
    assert again.metadata.conf_state == lagging.group.conf_state


def test_a_snapshot_on_offer_puts_a_compaction_off_for_a_while() -> None:
    """A compaction beyond it would make what was sent of it worthless."""
    lagging = Lagging()
    before = lagging.group.log.snapshot_index()
    _submit(lagging.cluster, 2 * TIMES_TOO_LONG * COMPACT_ENTRIES, b"x")
    assert lagging.group.log.snapshot_index() == before
    assert lagging.fails().body is lagging.lost[0].body


def test_a_damaged_replica_that_asks_for_more_than_the_offer_gets_more() -> None:
    lagging = Lagging()
    _submit(lagging.cluster, 5, b"x")
    lagging.leader.host.snapshot_sent(lagging.away, 0, False)
    wanted = Rebuild("damaged", lagging.group.applied, lagging.group.term)
    assert not wanted.is_covered_by(lagging.lost[0].metadata.index, 0, lagging.group.term)
    count = len(lagging.lost)
    lagging.group.send_rebuild(lagging.away, wanted)
    lagging.cluster.run_until(lambda: len(lagging.lost) > count)
    assert lagging.lost[-1].metadata.index >= wanted.last_index


def test_what_is_under_way_to_a_member_is_bounded_in_bytes() -> None:
    """`GroupSettings.inflight_bytes`: a member whose disk hangs is not sent all there is."""
    limit_bytes, entry_bytes = 1 << 20, 200_000
    cluster = Cluster(3, inflight_bytes=limit_bytes)
    cluster.run_until(lambda: cluster.leader() != 0)
    leader = cluster.leader()
    slow = next(id for id in cluster.ids if id != leader)
    sent = 0

    def count(sender: int, to: int, message: Message) -> bool:
        nonlocal sent
        if sender == leader and message.to == slow and message.type == MessageType.APP:
            sent += sum(len(entry.data) for entry in message.entries)
        return False

    cluster.run_until(lambda: cluster.nodes[leader].host.groups[0].matched(slow) > 0)
    cluster.loses = count
    cluster.stuck = {slow}
    before = cluster.nodes[leader].host.groups[0].committed
    for _ in range(15):
        assert cluster.nodes[leader].host.propose_internal(0, bytes(entry_bytes))
        cluster.step()
    # The third member has everything: the leader is not held up.
    assert cluster.nodes[leader].host.groups[0].committed >= before + 15
    # The limit is soft: the message that crosses it still goes.
    assert limit_bytes <= sent <= limit_bytes + entry_bytes + 1000
    cluster.stuck = set()
    output = cluster.nodes[slow].host
    assert output.writing
