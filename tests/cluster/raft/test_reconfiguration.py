"""Membership changes of a running group, and what they must not lead to (thesis chapter 4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.raft import (
    ConfChange,
    ConfChangeError,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    MessageType,
    RaftError,
    RaftMessage,
    Snapshot,
    SnapshotMetadata,
    StateType,
    decode_conf_change,
    encode_conf_change,
)
from tests.cluster.raft.simulated_group import SimulatedGroup

ADD, REMOVE, LEARNER = (
    ConfChangeType.ADD_NODE,
    ConfChangeType.REMOVE_NODE,
    ConfChangeType.ADD_LEARNER_NODE,
)
SINGLES = st.builds(ConfChangeSingle, st.integers(0, 3), st.integers(0, (1 << 63) - 1))


@given(
    change=st.one_of(
        st.builds(ConfChange, st.integers(0, 3), st.integers(0, 1 << 40), st.binary(max_size=9)),
        st.builds(ConfChangeV2, st.integers(0, 2), st.lists(SINGLES, max_size=5), st.binary(max_size=9)),
    )
)
def test_changes_survive_their_encoding(change: ConfChange | ConfChangeV2) -> None:
    assert decode_conf_change(encode_conf_change(change)) == change


@given(kind=st.integers(0, 3), data=st.binary(max_size=40))
def test_damaged_changes_are_refused(kind: int, data: bytes) -> None:
    try:
        change = decode_conf_change(Entry(1, 1, kind, data))
    except RaftError:
        return
    assert decode_conf_change(encode_conf_change(change)) == change


def test_the_change_that_leaves_a_joint_configuration_weighs_nothing() -> None:
    assert encode_conf_change(ConfChangeV2()) == Entry(type=EntryType.CONF_CHANGE_V2)


def led_group(size: int, **options: bool) -> SimulatedGroup:
    group = SimulatedGroup(size, **options)
    group[1].node.campaign()
    group.settle()
    return group


def change_of(*singles: tuple[int, int]) -> ConfChangeV2:
    return ConfChangeV2(
        ConfChangeTransition.AUTO, [ConfChangeSingle(kind, node_id) for kind, node_id in singles]
    )


def test_several_voters_are_exchanged_through_a_joint_configuration() -> None:
    group = led_group(5)
    group[1].node.propose_conf_change(change_of((LEARNER, 2), (LEARNER, 3), (LEARNER, 4)))
    group.heal()
    assert group[1].members == ConfState([1, 5], [2, 3, 4])


def test_in_a_joint_configuration_both_majorities_must_agree() -> None:
    group = led_group(5)
    explicit = ConfChangeV2(
        ConfChangeTransition.JOINT_EXPLICIT, [ConfChangeSingle(LEARNER, 4), ConfChangeSingle(LEARNER, 5)]
    )
    group[1].node.propose_conf_change(explicit)
    group.settle()
    assert group[1].node.raft.tracker.configuration.is_joint()
    group[1].node.propose(b"x")
    group.settle(cut_off=frozenset({2, 3}))
    assert group[1].applied == 3, "4 and 5 are a majority of the old five with 1, but not of the new three"
    group[1].node.tick()
    group.settle(cut_off=frozenset({4, 5}))
    assert group[1].applied == 4
    group[1].node.propose(b"y")
    group.settle(cut_off=frozenset({3, 4, 5}))
    assert group[1].applied == 4, "1 and 2 are a majority of the new three, but not of the old five"
    group[1].node.tick()
    group.settle()
    assert group[1].applied == 5
    group[1].node.propose_conf_change(ConfChangeV2())
    group.heal()
    assert group[5].members == ConfState([1, 2, 3], [4, 5])


def test_a_second_change_waits_for_the_first() -> None:
    group = led_group(3)
    group[1].node.propose_conf_change(change_of((LEARNER, 3)))
    group[1].node.propose_conf_change(change_of((LEARNER, 2)))
    entries = group[1].node.raft.raft_log.entries_from(3, 1 << 40)
    assert [entry.type for entry in entries] == [EntryType.CONF_CHANGE_V2, EntryType.NORMAL]
    group.heal()
    assert group[1].members == ConfState([1, 2], [3])


def test_an_impossible_change_is_refused_and_changes_nothing() -> None:
    node = led_group(3)[1].node
    before = repr(node.raft.tracker.configuration)
    for change, reason in [
        (ConfChangeV2(), ConfChangeError.NOT_JOINT),
        (change_of((REMOVE, 1), (REMOVE, 2), (REMOVE, 3)), ConfChangeError.NO_VOTERS_LEFT),
    ]:
        with pytest.raises(ConfChangeError) as refused:
            node.apply_conf_change(change)
        assert refused.value.reason == reason
        assert repr(node.raft.tracker.configuration) == before


def test_a_joint_configuration_is_left_even_if_leadership_was_being_handed_over() -> None:
    group = led_group(3)
    group[1].node.propose_conf_change(change_of((LEARNER, 3), (ADD, 2)))
    group.settle(cut_off=frozenset({3}))
    group[1].node.raft.lead_transferee = 3  # as if asked for, with 3 out of reach
    group.settle()
    group.heal()
    assert not group[1].node.raft.tracker.configuration.is_joint()


def test_an_only_voter_that_does_not_know_it_yet_can_lead() -> None:
    """The others committed the change, wrote more and lost their leader: a refusal tells what is committed."""
    group = led_group(3)
    group[1].node.propose_conf_change(change_of((LEARNER, 1), (LEARNER, 3)))
    # Step by step until the leader has left the joint configuration and 2 has not heard of it.
    for _ in range(200):
        for node_id in (1, 2, 3):
            group[node_id].begin()
            group[node_id].finish()
        if group[1].node.raft.tracker.configuration.incoming == {2} and not group[1].members.auto_leave:
            break
        message = group.network.pop(0)
        group.hand_over(message)
    assert group[1].members.voters == [2]
    assert group[2].node.raft.tracker.configuration.is_joint()
    group.network.clear()
    lead = group[1].node.raft
    index, term = lead.raft_log.last_index(), lead.term
    more = RaftMessage(MessageType.APP, 3, 1, term, lead.raft_log.term(index), index, entries=[Entry(term, index + 1)])
    group[3].take(more)
    assert group[3].node.raft.raft_log.last_index() > group[2].node.raft.raft_log.last_index()
    group[1].start()
    group.heal()
    assert group.leaders() == [2]


def test_a_snapshot_waits_for_changes_that_are_being_applied() -> None:
    """Else an older change would be applied to the newer membership."""
    group = led_group(3)
    group[1].node.propose_conf_change(change_of((LEARNER, 3)))
    group.settle(cut_off=frozenset({3}))
    group[1].node.propose(b"x")
    follower = group[2]
    while not (follower.pending is not None and follower.pending.committed_entries):
        for member in (group[1], group[2]):
            if member is group[1]:
                while member.begin() or member.finish():
                    pass
            elif follower.pending is None:
                follower.begin()
                if follower.pending is not None and not follower.pending.committed_entries:
                    follower.finish()
        if follower.pending is None and group.network:
            group.hand_over(group.network.pop(0))
    before = repr(follower.node.raft.tracker.configuration)
    term = follower.node.raft.term
    snapshot = Snapshot(SnapshotMetadata(9, term, ConfState([1, 2, 3])), b"[]")
    follower.node.step(RaftMessage(MessageType.SNAP, 2, 1, term, snapshot=snapshot))
    assert repr(follower.node.raft.tracker.configuration) == before
    follower.finish()
    assert follower.node.raft.tracker.configuration.incoming == {1, 2, 3}
    assert follower.node.ready().snapshot is snapshot


def test_a_removed_leader_steps_down_where_that_is_wanted() -> None:
    for wanted in (False, True):
        group = led_group(3, step_down_on_removal=wanted)
        group[1].node.apply_conf_change(ConfChange(REMOVE, 1))
        assert (group[1].node.raft.state == StateType.FOLLOWER) is wanted


def test_a_removed_leader_with_one_voter_left_asks_it_before_answering_a_read() -> None:
    group = led_group(2)
    group[1].node.apply_conf_change(ConfChange(REMOVE, 1))
    group[1].node.read_index(b"read")
    assert group[1].node.raft.read_states == []


def test_a_snapshot_that_got_lost_is_sent_again_when_the_transport_says_so() -> None:
    group = led_group(3)
    group[1].node.propose_batch([b"x"] * 5)
    group.settle(cut_off=frozenset({3}))
    group[1].compact()
    for _ in range(3):
        group[1].node.tick()
        group.settle(cut_off=frozenset({3}))
    group[1].node.tick()
    group.settle()
    group.heal()
    assert group[3].applied == group[1].applied
    assert group[3].storage.snapshot().metadata.index == group[1].storage.snapshot().metadata.index


def test_a_snapshot_of_a_log_that_is_there_only_moves_the_commit_index() -> None:
    group = led_group(3)
    group[1].node.propose(b"x")
    group[1].begin()
    for message in group.network:
        if message.to == 2:
            group[2].take(message)
    follower = group[2].node
    assert follower.raft.raft_log.committed == 2
    term = follower.raft.term
    snapshot = Snapshot(SnapshotMetadata(3, term, ConfState([1, 2, 3])), b"[]")
    follower.step(RaftMessage(MessageType.SNAP, 2, 1, term, snapshot=snapshot))
    assert follower.raft.raft_log.committed == 3
    assert follower.raft.raft_log.unstable.snapshot is None
