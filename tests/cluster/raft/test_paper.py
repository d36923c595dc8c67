"""The rules of the Raft paper (Ongaro and Ousterhout, extended version): figure 2 and section 5, one test each.

Named after figure 2's boxes and the sections. A single node is driven by hand: what it is sent is what the rule
speaks of, and what it says or stores is what the rule asks for. The other sections are in test_paper_membership,
test_paper_snapshots and test_paper_clients; docs/raft-paper.md lists every rule with its tests.
"""

from typing import Any

import pytest

from mayfly.cluster.raft import (
    NO_LEADER,
    Config,
    ConfState,
    Entry,
    HardState,
    MessageType,
    RaftMessage,
    RawNode,
    Snapshot,
    SnapshotMetadata,
    StateType,
)
from simulation.cluster.memory_storage import MemoryStorage
from tests.cluster.raft.simulated_group import SimulatedGroup
from tests.cluster.raft.subject import Subject, entries_of


def entries_in(kind: int, term: int) -> dict[str, Any]:
    """What an append of a new leader has in it: with nothing before its entries there is one."""
    return {"entries": entries_of([term], 1)} if kind == MessageType.APP else {}


# Figure 2: persistent state.


def test_figure_2_persistent_state_term_and_vote_are_stored_before_the_answer() -> None:
    subject = Subject()
    subject.node.step(RaftMessage(MessageType.VOTE, 1, 2, 3))
    ready = subject.node.ready()
    assert ready.must_sync
    assert ready.hard_state == HardState(3, 2, 0)
    assert ready.messages_now == []
    assert [message.type for message in ready.messages_after_append] == [MessageType.VOTE_RESP]


def test_figure_2_persistent_state_entries_are_stored_before_they_are_acknowledged() -> None:
    subject = Subject()
    subject.node.step(RaftMessage(MessageType.APP, 1, 2, 1, entries=entries_of([1], 1)))
    ready = subject.node.ready()
    assert ready.must_sync
    assert ready.entries == entries_of([1], 1)
    assert ready.messages_now == []
    assert [message.index for message in ready.messages_after_append] == [1]


def test_figure_2_persistent_state_a_vote_survives_a_restart() -> None:
    subject = Subject()
    assert not subject.hears(MessageType.VOTE, 2, 1)[0].reject
    subject.start()
    assert subject.hears(MessageType.VOTE, 3, 1)[0].reject


def test_figure_2_persistent_state_term_and_log_survive_a_restart() -> None:
    subject = Subject()
    subject.hears(MessageType.APP, 2, 4, entries=entries_of([3, 4], 1), commit=1)
    subject.start()
    assert (subject.node.raft.term, subject.terms()) == (4, [3, 4])


def test_figure_2_volatile_state_commit_index_and_last_applied_only_grow() -> None:
    subject = Subject()
    subject.hears(MessageType.APP, 2, 1, entries=entries_of([1, 1, 1], 1), commit=3)
    subject.hears(MessageType.APP, 2, 1, index=3, log_term=1, commit=1)
    subject.hears(MessageType.HEARTBEAT, 2, 1, commit=0)
    log = subject.node.raft.raft_log
    assert (log.committed, log.applied) == (3, 3)


def test_figure_2_state_on_leaders_begins_anew_with_each_election() -> None:
    """nextIndex is the leader's last index + 1, matchIndex 0: what was known in a former term counts for nothing."""
    subject = Subject([1, 1])
    subject.elect()
    subject.hears(MessageType.APP_RESP, 2, 2, index=3)
    assert subject.node.raft.tracker.progress[2].match == 3
    subject.hears(MessageType.HEARTBEAT, 3, 3)
    subject.elect()
    progress = subject.node.raft.tracker.progress
    assert [(progress[node].match, progress[node].next) for node in (2, 3)] == [(0, 4), (0, 4)]


# Figure 2: AppendEntries RPC, receiver.


