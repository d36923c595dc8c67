"""Hosts as a cluster: commands of any node, applied once everywhere, answered by the node's own replica."""

from functools import partial

import pytest

from mayfly.cluster.raft import MessageType
from tests.cluster.host.heartbeat_messages import heartbeats_as_messages
from tests.cluster.host.three_hosts import LOST, NONE, TICK_MS, Cluster


def _words(count: int, tag: bytes = b"w") -> list[bytes]:
    return [tag + b"%03d" % number for number in range(count)]


def _submit(cluster: Cluster, node: int, words: list[bytes], heard: list[object] | None = None) -> None:
    for word in words:
        cluster.nodes[node].host.submit(0, [word], 4, True, None if heard is None else heard.append)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_commands_of_every_node_are_applied_everywhere_and_answered_at_home(size: int) -> None:
    cluster = Cluster(size)
    heard: list[object] = []
    for id in cluster.ids:
        _submit(cluster, id, _words(10, b"%d" % id), heard)
    cluster.run_until(lambda: len(heard) == 10 * size)
    cluster.run_until(lambda: len({tuple(n.machines[0].commands) for n in cluster.nodes.values()}) == 1)
    commands = cluster.nodes[1].machines[0].commands
    assert sorted(commands) == sorted(word for id in cluster.ids for word in _words(10, b"%d" % id))
    for id in cluster.ids:
        assert [word for word in commands if word[:1] == b"%d" % id] == _words(10, b"%d" % id)
        assert cluster.nodes[id].effects == _words(10, b"%d" % id)


def test_preferred_leaders_lead_from_the_start() -> None:
    cluster = Cluster(3, groups=6)
    cluster.run_until(lambda: all(cluster.leader(group) for group in range(6)))
    cluster.run_until(lambda: [cluster.leader(group) for group in range(6)] == [1, 2, 3, 1, 2, 3])


def test_a_killed_leader_is_replaced_and_nothing_is_lost_or_repeated() -> None:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    old = cluster.leader()
    client = next(id for id in cluster.ids if id != old)
    heard: list[object] = []
    _submit(cluster, client, _words(5), heard)
    cluster.nodes[client].host.pump(cluster.now)  # on its way when the leader dies
    cluster.kill(old)
    _submit(cluster, client, _words(5, b"x"), heard)
    killed_at = cluster.now
    cluster.run_until(lambda: cluster.leader() not in (0, old))
    assert cluster.now - killed_at <= 1000
    cluster.run_until(lambda: len(heard) == 10)
    assert cluster.nodes[client].machines[0].commands[-10:] == _words(5) + _words(5, b"x")
    cluster.start(old)
    cluster.run_until(lambda: len({tuple(n.machines[0].commands) for n in cluster.nodes.values()}) == 1)


def test_a_frozen_leader_is_replaced_within_two_seconds() -> None:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    old = cluster.leader()
    cluster.cut = {old}
    cut_at = cluster.now
    cluster.run_until(lambda: cluster.leader() not in (0, old))
    assert cluster.now - cut_at <= 2000


def test_a_node_that_was_away_catches_up_by_snapshot() -> None:
    cluster = Cluster(3, compact_entries=20)
    cluster.run_until(lambda: cluster.leader() != 0)
    away = next(id for id in cluster.ids if id != cluster.leader())
    cluster.kill(away)
    for number in range(200):
        _submit(cluster, cluster.leader(), [b"%04d" % number])
        cluster.step()
    leader = cluster.nodes[cluster.leader()]
    assert leader.host.groups[0].log.first_index() > 100
    cluster.start(away)
    cluster.run_until(lambda: cluster.nodes[away].machines[0].commands == leader.machines[0].commands)
    assert cluster.nodes[away].host.groups[0].log.first_index() > 100


