"""The rules of the Raft paper on changes of membership: section 6, and chapter 4 of the thesis.

One thing differs from section 6: a server uses a configuration from when its entry is applied, not from when it is in
the log. Two rules make up for it, and have tests here: nobody stands for election with a committed change that it has
not applied, and whoever has the entry of one change knows that the change before it is committed.
"""

import pytest

from mayfly.cluster.raft import (
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    MessageType,
    RaftMessage,
    StateType,
    encode_conf_change,
)
from tests.cluster.raft.subject import Subject, entries_of

JOINT = ConfState([1, 2, 3], [], [1, 4, 5])
"""New voters 1, 2, 3; old ones 1, 4, 5."""


def joint_subject(members: ConfState = JOINT) -> Subject:
    return Subject([1], members=members)


def change_of(*singles: tuple[int, int]) -> ConfChangeV2:
    return ConfChangeV2(ConfChangeTransition.AUTO, [ConfChangeSingle(kind, node) for kind, node in singles])


# Section 6: joint consensus.


def test_section_6_log_entries_go_to_all_servers_of_both_configurations() -> None:
    subject = joint_subject()
    subject.elect()
    assert {m.to for m in subject.now if m.type == MessageType.APP} == {2, 3, 4, 5}


@pytest.mark.parametrize("own_half", [ConfState([1, 2, 3], [], [4, 5, 6]), ConfState([4, 5, 6], [], [1, 2, 3])])
def test_section_6_any_server_of_either_configuration_may_lead(own_half: ConfState) -> None:
    subject = joint_subject(own_half)
    subject.node.campaign()
    subject.work()
    assert {m.to for m in subject.now if m.type == MessageType.VOTE} == {2, 3, 4, 5, 6}
    for voter in (2, 4, 5):
        subject.hears(MessageType.VOTE_RESP, voter, 2)
    assert subject.node.raft.state == StateType.LEADER


@pytest.mark.parametrize(
    ("granted", "state"),
    [
        ([2, 3], StateType.CANDIDATE),
        ([4, 5], StateType.CANDIDATE),
        ([2, 4], StateType.LEADER),
        ([3, 5], StateType.LEADER),
    ],
)
def test_section_6_an_election_needs_separate_majorities_of_both(granted: list[int], state: int) -> None:
    subject = joint_subject()
    subject.node.campaign()
    subject.work()
    for voter in granted:
        subject.hears(MessageType.VOTE_RESP, voter, 2)
    assert subject.node.raft.state == state


@pytest.mark.parametrize(("holders", "committed"), [([2, 3], 0), ([4, 5], 0), ([2, 4], 2), ([3, 5], 2)])
def test_section_6_an_entry_needs_separate_majorities_of_both(holders: list[int], committed: int) -> None:
    subject = joint_subject()
    subject.elect()
    for holder in holders:
        subject.hears(MessageType.APP_RESP, holder, 2, index=2)
    assert subject.node.raft.raft_log.committed == committed


def test_section_6_the_joint_configuration_comes_first_and_is_left_once_committed() -> None:
    subject = Subject([1], size=5)
    subject.elect()
    for node in (2, 3):
        subject.hears(MessageType.APP_RESP, node, 2, index=2)
    tracker = subject.node.raft.tracker
    subject.node.propose_conf_change(change_of((ConfChangeType.REMOVE_NODE, 4), (ConfChangeType.REMOVE_NODE, 5)))
    subject.work()
    assert tracker.configuration.conf_state() == ConfState([1, 2, 3, 4, 5])
    for node in (2, 3):
        subject.hears(MessageType.APP_RESP, node, 2, index=3)
    assert tracker.configuration.conf_state() == ConfState([1, 2, 3], [], [1, 2, 3, 4, 5], [], True)
    assert subject.node.raft.raft_log.last_index() == 4, "the leader has proposed to leave it"
    subject.hears(MessageType.APP_RESP, 2, 2, index=4)
    assert tracker.configuration.is_joint(), "a majority of the new voters, but not of the old ones"
    subject.hears(MessageType.APP_RESP, 4, 2, index=4)
    assert tracker.configuration.conf_state() == ConfState([1, 2, 3])


