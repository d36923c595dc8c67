"""The rules of the Raft paper on clients (section 8), and of the thesis on handing over (3.10), reads (6.4) and
pre-vote (9.6). Sessions (section 8, thesis 6.3) are in tests/cluster/group/test_sessions.py and test_host.py.
"""

import pytest

from mayfly.cluster.raft import MessageType, ProposalDropped, RaftMessage, ReadState, StateType
from tests.cluster.raft.subject import Subject, entries_of


def led(size: int = 3) -> Subject:
    """A leader of term 2 with entries 1 and 2, both committed, that everybody has."""
    subject = Subject([1], size=size)
    subject.elect()
    for node in range(2, size + 1):
        subject.hears(MessageType.APP_RESP, node, 2, index=2)
    assert subject.node.raft.raft_log.committed == 2
    subject.now, subject.later = [], []
    return subject


# Section 8: finding the leader.


def test_section_8_a_follower_passes_a_proposal_on_to_the_leader_it_knows() -> None:
    subject = Subject()
    subject.hears(MessageType.HEARTBEAT, 2, 1)
    subject.now = []
    subject.node.propose(b"data")
    subject.work()
    assert [(m.type, m.to, m.entries[0].data) for m in subject.now] == [(MessageType.PROP, 2, b"data")]


def test_section_8_without_a_leader_a_proposal_is_refused_and_may_be_given_to_another() -> None:
    with pytest.raises(ProposalDropped, match="no leader"):
        Subject().node.propose(b"data")


# Section 8: reads.


def test_section_8_a_read_waits_for_the_commit_of_the_terms_first_entry() -> None:
    """Before that the leader does not know all that is committed."""
    subject = Subject([1])
    subject.elect()
    subject.now = []
    subject.node.read_index(b"early")
    subject.work()
    assert subject.now == [], "nobody is asked yet"
    told = subject.hears(MessageType.APP_RESP, 2, 2, index=2)
    context = subject.node.raft.read_only.context()
    assert (MessageType.HEARTBEAT, context) in [(m.type, m.context) for m in told]
    subject.node.step(RaftMessage(MessageType.HEARTBEAT_RESP, 1, 2, 2, context=context))
    assert subject.node.raft.read_states == [ReadState(2, b"early")]


def test_section_8_a_read_is_answered_after_a_majority_has_answered_a_heartbeat() -> None:
    subject = led(5)
    subject.node.read_index(b"read")
    ready = subject.node.ready()
    assert ready.read_states == []
    heartbeats = [m for m in ready.messages_now if m.type == MessageType.HEARTBEAT]
    assert [m.to for m in heartbeats] == [2, 3, 4, 5]
    subject.node.advance()
    context = heartbeats[0].context
    for follower in (2, 2):
        subject.node.step(RaftMessage(MessageType.HEARTBEAT_RESP, 1, follower, 2, context=context))
    assert subject.node.raft.read_states == [], "one follower, twice"
    subject.node.step(RaftMessage(MessageType.HEARTBEAT_RESP, 1, 3, 2, context=context))
    assert subject.node.raft.read_states == [ReadState(2, b"read")]


def test_section_8_an_answer_to_a_heartbeat_from_before_the_read_does_not_count() -> None:
    subject = led()
    subject.node.read_index(b"first")
    context = subject.node.raft.read_only.context()
    subject.node.read_index(b"second")
    subject.node.step(RaftMessage(MessageType.HEARTBEAT_RESP, 1, 2, 2, context=context))
    assert [state.request_context for state in subject.node.raft.read_states] == [b"first"]
    subject.node.step(RaftMessage(MessageType.HEARTBEAT_RESP, 1, 2, 2))
    assert [state.request_context for state in subject.node.raft.read_states] == [b"first"]


def test_thesis_6_4_a_deposed_leader_forgets_the_reads_that_it_has_not_answered() -> None:
    subject = led()
    subject.node.read_index(b"read")
    context = subject.node.raft.read_only.context()
    subject.hears(MessageType.HEARTBEAT, 3, 3)
    subject.elect()
    subject.hears(MessageType.APP_RESP, 2, subject.node.raft.term, index=3)
    subject.hears(MessageType.HEARTBEAT_RESP, 2, subject.node.raft.term, context=context)
    assert subject.node.raft.read_states == []


def test_thesis_6_4_a_follower_asks_the_leader_for_the_index() -> None:
    subject = Subject()
    subject.hears(MessageType.HEARTBEAT, 2, 1)
    subject.now = []
    subject.node.read_index(b"read")
    subject.work()
    assert [(m.type, m.to) for m in subject.now] == [(MessageType.READ_INDEX, 2)]


# Thesis 3.10: handing over.


def test_thesis_3_10_no_proposals_are_taken_while_handing_over() -> None:
    subject = led()
    subject.node.transfer_leader(2)
    with pytest.raises(ProposalDropped, match="handed to 2"):
        subject.node.propose(b"data")


