"""The cluster's feature level: raised when all members know it, by a command on which all replicas decide alike."""

import msgspec
import pytest

from mayfly.cluster.versions import LEVELS, VersionRange, level_fault, range_of_peer
from mayfly.node.catalog import AddMember, Catalog, Done, FoundCluster, MemberAdded, NodeStarted, RaiseLevel, Refusal
from mayfly.node.catalog.commands import decode, encode

NODES = ((1, 1 << 20), (2, 1 << 20), (3, 1 << 20))


def founded(level: int = 1) -> Catalog:
    catalog = Catalog(2)
    catalog.apply(FoundCluster(((1, "a", "a:1"), (2, "b", "b:1"), (3, "c", "c:1")), 3, level))
    for id, incarnation in NODES:
        catalog.apply(NodeStarted(id, incarnation, "", {}, "", "", (1, 2)))
    return catalog


def test_a_cluster_begins_with_the_level_that_its_founding_names() -> None:
    assert Catalog(2).level == 1
    assert (founded().level, founded(3).level) == (1, 3)
    again = founded(3)
    again.apply(FoundCluster(((1, "a", "a:1"),), 1, 5))
    assert again.level == 3


def test_the_level_is_raised_once_and_never_lowered() -> None:
    catalog = founded()
    assert catalog.apply(RaiseLevel(2, NODES)) == Done(True)
    assert catalog.apply(RaiseLevel(2, NODES)) == Done(False)
    assert catalog.apply(RaiseLevel(1, NODES)) == Done(False)
    assert catalog.level == 2


def test_it_is_not_raised_on_what_was_known_before_a_member_came_or_was_started_anew() -> None:
    restarted, joined, forgotten = founded(), founded(), founded()
    restarted.apply(NodeStarted(2, 2 << 20, ""))
    assert isinstance(joined.apply(AddMember("d", "d:1", "data")), MemberAdded)
    assert restarted.apply(RaiseLevel(2, NODES)) == joined.apply(RaiseLevel(2, NODES)) == Done(False)
    assert forgotten.apply(RaiseLevel(2, NODES[:2])) == Done(False)
    assert restarted.level == joined.level == forgotten.level == 1
    node = restarted.node(2)
    assert node is not None and node.levels == (1, 1), "it says nothing of levels"


def test_replicas_that_have_not_heard_who_knows_what_decide_alike() -> None:
    """One that came from the snapshot of a member that knows of no levels."""
    one, other = founded(), founded()
    for id, incarnation in NODES:
        other.apply(NodeStarted(id, incarnation, ""))
    assert one.apply(RaiseLevel(2, NODES)) == other.apply(RaiseLevel(2, NODES)) == Done(True)
    assert one.level == other.level == 2


def test_who_does_not_know_the_level_is_not_taken_in() -> None:
    catalog = founded()
    catalog.apply(RaiseLevel(2, NODES))
    refused = catalog.apply(AddMember("d", "d:1", "data"))
    assert isinstance(refused, Refusal)
    assert "knows feature levels up to 1, the cluster is at 2: it needs a newer MayflyMQ" in refused.text
    assert isinstance(catalog.apply(AddMember("d", "d:1", "data", (1, 2))), MemberAdded)
    assert isinstance(catalog.apply(AddMember("e", "e:1", "more data", (2, 7))), MemberAdded)


def test_snapshots_are_in_the_form_of_the_level() -> None:
    catalog, again = founded(), Catalog(2)
    assert msgspec.msgpack.decode(catalog.snapshot())[0] == 5
    catalog.apply(RaiseLevel(2, NODES))
    assert msgspec.msgpack.decode(catalog.snapshot())[0] == 6
    again.restore(catalog.snapshot())
    assert again.level == 2
    assert again.snapshot() == catalog.snapshot()


class OldNodeRecord(msgspec.Struct, frozen=True, array_like=True):
    """As it was before there were levels."""

    id: int
    name: str
    incarnation: int
    addresses: dict[str, str]
    alive: bool
    changed_ms: int = 0


class OldCatalog(msgspec.Struct, frozen=True, array_like=True):
    """The same, of the snapshot's form 5."""

    format_version: int
    shard_count: int
    next_queue_id: int
    vhosts: list[object]
    queues: list[object]
    users: list[object]
    permissions: list[object]
    nodes: list[OldNodeRecord]
    members: object
    topic_permissions: list[object]
    next_serial: int
    definitions_digest: str


def test_members_of_the_first_level_read_what_is_written_in_it() -> None:
    stored = msgspec.msgpack.decode(founded().snapshot(), type=OldCatalog)
    assert (stored.format_version, [node.id for node in stored.nodes], stored.definitions_digest) == (5, [1, 2, 3], "")
    again = Catalog(2)
    again.restore(msgspec.msgpack.encode(stored))
    assert again.level == 1


def test_what_older_nodes_say_is_understood() -> None:
    """Their commands have no levels in them."""
    said = msgspec.msgpack.encode({"command": "node_started", "node_id": 4, "incarnation": 5, "name": "n"})
    assert decode(said) == NodeStarted(4, 5, "n", levels=(1, 1))
    command = RaiseLevel(2, NODES)
    assert decode(encode(command)) == command


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [((4, 4), (4, 4), 4), ((4, 6), (4, 5), 5), ((4, 5), (5, 7), 5), ((4, 4), (5, 6), 0), ((6, 6), (4, 5), 0)],
)
def test_the_highest_version_that_both_know_is_used(
    ours: tuple[int, int], theirs: tuple[int, int], common: int
) -> None:
    assert VersionRange(*ours).common(VersionRange(*theirs)) == common
    assert VersionRange(*theirs).common(VersionRange(*ours)) == common


def test_a_range_that_is_none_is_none() -> None:
    assert range_of_peer(4, 0) == VersionRange(4, 4)
    assert range_of_peer(0, 0) == VersionRange(1, 1)
    assert range_of_peer(5, 4) is None
    with pytest.raises(ValueError, match="versions 5 to 4"):
        VersionRange(5, 4)
    assert repr(VersionRange(4, 5)) == "4 to 5"


@pytest.mark.parametrize(("most", "highest"), [(0, 4), (1, 2), (2, 2), (3, 3), (4, 4), (9, 4)])
def test_a_limit_takes_the_higher_ones_away_but_for_the_lowest(most: int, highest: int) -> None:
    assert VersionRange(2, 4).limited(most) == VersionRange(2, highest)


def test_the_text_says_which_way_the_fault_is() -> None:
    assert level_fault(LEVELS, LEVELS.lowest) == level_fault(LEVELS, LEVELS.highest) == ""
    assert "up to 2, the cluster is at 3: it needs a newer MayflyMQ" in level_fault(VersionRange(1, 2), 3)
    assert "from 3 on, the cluster is at 2: upgrade all members to a release in between" in level_fault(
        VersionRange(3, 4), 2
    )