def test_section_6_a_leader_that_is_not_in_the_new_configuration_steps_down_when_that_is_committed() -> None:
    subject = Subject([1], step_down_on_removal=True)
    subject.elect()
    for node in (2, 3):
        subject.hears(MessageType.APP_RESP, node, 2, index=2)
    subject.node.propose_conf_change(change_of((ConfChangeType.REMOVE_NODE, 1)))
    subject.work()
    assert subject.node.raft.state == StateType.LEADER
    subject.hears(MessageType.APP_RESP, 2, 2, index=3)
    assert subject.node.raft.raft_log.committed == 3
    assert subject.node.raft.state == StateType.FOLLOWER


def test_section_6_who_was_removed_does_not_stand_for_election() -> None:
    subject = Subject([1], members=ConfState([2, 3]))
    for _ in range(100):
        subject.node.tick()
    subject.node.campaign()
    assert subject.node.raft.state == StateType.FOLLOWER


# Section 6: disruptive servers.


@pytest.mark.parametrize("kind", [MessageType.VOTE, MessageType.PRE_VOTE])
def test_section_6_a_request_for_a_vote_is_ignored_while_a_leader_is_heard(kind: int) -> None:
    """Neither the term is taken over nor the vote given within the minimum election timeout."""
    subject = Subject([1], check_quorum=True)
    subject.hears(MessageType.HEARTBEAT, 2, 2)
    for _ in range(9):
        subject.node.tick()
        assert subject.hears(kind, 3, 7, index=9, log_term=1) == []
    assert (subject.node.raft.term, subject.node.raft.vote) == (2, 0)
    subject.node.tick()
    answer = subject.hears(MessageType.VOTE, 3, 7, index=9, log_term=1)
    assert [(m.term, m.reject) for m in answer] == [(7, False)]


def test_section_6_a_leader_ignores_requests_for_votes_while_it_hears_from_a_quorum() -> None:
    subject = Subject([1], check_quorum=True)
    subject.elect()
    for _ in range(40):
        subject.node.tick()
        subject.hears(MessageType.HEARTBEAT_RESP, 2, 2)
        assert subject.hears(MessageType.VOTE, 3, 9, index=9, log_term=1) == []
    assert (subject.node.raft.state, subject.node.raft.term) == (StateType.LEADER, 2)


# Thesis, chapter 4.


def test_thesis_4_1_a_change_counts_from_when_it_is_applied() -> None:
    subject = Subject()
    change = encode_conf_change(change_of((ConfChangeType.ADD_NODE, 4)))
    entry = Entry(1, 1, change.type, change.data)
    subject.hears(MessageType.APP, 2, 1, entries=[entry])
    assert 4 not in subject.node.raft.tracker.progress
    subject.hears(MessageType.HEARTBEAT, 2, 1, commit=1)
    assert 4 in subject.node.raft.tracker.progress


def test_thesis_4_1_nobody_stands_for_election_before_it_has_applied_a_committed_change() -> None:
    subject = Subject()
    change = encode_conf_change(change_of((ConfChangeType.ADD_NODE, 4)))
    subject.node.step(RaftMessage(MessageType.APP, 1, 2, 1, entries=[Entry(1, 1, change.type, change.data)], commit=1))
    assert subject.node.raft.raft_log.has_unapplied_conf_change()
    subject.node.campaign()
    assert subject.node.raft.state == StateType.FOLLOWER
    subject.work()
    subject.node.campaign()
    assert subject.node.raft.state == StateType.CANDIDATE


def test_thesis_4_1_whoever_has_the_next_change_knows_that_the_one_before_is_committed() -> None:
    """So no majority of a configuration two changes back can form: its members that are needed know better."""
    subject = Subject([1])
    subject.elect()
    for node in (2, 3):
        subject.hears(MessageType.APP_RESP, node, 2, index=2)
    subject.node.propose_conf_change(change_of((ConfChangeType.ADD_NODE, 4)))
    subject.work()
    subject.hears(MessageType.APP_RESP, 2, 2, index=3)
    assert 4 in subject.node.raft.tracker.progress
    subject.now = []
    subject.node.propose_conf_change(change_of((ConfChangeType.ADD_NODE, 5)))
    subject.work()
    carriers = [m for m in subject.now if any(entry.index == 4 for entry in m.entries)]
    assert carriers
    assert all(message.commit >= 3 for message in carriers)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_thesis_4_1_one_change_at_a_time(acknowledged: bool) -> None:
    subject = Subject([1])
    subject.elect()
    for node in (2, 3):
        subject.hears(MessageType.APP_RESP, node, 2, index=2)
    subject.node.propose_conf_change(change_of((ConfChangeType.ADD_NODE, 4)))
    subject.work()
    if acknowledged:
        subject.hears(MessageType.APP_RESP, 2, 2, index=3)
    subject.node.propose_conf_change(change_of((ConfChangeType.ADD_NODE, 5)))
    subject.work()
    kinds = [entry.type for entry in subject.node.raft.raft_log.entries_from(3, 1 << 40)]
    assert kinds == [EntryType.CONF_CHANGE_V2, EntryType.CONF_CHANGE_V2 if acknowledged else EntryType.NORMAL]