def test_figure_2_append_entries_1_a_past_term_is_refused() -> None:
    subject = Subject(term=5)
    assert subject.hears(MessageType.APP, 2, 4, entries=entries_of([4], 1)) == []
    assert subject.terms() == []


@pytest.mark.parametrize("kind", [MessageType.APP, MessageType.HEARTBEAT])
def test_figure_2_append_entries_1_the_leader_of_a_past_term_is_told_the_term(kind: int) -> None:
    subject = Subject(term=5, pre_vote=True, check_quorum=True)
    told = subject.hears(kind, 2, 4, **entries_in(kind, 4))
    assert [(m.type, m.to, m.term) for m in told] == [(MessageType.APP_RESP, 2, 5)]
    leader = Subject(term=3, pre_vote=True, check_quorum=True)
    leader.node.campaign()
    leader.work()
    leader.hears(MessageType.PRE_VOTE_RESP, 2, 4)
    leader.hears(MessageType.VOTE_RESP, 2, 4)
    assert leader.node.raft.state == StateType.LEADER
    leader.hears(MessageType.APP_RESP, 2, 5)
    assert (leader.node.raft.state, leader.node.raft.term) == (StateType.FOLLOWER, 5)


def test_figure_2_append_entries_2_without_the_entry_before_it_is_refused() -> None:
    subject = Subject([1, 1])
    for index, term in [(3, 1), (2, 2)]:
        answer = subject.hears(MessageType.APP, 2, 2, index=index, log_term=term, entries=entries_of([2], index + 1))
        assert answer[0].reject
        assert answer[0].index == index
    assert subject.terms() == [1, 1]


def test_figure_2_append_entries_3_a_conflict_drops_all_that_follows() -> None:
    subject = Subject([1, 1, 1, 1])
    answer = subject.hears(MessageType.APP, 2, 2, index=1, log_term=1, entries=entries_of([2], 2))
    assert subject.terms() == [1, 2]
    assert answer[0].index == 2


def test_figure_2_append_entries_3_no_conflict_drops_nothing() -> None:
    """A message that comes late must not cut off what came since."""
    subject = Subject([1, 1, 1, 1])
    answer = subject.hears(MessageType.APP, 2, 1, index=1, log_term=1, entries=entries_of([1], 2))
    assert subject.terms() == [1, 1, 1, 1]
    assert answer[0].index == 2


def test_figure_2_append_entries_4_new_entries_are_appended() -> None:
    subject = Subject([1])
    answer = subject.hears(MessageType.APP, 2, 2, index=1, log_term=1, entries=entries_of([1, 2], 2))
    assert subject.terms() == [1, 1, 2]
    assert (answer[0].reject, answer[0].index) == (False, 3)


@pytest.mark.parametrize(("told", "expected"), [(1, 1), (2, 2), (9, 2)])
def test_figure_2_append_entries_5_the_commit_index_follows_up_to_the_last_new_entry(
    told: int, expected: int
) -> None:
    subject = Subject([1, 1, 1])
    subject.hears(MessageType.APP, 2, 2, index=1, log_term=1, entries=entries_of([1], 2), commit=told)
    assert subject.node.raft.raft_log.committed == expected
    assert [entry.index for entry in subject.applied] == list(range(1, expected + 1))


# Figure 2: RequestVote RPC, receiver.


def test_figure_2_request_vote_1_a_past_term_gets_no_vote() -> None:
    subject = Subject(term=5)
    subject.hears(MessageType.VOTE, 2, 4)
    assert subject.node.raft.vote == 0


def test_figure_2_request_vote_2_one_vote_per_term() -> None:
    subject = Subject()
    assert not subject.hears(MessageType.VOTE, 2, 1)[0].reject
    assert subject.hears(MessageType.VOTE, 3, 1)[0].reject
    assert not subject.hears(MessageType.VOTE, 2, 1)[0].reject, "the same again"
    assert not subject.hears(MessageType.VOTE, 3, 2)[0].reject, "another term"


