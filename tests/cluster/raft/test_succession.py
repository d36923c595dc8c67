"""Elections that come sooner than a timeout, and what else `RawNode` lets its caller say and ask."""

import pytest

from mayfly.cluster.raft import MessageType, RaftMessage, Snapshot, SnapshotMetadata, succession
from tests.cluster.raft.subject import Subject

TIMEOUT_TICKS = 19
"""Of `Subject`: 10, and the most that chance adds."""


def ticks_until_it_stands(subject: Subject) -> int:
    for tick in range(1, 100):
        subject.now.clear()
        subject.node.tick()
        subject.work()
        if any(message.type == MessageType.VOTE for message in subject.now):
            return tick
    raise AssertionError("it never stands for election")


@pytest.mark.parametrize(
    ("lost", "first", "order"), [(2, 0, [1, 3]), (2, 1, [3, 1]), (2, 2, [1, 3]), (0, 1, [2, 3, 1])]
)
def test_the_voters_left_stand_in_turns_that_differ_from_group_to_group(
    lost: int, first: int, order: list[int]
) -> None:
    assert succession([3, 1, 2], lost, first) == order


def test_without_a_word_it_stands_after_a_whole_timeout() -> None:
    assert ticks_until_it_stands(Subject()) == TIMEOUT_TICKS


@pytest.mark.parametrize(("first", "ticks"), [(0, 1), (1, 5)])
def test_a_hastened_election_waits_for_its_turn(first: int, ticks: int) -> None:
    subject = Subject()
    subject.node.hasten_election(2, first)
    assert subject.node.is_election_due == (ticks == 1)
    assert ticks_until_it_stands(subject) == ticks


def test_who_is_no_voter_is_not_hastened() -> None:
    subject = Subject()
    subject.node.hasten_election(1, 0)
    assert ticks_until_it_stands(subject) == TIMEOUT_TICKS


def test_a_preferred_leader_stands_within_so_many_ticks() -> None:
    subject = Subject()
    subject.node.campaign_within(4)
    assert ticks_until_it_stands(subject) == 4


@pytest.mark.parametrize(
    ("followed", "log_term", "ticks"),
    [(False, 1, 1), (False, 2, TIMEOUT_TICKS), (True, 1, TIMEOUT_TICKS)],
    ids=["its log is shorter", "its log is as long", "a leader is followed"],
)
def test_whose_log_is_longer_challenges_who_asks_for_votes(followed: bool, log_term: int, ticks: int) -> None:
    subject = Subject([1, 2])
    if followed:
        subject.hears(MessageType.HEARTBEAT, 2, 2)
    request = RaftMessage(MessageType.PRE_VOTE, 1, 3, 3, log_term, 2)
    subject.node.challenge(request, lost=2, first=0)
    assert ticks_until_it_stands(subject) == ticks


def test_who_resigns_asks_the_most_advanced_that_is_neither_late_nor_stops() -> None:
    def asked(late: tuple[int, ...] = (), draining: tuple[int, ...] = ()) -> int:
        subject = Subject(size=4)
        subject.elect()
        subject.node.propose(b"x")
        subject.work()
        for node, index in ((2, 1), (3, 2), (4, 2)):
            subject.hears(MessageType.APP_RESP, node, subject.node.term, index=index)
        message = subject.node.resign(late, draining)
        assert not subject.node.leads
        assert message is None or message.type == MessageType.TIMEOUT_NOW
        return 0 if message is None else message.to

    assert asked() == 3
    assert asked(late=(3,)) == 4
    assert asked(late=(3, 4)) == 2
    assert asked(draining=(3, 4)) == 2
    assert asked(late=(2,), draining=(3, 4)) == 3
    assert asked(late=(2, 3, 4)) == 0


def test_only_heartbeats_with_reads_are_messages_where_the_caller_sends_them() -> None:
    def heartbeats(subject: Subject) -> int:
        subject.now.clear()
        for elapsed in range(3):
            subject.node.pace_heartbeats(elapsed)
            subject.node.tick()
            subject.work()
        return sum(message.type == MessageType.HEARTBEAT for message in subject.now)

    subject = Subject()
    subject.elect()
    subject.hears(MessageType.APP_RESP, 2, subject.node.term, index=1)
    assert heartbeats(subject) == 0
    assert [node for node, _ in subject.node.heartbeats()] == [2, 3]
    subject.node.read_index(b"read")
    subject.work()
    assert heartbeats(subject) > 0
    assert subject.node.heartbeats() == []


@pytest.mark.parametrize(
    ("term", "index", "index_term", "would"), [(2, 3, 2, True), (1, 3, 2, False), (2, 1, 1, False), (2, 2, 2, False)]
)
def test_which_snapshots_would_take_the_place_of_the_log(term: int, index: int, index_term: int, would: bool) -> None:
    subject = Subject([1, 2], commit=1)
    assert subject.node.would_restore(term, Snapshot(SnapshotMetadata(index, index_term), b"")) == would


def test_what_a_leader_is_asked() -> None:
    subject = Subject()
    subject.elect()
    node = subject.node
    assert (node.leads, node.lead, node.term, node.last_index, node.term_at(1), node.committed) == (True, 1, 1, 1, 1, 0)
    subject.hears(MessageType.APP_RESP, 2, 1, index=1)
    assert [node.matched(id) for id in (1, 2, 3, 4)] == [1, 1, 0, 0]
    assert (node.slowest_match(), node.committed, node.has_pending_conf_change) == (0, 1, False)
    assert [node.is_replicating(id) for id in (2, 3, 4)] == [True, False, False]
    assert [node.is_member(id) for id in (1, 3, 4)] == [True, True, False]
    assert (node.lead_transferee, node.decides_alone) == (0, False)
    node.transfer_leader(2)
    assert node.lead_transferee == 2
    assert Subject(size=1).node.decides_alone