def test_a_partitioned_node_loses_its_session_and_its_commands_go_on_in_a_new_one() -> None:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    lonely = next(id for id in cluster.ids if id != cluster.leader())
    cluster.cut = {lonely}
    heard: list[object] = []
    _submit(cluster, lonely, _words(5), heard)
    leader = cluster.nodes[cluster.leader()]
    cluster.run_until(lambda: any(session[0] == lonely for session in leader.machines[0].closed))
    cluster.cut = set()
    cluster.run_until(lambda: len(heard) == 5)
    assert LOST not in heard
    assert cluster.nodes[lonely].sessions_lost == 1
    assert leader.machines[0].commands == _words(5)


def test_a_node_that_was_away_for_longer_than_the_session_timeout_starts_a_new_session() -> None:
    """The snapshot that it gets says that its session is over; what it had sent is applied once."""
    cluster = Cluster(3, compact_entries=20)
    cluster.run_until(lambda: cluster.leader() != 0)
    lonely = next(id for id in cluster.ids if id != cluster.leader())
    cluster.run_until(lambda: cluster.nodes[lonely].host.groups[0].sender.idle)
    cluster.cut = {lonely}
    for number in range(100):
        _submit(cluster, cluster.leader(), [b"%04d" % number])
        cluster.step()
        if number == 30:
            cluster.nodes[lonely].host.submit(0, [b"mine"], 4, True, None)
    cluster.cut = set()
    node = cluster.nodes[lonely]
    cluster.run_until(lambda: b"mine" in node.machines[0].commands)
    cluster.run_until(lambda: node.sessions_lost >= 1)
    commands = node.machines[0].commands
    assert commands.count(b"mine") == 1 and len(set(commands)) == len(commands)