@pytest.mark.parametrize(
    ("last_term", "last_index", "granted"),
    [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)],
)
def test_figure_2_request_vote_2_and_section_5_4_1_only_for_a_log_as_complete(
    last_term: int, last_index: int, granted: bool
) -> None:
    subject = Subject([1, 1, 2])
    answer = subject.hears(MessageType.VOTE, 2, 5, log_term=last_term, index=last_index)
    assert answer[0].reject is not granted


# Figure 2: rules for servers.


def test_figure_2_all_servers_apply_what_is_committed_in_order_and_once() -> None:
    subject = Subject()
    subject.hears(MessageType.APP, 2, 1, entries=entries_of([1, 1, 1], 1), commit=2)
    subject.hears(MessageType.APP, 2, 1, index=3, log_term=1, commit=3)
    subject.hears(MessageType.APP, 2, 1, index=3, log_term=1, commit=3)
    assert [entry.index for entry in subject.applied] == [1, 2, 3]


def test_figure_2_candidates_begin_with_a_new_term_an_own_vote_and_a_new_timeout() -> None:
    subject = Subject([1], size=5, term=3)
    for _ in range(15):
        subject.node.tick()
    subject.node.campaign()
    raft = subject.node.raft
    assert (raft.state, raft.term, raft.vote, raft.election_elapsed) == (StateType.CANDIDATE, 4, 1, 0)
    subject.work()
    assert [(m.type, m.to, m.term) for m in subject.now] == [(MessageType.VOTE, to, 4) for to in (2, 3, 4, 5)]


def test_figure_2_leaders_say_at_once_that_they_lead_and_go_on_when_idle() -> None:
    subject = Subject(size=5)
    subject.elect()
    assert [(m.type, m.to) for m in subject.now] == [(MessageType.APP, to) for to in (2, 3, 4, 5)]
    for _ in range(30):
        subject.now = []
        subject.node.tick()
        subject.work()
        assert [(m.type, m.to) for m in subject.now] == [(MessageType.HEARTBEAT, to) for to in (2, 3, 4, 5)]


def test_figure_2_leaders_move_next_and_match_with_each_answer() -> None:
    subject = Subject([1, 1, 1])
    subject.elect()
    progress = subject.node.raft.tracker.progress[2]
    told = subject.hears(MessageType.APP_RESP, 2, 2, index=3, reject=True, reject_hint=2, log_term=1)
    assert [(m.to, m.index, len(m.entries)) for m in told] == [(2, 2, 2)], "decremented, and tried again"
    assert (progress.match, progress.next) == (0, 3)
    subject.hears(MessageType.APP_RESP, 2, 2, index=4)
    assert (progress.match, progress.next) == (4, 5)


@pytest.mark.parametrize("kind", [MessageType.APP, MessageType.HEARTBEAT, MessageType.VOTE])
@pytest.mark.parametrize("state", [StateType.FOLLOWER, StateType.CANDIDATE, StateType.LEADER])
def test_section_5_1_a_higher_term_makes_a_follower_of_it(kind: int, state: int) -> None:
    subject = Subject()
    if state == StateType.CANDIDATE:
        subject.node.campaign()
    elif state == StateType.LEADER:
        subject.elect()
    subject.hears(kind, 2, 9, **entries_in(kind, 9))
    raft = subject.node.raft
    assert (raft.state, raft.term) == (StateType.FOLLOWER, 9)
    assert raft.lead == (2 if kind != MessageType.VOTE else NO_LEADER)


def test_section_5_1_a_message_of_a_past_term_changes_nothing() -> None:
    subject = Subject(term=5)
    for kind in (MessageType.HEARTBEAT, MessageType.APP_RESP, MessageType.VOTE_RESP, MessageType.TIMEOUT_NOW):
        assert subject.hears(kind, 2, 4) == []
    assert (subject.node.raft.term, subject.node.raft.lead) == (5, NO_LEADER)


