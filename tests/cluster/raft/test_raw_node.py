"""The contract of Ready and advance, limits, and what else a caller relies on."""

import pytest

from mayfly.cluster.raft import (
    LOCAL_APPEND_THREAD,
    NO_LIMIT,
    Config,
    ConfState,
    Entry,
    HardState,
    MessageType,
    ProposalDropped,
    RaftError,
    RaftMessage,
    RawNode,
    Snapshot,
    SnapshotMetadata,
    StateType,
)
from simulation.cluster.memory_storage import MemoryStorage
from tests.cluster.raft.simulated_group import SimulatedGroup


def storage_of(voters: list[int], index: int = 1) -> MemoryStorage:
    storage = MemoryStorage()
    storage.apply_snapshot(Snapshot(SnapshotMetadata(index, 1, ConfState(voters))))
    return storage


def node_of(storage: MemoryStorage, applied: int = 0, **options: int) -> RawNode:
    return RawNode(
        Config(1, 10, 1, storage, lambda limit: 0, applied=applied, **options)  # type: ignore[arg-type]
    )


def drain(node: RawNode, storage: MemoryStorage) -> list[Entry]:
    """Work off all there is of a group of one; returns what was committed."""
    committed = []
    while node.has_ready():
        ready = node.ready()
        storage.append(ready.entries)
        if ready.hard_state is not None:
            storage.set_hard_state(ready.hard_state)
        committed += ready.committed_entries
        node.advance()
    return committed


def lone_leader(**options: int) -> tuple[RawNode, MemoryStorage]:
    storage = storage_of([1])
    node = node_of(storage, **options)
    node.campaign()
    drain(node, storage)
    assert node.raft.state == StateType.LEADER
    return node, storage


def test_a_new_node_has_nothing_to_hand_over() -> None:
    assert not node_of(storage_of([1, 2, 3])).has_ready()


def test_a_ready_must_be_advanced_before_the_next() -> None:
    node = node_of(storage_of([1, 2, 3]))
    node.campaign()
    node.ready()
    with pytest.raises(RaftError):
        node.ready()
    node.advance()
    assert not node.has_ready()


def test_steps_and_proposals_between_ready_and_advance_are_in_the_next_ready() -> None:
    node, storage = lone_leader()
    node.propose(b"first")
    ready = node.ready()
    node.propose(b"second")
    storage.append(ready.entries)
    node.advance()
    assert [entry.data for entry in node.ready().entries] == [b"second"]


def test_a_leaders_appends_and_vote_requests_needn_t_wait_for_the_disk() -> None:
    group = SimulatedGroup(3)
    node = group[1].node
    node.campaign()
    ready = node.ready()
    assert [m.type for m in ready.messages_now] == [MessageType.VOTE, MessageType.VOTE]
    assert ready.messages_after_append == []
    group.send(ready.messages_now)
    node.advance()
    group.settle()
    node.propose(b"data")
    ready = node.ready()
    assert [m.type for m in ready.messages_now] == [MessageType.APP, MessageType.APP]
    assert ready.messages_after_append == []
    assert ready.messages == ready.messages_now
    assert len(ready.entries) == 1


def test_votes_and_acknowledgements_wait_for_the_disk() -> None:
    node = node_of(storage_of([1, 2, 3]))
    node.step(RaftMessage(MessageType.VOTE, 1, 2, 2, 1, 1))
    node.step(RaftMessage(MessageType.APP, 1, 2, 2, 1, 1, entries=[Entry(2, 2)]))
    node.step(RaftMessage(MessageType.HEARTBEAT, 1, 2, 2))
    ready = node.ready()
    assert [m.type for m in ready.messages_now] == [MessageType.HEARTBEAT_RESP]
    assert [m.type for m in ready.messages_after_append] == [MessageType.VOTE_RESP, MessageType.APP_RESP]
    assert ready.messages == ready.messages_now + ready.messages_after_append


def test_only_terms_votes_and_entries_need_a_sync() -> None:
    node, storage = lone_leader()
    node.propose(b"data")
    ready = node.ready()
    assert ready.must_sync
    storage.append(ready.entries)
    node.advance()
    ready = node.ready()
    assert not ready.must_sync
    assert ready.hard_state == HardState(1, 1, 3)
    node.advance()


def test_a_batch_is_taken_together() -> None:
    node, _ = lone_leader()
    node.propose_batch([b"a", b"b", b"c"])
    assert [entry.data for entry in node.ready().entries] == [b"a", b"b", b"c"]
    node.propose_batch([])


def test_proposals_without_a_leader_are_dropped() -> None:
    node = node_of(storage_of([1, 2, 3]))
    with pytest.raises(ProposalDropped):
        node.propose(b"data")
    node.campaign()
    with pytest.raises(ProposalDropped):
        node.propose(b"data")
    with pytest.raises(ProposalDropped):
        node.read_index(b"read")


def test_followers_pass_proposals_on() -> None:
    node = node_of(storage_of([1, 2, 3]))
    node.step(RaftMessage(MessageType.HEARTBEAT, 1, 2, 2))
    node.propose(b"data")
    passed = node.ready().messages_now[-1]
    assert (passed.type, passed.to, passed.from_, passed.term) == (MessageType.PROP, 2, 1, 0)
    assert passed.entries == [Entry(data=b"data")]


def test_followers_told_not_to_pass_proposals_on_drop_them() -> None:
    node = node_of(storage_of([1, 2, 3]), disable_proposal_forwarding=True)
    node.step(RaftMessage(MessageType.HEARTBEAT, 1, 2, 2))
    with pytest.raises(ProposalDropped):
        node.propose(b"data")