def test_thesis_3_10_the_target_is_brought_up_to_date_first_and_then_asked_to_stand() -> None:
    subject = led()
    subject.node.propose(b"data")
    subject.work()
    subject.now = []
    subject.node.transfer_leader(2)
    subject.work()
    assert MessageType.TIMEOUT_NOW not in [m.type for m in subject.now]
    told = subject.hears(MessageType.APP_RESP, 2, 2, index=3)
    assert (MessageType.TIMEOUT_NOW, 2) in [(m.type, m.to) for m in told]


def test_thesis_3_10_the_target_stands_at_once_and_without_a_pre_vote() -> None:
    subject = Subject([1], pre_vote=True, check_quorum=True)
    subject.hears(MessageType.HEARTBEAT, 2, 2)
    told = subject.hears(MessageType.TIMEOUT_NOW, 2, 2)
    assert [(m.type, m.to, m.term, m.context) for m in told] == [
        (MessageType.VOTE, 2, 3, b"transfer"),
        (MessageType.VOTE, 3, 3, b"transfer"),
    ]


def test_thesis_3_10_after_an_election_timeout_the_leader_goes_on() -> None:
    subject = led()
    subject.node.transfer_leader(2)
    for _ in range(10):
        subject.node.tick()
    subject.node.propose(b"data")
    assert subject.node.raft.raft_log.last_index() == 3


# Thesis 9.6: pre-vote.


def test_thesis_9_6_a_pre_vote_changes_neither_term_nor_vote() -> None:
    asking = Subject([1], pre_vote=True)
    asking.node.campaign()
    asking.work()
    raft = asking.node.raft
    assert (raft.state, raft.term, raft.vote) == (StateType.PRE_CANDIDATE, 1, 0)
    assert [(m.type, m.to, m.term) for m in asking.now] == [(MessageType.PRE_VOTE, 2, 2), (MessageType.PRE_VOTE, 3, 2)]
    asked = Subject([1], pre_vote=True)
    answer = asked.hears(MessageType.PRE_VOTE, 2, 2, index=1, log_term=1)
    assert [(m.type, m.term, m.reject) for m in answer] == [(MessageType.PRE_VOTE_RESP, 2, False)]
    assert (asked.node.raft.term, asked.node.raft.vote) == (1, 0)


def test_thesis_9_6_a_majority_of_pre_votes_begins_the_election() -> None:
    subject = Subject([1], size=5, pre_vote=True)
    subject.node.campaign()
    subject.work()
    subject.hears(MessageType.PRE_VOTE_RESP, 2, 2)
    assert subject.node.raft.state == StateType.PRE_CANDIDATE
    told = subject.hears(MessageType.PRE_VOTE_RESP, 3, 2)
    assert (subject.node.raft.state, subject.node.raft.term) == (StateType.CANDIDATE, 2)
    assert {m.type for m in told} == {MessageType.VOTE}
    subject.hears(MessageType.PRE_VOTE_RESP, 4, 2)
    subject.hears(MessageType.PRE_VOTE_RESP, 5, 2)
    assert subject.node.raft.state == StateType.CANDIDATE, "pre-votes are no votes"


def test_thesis_9_6_a_late_pre_vote_of_an_earlier_term_does_not_count() -> None:
    """Found by traces against the specification: it was given for another election."""
    subject = Subject([1], term=2, pre_vote=True)
    subject.node.campaign()
    subject.work()
    subject.hears(MessageType.PRE_VOTE_RESP, 2, 2)
    assert (subject.node.raft.state, subject.node.raft.term) == (StateType.PRE_CANDIDATE, 2)
    subject.hears(MessageType.PRE_VOTE_RESP, 2, 3)
    assert (subject.node.raft.state, subject.node.raft.term) == (StateType.CANDIDATE, 3)


@pytest.mark.parametrize(("index", "log_term", "granted"), [(2, 1, True), (1, 1, False), (1, 2, True)])
def test_thesis_9_6_a_pre_vote_needs_a_log_as_complete(index: int, log_term: int, granted: bool) -> None:
    subject = Subject([1, 1], pre_vote=True)
    answer = subject.hears(MessageType.PRE_VOTE, 2, 5, index=index, log_term=log_term)
    assert answer[0].reject is not granted


def test_thesis_9_6_no_pre_vote_while_a_leader_is_heard() -> None:
    subject = Subject([1], pre_vote=True, check_quorum=True)
    subject.hears(MessageType.HEARTBEAT, 2, 2)
    assert subject.hears(MessageType.PRE_VOTE, 3, 3, index=9, log_term=2) == []


def test_thesis_9_6_whoever_was_cut_off_deposes_nobody_when_it_comes_back() -> None:
    subject = Subject([1], pre_vote=True, check_quorum=True)
    for _ in range(200):
        subject.node.tick()
        subject.work()
    assert subject.node.raft.term == 1
    subject.hears(MessageType.APP, 2, 1, index=1, log_term=1, entries=entries_of([1], 2))
    assert (subject.node.raft.state, subject.node.raft.lead) == (StateType.FOLLOWER, 2)