def test_section_5_1_an_acknowledgement_of_a_past_term_commits_nothing() -> None:
    """It speaks of what the follower's log was: another leader may have replaced that since."""
    subject = Subject(term=3)
    subject.elect()
    subject.node.propose(b"data")
    subject.work()
    assert subject.hears(MessageType.APP_RESP, 2, 3, index=2) == []
    raft = subject.node.raft
    assert raft.state == StateType.LEADER
    assert (raft.term, raft.raft_log.committed) == (4, 0)


def test_section_5_2_everybody_starts_as_follower() -> None:
    assert Subject().node.raft.state == StateType.FOLLOWER
    assert Subject([1], term=3).node.raft.state == StateType.FOLLOWER


def test_section_5_2_a_leader_sends_heartbeats() -> None:
    subject = Subject()
    subject.elect()
    subject.now = []
    subject.node.tick()
    subject.work()
    assert [(m.type, m.to) for m in subject.now] == [(MessageType.HEARTBEAT, 2), (MessageType.HEARTBEAT, 3)]


def test_section_5_2_a_follower_that_hears_nothing_stands_for_election() -> None:
    subject = Subject([1])
    for _ in range(18):
        subject.node.tick()
    assert subject.node.raft.state == StateType.FOLLOWER
    subject.node.tick()
    raft = subject.node.raft
    assert (raft.state, raft.term, raft.vote) == (StateType.CANDIDATE, 2, 1)
    subject.work()
    assert [(m.type, m.to, m.term, m.index, m.log_term) for m in subject.now] == [
        (MessageType.VOTE, 2, 2, 1, 1),
        (MessageType.VOTE, 3, 2, 1, 1),
    ]


@pytest.mark.parametrize("kind", [MessageType.HEARTBEAT, MessageType.APP])
def test_section_5_2_hearing_from_the_leader_puts_the_election_off(kind: int) -> None:
    subject = Subject()
    for _ in range(60):
        subject.hears(kind, 2, 1, **entries_in(kind, 1))
        subject.node.tick()
    assert subject.node.raft.state == StateType.FOLLOWER


def test_section_5_2_granting_a_vote_puts_the_election_off() -> None:
    subject = Subject()
    for _ in range(15):
        subject.node.tick()
    subject.hears(MessageType.VOTE, 2, 1)
    assert subject.node.raft.election_elapsed == 0


@pytest.mark.parametrize(
    ("size", "votes", "state"),
    [
        (1, [], StateType.LEADER),
        (3, [True], StateType.LEADER),
        (3, [False], StateType.CANDIDATE),
        (3, [False, False], StateType.FOLLOWER),
        (5, [True], StateType.CANDIDATE),
        (5, [True, True], StateType.LEADER),
        (5, [False, False, False], StateType.FOLLOWER),
        (4, [True], StateType.CANDIDATE),
    ],
)
def test_section_5_2_a_majority_of_all_decides(size: int, votes: list[bool], state: int) -> None:
    subject = Subject(size=size)
    subject.node.campaign()
    subject.work()
    for voter, granted in enumerate(votes, 2):
        # Who refuses says what it knows to be committed: here nothing.
        subject.hears(MessageType.VOTE_RESP, voter, 1, reject=not granted, context=b"" if granted else bytes(16))
    assert subject.node.raft.state == state


def test_section_5_2_a_vote_counts_once() -> None:
    subject = Subject(size=5)
    subject.node.campaign()
    subject.work()
    for _ in range(3):
        subject.hears(MessageType.VOTE_RESP, 2, 1)
    assert subject.node.raft.state == StateType.CANDIDATE


def test_section_5_2_the_own_vote_counts_when_it_is_stored() -> None:
    subject = Subject(size=1)
    subject.node.campaign()
    ready = subject.node.ready()
    assert subject.node.raft.state == StateType.CANDIDATE
    assert ready.hard_state == HardState(1, 1, 0)
    subject.node.advance()
    assert subject.node.raft.state == StateType.LEADER


