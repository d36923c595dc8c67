"""Snapshots for members that lag: the same one is offered again after a transfer that broke, and what it refers to
stays readable; nobody is left waiting for one; and what else is under way to a member is bounded."""

from collections.abc import Callable

import pytest

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.log_upkeep import TIMES_TOO_LONG, TIMES_TOO_LONG_FOR_ANYBODY
from mayfly.cluster.group.rebuilding import Rebuild
from mayfly.cluster.group.settings import SNAPSHOT_REFUSED_FOR_MS
from mayfly.cluster.group.snapshot_intake import SnapshotIntake
from mayfly.cluster.group.snapshot_offer import OFFER_KEPT_MS
from mayfly.cluster.log.batch import MissingEntry
from mayfly.cluster.log.snapshot_codec import OutgoingSnapshot
from mayfly.cluster.raft import (
    ConfChange,
    ConfChangeType,
    ConfState,
    MessageType,
    RaftMessage,
    Snapshot,
    SnapshotMetadata,
)
from mayfly.cluster.raft.progress import ProgressState
from mayfly.cluster.raft.step import snapshot_applied
from tests.cluster.group.own_sessions import told_by_replica
from tests.cluster.host.three_hosts import TICK_MS, Cluster, Node, Recorder

COMPACT_ENTRIES = 20
COMPACT_BYTES = 2000
KEEP = 5


def _submit(cluster: Cluster, count: int, tag: bytes = b"w") -> None:
    for number in range(count):
        cluster.nodes[cluster.leader()].host.submit(0, [tag + b"%03d" % number], 4, False, None)
        cluster.step()


class Lagging:
    """A cluster with a member whose log is too short for anything but a snapshot, which the network loses."""

    def __init__(self, compact_bytes: int = 1 << 40) -> None:
        self.cluster = cluster = Cluster(3, compact_entries=COMPACT_ENTRIES, compact_bytes=compact_bytes, keep=KEEP)
        cluster.run_until(lambda: cluster.leader() != 0)
        self.leader_id = cluster.leader()
        self.away = next(id for id in cluster.ids if id != self.leader_id)
        cluster.kill(self.away)
        _submit(cluster, 2 * TIMES_TOO_LONG * COMPACT_ENTRIES)
        self.lost: list[Snapshot] = []
        cluster.loses = self._loses
        cluster.start(self.away)
        cluster.run_until(lambda: self.lost)

    def _loses(self, sender: int, to: int, message: RaftMessage) -> bool:
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
    # What was held back for it goes when the log does not go on from it any more: all members have what is behind it.
    assert all(lagging.stored(entry.index) for entry in entries)
    lagging.cluster.run_until(lambda: lagging.group.log.snapshot_index() > first.metadata.index)
    lagging.cluster.run_until(lambda: not any(lagging.stored(entry.index) for entry in entries), 2)


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
    """The log behind it took too many bytes: it is not waited for without an end."""
    first = lagging.lost[0]
    assert isinstance(first.body, OutgoingSnapshot)
    before = lagging.group.upkeep._log_bytes
    while lagging.group.log.snapshot_index() <= first.metadata.index:
        grown_bytes = lagging.group.upkeep._log_bytes
        _submit(lagging.cluster, 1, b"x")
    assert grown_bytes - before > (TIMES_TOO_LONG_FOR_ANYBODY - TIMES_TOO_LONG) * COMPACT_BYTES
    # Who sends it stops.
    assert "the log behind it has become too long" in first.body.failed


def _members_changed(lagging: Lagging) -> None:
    lagging.group.raw.propose_conf_change(ConfChange(ConfChangeType.ADD_LEARNER_NODE, 9))
    lagging.cluster.run_until(lambda: 9 in lagging.group.conf_state.learners)


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
    lagging = Lagging(COMPACT_BYTES)
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

    def count(sender: int, to: int, message: RaftMessage) -> bool:
        nonlocal sent
        if sender == leader and message.to == slow and message.type == MessageType.APP:
            sent += sum(len(entry.data) for entry in message.entries)
        return False

    cluster.run_until(lambda: cluster.nodes[leader].host.groups[0].raw.matched(slow) > 0)
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


# ---------------------------------------------------------------------- read before they are stored