def test_the_uncommitted_tail_is_limited() -> None:
    """The first proposal always goes, empty ones always go, and what is applied makes room."""
    node, storage = lone_leader(max_uncommitted_bytes=100)
    node.propose(b"x" * 500)
    for size in (1, 100):
        with pytest.raises(ProposalDropped):
            node.propose(b"y" * size)
    node.propose(b"")
    assert [len(entry.data) for entry in drain(node, storage)] == [500, 0]
    node.propose(b"z" * 60)
    node.propose(b"z" * 40)
    with pytest.raises(ProposalDropped):
        node.propose(b"z")


def test_what_is_handed_out_for_applying_comes_in_pages() -> None:
    node, storage = lone_leader(max_committed_size_per_ready=100)
    node.propose_batch([b"x" * 60] * 3)
    sizes = []
    while node.has_ready():
        ready = node.ready()
        storage.append(ready.entries)
        sizes.append(len(ready.committed_entries))
        node.advance()
    assert [size for size in sizes if size] == [1, 1, 1]


def test_after_a_restart_committed_entries_are_handed_out_again_from_applied_on() -> None:
    node, storage = lone_leader()
    node.propose_batch([b"a", b"b"])
    drain(node, storage)
    again = node_of(storage)
    assert [entry.data for entry in drain(again, storage)] == [b"", b"a", b"b"]
    assert again.raft.term == node.raft.term
    later = node_of(storage, applied=3)
    assert [entry.data for entry in drain(later, storage)] == [b"b"]


def test_a_log_that_lost_committed_entries_is_refused() -> None:
    storage = storage_of([1])
    storage.set_hard_state(HardState(3, 1, 9))
    with pytest.raises(RaftError):
        node_of(storage)


def test_a_stored_commit_index_before_the_snapshot_is_no_harm() -> None:
    storage = storage_of([1], index=5)
    storage.set_hard_state(HardState(3, 1, 2))
    assert node_of(storage).raft.raft_log.committed == 5


def test_asynchronous_writes_are_messages_and_need_no_advance() -> None:
    group = SimulatedGroup(1, async_storage_writes=True)
    node = group[1].node
    node.campaign()
    ready = node.ready()
    assert [(m.type, m.to) for m in ready.messages] == [(MessageType.STORAGE_APPEND, LOCAL_APPEND_THREAD)]
    assert [m.type for m in ready.messages[0].responses] == [MessageType.VOTE_RESP]
    assert (ready.messages_now, ready.messages_after_append) == ([], [])
    with pytest.raises(RaftError):
        node.advance()
    node.step(ready.messages[0].responses[0])
    assert node.raft.state == StateType.LEADER


def test_status_shows_a_copy() -> None:
    node, _ = lone_leader()
    status = node.status()
    assert (status.id, status.lead, status.state, status.applied) == (1, 1, StateType.LEADER, 2)
    assert status.hard_state == HardState(1, 1, 2)
    status.progress[1].match = 99
    status.configuration.incoming.add(9)
    assert node.raft.tracker.progress[1].match == 2
    assert not node.raft.tracker.configuration.is_voter(9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 0},
        {"id": 1 << 63},
        {"heartbeat_tick": 0},
        {"election_tick": 1},
        {"max_inflight_messages": 0},
        {"max_inflight_bytes": 5, "max_size_per_message": 6},
        {"read_only_option": 1},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    settings: dict[str, object] = {
        "id": 1,
        "election_tick": 10,
        "heartbeat_tick": 1,
        "storage": MemoryStorage(),
        "random": lambda limit: 0,
        "max_size_per_message": 1,
    }
    Config(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Config(**(settings | wrong))  # type: ignore[arg-type]


def test_the_trace_is_told_of_changes_of_role_and_of_nothing_secret() -> None:
    sentences: list[str] = []
    storage = storage_of([1])
    node = RawNode(Config(1, 10, 1, storage, lambda limit: 0, trace=sentences.append))
    node.campaign()
    drain(node, storage)
    node.propose(b"secret")
    drain(node, storage)
    assert any("leader" in sentence for sentence in sentences)
    assert not any("secret" in sentence for sentence in sentences)


def test_messages_are_limited_in_size_but_carry_at_least_one_entry() -> None:
    group = SimulatedGroup(3)
    group[1].node.campaign()
    group.settle()
    node = group[1].node
    node.propose_batch([b"x" * 50] * 4)
    node.propose(b"y" * 500)
    group[1].begin()
    sent = [m for m in group.network if m.to == 2]
    assert [len(m.entries) for m in sent] == [1, 1], "of at most 120 bytes, the rest when these are answered"
    group.heal()
    assert group[2].applied == node.raft.raft_log.last_index()


def test_max_inflight_messages_holds_back_what_is_too_much() -> None:
    group = SimulatedGroup(2)
    group[1].node.campaign()
    group.settle()
    node = group[1].node
    for _ in range(10):
        node.propose(b"x")
    group[1].begin()
    assert len([m for m in group.network if m.entries]) == 4
    group.heal()
    assert group[2].applied == node.raft.raft_log.last_index()


def test_max_inflight_bytes_holds_back_what_is_too_much() -> None:
    group = SimulatedGroup(2, max_inflight_bytes=120)
    group[1].node.campaign()
    group.settle()
    node = group[1].node
    for _ in range(10):
        node.propose(b"x" * 50)
    group[1].begin()
    assert len([m for m in group.network if m.entries]) == 3, "the one that crosses the limit still goes"
    group.heal()
    assert group[2].applied == node.raft.raft_log.last_index()


def test_no_limit_is_larger_than_any_size() -> None:
    assert NO_LIMIT > 1 << 60