@pytest.mark.parametrize("kind", [MessageType.HEARTBEAT, MessageType.APP])
def test_section_5_2_a_candidate_gives_way_to_the_leader_of_its_term(kind: int) -> None:
    subject = Subject()
    subject.node.campaign()
    subject.hears(kind, 3, 1, **entries_in(kind, 1))
    assert (subject.node.raft.state, subject.node.raft.lead) == (StateType.FOLLOWER, 3)


def test_section_5_2_a_tied_election_is_repeated_in_another_term() -> None:
    subject = Subject()
    subject.node.campaign()
    for _ in range(20):
        subject.node.tick()
    assert (subject.node.raft.state, subject.node.raft.term) == (StateType.CANDIDATE, 2)


def test_section_5_2_election_timeouts_are_drawn_anew_between_one_and_two_timeouts() -> None:
    drawn = iter([0, 3, 9, 5])
    storage = MemoryStorage()
    storage.apply_snapshot(Snapshot(SnapshotMetadata(0, 0, ConfState([1, 2]))))
    node = RawNode(
        Config(id=1, election_tick=10, heartbeat_tick=1, storage=storage, random=lambda limit: next(drawn))
    )
    timeouts = [node.raft.randomized_election_timeout]
    for _ in range(3):
        node.campaign()
        timeouts.append(node.raft.randomized_election_timeout)
    assert timeouts == [10, 13, 19, 15]


def test_section_5_3_a_leader_appends_proposals_and_sends_them_to_all() -> None:
    subject = Subject([1])
    subject.elect()
    subject.hears(MessageType.APP_RESP, 2, 2, index=2)
    subject.hears(MessageType.APP_RESP, 3, 2, index=2)
    subject.now = []
    subject.node.propose(b"data")
    subject.work()
    assert [(m.type, m.to, m.index, m.log_term) for m in subject.now] == [
        (MessageType.APP, 2, 2, 2),
        (MessageType.APP, 3, 2, 2),
    ]
    assert all(m.entries == [Entry(2, 3, data=b"data")] for m in subject.now)


@pytest.mark.parametrize("kind", [MessageType.APP, MessageType.SNAP])
def test_section_5_3_a_leader_never_overwrites_its_own_log(kind: int) -> None:
    """Leader Append-Only. Nobody else leads its term; should one say so, it is not heard."""
    subject = Subject([1, 1])
    subject.elect()
    fields: dict[str, object] = {"entries": entries_of([2], 1)}
    if kind == MessageType.SNAP:
        fields = {"snapshot": Snapshot(SnapshotMetadata(9, 2, ConfState([1, 2, 3])))}
    assert subject.hears(kind, 3, 2, **fields) == []
    assert subject.terms() == [1, 1, 2]
    assert subject.node.raft.state == StateType.LEADER


def test_section_5_3_an_append_is_repeated_until_every_follower_has_it() -> None:
    subject = Subject()
    subject.elect()
    subject.hears(MessageType.APP_RESP, 2, 1, index=1)
    assert subject.node.raft.raft_log.committed == 1
    for _ in range(3):
        told = subject.hears(MessageType.HEARTBEAT_RESP, 3, 1)
        assert [(m.type, m.to, [e.index for e in m.entries]) for m in told] == [(MessageType.APP, 3, [1])]
    subject.hears(MessageType.APP_RESP, 3, 1, index=1)
    assert subject.hears(MessageType.HEARTBEAT_RESP, 3, 1) == []


def test_section_5_3_an_entry_is_committed_when_a_majority_has_it() -> None:
    subject = Subject(size=5)
    subject.elect()
    assert subject.hears(MessageType.APP_RESP, 2, 1, index=1) == []
    assert subject.node.raft.raft_log.committed == 0
    told = subject.hears(MessageType.APP_RESP, 3, 1, index=1)
    assert subject.node.raft.raft_log.committed == 1
    assert {m.commit for m in told} == {1}, "the others are told"
    assert [entry.index for entry in subject.applied] == [1]


