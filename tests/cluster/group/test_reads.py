"""Reads that must be current: whoever is told so has applied all that was committed before it asked."""

import random
from collections.abc import Callable

import pytest

from mayfly.cluster.group.reads import Reads
from mayfly.cluster.raft import Entry, MessageType, RaftMessage
from tests.cluster.host.changing import Changing
from tests.cluster.host.three_hosts import LOST, Cluster

READ_INDEX = MessageType.READ_INDEX
READ_INDEX_RESP = MessageType.READ_INDEX_RESP


class Reading:
    """One read of one node: what the replica held when it was said to be current."""

    def __init__(self, cluster: Cluster, node: int, group: int = 0) -> None:
        self.answer: object = "none yet"
        self.saw: list[bytes] = []
        self._machine = cluster.nodes[node].machines[group]
        cluster.nodes[node].host.read_index(group, self._done)

    def _done(self, answer: object) -> None:
        assert self.answer == "none yet", "answered twice"
        self.answer = answer
        self.saw = list(self._machine.commands)

    @property
    def done(self) -> bool:
        return self.answer is None


def led(size: int = 3, settle_steps: int = 10) -> Cluster:
    """A cluster with a leader, in which nothing is under way."""
    cluster = Cluster(size)
    cluster.run_until(lambda: cluster.leader() != 0)
    for _ in range(settle_steps):
        cluster.step()
    cluster.run_until(lambda: all(node.host.groups[0].sender.idle for node in cluster.nodes.values()))
    return cluster


def write(cluster: Cluster, node: int, word: bytes) -> None:
    """Give a command and see it answered."""
    heard: list[object] = []
    cluster.nodes[node].host.submit(0, [word], 4, True, heard.append)
    cluster.run_until(lambda: heard)


def other_than(cluster: Cluster, *nodes: int) -> int:
    return next(id for id in cluster.ids if id not in nodes)


def counting(cluster: Cluster, kind: int) -> list[RaftMessage]:
    """The messages of a kind that arrive from now on."""
    seen: list[RaftMessage] = []

    def look(sender: int, to: int, message: RaftMessage) -> bool:
        if message.type == kind:
            seen.append(message)
        return False

    cluster.loses = look
    return seen


# ---------------------------------------------------------------------- what it answers, and what it costs


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_node_reads_without_an_entry_and_without_a_write(size: int) -> None:
    """With five nodes two of them are learners."""
    cluster = led(size)
    write(cluster, 1, b"word")
    for _ in range(5):
        cluster.step()
    last = [node.host.groups[0].raw.raft.raft_log.last_index() for node in cluster.nodes.values()]
    for node in cluster.nodes.values():
        node.store.write = _no_write  # type: ignore[method-assign]
    readings = [Reading(cluster, id) for id in cluster.ids]
    cluster.exchange()
    assert [reading.done for reading in readings] == [True] * size
    assert [reading.saw for reading in readings] == [[b"word"]] * size
    assert last == [node.host.groups[0].raw.raft.raft_log.last_index() for node in cluster.nodes.values()]


def _no_write(batch: object) -> None:
    raise AssertionError("a read was written to disk")


def test_a_single_node_answers_at_its_next_pump() -> None:
    cluster = led(1)
    reading = Reading(cluster, 1)
    assert not reading.done
    cluster.nodes[1].host.pump(cluster.now)
    assert reading.done


def test_a_replica_that_is_behind_answers_when_it_has_caught_up() -> None:
    cluster = led()
    behind = other_than(cluster, cluster.leader())
    cluster.loses = lambda sender, to, message: to == behind and message.type == MessageType.APP
    write(cluster, cluster.leader(), b"news")
    reading = Reading(cluster, behind)
    for _ in range(4):
        cluster.step()
        assert not reading.done
    cluster.loses = lambda sender, to, message: False
    cluster.run_until(lambda: reading.done)
    assert reading.saw == [b"news"]


def test_a_node_reads_what_it_wrote_before() -> None:
    """The index alone would not cover them: it may be answered before they are in the log."""
    cluster = led()
    for node in (cluster.leader(), other_than(cluster, cluster.leader())):
        host = cluster.nodes[node].host
        words = [b"%d%03x" % (node, number) for number in range(1500)]  # more than may be under way at once
        for word in words:
            host.submit(0, [word], 4, False, None)
        reading = Reading(cluster, node)
        cluster.run_until(lambda reading=reading: reading.done)  # type: ignore[misc]
        assert [word for word in reading.saw if word[:1] == b"%d" % node] == words


