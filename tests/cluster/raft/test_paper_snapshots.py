"""The rules of the Raft paper on snapshots: section 7, and figure 13 for the receiver of InstallSnapshot.

Rules 2 to 5 of figure 13 are about the pieces of a snapshot. Those are the transport's: Raft's core is handed a whole
one (tests/cluster/transport).
"""

import pytest

from mayfly.cluster.raft import ConfState, Entry, MessageType, RaftMessage, Snapshot, SnapshotMetadata, StateType
from tests.cluster.raft.subject import Subject, entries_of

MEMBERS = ConfState([1, 2, 3])


def snapshot(index: int, term: int, members: ConfState = MEMBERS) -> Snapshot:
    return Snapshot(SnapshotMetadata(index, term, members), b"state at %d" % index)


def test_section_7_install_snapshot_1_a_past_term_is_refused() -> None:
    subject = Subject([1], term=5)
    assert subject.hears(MessageType.SNAP, 2, 4, snapshot=snapshot(9, 3)) == []
    assert subject.terms() == [1]
    assert subject.installed == []


def test_section_7_install_snapshot_6_entries_that_follow_what_it_covers_are_kept() -> None:
    subject = Subject([1, 1, 1, 1])
    answer = subject.hears(MessageType.SNAP, 2, 2, snapshot=snapshot(2, 1))
    assert subject.terms() == [1, 1, 1, 1]
    assert subject.installed == []
    assert (subject.node.raft.raft_log.committed, answer[0].index) == (2, 2)


@pytest.mark.parametrize("terms", [[], [1], [1, 1], [1, 1, 1, 1, 1, 1]])
def test_section_7_install_snapshot_7_a_log_that_does_not_have_it_is_discarded(terms: list[int]) -> None:
    subject = Subject(terms)
    answer = subject.hears(MessageType.SNAP, 2, 3, snapshot=snapshot(4, 2))
    log = subject.node.raft.raft_log
    assert (log.first_index(), log.last_index(), log.term(4)) == (5, 4, 2)
    assert (answer[0].type, answer[0].index, answer[0].reject) == (MessageType.APP_RESP, 4, False)


def test_section_7_install_snapshot_8_the_state_is_replaced_and_the_configuration_loaded() -> None:
    subject = Subject([1])
    members = ConfState([1, 4, 5], [6])
    subject.hears(MessageType.SNAP, 2, 3, snapshot=snapshot(4, 2, members))
    assert [installed.data for installed in subject.installed] == [b"state at 4"]
    assert subject.node.raft.tracker.configuration.conf_state() == members
    subject.hears(MessageType.APP, 2, 3, index=4, log_term=2, entries=entries_of([3], 5), commit=5)
    assert [entry.index for entry in subject.applied] == [5], "nothing it covers is applied again"


def test_section_7_a_snapshot_is_on_disk_before_it_is_acknowledged() -> None:
    subject = Subject([1])
    subject.node.step(RaftMessage(MessageType.SNAP, 1, 2, 3, snapshot=snapshot(4, 2)))
    ready = subject.node.ready()
    assert ready.snapshot is not None
    assert ready.messages_now == []
    assert [message.index for message in ready.messages_after_append] == [4]


def test_section_7_a_snapshot_of_what_is_committed_here_is_answered_and_not_taken() -> None:
    subject = Subject([1, 1, 1], commit=3)
    subject.storage.create_snapshot(3, MEMBERS, b"state at 3")
    subject.storage.compact(3)
    subject.start()
    answer = subject.hears(MessageType.SNAP, 2, 2, snapshot=snapshot(2, 1))
    assert subject.installed == []
    assert [(m.index, m.reject) for m in answer] == [(3, False)]


def test_section_7_a_snapshot_keeps_the_last_index_and_term_for_the_check_of_what_follows() -> None:
    subject = Subject()
    subject.hears(MessageType.SNAP, 2, 3, snapshot=snapshot(4, 2))
    assert subject.hears(MessageType.APP, 2, 3, index=4, log_term=3, entries=entries_of([3], 5))[0].index == 4
    assert subject.node.raft.raft_log.last_index() == 4, "another term before it: nothing is taken"
    assert not subject.hears(MessageType.APP, 2, 3, index=4, log_term=2, entries=entries_of([3], 5))[0].reject
    assert subject.node.raft.raft_log.last_index() == 5


def test_section_7_a_leader_sends_a_snapshot_when_the_next_entry_is_discarded() -> None:
    subject = Subject([1, 1, 1], commit=3)
    subject.storage.create_snapshot(3, MEMBERS, b"state at 3")
    subject.storage.compact(3)
    subject.start()
    subject.elect()
    subject.hears(MessageType.HEARTBEAT_RESP, 2, 2)
    told = subject.hears(MessageType.APP_RESP, 2, 2, index=3, reject=True, reject_hint=1, log_term=1)
    assert [m.type for m in told] == [MessageType.SNAP]
    metadata = told[0].snapshot.metadata if told[0].snapshot is not None else SnapshotMetadata()
    assert (metadata.index, metadata.term, metadata.conf_state) == (3, 1, MEMBERS)
    told = subject.hears(MessageType.APP_RESP, 2, 2, index=3)
    assert [(m.type, m.index, [entry.index for entry in m.entries]) for m in told] == [(MessageType.APP, 3, [4])]


def test_section_7_a_snapshot_puts_the_election_off_and_makes_a_follower() -> None:
    subject = Subject([1])
    subject.node.campaign()
    subject.hears(MessageType.SNAP, 2, subject.node.raft.term, snapshot=snapshot(4, 1))
    raft = subject.node.raft
    assert (raft.state, raft.lead, raft.election_elapsed) == (StateType.FOLLOWER, 2, 0)


def test_section_7_committed_entries_after_it_are_applied_after_it() -> None:
    subject = Subject()
    subject.node.step(RaftMessage(MessageType.SNAP, 1, 2, 3, snapshot=snapshot(4, 2)))
    subject.node.step(RaftMessage(MessageType.APP, 1, 2, 3, 2, 4, 5, entries=[Entry(3, 5)]))
    ready = subject.node.ready()
    assert ready.snapshot is not None
    assert ready.committed_entries == [], "they wait until it is in place"
