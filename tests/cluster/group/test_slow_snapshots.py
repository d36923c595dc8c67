"""A snapshot that takes long to send, in a group that goes on and compacts its log often, arrives all the same; and who
has it goes on from the log."""

from collections.abc import Iterator

import pytest

from mayfly.cluster.group.followers import FOLLOWS_WITHIN_MS, INSTALLS_WITHIN_MS, NOBODY, Followers
from mayfly.cluster.group.group import Group
from mayfly.cluster.group.log_upkeep import TIMES_TOO_LONG
from mayfly.cluster.group.snapshot_offer import OFFER_KEPT_MS
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import LogError
from mayfly.cluster.log.snapshot_codec import OutgoingSnapshot, ReceivedSnapshot, outgoing
from mayfly.cluster.raft import ConfChange, ConfChangeType, FollowerStatus, MessageType, RaftMessage, Snapshot
from tests.cluster.host.three_hosts import TICK_MS, Cluster

COMPACT_ENTRIES = 20
KEEP = 5
PIECE_BYTES = 100


class _Transfer:
    """A snapshot on its way, as `cluster.transport.snapshot_sender` sends it: a piece after the other is read."""

    def __init__(self, message: RaftMessage, snapshot: Snapshot, came: bytes) -> None:
        """`came`: what the receiver has of it."""
        self.message = message
        self.snapshot = snapshot
        self.source: OutgoingSnapshot = outgoing(0, snapshot)
        self.came = came
        self.pieces: Iterator[bytes] | None = None

    def step(self) -> bool:
        """One piece more; whether that was the last. Raises `LogError`."""
        if self.pieces is None:
            for _ in self.source.prepare():
                pass
            self.pieces = self.source.pieces(len(self.came), PIECE_BYTES)
        self.came += next(self.pieces, b"")
        return len(self.came) == self.source.total_bytes

    def arrived(self) -> RaftMessage:
        message, came, metadata = self.message, self.came, self.snapshot.metadata
        body = ReceivedSnapshot(
            lambda offset, size: came[offset : offset + size], len(came), self.source.digest, metadata.index
        )
        for _ in body.check():
            pass
        snapshot = Snapshot(metadata, body.state, body)
        return RaftMessage(message.type, message.to, message.from_, message.term, snapshot=snapshot)


class SlowLinks:
    """Between the nodes of a cluster: so many steps for each piece of a snapshot, one snapshot at a time to a node."""

    def __init__(self, cluster: Cluster, steps_per_piece: int) -> None:
        self.cluster = cluster
        self.steps_per_piece = steps_per_piece
        self.failed: list[str] = []
        self.sent = 0
        self.pieces = 0
        """How many were sent."""
        self._waiting: dict[tuple[int, int], _Transfer] = {}
        self.bodies: dict[OutgoingSnapshot, None] = {}
        self._kept: dict[bytes, bytes] = {}
        """By digest what receivers have of snapshots whose transfers broke."""
        cluster.loses = self._take

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._waiting

    def _take(self, sender: int, to: int, message: RaftMessage) -> bool:
        if message.type != MessageType.SNAP or message.snapshot is None:
            return False
        under_way = self._waiting.get((sender, to))
        if under_way is None or under_way.snapshot is not message.snapshot:
            body = outgoing(0, message.snapshot)
            self.bodies[body] = None
            self._waiting[sender, to] = _Transfer(message, message.snapshot, self._kept.get(body.digest, b""))
        return True

    def step(self) -> None:
        self.cluster.step()
        if self.cluster.now // TICK_MS % self.steps_per_piece:
            return
        for (sender, to), transfer in list(self._waiting.items()):
            if to not in self.cluster.nodes:
                self._end(sender, to, False)
                continue
            try:
                whole = transfer.step()
                self.pieces += 1
            except LogError as error:
                self.failed.append(str(error))
                self._end(sender, to, False)
                continue
            if whole:
                frame = Frame(self.cluster.now)
                frame.raft.append((0, transfer.arrived()))
                self.sent += 1
                self.cluster.nodes[to].host.receive(sender, frame, self.cluster.now)
                self._end(sender, to, True)

    def breaks(self) -> None:
        """All that is on its way stops."""
        for (sender, to), transfer in list(self._waiting.items()):
            self._kept[transfer.source.digest] = transfer.came
            self._end(sender, to, False)

    def _end(self, sender: int, to: int, ok: bool) -> None:
        del self._waiting[sender, to]
        if sender in self.cluster.nodes:
            self.cluster.nodes[sender].host.snapshot_sent(to, 0, ok)


