"""How Raft reads a group's log: terms in memory, payloads from the cache or the store."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.log.batch import MissingEntry, StoredSnapshot, WriteBatch
from mayfly.cluster.log.group_log import CACHED_ENTRY_OVERHEAD_BYTES, EntryCache, GroupLog
from mayfly.cluster.raft import (
    NO_LIMIT,
    Compacted,
    ConfState,
    Entry,
    HardState,
    Snapshot,
    SnapshotMetadata,
    SnapshotTemporarilyUnavailable,
    Unavailable,
)
from mayfly.cluster.raft.storage import Storage
from simulation.cluster.memory_store import MemoryStore

GROUP = 5


def entry(index: int, term: int = 1, size: int = 10) -> Entry:
    return Entry(term, index, 0, b"%d" % index + b"." * size)


class Stand:
    """A group's log over a store in memory; both are told of every write, as a host does."""

    def __init__(self, budget_bytes: int = 10_000) -> None:
        self.store = MemoryStore()
        self.cache = EntryCache(budget_bytes)
        self.reads: list[int] = []
        self.log = GroupLog(GROUP, self.read, self.cache)

    def read(self, group: int, index: int) -> Entry:
        self.reads.append(index)
        return self.store.read_entry(group, index)

    def append(self, *entries: Entry) -> None:
        batch = WriteBatch()
        batch.group(GROUP).entries = list(entries)
        self.store.write(batch)
        self.log.append(list(entries))

    def compact(self, index: int, live: set[int]) -> None:
        metadata = SnapshotMetadata(index, self.log.term(index), ConfState([1]))
        batch = WriteBatch()
        batch.group(GROUP).snapshot = StoredSnapshot(metadata, b"state")
        batch.group(GROUP).release = [i for i in range(self.log.first_index(), index + 1) if i not in live]
        self.store.write(batch)
        self.log.compact(metadata, live)

    def release(self, index: int) -> None:
        batch = WriteBatch()
        batch.group(GROUP).release = [index]
        self.store.write(batch)
        self.log.release(index)

    def install(self, index: int, term: int, live: list[Entry]) -> None:
        metadata = SnapshotMetadata(index, term, ConfState([1]))
        batch = WriteBatch()
        write = batch.group(GROUP)
        write.install = True
        write.snapshot = StoredSnapshot(metadata, b"state")
        write.live_entries = live
        self.store.write(batch)
        self.log.install_snapshot(metadata)


def test_it_is_a_storage() -> None:
    storage: Storage = Stand().log
    assert storage.first_index() == 1
    assert storage.last_index() == 0
    assert storage.term(0) == 0
    assert storage.initial_state() == (HardState(), ConfState())


def test_bounds_are_those_of_a_storage() -> None:
    stand = Stand()
    stand.append(entry(1), entry(2), entry(3, 2), entry(4, 2))
    stand.compact(2, set())
    log = stand.log
    assert (log.first_index(), log.last_index(), log.snapshot_index()) == (3, 4, 2)
    assert [log.term(index) for index in (2, 3, 4)] == [1, 2, 2]
    with pytest.raises(Compacted):
        log.term(1)
    with pytest.raises(Unavailable):
        log.term(5)
    with pytest.raises(Compacted):
        log.entries(2, 4, NO_LIMIT)
    with pytest.raises(Unavailable):
        log.entries(3, 6, NO_LIMIT)
    assert log.entries(3, 5, NO_LIMIT) == [entry(3, 2), entry(4, 2)]
    assert log.entries(3, 3, NO_LIMIT) == []


def test_entries_keep_within_the_limit_but_give_one_at_least() -> None:
    stand = Stand()
    stand.append(*[entry(index, size=99) for index in range(1, 10)])
    assert [e.index for e in stand.log.entries(1, 10, 0)] == [1]
    assert [e.index for e in stand.log.entries(1, 10, 300)] == [1, 2, 3]
    assert [e.index for e in stand.log.entries(2, 5, NO_LIMIT)] == [2, 3, 4]


def test_what_the_cache_lost_comes_from_the_store_and_is_cached_again() -> None:
    stand = Stand(budget_bytes=3 * (CACHED_ENTRY_OVERHEAD_BYTES + 20))
    stand.append(*[entry(index) for index in range(1, 8)])
    assert stand.log.data(7) == entry(7).data
    assert stand.reads == []
    assert stand.log.data(1) == entry(1).data
    assert stand.log.data(1) == entry(1).data
    assert stand.reads == [1]
    assert stand.log.entries(1, 8, NO_LIMIT) == [entry(index) for index in range(1, 8)]
    assert stand.cache.used_bytes <= stand.cache.budget_bytes


def test_live_entries_stay_readable_below_the_snapshot_until_released() -> None:
    stand = Stand()
    stand.append(*[entry(index) for index in range(1, 8)])
    stand.compact(5, {2, 4})
    assert stand.log.data(2) == entry(2).data
    with pytest.raises(MissingEntry):
        stand.log.data(3)
    stand.release(2)
    with pytest.raises(MissingEntry):
        stand.log.data(2)
    assert stand.log.data(4) == entry(4).data


def test_a_truncated_tail_is_not_read_from_the_cache() -> None:
    stand = Stand()
    stand.append(*[entry(index) for index in range(1, 8)])
    stand.append(entry(4, 3), entry(5, 3))
    assert stand.log.last_index() == 5
    assert stand.log.entries(3, 6, NO_LIMIT) == [entry(3), entry(4, 3), entry(5, 3)]
    with pytest.raises(MissingEntry):
        stand.log.data(6)