class Deaf:
    """Three nodes, one of which is heard and hears nothing: what it says is applied, and it will be told of it by a
    snapshot alone. Its session is open meanwhile."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(3, compact_entries=10)
        cluster.run_until(lambda: cluster.leader() != 0)
        self.id, self.other = (id for id in cluster.ids if id != cluster.leader())
        self.node = cluster.nodes[self.id]
        self.leader = cluster.nodes[cluster.leader()]
        self.session = self.node.host.sessions[0]
        cluster.run_until(lambda: self.session.sender.idle)
        self.given: list[bytes] = []
        self.heard: list[tuple[bytes, object]] = []

    def give(self, *words: bytes) -> None:
        for word in words:
            self.given.append(word)
            self.node.host.submit(0, [word], 4, True, partial(self._note, word))
        self.cluster.step()

    def _note(self, word: bytes, answer: object) -> None:
        self.heard.append((word, answer))

    def is_deaf(self) -> None:
        self.cluster.loses = lambda sender, to, message: to == self.id

    def misses_entries(self) -> None:
        for number in range(70):
            for node in (self.leader.id, self.other):
                _submit(self.cluster, node, [b"%02d%02d" % (number, node)])
                self.cluster.step()
        assert self.leader.host.groups[0].log.first_index() > 40, "nothing was compacted"
        assert not self.leader.machines[0].closed, "its session was to be open still"

    def hears_again(self) -> None:
        self.cluster.loses = lambda sender, to, message: False
        self.cluster.run_until(lambda: len(self.heard) == len(self.given))

    def answer(self, word: bytes) -> int:
        return self.leader.machines[0].commands.index(word)


def test_a_session_goes_on_though_a_snapshot_took_the_place_of_its_replica() -> None:
    """What it missed is read out of the state: it is told each answer and each effect once, and in order."""
    deaf = Deaf()
    deaf.give(b"told")
    deaf.cluster.run_until(lambda: len(deaf.heard) == 1)
    incarnation = deaf.session.sender.incarnation
    deaf.is_deaf()
    deaf.give(b"one ", b"two ")
    deaf.give(b"last")
    deaf.misses_entries()
    assert len(deaf.heard) == 1 and deaf.answer(b"last")
    deaf.hears_again()
    deaf.give(b"more")
    deaf.cluster.run_until(lambda: len(deaf.heard) == 5)
    assert deaf.heard == [(word, deaf.answer(word)) for word in deaf.given]
    assert deaf.node.effects == deaf.given
    assert (deaf.node.sessions_lost, deaf.session.sender.incarnation) == (0, incarnation)
    assert not deaf.leader.machines[0].closed
    assert deaf.leader.machines[0].commands.count(b"one ") == 1


def test_what_the_state_does_not_say_is_lost_and_may_be_given_again() -> None:
    deaf = Deaf()
    deaf.node.machines[0].forgotten = {b"lost"}
    deaf.is_deaf()
    deaf.give(b"one ", b"lost", b"two ")
    deaf.misses_entries()
    deaf.hears_again()
    assert deaf.heard == [(b"one ", deaf.answer(b"one ")), (b"lost", LOST), (b"two ", deaf.answer(b"two "))]
    deaf.give(b"once")
    deaf.cluster.run_until(lambda: len(deaf.heard) == 4)
    assert deaf.heard[-1] == (b"once", deaf.answer(b"once"))
    assert deaf.node.sessions_lost == 0


@pytest.mark.parametrize("cut", [False, True])
def test_what_a_snapshot_tells_is_taken_for_done_unless_its_batch_was_cut_short(cut: bool) -> None:
    """Commands without an answer, as publishes to queues that refuse nothing: that they were applied is their answer.
    Of a batch that ended with what is no command nobody can say that, and what is given behind it comes in a new
    session, once."""
    cluster = Cluster(3, compact_entries=10)
    cluster.run_until(lambda: cluster.leader() != 0)
    lonely, other = (id for id in cluster.ids if id != cluster.leader())
    leader, host = cluster.nodes[cluster.leader()], cluster.nodes[lonely].host
    sender = host.groups[0].sender
    cluster.run_until(lambda: sender.idle)
    heard: list[tuple[bytes, object]] = []

    def note(word: bytes, answer: object) -> None:
        heard.append((word, answer))

    def give(*words: bytes) -> None:
        for word in words:
            host.submit(0, [word], 4, False, partial(note, word))
        for _ in range(3):
            cluster.step()

    # It is heard, and hears nothing, until a snapshot has told it.
    cluster.loses = lambda sender, to, message: to == lonely
    give(b"done")
    give(b"firs", NONE if cut else b"fine", b"last")
    give(b"late")
    for number in range(70):
        for node in (cluster.leader(), other):
            _submit(cluster, node, [b"%02d%02d" % (number, node)])
            cluster.step()
    recorder = leader.machines[0]
    assert b"firs" in recorder.commands and (b"last" in recorder.commands) is not cut and not heard
    assert leader.host.groups[0].log.first_index() > 40, "nothing was compacted"
    cluster.loses = lambda sender, to, message: False
    cluster.run_until(lambda: len(heard) == 5)
    answers = dict(heard)
    assert answers[b"done"] is None and answers[b"late"] is None
    assert [answers[word] is LOST for word in (b"firs", NONE if cut else b"fine", b"last")] == [cut] * 3
    assert recorder.commands.count(b"late") == recorder.commands.count(b"firs") == 1
    give(b"more")
    cluster.run_until(lambda: dict(heard).get(b"more", LOST) is None)


def test_a_node_that_waits_for_the_end_of_its_session_is_idle_meanwhile() -> None:
    """What it has to send waits for a new session; until the old one is closed there is nothing to do for it."""
    deaf = Deaf()
    host = deaf.node.host
    deaf.give(b"once")
    deaf.cluster.run_until(lambda: deaf.session.sender.idle)
    deaf.is_deaf()
    deaf.session.is_broken = True
    host.submit(0, [b"wait"], 4, True, None)
    deaf.cluster.step()
    for _ in range(10):
        host.pump(deaf.cluster.now)
        if not host.busy:
            break
    assert deaf.session.is_broken and not deaf.session.sender.idle
    assert not host.busy
    deaf.cluster.loses = lambda sender, to, message: False
    deaf.cluster.run_until(lambda: deaf.node.sessions_lost == 1)
    deaf.cluster.run_until(lambda: b"wait" in deaf.leader.machines[0].commands)


def test_what_is_given_while_a_leader_hands_over_waits_for_that_alone() -> None:
    """The transfer comes to nothing, and its end is enough for what was given meanwhile to go on."""
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    leader = cluster.leader()
    host = cluster.nodes[leader].host
    cluster.run_until(lambda: host.groups[0].sender.idle)
    heard: list[object] = []
    cluster.frozen = {next(id for id in cluster.ids if id != leader)}
    host.groups[0].raw.transfer_leader(next(iter(cluster.frozen)))
    _submit(cluster, leader, _words(3), heard)
    cluster.step()
    assert host.groups[0].hands_over and not heard and not host.busy
    given_ms = cluster.now
    cluster.run_until(lambda: heard)
    assert cluster.leader() == leader
    assert cluster.now - given_ms < host.settings.group.repeat_after_ms


def test_nothing_that_waits_for_the_disk_leaves_before_it_is_written() -> None:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    heard: list[object] = []
    followers = {id for id in cluster.ids if id != cluster.leader()}
    cluster.stuck = set(followers)
    _submit(cluster, cluster.leader(), _words(3), heard)
    for _ in range(5):
        cluster.step()
    assert heard == []


def test_the_log_is_applied_in_its_order_after_a_restart() -> None:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    other = next(id for id in cluster.ids if id != cluster.leader())
    for word in _words(20):
        _submit(cluster, cluster.leader(), [word])
        cluster.step()
    cluster.run_until(lambda: cluster.nodes[other].machines[0].commands == _words(20))
    cluster.kill(other)
    cluster.start(other)
    cluster.run_until(lambda: len(cluster.nodes[other].machines[0].commands) == 20)
    assert cluster.nodes[other].machines[0].commands == _words(20)


def test_clock_stamps_never_go_back_over_a_leader_change() -> None:
    """RULES C1, C2."""
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    for round in range(3):
        _submit(cluster, cluster.leader(), _words(3, b"%d" % round))
        for _ in range(5):
            cluster.step()
        old = cluster.leader()
        cluster.kill(old)
        cluster.run_until(cluster.leader)
        cluster.start(old)
        for _ in range(20):
            cluster.step()
    stamps = {tuple(node.machines[0].stamps[-4:]) for node in cluster.nodes.values()}
    for node in cluster.nodes.values():
        assert node.machines[0].stamps == sorted(node.machines[0].stamps)
    assert len(stamps) == 1


def test_the_heartbeats_of_all_groups_go_in_one_frame() -> None:
    """Whenever their leaders were elected: what a frame costs is not what is in it."""
    cluster = Cluster(3, groups=6)
    cluster.run_until(lambda: all(cluster.leader(group) for group in range(6)))
    cluster.nodes[1].host.groups[0].raw.transfer_leader(2)
    for _ in range(60):
        cluster.step()
    beats: list[int] = []
    for _ in range(6):  # shorter than an election timeout: nobody answers
        cluster.now += TICK_MS
        for node in cluster.nodes.values():
            node.host.tick(cluster.now)
        frames = cluster.nodes[1].host.pump(cluster.now).frames
        notices = frames[2].notices if 2 in frames else []
        heartbeats = [message for notice in notices for _, message in heartbeats_as_messages(notice, 1, 2)]
        beats.append(sum(message.type == MessageType.HEARTBEAT for message in heartbeats))
        assert all(bool(frame.group_clocks) == bool(beats[-1]) for frame in frames.values())
    led = sum(group.leads for group in cluster.nodes[1].host.groups.values())
    assert led and beats in ([0, led] * 3, [led, 0] * 3)
