"""Reads without entries (section 8; thesis 6.4), handing over (thesis 3.10), and forgetting a leader."""

import pytest

from mayfly.cluster.raft import (
    ConfChange,
    ConfChangeType,
    Config,
    HardState,
    MessageType,
    ProposalDropped,
    RaftMessage,
    RawNode,
    ReadOnlyOption,
    ReadState,
    StateType,
)
from tests.cluster.raft.simulated_group import SimulatedGroup


def led_group(size: int = 3, **options: bool) -> SimulatedGroup:
    group = SimulatedGroup(size, **options)
    group[1].node.campaign()
    group.settle()
    assert group.leaders() == [1]
    return group


def answers(group: SimulatedGroup, node_id: int, cut_off: frozenset[int] = frozenset()) -> list[ReadState]:
    """Let the group work; returns what one node is told about its reads."""
    group.settle(cut_off)
    return group[node_id].read_states


@pytest.mark.parametrize("asked", [1, 2])
def test_a_read_is_answered_when_a_quorum_still_follows(asked: int) -> None:
    group = led_group()
    group[asked].node.read_index(b"read")
    assert answers(group, asked) == [ReadState(2, b"read")]


def test_a_cut_off_leader_answers_no_read() -> None:
    group = led_group()
    group[2].node.campaign()
    group.settle(cut_off=frozenset({1}))
    assert set(group.leaders()) == {1, 2}
    group[1].node.read_index(b"stale")
    assert answers(group, 1, cut_off=frozenset({2, 3})) == []


def test_many_reads_share_a_round_and_come_in_order() -> None:
    group = led_group()
    for number in range(5):
        group[1].node.read_index(b"%d" % number)
    assert [state.request_context for state in answers(group, 1)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_read_waits_for_the_first_commit_of_the_term() -> None:
    """Before that the leader doesn't know all that is committed."""
    group = led_group()
    group[2].node.campaign()
    group.settle(cut_off=frozenset({1, 3}))
    group[2].node.step(RaftMessage(MessageType.VOTE_RESP, 2, 1, group[2].node.raft.term))
    assert group[2].node.raft.state == StateType.LEADER
    group[2].node.read_index(b"early")
    assert group[2].node.raft.read_states == []
    assert answers(group, 2) == [ReadState(3, b"early")]


def test_a_single_voter_answers_at_once() -> None:
    group = led_group(1)
    group[1].node.read_index(b"read")
    assert group[1].node.ready().read_states == [ReadState(2, b"read")]


def test_a_single_voter_that_was_started_again_answers_when_it_has_committed_in_its_term() -> None:
    """The commit index on disk may be older than what it had answered before."""
    group = led_group(1)
    group[1].node.propose(b"answered")
    group.settle()
    assert group[1].applied == 3
    stored = group[1].storage.initial_state()[0]
    group[1].storage.set_hard_state(HardState(stored.term, stored.vote, 2))
    group[1].start()
    group[1].node.campaign()
    group[1].begin()
    group[1].finish()  # the vote is on disk, the entry that begins the term is not
    assert group.leaders() == [1]
    group[1].node.read_index(b"read")
    assert group[1].node.raft.read_states == []
    assert answers(group, 1) == [ReadState(4, b"read")]


def test_a_read_that_waits_for_others_is_answered_when_they_are_members_no_more() -> None:
    for cut_off in (frozenset({2}), frozenset()):
        group = led_group(2)
        group[1].node.read_index(b"read")
        assert answers(group, 1, cut_off=frozenset({2})) == []
        group[1].node.apply_conf_change(ConfChange(ConfChangeType.REMOVE_NODE, 2))
        assert answers(group, 1, cut_off=cut_off) == [ReadState(2, b"read")]


def test_a_lease_answers_without_a_round() -> None:
    group = led_group(3, check_quorum=True)
    storage = group[1].storage
    node = RawNode(
        Config(
            1, 10, 1, storage, lambda limit: 0, check_quorum=True,
            read_only_option=ReadOnlyOption.LEASE_BASED, applied=2,
        )
    )  # fmt: skip
    node.campaign()
    ready = node.ready()
    storage.set_hard_state(ready.hard_state)  # type: ignore[arg-type]
    node.advance()
    node.step(RaftMessage(MessageType.VOTE_RESP, 1, 2, node.raft.term))
    ready = node.ready()
    storage.append(ready.entries)
    node.advance()
    node.step(RaftMessage(MessageType.APP_RESP, 1, 2, node.raft.term, index=3))
    node.read_index(b"read")
    assert node.ready().read_states == [ReadState(3, b"read")]


def test_leadership_goes_to_a_member_that_is_up_to_date() -> None:
    for asked in (1, 3):
        group = led_group()
        group[asked].node.transfer_leader(2)
        group.settle()
        assert group.leaders() == [2]


def test_leadership_goes_to_a_member_that_must_catch_up_first() -> None:
    group = led_group()
    group[1].node.propose_batch([b"x"] * 20)
    group.settle(cut_off=frozenset({2}))
    group[1].node.transfer_leader(2)
    assert group.leaders() == [1]
    for _ in range(3):
        group[1].node.tick()
        group.settle()
    assert group.leaders() == [2]
    assert group[2].applied == group[1].applied


def test_handing_over_works_against_pre_vote_and_leases() -> None:
    group = led_group(pre_vote=True, check_quorum=True)
    group[1].node.transfer_leader(3)
    group.settle()
    assert group.leaders() == [3]


def test_while_handing_over_no_proposals_are_taken_and_after_a_timeout_they_are() -> None:
    group = led_group()
    group[1].node.propose(b"x")
    group.settle(cut_off=frozenset({2}))
    group[1].node.transfer_leader(2)
    with pytest.raises(ProposalDropped):
        group[1].node.propose(b"y")
    for _ in range(4):
        group[1].node.tick()
    group[1].node.propose(b"y")


def test_nobody_hands_over_to_strangers_or_itself() -> None:
    group = led_group()
    for target in (1, 9):
        group[1].node.transfer_leader(target)
        assert group[1].node.raft.lead_transferee == 0


def test_a_forgotten_leader_may_be_replaced_at_once() -> None:
    """With leases a vote is refused while a leader is known, and granted when it is forgotten."""
    group = led_group(pre_vote=True, check_quorum=True)
    group[2].node.campaign()
    group.settle(cut_off=frozenset({1}))
    assert group.leaders() == [1]
    group[3].node.forget_leader()
    group[2].node.campaign()
    group.settle(cut_off=frozenset({1}))
    assert 2 in group.leaders()


def test_a_leader_without_a_quorum_steps_down() -> None:
    group = led_group(check_quorum=True)
    for _ in range(8):
        group[1].node.tick()
        group.settle(cut_off=frozenset({2, 3}))
    assert group.leaders() == []


def test_a_member_that_comes_back_does_not_disturb_with_pre_vote() -> None:
    group = led_group(pre_vote=True, check_quorum=True)
    term = group[1].node.raft.term
    for _ in range(40):
        group[3].node.tick()
        group.settle(cut_off=frozenset({3}))
    assert group[3].node.raft.term == term
    group.heal()
    assert group.leaders() == [1]
    assert group[1].node.raft.term == term