def test_section_5_3_the_leaders_own_disk_is_one_of_the_majority_and_not_more() -> None:
    """Committed without the leader's own copy, by the two others; not by one other and an unfinished write."""
    subject = Subject()
    subject.elect()
    subject.hears(MessageType.APP_RESP, 2, 1, index=1)
    subject.node.propose(b"data")
    subject.node.ready()  # being written
    subject.node.step(RaftMessage(MessageType.APP_RESP, 1, 2, 1, index=2))
    assert subject.node.raft.raft_log.committed == 1
    subject.node.step(RaftMessage(MessageType.APP_RESP, 1, 3, 1, index=2))
    assert subject.node.raft.raft_log.committed == 2


def test_section_5_3_a_refused_append_is_repeated_further_back() -> None:
    subject = Subject([1, 1, 1])
    subject.elect()
    told = subject.hears(MessageType.APP_RESP, 2, 2, index=3, reject=True, reject_hint=1, log_term=1)
    assert [(m.index, m.log_term, len(m.entries)) for m in told] == [(1, 1, 3)]


def test_section_5_3_a_refusal_says_where_the_logs_may_agree() -> None:
    subject = Subject([1, 1, 2, 2, 2])
    answer = subject.hears(MessageType.APP, 2, 9, index=7, log_term=1, commit=1)[0]
    assert (answer.reject, answer.index, answer.reject_hint, answer.log_term) == (True, 7, 2, 1)


