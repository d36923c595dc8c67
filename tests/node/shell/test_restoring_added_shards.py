"""A lost cluster begun anew where shards had been added: which of them are there, and which may be missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mayfly.cluster.group.settings import BOOTSTRAP_INDEX
from mayfly.cluster.log.batch import StoredGroup, WriteBatch
from mayfly.cluster.raft import Entry
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.catalog import AddShards
from mayfly.node.membership.identity import Identity, KnownMembers
from mayfly.node.shell.data_folder import DataFolder, OwnRecord
from mayfly.node.shell.restoring import RestoreRefused, restore
from tests.node.broker.three_brokers import SHARDS, ThreeBrokers

MAP_BYTES = 1 << 26
ADDED = (SHARDS + 1, SHARDS + 2)


class DyingStore:
    """A node's store; with `dies` set the process is killed before it has written anything of an added shard."""

    def __init__(self, folder: Path, dies: bool) -> None:
        DataFolder(folder).log.mkdir(parents=True)
        self.store = WriteAheadStore(DataFolder(folder).log, MAP_BYTES)
        self._dies = dies

    def load(self) -> dict[int, StoredGroup]:
        return self.store.load()

    def write(self, batch: WriteBatch) -> None:
        if self._dies:
            for group in ADDED:
                batch.groups.pop(group, None)
        if batch.groups:
            self.store.write(batch)

    def read_entry(self, group: int, index: int) -> Entry:
        return self.store.read_entry(group, index)


def copies(folder: Path, *dying: int) -> Iterator[Path]:
    """The folders of three nodes that had added shards when all of them were lost."""
    stores: dict[int, DyingStore] = {}

    def make(id: int) -> DyingStore:
        stores[id] = DyingStore(folder / str(id), id in dying)
        return stores[id]

    brokers = ThreeBrokers(make)
    brokers.nodes[1].engine.submit_catalog(AddShards(ADDED[-1]), lambda _: None)
    brokers.run_until(lambda: all(node.engine.catalog.shard_count == ADDED[-1] for node in brokers.nodes.values()))
    for id, each in stores.items():
        names = {other: (f"node{other}", f"at:{other}") for other in stores}
        identity = Identity("blue", id, f"node{id}", f"store {id}", SHARDS, 3, "founded")
        OwnRecord(each.store).arrived(identity, KnownMembers(1, names))
        each.store.close()
        yield folder / str(id)


def restored(folder: Path) -> dict[int, StoredGroup]:
    store = WriteAheadStore(DataFolder(folder).log, MAP_BYTES)
    try:
        return store.load()
    finally:
        store.close()


def test_added_shards_are_restored_with_the_others(tmp_path: Path) -> None:
    one, *_ = copies(tmp_path)
    made = restore([one], tmp_path / "new", MAP_BYTES)
    assert ([*made.taken], made.empty) == ([*range(ADDED[-1] + 1)], [])
    groups = restored(tmp_path / "new")
    assert [*groups] == [*range(ADDED[-1] + 1)]
    for group in groups.values():
        assert group.snapshot is not None
        assert group.snapshot.metadata.conf_state.voters == [1]


def test_what_most_first_voters_had_not_begun_begins_empty(tmp_path: Path) -> None:
    _, two, three = copies(tmp_path, 2, 3)
    made = restore([two, three], tmp_path / "new", MAP_BYTES)
    assert ([*made.taken], made.empty) == ([*range(SHARDS + 1)], [*ADDED])
    groups = restored(tmp_path / "new")
    for shard in ADDED:
        snapshot = groups[shard].snapshot
        assert snapshot is not None
        assert (snapshot.metadata.index, snapshot.metadata.conf_state.voters) == (BOOTSTRAP_INDEX, [2])


def test_what_others_may_have_is_not_taken_for_empty(tmp_path: Path) -> None:
    """The two that have no copy could have committed what this one has not."""
    _, two, _ = copies(tmp_path, 2)
    with pytest.raises(RestoreRefused, match=r"shard 3, which was added, began on .*node1"):
        restore([two], tmp_path / "new", MAP_BYTES)
    assert not (tmp_path / "new").exists()