def test_an_install_forgets_everything_else_of_the_group() -> None:
    stand = Stand()
    stand.append(*[entry(index) for index in range(1, 8)])
    stand.cache.put(GROUP + 1, entry(3))
    stand.install(20, 4, [entry(3, 2), entry(19, 4)])
    assert (stand.log.first_index(), stand.log.last_index(), stand.log.term(20)) == (21, 20, 4)
    assert stand.log.data(3) == entry(3, 2).data
    with pytest.raises(MissingEntry):
        stand.log.data(5)
    assert stand.cache.get(GROUP + 1, 3) == entry(3)


def test_mistakes_are_refused() -> None:
    stand = Stand()
    stand.append(entry(1), entry(2))
    for wrong in (0, 4):
        with pytest.raises(ValueError, match="group 5"):
            stand.log.append([entry(wrong)])
    with pytest.raises(ValueError, match="group 5"):
        stand.log.compact(SnapshotMetadata(3, 1), set())
    stand.log.append([])
    assert stand.log.last_index() == 2


def test_a_snapshot_for_a_peer_is_made_when_asked() -> None:
    stand = Stand()
    log = stand.log
    stand.append(*[entry(index) for index in range(1, 8)])
    with pytest.raises(SnapshotTemporarilyUnavailable):
        log.snapshot()

    made = Snapshot(SnapshotMetadata(6, 1, ConfState([1, 2])), b"state")
    log.make_snapshot = lambda: made
    assert log.snapshot() is made
    log.make_snapshot = lambda: Snapshot(SnapshotMetadata(3, 1), b"")
    stand.compact(4, set())
    with pytest.raises(SnapshotTemporarilyUnavailable):
        log.snapshot()


def test_load_takes_over_what_was_stored() -> None:
    stand = Stand()
    stand.append(entry(1), entry(2), entry(3, 2), entry(4, 7))
    stand.compact(2, {1})
    again = GroupLog(GROUP, stand.read, EntryCache(10_000))
    again.load(stand.store.load()[GROUP])
    assert (again.first_index(), again.last_index()) == (3, 4)
    assert [again.term(index) for index in (2, 3, 4)] == [1, 2, 7]
    assert again.data(1) == entry(1).data
    assert again.initial_state()[1] == ConfState([1])


def test_what_is_spent_leaves_the_cache_up_to_the_first_that_is_needed() -> None:
    stand = Stand()
    stand.append(*[entry(index) for index in range(1, 6)])
    asked: list[tuple[int, int]] = []

    def is_spent(group: int, index: int) -> bool:
        asked.append((group, index))
        return index != 3

    stand.cache.drop_spent(is_spent)
    assert asked == [(GROUP, 1), (GROUP, 2), (GROUP, 3)], "nothing is looked at behind what is needed"
    assert len(stand.cache) == 3
    assert stand.cache.used_bytes == 3 * (len(entry(3).data) + CACHED_ENTRY_OVERHEAD_BYTES)
    assert [stand.log.data(index) for index in range(1, 6)] == [entry(index).data for index in range(1, 6)]
    assert stand.reads == [1, 2], "what was dropped is read back, the others are there"
    stand.cache.drop_spent(lambda group, index: True)
    assert (len(stand.cache), stand.cache.used_bytes) == (0, 0)


ACTIONS = ("append", "append", "overwrite", "compact", "release", "install")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_it_agrees_with_a_plain_list(data: st.DataObject) -> None:
    stand = Stand(budget_bytes=data.draw(st.sampled_from([0, 700, 3_000, 1_000_000])))
    log = stand.log
    model: dict[int, Entry] = {}
    floor, last, term = 0, 0, 1
    for _ in range(data.draw(st.integers(1, 15))):
        action = data.draw(st.sampled_from(ACTIONS))
        term += data.draw(st.integers(0, 1))
        if action in ("append", "overwrite"):
            first = last + 1 if action == "append" else data.draw(st.integers(floor + 1, last + 1))
            fresh = [entry(first + offset, term) for offset in range(data.draw(st.integers(1, 5)))]
            stand.append(*fresh)
            model = {index: e for index, e in model.items() if index < first} | {e.index: e for e in fresh}
            last = fresh[-1].index
        elif action == "compact":
            index = data.draw(st.integers(floor, last))
            live = data.draw(st.sets(st.integers(1, max(1, index)), max_size=5))
            dead = [i for i in range(floor + 1, index + 1) if i not in live]
            if index > 0:
                stand.compact(index, live)
                model = {i: e for i, e in model.items() if i not in dead}
                floor = index
        elif action == "release" and floor:
            index = data.draw(st.integers(1, floor))
            stand.release(index)
            model.pop(index, None)
        elif action == "install":
            floor = last = data.draw(st.integers(last + 1, last + 10))
            live = data.draw(st.sets(st.integers(1, floor), max_size=4))
            model = {index: entry(index, term) for index in live}
            stand.install(floor, term, [model[index] for index in sorted(model)])
        assert (log.first_index(), log.last_index()) == (floor + 1, last)
        expected = [model[index] for index in range(floor + 1, last + 1)]
        assert log.entries(floor + 1, last + 1, NO_LIMIT) == expected
        assert [log.term(e.index) for e in expected] == [e.term for e in expected]
        for index in range(1, last + 2):
            if index in model:
                assert log.data(index) == model[index].data
            else:
                with pytest.raises(MissingEntry):
                    log.data(index)
        assert stand.cache.used_bytes == sum(
            len(e.data) + CACHED_ENTRY_OVERHEAD_BYTES for e in stand.cache._entries.values()
        )