def test_what_was_given_after_the_read_is_not_waited_for() -> None:
    cluster = led()
    leader = cluster.leader()
    reading = Reading(cluster, leader)
    cluster.stuck = set(cluster.ids)
    cluster.exchange()
    cluster.nodes[leader].host.submit(0, [b"late"], 4, False, None)
    cluster.exchange()
    assert reading.done and reading.saw == []


def test_one_request_is_under_way_and_what_comes_meanwhile_shares_the_next() -> None:
    cluster = led()
    node = other_than(cluster, cluster.leader())
    requests = counting(cluster, READ_INDEX)
    first = [Reading(cluster, node) for _ in range(50)]
    cluster.nodes[node].host.pump(cluster.now)  # lost: the test throws the frames away
    write(cluster, cluster.leader(), b"news")
    second = [Reading(cluster, node) for _ in range(50)]
    assert not any(reading.done for reading in first + second)
    cluster.run_until(lambda: all(reading.done for reading in first + second))
    assert all(reading.saw == [b"news"] for reading in second)
    assert len({message.entries[0].data for message in requests}) == 2
    assert len(requests) == 2


def test_an_answer_to_an_earlier_request_says_nothing() -> None:
    reads = Reads(3, 7 << 20)
    heard: list[object] = []
    reads.wait(heard.append, 0)
    first = reads.request(0, 1000)
    assert first is not None
    assert reads.request(999, 1000) is None
    assert reads.request(1000, 1000) == first, "repeated under its own name"
    reads.wait(heard.append, 0)
    reads.answered(Reads(3, 6 << 20).request(0, 0) or b"", 99)  # nobody waits there
    earlier = Reads(3, 6 << 20)
    earlier.wait(heard.append, 0)
    reads.answered(earlier.request(0, 0) or b"", 99)  # the same count before the process was started again
    assert reads.due(99, 0) == []
    reads.answered(first, 5)
    assert reads.due(4, 0) == [] and len(reads.due(5, 0)) == 1
    second = reads.request(1001, 1000)
    assert second is not None and second != first
    reads.answered(first, 9)
    assert reads.due(9, 0) == []
    reads.answered(second, 9)
    assert len(reads.due(9, 0)) == 1 and reads.idle and reads.waiting == 0


# ---------------------------------------------------------------------- what gets lost


@pytest.mark.parametrize("kind", [READ_INDEX, READ_INDEX_RESP])
def test_a_lost_message_is_made_good(kind: int) -> None:
    cluster = led()
    node = other_than(cluster, cluster.leader())
    cluster.loses = lambda sender, to, message: message.type == kind
    reading = Reading(cluster, node)
    cluster.step()
    cluster.loses = lambda sender, to, message: False
    asked_at = cluster.now
    cluster.run_until(lambda: reading.done)
    assert cluster.now - asked_at <= 1100  # repeat_after_ms and a tick


def test_a_stream_that_opens_again_has_the_request_repeated_at_once() -> None:
    cluster = led()
    leader = cluster.leader()
    node = other_than(cluster, leader)
    cluster.cut = {node}
    reading = Reading(cluster, node)
    cluster.exchange()
    cluster.cut = set()
    cluster.nodes[node].host.peer_up(leader, cluster.now)
    cluster.exchange()
    assert reading.done


def test_the_next_leader_is_asked_when_the_leader_dies() -> None:
    cluster = led()
    old = cluster.leader()
    node = other_than(cluster, old)
    reading = Reading(cluster, node)
    cluster.nodes[node].host.pump(cluster.now)
    cluster.kill(old)
    killed_at = cluster.now
    cluster.run_until(lambda: reading.done)
    assert cluster.leader() not in (0, old)
    assert cluster.now - killed_at <= 1000, "asked at once, not when the repetition is due"


def test_without_a_leader_nothing_is_answered() -> None:
    cluster = led()
    for id in cluster.ids[1:]:
        cluster.kill(id)
    reading = Reading(cluster, 1)
    for _ in range(100):
        cluster.step()
    assert reading.answer == "none yet"
    cluster.start(2)
    cluster.run_until(lambda: reading.done)


