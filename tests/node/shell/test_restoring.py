"""`mayfly restore` from copies of nodes that have replicas of some shards each."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from mayfly.cluster.host.first_state import given_up
from mayfly.cluster.log.batch import StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.command_line import main
from mayfly.node.membership.identity import Identity
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.shell.data_folder import DataFolder
from mayfly.node.shell.restoring import RestoreRefused, restore
from tests.cluster.store.histories import MAP_BYTES

SHARDS = 3


def a_copy(folder: Path, node: int, lasts: dict[int, int], cluster: str = "blue") -> Path:
    """Of a node of a cluster with three shards, with these groups, whose logs go so far."""
    with closing(WriteAheadStore(DataFolder(folder).log, MAP_BYTES)) as store:
        for group, last in lasts.items():
            batch = WriteBatch()
            batch.group(group).install = True
            state, data = (b"", b"") if group == CATALOG_GROUP else (b"state", b"of %d" % node)
            batch.group(group).snapshot = StoredSnapshot(SnapshotMetadata(1, 1, ConfState([1, 2, 3])), state)
            batch.group(group).hard_state = HardState(1, 1, 1)
            batch.group(group).entries = [Entry(1, index, 0, data) for index in range(2, last + 1)]
            store.write(batch)
        store.put_meta("identity", Identity(cluster, node, f"n{node}", f"store {node}", SHARDS, 3).encode())
    return folder


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """The catalog is everywhere, shard 1 at nodes 1 and 2, shard 2 at 2, shard 3 at 3."""
    lasts: tuple[dict[int, int], ...] = ({0: 5, 1: 9}, {0: 4, 1: 7, 2: 3}, {0: 5, 3: 4})
    return [a_copy(tmp_path / f"copy{node}", node, each) for node, each in enumerate(lasts, 1)]


def test_each_shard_comes_from_a_copy_that_has_it(copies: list[Path], tmp_path: Path) -> None:
    one, two, three = copies
    made = restore(copies, tmp_path / "new", MAP_BYTES)
    assert made.taken == {0: one, 1: one, 2: two, 3: three}
    assert made.behind == {0: [two], 1: [two], 2: [], 3: []}, "who has nothing is not behind"
    assert made.without == {0: [], 1: [three], 2: [one, three], 3: [one, two]}
    with closing(WriteAheadStore(DataFolder(tmp_path / "new").log, MAP_BYTES)) as store:
        stored = store.load()
        assert {group: len(each.entries) for group, each in stored.items()} == {0: 4, 1: 8, 2: 2, 3: 3}
        assert store.read_entry(3, 4).data == b"of 3"


def test_what_is_in_no_copy_is_named_before_anything_is_made(copies: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RestoreRefused, match=r"^shard 2, shard 3: missing or damaged in every copy; copies of nodes"):
        restore(copies[:1], tmp_path / "new", MAP_BYTES)
    assert not (tmp_path / "new").exists()


def test_a_replica_that_was_given_up_is_not_taken_for_a_shard(copies: list[Path], tmp_path: Path) -> None:
    """All that it left is what its node promised."""
    with closing(WriteAheadStore(DataFolder(copies[0]).log, MAP_BYTES)) as store:
        batch = WriteBatch()
        batch.groups[3] = given_up(3, HardState(7, 1, 4), (7, 1_000))
        store.write(batch)
    with pytest.raises(RestoreRefused, match=r"^shard 3: missing or damaged in every copy"):
        restore(copies[:2], tmp_path / "new", MAP_BYTES)
    made = restore(copies, tmp_path / "new", MAP_BYTES)
    assert (made.taken[3], made.behind[3], made.without[3]) == (copies[2], [], copies[:2])


def test_copies_of_two_clusters_are_refused_before_anything_is_made(copies: list[Path], tmp_path: Path) -> None:
    """Nodes and shards have the same numbers in both; of each there would be a part."""
    other = a_copy(tmp_path / "other", 3, {0: 6, 3: 9}, "green")
    for folders, first, odd in (([*copies[:2], other], copies[0], other), ([other, *copies], other, copies[0])):
        words = ["restore", *map(str, folders), "--data-dir", str(tmp_path / "made" / "new")]
        done = CliRunner().invoke(main, words)
        of = {first: "blue", odd: "green"} if odd == other else {first: "green", odd: "blue"}
        text = f"{odd} is of cluster {of[odd]}, {first} of {of[first]}: copies of one cluster are expected"
        assert done.exit_code == 1 and text in done.output, done.output
        assert not any((tmp_path / "made").rglob("*"))


def test_the_command_says_what_each_copy_had(copies: list[Path], tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["restore", *map(str, copies), "--data-dir", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    assert f"{copies[1]}: 1 of 4 groups taken, behind in groups 0, 1, without groups 3\n" in done.output
    assert f"{copies[2]}: 1 of 4 groups taken, without groups 1, 2\n" in done.output