def test_thesis_4_1_a_new_leader_changes_nothing_before_it_has_applied_what_it_found_in_the_log() -> None:
    """The log of a former leader may hold a change that nobody has heard the end of."""
    subject = Subject([1, 1])
    subject.elect()
    subject.node.propose_conf_change(change_of((ConfChangeType.ADD_NODE, 4)))
    assert subject.node.raft.raft_log.entries_from(4, 1 << 40)[0].type == EntryType.NORMAL
    subject.work()
    subject.hears(MessageType.APP_RESP, 2, 2, index=4)
    subject.node.propose_conf_change(change_of((ConfChangeType.ADD_NODE, 4)))
    assert subject.node.raft.raft_log.entries_from(5, 1 << 40)[0].type == EntryType.CONF_CHANGE_V2


def test_thesis_4_2_1_a_new_server_catches_up_as_a_learner_and_then_votes() -> None:
    subject = Subject([1], members=ConfState([1, 2, 3], [4]))
    subject.elect()
    assert {m.to for m in subject.now if m.type == MessageType.APP} == {2, 3, 4}, "it is sent the log"
    for node in (2, 3, 4):
        subject.hears(MessageType.APP_RESP, node, 2, index=2)
    subject.node.propose_conf_change(change_of((ConfChangeType.ADD_NODE, 4)))
    subject.work()
    subject.hears(MessageType.APP_RESP, 2, 2, index=3)
    assert subject.node.raft.tracker.configuration.conf_state() == ConfState([1, 2, 3, 4])
    subject.node.propose(b"x")
    subject.work()
    subject.hears(MessageType.APP_RESP, 2, 2, index=4)
    assert subject.node.raft.raft_log.committed == 3, "three of four are needed now"
    subject.hears(MessageType.APP_RESP, 4, 2, index=4)
    assert subject.node.raft.raft_log.committed == 4


def test_thesis_4_2_1_a_learner_does_not_stand_for_election() -> None:
    subject = Subject([1], members=ConfState([2, 3], [1]))
    for _ in range(100):
        subject.node.tick()
    subject.node.campaign()
    assert subject.node.raft.state == StateType.FOLLOWER
    assert subject.hears(MessageType.TIMEOUT_NOW, 2, 1) == []
    assert subject.node.raft.state == StateType.FOLLOWER


def test_thesis_4_2_3_a_transfer_is_heard_although_the_leader_is_well() -> None:
    subject = Subject([1], check_quorum=True)
    subject.hears(MessageType.HEARTBEAT, 2, 2)
    answer = subject.hears(MessageType.VOTE, 3, 3, index=1, log_term=1, context=b"transfer")
    assert [(m.type, m.reject) for m in answer] == [(MessageType.VOTE_RESP, False)]


def test_thesis_6_2_a_leader_steps_down_when_no_quorum_answers_for_an_election_timeout() -> None:
    subject = Subject([1], size=5, check_quorum=True)
    subject.elect()
    for _ in range(20):
        subject.node.tick()
        subject.hears(MessageType.HEARTBEAT_RESP, 2, 2)
        subject.hears(MessageType.HEARTBEAT_RESP, 3, 2)
    assert subject.node.raft.state == StateType.LEADER
    for _ in range(20):
        subject.node.tick()
        if subject.node.raft.state == StateType.LEADER:
            subject.hears(MessageType.HEARTBEAT_RESP, 2, 2)
    assert subject.node.raft.state == StateType.FOLLOWER


def test_section_6_entries_of_the_old_leader_are_no_harm_to_the_new_configuration() -> None:
    """A follower takes entries from whoever leads the term, member of what it thinks the group is or not."""
    subject = Subject([1])
    answer = subject.hears(MessageType.APP, 9, 2, index=1, log_term=1, entries=entries_of([2], 2))
    assert [(m.to, m.index, m.reject) for m in answer] == [(9, 2, False)]
