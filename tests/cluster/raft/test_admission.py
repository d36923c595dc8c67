"""Messages that no member can have sent are refused, and leave no trace."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.raft import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    ConfState,
    Entry,
    EntryType,
    MessageType,
    ProposalDropped,
    RaftError,
    RaftMessage,
    Snapshot,
    SnapshotMetadata,
    UnknownPeer,
)
from tests.cluster.raft.simulated_group import SimulatedGroup, SimulatedMember


def group_with_leader(**options: bool) -> SimulatedGroup:
    """Node 1 leads; all have applied up to 3."""
    group = SimulatedGroup(3, **options)
    group[1].node.campaign()
    group.settle()
    group[1].node.propose(b"data")
    group.settle()
    assert group.leaders() == [1]
    return group


def picture(member: SimulatedMember) -> object:
    raft = member.node.raft
    log = raft.raft_log
    progress = {node_id: repr(known) for node_id, known in raft.tracker.progress.items()}
    return (
        (raft.term, raft.vote, raft.state, raft.lead, raft.pending_conf_index, repr(log), progress),
        (repr(log.unstable.entries), member.log(), len(raft.messages), len(raft.messages_after_append)),
    )


def entry(term: int, index: int, kind: int = EntryType.NORMAL) -> Entry:
    return Entry(term, index, kind, b"x")


def snapshot(index: int, term: int, voters: list[int], learners: list[int] | None = None) -> Snapshot:
    return Snapshot(SnapshotMetadata(index, term, ConfState(voters, learners)), b"[]")


APP, SNAP, PROP = MessageType.APP, MessageType.SNAP, MessageType.PROP

TO_FOLLOWER = {
    "unknown type": RaftMessage(99, 2, 1, 1),
    "negative type": RaftMessage(-1, 2, 1, 1),
    "from nobody": RaftMessage(MessageType.HEARTBEAT, 2, 0, 1),
    "from itself": RaftMessage(MessageType.HEARTBEAT, 2, 2, 1),
    "own response": RaftMessage(MessageType.APP_RESP, 2, 2, 1),
    "from a negative node": RaftMessage(MessageType.HEARTBEAT, 2, -4, 1),
    "for another node": RaftMessage(MessageType.HEARTBEAT, 3, 1, 1),
    "without term": RaftMessage(APP, 2, 1, 0, entries=[entry(1, 1)]),
    "negative term": RaftMessage(MessageType.VOTE, 2, 1, -1),
    "huge term": RaftMessage(MessageType.VOTE, 2, 1, 1 << 62),
    "negative index": RaftMessage(APP, 2, 1, 1, index=-1),
    "negative commit": RaftMessage(MessageType.HEARTBEAT, 2, 1, 1, commit=-1),
    "last term after the term": RaftMessage(MessageType.VOTE, 2, 1, 5, log_term=6, index=9),
    "commit that isn't here": RaftMessage(MessageType.HEARTBEAT, 2, 1, 1, commit=9),
    "the same at a new term": RaftMessage(MessageType.HEARTBEAT, 2, 1, 7, commit=9),
    "gap": RaftMessage(APP, 2, 1, 1, log_term=1, index=3, entries=[entry(1, 5)]),
    "disorder": RaftMessage(APP, 2, 1, 1, log_term=1, index=3, entries=[entry(1, 4), entry(1, 4)]),
    "falling terms": RaftMessage(APP, 2, 1, 2, log_term=1, index=3, entries=[entry(2, 4), entry(1, 5)]),
    "entries before the one before": RaftMessage(APP, 2, 1, 2, log_term=2, index=3, entries=[entry(1, 4)]),
    "entries of a term to come": RaftMessage(APP, 2, 1, 1, log_term=1, index=3, entries=[entry(2, 4)]),
    "entries without term": RaftMessage(APP, 2, 1, 1, entries=[entry(0, 1)]),
    "no snapshot": RaftMessage(SNAP, 2, 1, 1),
    "snapshot of nothing": RaftMessage(SNAP, 2, 1, 1, snapshot=snapshot(0, 0, [1, 2, 3])),
    "snapshot of a term to come": RaftMessage(SNAP, 2, 1, 1, snapshot=snapshot(9, 2, [1, 2, 3])),
    "snapshot without voters": RaftMessage(SNAP, 2, 1, 1, snapshot=snapshot(9, 1, [], [1, 2])),
    "snapshot naming one twice": RaftMessage(SNAP, 2, 1, 1, snapshot=snapshot(9, 1, [1, 2, 2])),
    "snapshot of a voting learner": RaftMessage(SNAP, 2, 1, 1, snapshot=snapshot(9, 1, [1, 2], [2])),
    "snapshot with node 0": RaftMessage(SNAP, 2, 1, 1, snapshot=snapshot(9, 1, [0, 1, 2])),
    "proposal of nothing": RaftMessage(PROP, 2, 3),
    "proposal with a term": RaftMessage(PROP, 2, 3, 1, entries=[entry(0, 0)]),
    "proposal of a damaged change": RaftMessage(PROP, 2, 3, entries=[entry(0, 0, EntryType.CONF_CHANGE)]),
    "proposal of unknown type": RaftMessage(PROP, 2, 3, entries=[entry(0, 0, 7)]),
    "read without context": RaftMessage(MessageType.READ_INDEX, 2, 3),
    "answer to a read without context": RaftMessage(MessageType.READ_INDEX_RESP, 2, 1, 1),
    "election": RaftMessage(MessageType.HUP, 2, 1),
    "quorum check": RaftMessage(MessageType.CHECK_QUORUM, 2, 1),
    "report": RaftMessage(MessageType.UNREACHABLE, 2, 1),
    "forget": RaftMessage(MessageType.FORGET_LEADER, 2, 1),
    "storage": RaftMessage(MessageType.STORAGE_APPEND_RESP, 2, LOCAL_APPEND_THREAD, 1, 1, 3),
}

TO_LEADER = {
    "answer of a stranger": RaftMessage(MessageType.APP_RESP, 1, 9, 1, index=3),
    "vote of a stranger": RaftMessage(MessageType.VOTE_RESP, 1, 9, 1),
    "entries that were never sent": RaftMessage(MessageType.APP_RESP, 1, 2, 1, index=99),
    "hint after the end": RaftMessage(MessageType.APP_RESP, 1, 2, 1, index=3, reject=True, reject_hint=99),
    "damaged context": RaftMessage(MessageType.HEARTBEAT_RESP, 1, 2, 1, context=b"abc"),
    "damaged change": RaftMessage(PROP, 1, 2, entries=[entry(0, 0), entry(0, 0, EntryType.CONF_CHANGE_V2)]),
}


@pytest.mark.parametrize("name", TO_FOLLOWER)
def test_a_follower_refuses(name: str) -> None:
    member = group_with_leader()[2]
    before = picture(member)
    with pytest.raises(RaftError):
        member.node.step(TO_FOLLOWER[name])
    assert picture(member) == before


@pytest.mark.parametrize("name", TO_LEADER)
def test_a_leader_refuses(name: str) -> None:
    member = group_with_leader()[1]
    before = picture(member)
    with pytest.raises(RaftError):
        member.node.step(TO_LEADER[name])
    assert picture(member) == before


def test_answers_of_strangers_are_told_apart() -> None:
    with pytest.raises(UnknownPeer):
        group_with_leader()[1].node.step(TO_LEADER["answer of a stranger"])


def test_storage_is_believed_only_about_what_was_handed_to_it() -> None:
    member = group_with_leader(async_storage_writes=True)[2]
    before = picture(member)
    for index in (1, 99):
        applied = RaftMessage(
            MessageType.STORAGE_APPLY_RESP, 2, LOCAL_APPLY_THREAD, entries=[entry(1, index)]
        )
        with pytest.raises(RaftError):
            member.node.step(applied)
    with pytest.raises(RaftError):
        member.node.step(RaftMessage(MessageType.STORAGE_APPEND_RESP, 2, LOCAL_APPLY_THREAD, 1, 1, 3))
    assert picture(member) == before


SMALL = st.integers(min_value=-1, max_value=6)
ANY_ENTRY = st.builds(Entry, SMALL, SMALL, st.integers(0, 3), st.binary(max_size=4))
ANY_SNAPSHOT = st.builds(
    snapshot, SMALL, SMALL, st.lists(st.integers(0, 4), max_size=4), st.lists(st.integers(0, 4), max_size=2)
)
ANY_MESSAGE = st.builds(
    RaftMessage,
    type=st.integers(min_value=-1, max_value=25),
    to=st.integers(min_value=0, max_value=3),
    from_=st.one_of(st.integers(min_value=-1, max_value=5), st.sampled_from([LOCAL_APPEND_THREAD])),
    term=SMALL,
    log_term=SMALL,
    index=SMALL,
    commit=SMALL,
    reject=st.booleans(),
    reject_hint=SMALL,
    entries=st.lists(ANY_ENTRY, max_size=3),
    snapshot=st.one_of(st.none(), ANY_SNAPSHOT),
    context=st.one_of(st.just(b""), st.binary(max_size=16)),
)


@settings(max_examples=200, deadline=None)
@given(messages=st.lists(st.tuples(st.integers(1, 3), ANY_MESSAGE), max_size=12))
def test_whatever_arrives_only_documented_errors_come_of_it(messages: list[tuple[int, RaftMessage]]) -> None:
    """A liar can unseat a leader, but not break a node: it goes on working, and its commit index is in its log."""
    group = group_with_leader()
    for node_id, message in messages:
        member = group[node_id]
        before = picture(member)
        try:
            member.node.step(message)
        except ProposalDropped:
            pass
        except RaftError:
            assert picture(member) == before
        log = member.node.raft.raft_log
        assert log.applied <= log.applying <= log.committed <= log.last_index()
        while member.node.has_ready():
            ready = member.node.ready()
            if ready.snapshot is not None:
                member.storage.apply_snapshot(ready.snapshot)
            member.storage.append(ready.entries)
            member.node.advance()
        member.node.tick()