class Arriving(Lagging):
    """The same, once the network works. Some snapshots are damaged: what is sent has the right digest all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster.loses = lambda sender, to, message: False
        self.cluster.as_sent = self._as_sent
        self.damaged = True
        self.sent: list[tuple[int, Snapshot]] = []
        self.member = self.cluster.nodes[self.away]
        self.before = self.stored_state()

    def _as_sent(self, message: RaftMessage) -> RaftMessage:
        snapshot = message.snapshot
        if snapshot is None:
            return message
        self.sent.append((self.cluster.now, snapshot))
        if not self.damaged:
            return message
        cut = Snapshot(snapshot.metadata, snapshot.data[:-1])
        return RaftMessage(message.type, message.to, message.from_, message.term, snapshot=cut)

    def stored_state(self) -> object:
        stored = self.cluster.stores[self.away].load().get(0)
        return None if stored is None or stored.snapshot is None else (stored.snapshot.metadata, stored.snapshot.state)

    def arrives(self, reported: bool = True) -> None:
        """The transfer that was under way breaks, and the next one goes through."""
        count = len(self.sent)
        self.leader.host.snapshot_sent(self.away, 0, False)
        self.cluster.run_until(lambda: len(self.sent) > count)
        if reported:
            self.leader.host.snapshot_sent(self.away, 0, True)


def test_a_snapshot_that_cannot_be_read_is_not_stored_and_asked_for_again_later() -> None:
    """The replica keeps what it has, through a restart too; an operator is told; a good one is taken in the end."""
    arriving = Arriving()
    arriving.arrives()
    group = arriving.member.host.groups[0]
    first_ms, commands, applied = arriving.cluster.now, list(arriving.member.machines[0].commands), group.applied
    _submit(arriving.cluster, 5, b"x")
    while arriving.cluster.now < first_ms + SNAPSHOT_REFUSED_FOR_MS - 2 * TICK_MS:
        arriving.cluster.step()
        # A leader whose log begins behind the snapshot by now sends a new one by itself.
        assert len(arriving.sent) <= 1 + (arriving.cluster.now - first_ms) // OFFER_KEPT_MS
    assert arriving.stored_state() == arriving.before
    assert (arriving.member.machines[0].commands, group.applied, group.raw.raft.lead) == (
        commands, applied, arriving.leader_id
    )
    told = [text for text in arriving.member.told if "snapshot" in text]
    index = arriving.sent[0][1].metadata.index
    assert len(told) == len(arriving.sent)
    assert told[0].startswith(f"group 0: a snapshot of index {index} from node {arriving.leader_id} can't be read: ")
    arriving.damaged = False
    arriving.leader.host.snapshot_sent(arriving.away, 0, True)
    arriving.cluster.run_until(arriving.same, 1000)
    assert arriving.sent[-1][1].metadata.index > index, "nobody offers the one that was refused any more"


def test_another_leader_is_not_made_to_wait_for_a_snapshot_that_could_not_be_read() -> None:
    arriving = Arriving()
    arriving.arrives()
    arriving.damaged = False
    old = arriving.leader_id
    arriving.cluster.kill(old)
    began_ms = arriving.cluster.now
    arriving.cluster.run_until(lambda: arriving.cluster.leader() not in (0, old))
    arriving.leader_id = arriving.cluster.leader()
    arriving.cluster.run_until(arriving.same)
    assert arriving.cluster.now - began_ms < SNAPSHOT_REFUSED_FOR_MS // 4


def test_a_large_snapshot_is_read_once_in_steps_while_its_node_answers() -> None:
    """Nothing of it is stored before all is read; entries behind it don't make the leader send it once more."""
    steps = 60
    arriving = Arriving()
    arriving.damaged = False
    machine, store = arriving.member.machines[0], arriving.cluster.stores[arriving.away]
    machine.snapshot_takes = steps
    arriving.arrives()
    for _ in range(steps - 2):
        _submit(arriving.cluster, 1, b"x")
        assert (arriving.stored_state(), machine.snapshots_read) == (arriving.before, 0)
        assert arriving.cluster.leader() == arriving.leader_id
        assert arriving.leader.host.liveness.heard_within(arriving.away, arriving.cluster.now, 4 * TICK_MS)
    arriving.cluster.run_until(arriving.same)
    assert (machine.snapshots_read, len(arriving.sent)) == (1, 1)
    assert store.load()[0].snapshot is not None


