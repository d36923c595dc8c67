"""The log: storage and the unstable end as one, against a plain list as a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.raft import (
    Compacted,
    ConfChange,
    ConfChangeType,
    ConfState,
    Entry,
    RaftError,
    Snapshot,
    SnapshotMetadata,
    Unavailable,
    encode_conf_change,
    entry_bytes,
)
from mayfly.cluster.raft.log import RaftLog
from mayfly.cluster.raft.messages import NO_LIMIT
from mayfly.cluster.raft.unstable import Unstable
from simulation.cluster.memory_storage import MemoryStorage


def entries_of(terms: list[int], first: int = 1) -> list[Entry]:
    return [Entry(term, first + position, data=b"%d" % term) for position, term in enumerate(terms)]


def log_of(stable: list[int], unstable: list[int] | None = None, compacted: int = 0) -> RaftLog:
    """A log of entries with these terms, the first ``compacted`` of them gone from storage."""
    storage = MemoryStorage()
    storage.append(entries_of(stable))
    if compacted:
        storage.create_snapshot(compacted, ConfState([1]), b"")
        storage.compact(compacted)
    log = RaftLog(storage, NO_LIMIT)
    log.append(entries_of(unstable or [], len(stable) + 1))
    return log


def terms_in(log: RaftLog) -> list[int]:
    return [entry.term for entry in log.entries_from(log.first_index(), NO_LIMIT)]


def test_terms_come_from_storage_and_from_the_unstable_end() -> None:
    log = log_of([1, 1, 2], [3, 4], compacted=1)
    assert [log.term(index) for index in range(1, 6)] == [1, 1, 2, 3, 4]
    with pytest.raises(Compacted):
        log.term(0)
    with pytest.raises(Unavailable):
        log.term(6)
    assert log.term_or_zero(0) == log.term_or_zero(6) == 0


def test_slices_span_the_border_and_respect_the_limit() -> None:
    log = log_of([1, 1], [2, 2])
    size = entry_bytes(entries_of([1])[0])
    assert [entry.index for entry in log.slice(1, 5, NO_LIMIT)] == [1, 2, 3, 4]
    assert [entry.index for entry in log.slice(2, 5, 2 * size)] == [2, 3]
    assert [entry.index for entry in log.slice(2, 5, size)] == [2]
    assert [entry.index for entry in log.slice(3, 5, 1)] == [3], "one entry always goes"
    assert log.entries_from(5, NO_LIMIT) == []


def test_slices_before_the_first_entry_are_compacted() -> None:
    log = log_of([1, 1, 1], compacted=2)
    with pytest.raises(Compacted):
        log.slice(2, 4, NO_LIMIT)


@pytest.mark.parametrize(
    ("index", "term", "complete"),
    [(3, 3, True), (4, 3, True), (2, 3, False), (1, 4, True), (9, 2, False)],
)
def test_up_to_date_goes_by_term_and_then_by_length(index: int, term: int, complete: bool) -> None:
    assert log_of([1, 2, 3]).is_up_to_date(index, term) is complete


def test_the_commit_index_never_goes_back_and_never_past_the_end() -> None:
    log = log_of([1, 1])
    log.commit_to(2)
    log.commit_to(1)
    assert log.committed == 2
    with pytest.raises(RaftError):
        log.commit_to(3)
    assert log.committed == 2


def test_committed_entries_are_not_replaced() -> None:
    log = log_of([1, 1])
    log.commit_to(2)
    with pytest.raises(RaftError):
        log.append(entries_of([2], first=2))
    assert terms_in(log) == [1, 1]


def test_what_is_committed_is_handed_out_once_and_in_pages() -> None:
    storage = MemoryStorage()
    storage.append(entries_of([1, 1, 1]))
    size = entry_bytes(entries_of([1])[0])
    log = RaftLog(storage, 2 * size)
    log.commit_to(3)
    page = log.next_committed(allow_unstable=True)
    assert [entry.index for entry in page] == [1, 2]
    log.accept_applying(2, 2 * size, allow_unstable=True)
    assert not log.has_next_committed(allow_unstable=True), "the limit is reached"
    log.applied_to(2, 2 * size)
    assert [entry.index for entry in log.next_committed(allow_unstable=True)] == [3]


def test_entries_that_are_not_stored_are_not_applied_unless_allowed() -> None:
    log = log_of([1], [1])
    log.commit_to(2)
    assert [entry.index for entry in log.next_committed(allow_unstable=False)] == [1]
    assert [entry.index for entry in log.next_committed(allow_unstable=True)] == [1, 2]


def test_applied_stays_between_before_and_committed() -> None:
    log = log_of([1, 1])
    log.commit_to(1)
    with pytest.raises(RaftError):
        log.applied_to(2, 0)
    log.applied_to(1, 0)
    with pytest.raises(RaftError):
        log.applied_to(0, 0)


def test_membership_changes_that_are_not_applied_are_found() -> None:
    log = log_of([1])
    change = encode_conf_change(ConfChange(ConfChangeType.ADD_NODE, 2))
    log.append([Entry(1, 2, change.type, change.data)])
    log.commit_to(1)
    assert not log.has_unapplied_conf_change()
    log.commit_to(2)
    assert log.has_unapplied_conf_change()
    log.applied_to(2, 0)
    assert not log.has_unapplied_conf_change()


def test_a_snapshot_replaces_the_log_and_goes_before_entries() -> None:
    log = log_of([1, 1], [2])
    log.restore(Snapshot(SnapshotMetadata(9, 4, ConfState([1]))))
    assert (log.first_index(), log.last_index(), log.last_term(), log.committed) == (10, 9, 4, 9)
    assert log.matches(9, 4)
    log.append(entries_of([5], first=10))
    log.commit_to(10)
    assert log.next_committed(allow_unstable=True) == []
    log.unstable.stable_snapshot_to(8)
    assert log.unstable.snapshot is not None, "another one"
    log.unstable.stable_snapshot_to(9)
    assert log.unstable.snapshot is None


@pytest.mark.parametrize(
    ("ours", "index", "term", "expected"),
    [
        ([1, 3, 3, 3, 5, 5], 6, 2, (1, 1)),
        ([1, 1, 1, 1, 2, 2], 6, 5, (6, 2)),
        ([2, 2], 2, 1, (0, 0)),
        ([1, 2], 5, 2, (5, 0)),
    ],
)
def test_agreement_skips_whole_terms(
    ours: list[int], index: int, term: int, expected: tuple[int, int]
) -> None:
    """Section 5.3: one refusal per term instead of one per entry."""
    assert log_of(ours).find_agreement(index, term) == expected


# Against a model: a list of terms, cut and extended as figure 2 says.

TERMS = st.lists(st.integers(min_value=0, max_value=2), max_size=6)


def rising(steps: list[int], start: int = 1) -> list[int]:
    terms = []
    for step in steps:
        start += step
        terms.append(start)
    return terms


@given(steps=TERMS, stored=st.integers(min_value=0, max_value=6), sent=TERMS, after=st.integers(0, 8))
def test_appending_keeps_what_agrees_and_replaces_what_does_not(
    steps: list[int], stored: int, sent: list[int], after: int
) -> None:
    """Figure 2, AppendEntries 2 to 4."""
    model = rising(steps)
    log = log_of(model[:stored], model[stored:])
    previous = model[after - 1] if 0 < after <= len(model) else (0 if after == 0 else 99)
    new = rising(sent, previous)
    last = log.maybe_append(after, previous, entries_of(new, after + 1), 0)
    if after > len(model):
        assert last == -1
    else:
        assert last == after + len(new)
        for position, term in enumerate(new, after):
            if position >= len(model) or model[position] != term:
                model = model[:after] + new
                break
    assert terms_in(log) == model
    assert log.last_index() == len(model)
    assert log.last_term() == (model[-1] if model else 0)


@given(
    moves=st.lists(
        st.tuples(st.sampled_from(["append", "accept", "stable"]), st.integers(0, 9), st.integers(1, 3)),
        max_size=25,
    )
)
def test_the_unstable_end_forgets_only_what_storage_has(moves: list[tuple[str, int, int]]) -> None:
    unstable = Unstable(1)
    term = 1
    model: dict[int, int] = {}
    stored: dict[int, int] = {}
    written: list[dict[int, int]] = []
    for move, position, count in moves:
        end = unstable.offset + len(unstable.entries)
        if move == "append":
            first = max(1, end - position)
            term += 1
            unstable.truncate_and_append(entries_of([term] * count, first))
            model = {index: own for index, own in model.items() if index < first}
            model |= dict.fromkeys(range(first, first + count), term)
        elif move == "accept":
            fresh = unstable.next_entries()
            if fresh:
                written.append({entry.index: entry.term for entry in fresh})
            unstable.accept()
            assert not unstable.has_next_entries()
        elif written:
            batch = written.pop(0)
            stored = {index: own for index, own in stored.items() if index < min(batch)} | batch
            # Only a write that no later one replaces may be reported.
            if not written and not unstable.has_next_entries():
                unstable.stable_to(max(batch), batch[max(batch)])
                assert unstable.entries == []
        held = {entry.index: entry.term for entry in unstable.entries}
        assert {index: own for index, own in stored.items() if index < unstable.offset} | held == model


def test_a_late_report_of_a_replaced_entry_changes_nothing() -> None:
    unstable = Unstable(1)
    unstable.truncate_and_append(entries_of([1, 1]))
    unstable.accept()
    unstable.truncate_and_append(entries_of([2], first=2))
    unstable.stable_to(2, 1)
    assert [entry.term for entry in unstable.entries] == [1, 2]
    assert [entry.term for entry in unstable.next_entries()] == [2]
    unstable.stable_to(7, 2)
    unstable.stable_to(1, 1)
    assert unstable.offset == 2


def test_lists_that_were_handed_out_do_not_change() -> None:
    unstable = Unstable(1)
    given_in = entries_of([1])
    unstable.truncate_and_append(given_in)
    out = unstable.next_entries()
    unstable.truncate_and_append(entries_of([1, 1], first=2))
    assert len(given_in) == len(out) == 1


def test_a_gap_is_refused() -> None:
    unstable = Unstable(1)
    with pytest.raises(RaftError):
        unstable.truncate_and_append(entries_of([1], first=3))