class Loaded:
    """A cluster under load with slow links; one node was away for long."""

    def __init__(self, steps_per_piece: int = 4, keep: int = KEEP) -> None:
        self.cluster = cluster = Cluster(3, compact_entries=COMPACT_ENTRIES, keep=keep)
        self.links = SlowLinks(cluster, steps_per_piece)
        self.given = 0
        cluster.run_until(lambda: cluster.leader() != 0)
        self.leader = cluster.leader()
        self.away = next(id for id in cluster.ids if id != self.leader)
        cluster.kill(self.away)
        self.run(12 * COMPACT_ENTRIES)
        cluster.start(self.away)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.cluster.nodes[self.leader].host.submit(0, [b"%04x" % self.given], 4, False, None)
            self.given += 1
            self.links.step()

    def group(self) -> Group:
        """The leader's replica."""
        assert self.cluster.leader() == self.leader
        return self.cluster.nodes[self.leader].host.groups[0]

    def behind(self) -> int:
        groups = {id: node.host.groups[0] for id, node in self.cluster.nodes.items()}
        return groups[self.leader].applied - groups[self.away].applied


    def run_until_it_follows(self, most: int = 2000) -> None:
        """Go on giving commands until the node that was away has them."""
        for _ in range(most):
            self.run(1)
            if self.behind() < KEEP:
                return
        raise AssertionError(f"{self.behind()} of {self.given} behind, {self.links.sent} sent, {self.links.failed}")


@pytest.mark.parametrize("steps_per_piece", [2, 8, 16])
def test_a_slow_snapshot_arrives_once_under_load_and_its_member_follows(steps_per_piece: int) -> None:
    """However many compactions the log would be worth meanwhile."""
    loaded = Loaded(steps_per_piece)
    loaded.run_until_it_follows()
    assert (loaded.links.sent, loaded.links.failed) == (1, [])
    # The log is as short as ever after it.
    loaded.run(3 * TIMES_TOO_LONG * COMPACT_ENTRIES)
    group = loaded.group()
    assert group.applied - group.log.snapshot_index() <= (TIMES_TOO_LONG + 2) * COMPACT_ENTRIES
    assert (loaded.links.sent, loaded.links.failed) == (1, [])


def test_who_takes_long_to_read_its_snapshot_goes_on_from_the_log() -> None:
    """Longer than the snapshot is kept on offer."""
    loaded = Loaded()
    loaded.cluster.nodes[loaded.away].machines[0].snapshot_takes = OFFER_KEPT_MS // TICK_MS + 100
    loaded.run_until_it_follows()
    assert (loaded.links.sent, loaded.links.failed) == (1, [])


def test_a_snapshot_that_takes_long_to_make_is_not_made_again_before_it_goes() -> None:
    loaded = Loaded(2)
    machine = loaded.cluster.nodes[loaded.leader].machines[0]
    machine.snapshot_takes = 3 * TIMES_TOO_LONG * COMPACT_ENTRIES
    while not loaded.group().upkeep.offers:
        loaded.run(1)
    begun = loaded.group().upkeep.offered
    # A compaction would be quicker.
    machine.snapshot_takes = 1
    while loaded.links.idle:
        loaded.run(1)
    assert loaded.group().upkeep.offered is begun
    loaded.run_until_it_follows()
    assert (loaded.links.sent, loaded.links.failed) == (1, [])


def test_who_comes_meanwhile_gets_another_one_and_both_arrive() -> None:
    loaded = Loaded(8, keep=4 * COMPACT_ENTRIES)
    loaded.run(100)
    assert loaded.links.sent == 0 and loaded.group().upkeep.offers
    new = loaded.cluster.ids[-1] + 1
    loaded.group().raw.propose_conf_change(ConfChange(ConfChangeType.ADD_LEARNER_NODE, new))
    loaded.cluster.add(new, [*loaded.cluster.ids, new])
    loaded.run_until_it_follows()
    machines = {id: node.machines[0] for id, node in loaded.cluster.nodes.items()}
    for _ in range(1000):
        loaded.run(1)
        if len(machines[loaded.leader].commands) - len(machines[new].commands) < KEEP:
            break
    assert (loaded.links.sent, loaded.links.failed) == (2, [])
    assert len(machines[loaded.leader].commands) - len(machines[new].commands) < KEEP