def test_a_snapshot_is_read_to_its_end_though_newer_ones_arrive_faster() -> None:
    """A follower of a leader that compacts meanwhile would never be done with any otherwise."""
    steps = 40
    arriving = Arriving()
    arriving.damaged = False
    machine = arriving.member.machines[0]
    machine.snapshot_takes = steps
    arriving.arrives(reported=False)
    first = arriving.cluster.now
    while machine.snapshots_read == 0:
        arriving.group.upkeep.set_offer_aside()
        _submit(arriving.cluster, 1, b"x")
        arriving.arrives(reported=False)
        assert arriving.cluster.now - first < 2 * steps * TICK_MS
    assert len(arriving.sent) > 3, "several arrived meanwhile"
    assert arriving.member.host.groups[0].applied >= arriving.sent[0][1].metadata.index
    arriving.leader.host.snapshot_sent(arriving.away, 0, True)
    arriving.cluster.run_until(arriving.same)
    assert machine.snapshots_read <= 2


def test_of_those_that_arrive_meanwhile_the_newest_is_read_next() -> None:
    """Unless an earlier one, or entries, have brought the replica as far; one of a later term is read at once."""
    recorder = Recorder(1)
    applying = Applying(told_by_replica(0, Cluster(1).nodes[1]), recorder, None)
    intake = SnapshotIntake(0, applying, SNAPSHOT_REFUSED_FOR_MS)
    making = applying.state_steps()
    state = making.step()
    assert state is not None

    def arrives(index: int, term: int) -> RaftMessage:
        snapshot = Snapshot(SnapshotMetadata(index, term, ConfState([1, 2], [])), state)
        message = RaftMessage(MessageType.SNAP, 1, 2, term, snapshot=snapshot)
        intake.begin(message, snapshot, 0)
        return message

    recorder.snapshot_takes = 2
    first = arrives(10, 3)
    assert intake.step(3, 0, 0) is None
    arrives(20, 3)
    newest = arrives(30, 3)
    arrives(25, 3)
    arrives(40, 2)
    assert intake.step(3, 0, 0) is first
    assert [intake.step(3, 10, 0) for _ in range(2)] == [None, newest]
    assert (intake.step(3, 10, 0), intake.reading_from) == (None, 0)
    arrives(50, 3)
    of_another = arrives(45, 4)
    assert [intake.step(4, 30, 0) for _ in range(2)] == [None, of_another]
    committed, of_the_past = arrives(60, 4), arrives(70, 4)
    assert [intake.step(4, 60, 0), intake.step(5, 60, 0)] == [committed, of_the_past]


def test_a_snapshot_that_raft_refuses_after_it_was_read_is_told_and_no_more() -> None:
    """A large one is stepped in a tick, not when it came: the replica lives on then, too."""
    arriving = Arriving()
    arriving.damaged = False
    machine = arriving.member.machines[0]
    machine.snapshot_takes = 10
    arriving.arrives()
    intake = arriving.member.host.groups[0].intake
    arriving.cluster.run_until(lambda: intake.reading_from)
    message = intake._message
    assert message is not None
    message.to = 99
    arriving.cluster.run_until(lambda: any("can't be used" in text for text in arriving.member.told))
    assert arriving.stored_state() == arriving.before
    arriving.leader.host.snapshot_sent(arriving.away, 0, False)
    arriving.cluster.run_until(arriving.same, 1000)


def test_a_snapshot_that_raft_holds_until_older_entries_are_applied_is_not_forgotten() -> None:
    """It comes while the disk takes a write together with which entries are applied."""
    arriving = Arriving()
    arriving.damaged = False
    group = arriving.member.host.groups[0]
    raft, log = group.raw.raft, group.raw.raft.raft_log
    log.applying = log.applied + 1
    arriving.arrives()
    arriving.cluster.run_until(lambda: raft.held_snapshot is not None)
    assert group.intake.has_read
    log.applying = log.applied
    snapshot_applied(raft, Snapshot(SnapshotMetadata(log.applied, 0, group.conf_state), b""))
    arriving.cluster.run_until(arriving.same, 1000)
    assert not group.intake.has_read


def test_a_damaged_replica_is_not_rebuilt_from_a_snapshot_that_cannot_be_read() -> None:
    """It stays silent, asks that node no more for a while, and comes back with the next one."""
    arriving = Arriving()
    group = arriving.member.host.groups[0]
    group.rebuild = Rebuild("damaged", 1, 1)
    arriving.arrives()
    asked = len(arriving.sent)
    for _ in range(100):
        arriving.cluster.step()
        arriving.leader.host.snapshot_sent(arriving.away, 0, True)
    assert (group.rebuild is None, len(arriving.sent) - asked) == (False, 0)
    arriving.damaged = False
    arriving.cluster.run_until(lambda: group.rebuild is None, 1000)
    arriving.cluster.run_until(arriving.same)