def test_a_request_for_a_leader_that_is_none_any_more_is_not_passed_on() -> None:
    cluster = led()
    old = cluster.leader()
    asker, next_leader = (id for id in cluster.ids if id != old)
    follower = cluster.nodes[next_leader].host
    request = RaftMessage(READ_INDEX, next_leader, asker, entries=[Entry(data=b"context")])
    follower.groups[0].step(request, cluster.now)
    assert follower.groups[0].raw.raft.messages == []


# ---------------------------------------------------------------------- leaders that may not answer


def test_a_cut_off_leader_answers_nobody_and_later_with_what_it_missed() -> None:
    cluster = led()
    old = cluster.leader()
    cluster.cut = {old}
    reading = Reading(cluster, old)
    cluster.run_until(lambda: cluster.leader() not in (0, old))
    assert not reading.done
    write(cluster, cluster.leader(), b"news")
    assert cluster.nodes[old].host.groups[0].applied < cluster.nodes[cluster.leader()].host.groups[0].applied
    late = Reading(cluster, old)
    for _ in range(20):
        cluster.step()
    assert not reading.done and not late.done
    cluster.cut = set()
    cluster.run_until(lambda: reading.done and late.done)
    assert late.saw == [b"news"]


def test_a_frozen_leader_wakes_up_and_answers_nothing_stale() -> None:
    """It still believes that it leads, and finds requests in its mail."""
    cluster = led()
    old = cluster.leader()
    asker = other_than(cluster, old)
    cluster.frozen = {old}
    early = Reading(cluster, asker)
    cluster.exchange()
    cluster.run_until(lambda: cluster.leader() not in (0, old))
    write(cluster, cluster.leader(), b"news")
    assert cluster.nodes[old].host.groups[0].leads
    own = Reading(cluster, old)
    cluster.nodes[old].host.pump(cluster.now)
    assert not own.done
    late = Reading(cluster, asker)
    cluster.frozen = set()
    cluster.run_until(lambda: own.done and early.done and late.done)
    assert own.saw == late.saw == [b"news"]


def test_a_leader_on_the_small_side_of_a_partition_does_not_answer_its_followers() -> None:
    cluster = led(5, 20)
    old = cluster.leader()
    voters = cluster.nodes[old].host.groups[0].conf_state.voters
    learner = next(id for id in cluster.ids if id not in voters)
    small = {old, learner}
    cluster.loses = lambda sender, to, message: (sender in small) != (to in small)
    reading = Reading(cluster, learner)
    cluster.exchange()
    assert not reading.done
    others = {id: node.host for id, node in cluster.nodes.items() if id not in small}
    cluster.run_until(lambda: any(host.groups[0].established for host in others.values()))
    write(cluster, next(id for id, host in others.items() if host.groups[0].established), b"news")
    late = Reading(cluster, learner)
    for _ in range(10):
        cluster.step()
    assert not reading.done and not late.done
    cluster.loses = lambda sender, to, message: False
    cluster.run_until(lambda: reading.done and late.done)
    assert late.saw == [b"news"]


def test_a_new_leader_does_not_answer_before_an_entry_of_its_term_is_committed() -> None:
    cluster = led()
    old = cluster.leader()
    write(cluster, old, b"news")
    cluster.kill(old)
    cluster.loses = lambda sender, to, message: message.type == MessageType.APP
    cluster.run_until(lambda: any(node.host.groups[0].leads for node in cluster.nodes.values()))
    new = next(id for id, node in cluster.nodes.items() if node.host.groups[0].leads)
    readings = [Reading(cluster, id) for id in cluster.nodes]
    for _ in range(4):
        cluster.step()
        assert cluster.nodes[new].host.groups[0].leads
        assert not any(reading.done for reading in readings)
    cluster.loses = lambda sender, to, message: False
    cluster.run_until(lambda: all(reading.done for reading in readings))
    assert all(reading.saw == [b"news"] for reading in readings)


# ---------------------------------------------------------------------- members that come and go