FIGURE_7 = {
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("case", FIGURE_7)
def test_section_5_3_figure_7_any_follower_comes_to_the_leaders_log(case: str) -> None:
    leader, follower = Subject([1, 1, 1, 4, 4, 5, 5, 6, 6, 6], size=5), Subject(FIGURE_7[case], size=5, term=7)
    for _ in range(7 - leader.node.raft.term):
        leader.node.campaign()
        leader.work()
    leader.elect()
    to_follower = [m for m in leader.now if m.to == 2 and m.type == MessageType.APP] or leader.hears(
        MessageType.HEARTBEAT_RESP, 2, leader.node.raft.term
    )
    for _ in range(10):
        answers: list[RaftMessage] = []
        for message in to_follower:
            answers += follower.hears(
                message.type, 3, message.term, index=message.index, log_term=message.log_term,
                entries=message.entries, commit=message.commit,
            )  # fmt: skip
        to_follower = []
        for answer in answers:
            told = leader.hears(
                answer.type, 2, answer.term, index=answer.index, log_term=answer.log_term,
                reject=answer.reject, reject_hint=answer.reject_hint,
            )  # fmt: skip
            to_follower += [m for m in told if m.to == 2]
    assert follower.terms() == leader.terms()
    assert leader.terms() == [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, leader.node.raft.term]


def test_section_5_4_1_a_candidate_that_lacks_committed_entries_is_not_elected() -> None:
    group = SimulatedGroup(3)
    group[1].node.campaign()
    group.settle()
    group[1].node.propose(b"committed")
    group.settle(cut_off=frozenset({3}))
    assert group[1].applied == group[2].applied == 3
    group[3].node.campaign()
    group.settle(cut_off=frozenset({1}))
    assert group.leaders() == [1]
    group[2].node.campaign()
    group.settle(cut_off=frozenset({1}))
    assert 2 in group.leaders()
    group.heal()


def test_section_5_4_2_entries_of_former_terms_are_not_committed_by_counting() -> None:
    """Figure 8: an entry of an old term on a majority may still be replaced; one of this term settles it."""
    subject = Subject([1, 2], size=5, term=3)
    subject.elect()
    assert subject.node.raft.term == 4
    for follower in (2, 3):
        subject.hears(MessageType.APP_RESP, follower, 4, index=2)
    assert subject.node.raft.raft_log.committed == 0
    for follower in (2, 3):
        subject.hears(MessageType.APP_RESP, follower, 4, index=3)
    assert subject.node.raft.raft_log.committed == 3


def test_section_5_4_2_figure_8_a_later_leader_may_replace_what_a_majority_has() -> None:
    """Figure 8, (a) to (d), on a whole group: whoever applied entry 3 of term 1 in (c) would have been wrong."""
    group = SimulatedGroup(5)
    group[1].node.campaign()
    group.settle()
    old = b"x" * 120  # as much as a message holds, so that the entry travels alone
    group[1].node.propose(old)
    group.settle(cut_off=frozenset({3, 4, 5}))
    # (b) 5 is elected by 3 and 4, and crashes with an entry of its own that nobody else has.
    group[1].start()
    group[5].node.campaign()
    group.work_until(lambda: group.leaders() == [5], among=frozenset({3, 4, 5}))
    while group[5].finish() or group[5].begin():
        pass
    group.network.clear()
    group[5].start()
    # (c) 1 leads again, and brings the old entry to 3: three of five have it.
    for _ in range(2):
        group[1].node.campaign()
        group.settle(cut_off=frozenset({2, 3, 4, 5}))  # the first term was 5's
    group[1].node.campaign()
    group.work_until(lambda: (3, 1) in group[3].log(), among=frozenset({1, 2, 3, 4}))
    for message in [message for message in group.network if message.type == MessageType.APP_RESP]:
        group.hand_over(message)
    while group[1].finish() or group[1].begin():
        pass
    assert group[1].node.raft.tracker.progress[3].match == 3
    holders = [node for node, member in group.members.items() if (3, 1) in member.log()]
    assert holders == [1, 2, 3]
    assert max(member.applied for member in group.members.values()) == 2
    # (d) 1 crashes; 5 is elected by 2, 3 and 4, and all take its entry.
    group[1].start()
    group.network.clear()
    for _ in range(4):
        group[5].node.campaign()
        group.settle(cut_off=frozenset({1}))
    assert group.leaders() == [5]
    group.heal()
    assert old.decode() not in [data for _, data in group[1].state]


def test_section_5_6_a_heartbeat_must_come_before_an_election_timeout() -> None:
    """broadcastTime << electionTimeout is for whoever chooses the settings; the order of the two is enforced."""
    with pytest.raises(ValueError, match="election_tick"):
        Config(id=1, election_tick=3, heartbeat_tick=3, storage=MemoryStorage(), random=lambda limit: 0)


def test_thesis_4_2_1_a_learner_counts_neither_for_commitment_nor_in_an_election() -> None:
    subject = Subject()
    subject.storage.apply_snapshot(Snapshot(SnapshotMetadata(1, 1, ConfState([1, 2, 3], [4, 5]))))
    subject.start()
    subject.node.campaign()
    subject.work()
    for learner in (4, 5):
        subject.hears(MessageType.VOTE_RESP, learner, subject.node.raft.term)
    assert subject.node.raft.state == StateType.CANDIDATE
    subject.elect()
    for learner in (4, 5):
        subject.hears(MessageType.APP_RESP, learner, subject.node.raft.term, index=2)
    assert subject.node.raft.raft_log.committed == 1
    subject.hears(MessageType.APP_RESP, 2, subject.node.raft.term, index=2)
    assert subject.node.raft.raft_log.committed == 2


def test_section_8_a_leader_begins_its_term_with_an_empty_entry() -> None:
    subject = Subject([1])
    subject.elect()
    log = subject.node.raft.raft_log
    assert log.slice(2, 3, 1) == [Entry(2, 2)]
    assert not subject.node.raft.has_committed_in_term()


def test_section_5_5_requests_may_be_repeated() -> None:
    subject = Subject()
    for _ in range(2):
        answer = subject.hears(MessageType.APP, 2, 1, entries=entries_of([1, 1], 1), commit=1)
        assert [message.reject for message in answer] == [False]
        assert subject.terms() == [1, 1]
    assert [entry.index for entry in subject.applied] == [1]