def test_a_slow_snapshot_that_breaks_again_and_again_goes_on_where_it_stopped() -> None:
    loaded = Loaded(8)
    for _ in range(8):
        loaded.run(40)
        loaded.links.breaks()
    loaded.run_until_it_follows()
    assert (loaded.links.sent, loaded.links.failed) == (1, [])
    body = next(iter(loaded.links.bodies))
    assert len(loaded.links.bodies) == 1 and loaded.links.pieces <= body.total_bytes // PIECE_BYTES + 8 + 1


def test_a_stream_that_opens_again_does_not_begin_a_slow_snapshot_anew() -> None:
    """The snapshot is on another one."""
    loaded = Loaded(8)
    for _ in range(8):
        loaded.run(40)
        loaded.cluster.nodes[loaded.leader].host.peer_up(loaded.away, loaded.cluster.now)
    loaded.run_until_it_follows()
    assert (loaded.links.sent, loaded.links.failed) == (1, [])


def test_the_log_is_not_kept_for_a_member_that_is_gone() -> None:
    loaded = Loaded(8)
    loaded.run(TIMES_TOO_LONG * COMPACT_ENTRIES)
    before = loaded.group().log.snapshot_index()
    loaded.cluster.kill(loaded.away)
    loaded.run(OFFER_KEPT_MS // TICK_MS - 20)
    assert loaded.group().log.snapshot_index() == before
    loaded.run(60)
    assert loaded.group().log.snapshot_index() > before and not loaded.group().upkeep.offers


def test_who_is_a_little_behind_is_let_through_before_the_log_is_compacted() -> None:
    """A snapshot would be all that helps it else."""
    cluster = Cluster(3, compact_entries=COMPACT_ENTRIES, keep=KEEP)
    cluster.run_until(lambda: cluster.leader() != 0)
    leader = cluster.leader()
    late = next(id for id in cluster.ids if id != leader)
    sent: list[RaftMessage] = []
    number = 0

    def loses(sender: int, to: int, message: RaftMessage) -> bool:
        if message.type == MessageType.SNAP:
            sent.append(message)
        # Of seven entries it is sent six again when the seventh has come, so it hardly ever has all.
        return to == late and message.type == MessageType.APP and number % 7 != 0

    cluster.loses = loses
    group = cluster.nodes[leader].host.groups[0]
    for number in range(4 * TIMES_TOO_LONG * COMPACT_ENTRIES):
        cluster.nodes[leader].host.submit(0, [b"%04x" % number], 4, False, None)
        cluster.step()
    assert group.log.snapshot_index() > 2 * TIMES_TOO_LONG * COMPACT_ENTRIES and not sent


def test_only_who_gets_on_is_waited_for() -> None:
    followers = Followers()

    def needed(now_ms: int, *members: FollowerStatus, last_index: int = 1000) -> int:
        followers.look(members, last_index, now_ms)
        return followers.needed

    assert needed(0) == NOBODY
    # 2 has everything, whenever there was something.
    assert needed(0, FollowerStatus(2, 1000, 1000, False, True)) == 1000
    late_ms = 10 * FOLLOWS_WITHIN_MS
    assert needed(late_ms, FollowerStatus(2, 1000, 1000, False, True)) == 1000
    # Then it gets no further.
    assert needed(late_ms + FOLLOWS_WITHIN_MS - 1, FollowerStatus(2, 1000, 1100, False, True), last_index=1100) == 1000
    assert needed(late_ms + FOLLOWS_WITHIN_MS, FollowerStatus(2, 1000, 1100, False, True), last_index=1100) == NOBODY
    # One that is probed is away, or has just come.
    assert needed(late_ms, FollowerStatus(2, 999, 999, False, False)) == NOBODY
    # A snapshot is on its way as long as nobody says that it is not.
    way = FollowerStatus(3, 4, 500, True, False)
    assert [needed(now_ms, way) for now_ms in (0, late_ms, 1 << 40)] == [500, 500, 500]
    assert followers.snapshots_under_way == {500}
    followers.has_got(3, 500)
    came = FollowerStatus(3, 4, 500, False, False)
    assert [needed(now_ms, came) for now_ms in (0, INSTALLS_WITHIN_MS - 1)] == [500, 500]
    assert followers.snapshots_under_way == set()
    assert needed(INSTALLS_WITHIN_MS, came) == NOBODY
    followers.has_got(3, 600)
    assert needed(INSTALLS_WITHIN_MS, FollowerStatus(3, 4, 600, False, False)) == 600
    # It refused what came behind it.
    assert needed(INSTALLS_WITHIN_MS, FollowerStatus(3, 4, 4, False, False)) == NOBODY