def test_a_removed_node_is_told_that_its_reads_are_lost() -> None:
    cluster = Changing(3, groups=1)
    cluster.run_until(cluster.settled)
    cluster.become(1, 2, with_learners=(3,))
    cluster.run_until(cluster.settled)
    reading = Reading(cluster, 3)
    cluster.exchange()
    assert reading.done, "a learner reads"
    cluster.cut = {3}
    hanging = Reading(cluster, 3)
    cluster.become(1, 2)
    assert hanging.answer is LOST
    assert Reading(cluster, 3).answer is LOST
    cluster.run_until(cluster.settled)


def test_a_node_that_joins_reads_once_it_has_the_state() -> None:
    cluster = Changing(3, groups=1)
    cluster.run_until(cluster.settled)
    write(cluster, 1, b"news")
    cluster.become(1, 2, 3, with_learners=(4,))
    cluster.add(4, [1, 2, 3, 4])
    reading = Reading(cluster, 4)
    cluster.nodes[4].host.set_members(cluster.members, cluster.plan, cluster.now, everywhere=True)
    assert reading.answer == "none yet"
    cluster.run_until(lambda: reading.done)
    assert reading.saw == [b"news"]


def test_a_replica_that_is_replaced_by_a_snapshot_goes_on_reading() -> None:
    cluster = Cluster(3, compact_entries=20)
    cluster.run_until(lambda: cluster.leader() != 0)
    lonely = next(id for id in cluster.ids if id != cluster.leader())
    cluster.run_until(lambda: cluster.nodes[lonely].host.groups[0].sender.idle)
    cluster.cut = {lonely}
    reading = Reading(cluster, lonely)
    for number in range(140):
        cluster.nodes[cluster.leader()].host.submit(0, [b"%04d" % number], 4, True, None)
        cluster.step()
    assert cluster.nodes[cluster.leader()].host.groups[0].log.first_index() > 50
    cluster.cut = set()
    cluster.run_until(lambda: reading.done)


# ---------------------------------------------------------------------- whatever happens


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_a_read_sees_all_that_was_answered_before(seed: int) -> None:
    """Partitions, freezes, crashes and lost messages at random; leaders that do not know that they were replaced."""
    chance = random.Random(seed)
    cluster = Cluster(chance.choice([3, 5]))
    answered: list[bytes] = []
    readings: list[tuple[Reading, int]] = []
    given = 0

    def lossy(rate: float) -> Callable[[int, int, RaftMessage], bool]:
        return lambda sender, to, message: chance.random() < rate

    for _ in range(250):
        kind = chance.randrange(40)
        if kind == 0:
            cluster.cut = {chance.choice(cluster.ids)}
        elif kind == 1 and cluster.leader():
            cluster.cut = {cluster.leader()}
        elif kind == 2 and cluster.leader():
            cluster.frozen = {cluster.leader()}
        elif kind in (3, 4):
            cluster.cut, cluster.frozen = set(), set()
        elif kind == 5:
            cluster.loses = lossy(0.3)
        elif kind == 6:
            cluster.loses = lossy(0.0)
        elif kind == 7:
            victim = chance.choice(cluster.ids)
            if victim in cluster.nodes and len(cluster.nodes) == len(cluster.ids) and victim not in cluster.frozen:
                cluster.kill(victim)
        elif kind == 8:
            for id in cluster.ids:
                if id not in cluster.nodes:
                    cluster.start(id)
        for _ in range(2):
            node = chance.choice(list(cluster.nodes))
            word = b"%04x" % given
            given += 1
            cluster.nodes[node].host.submit(0, [word], 4, True, _noting(answered, word))
            node = chance.choice(list(cluster.nodes))
            readings.append((Reading(cluster, node), len(answered)))
        cluster.step()
    cluster.cut, cluster.frozen, cluster.loses = set(), set(), lossy(0.0)
    for id in cluster.ids:
        if id not in cluster.nodes:
            cluster.start(id)
    for _ in range(100):
        cluster.step()
    done = [(reading, known) for reading, known in readings if reading.done]
    assert len(done) > 50
    for reading, known in done:
        assert set(answered[:known]) <= set(reading.saw), "a stale read"


def _noting(answered: list[bytes], word: bytes) -> Callable[[object], None]:
    def note(result: object) -> None:
        if result is not LOST:
            answered.append(word)

    return note
