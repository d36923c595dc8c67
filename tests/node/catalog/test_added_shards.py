"""Shards that are added while the cluster runs, as the catalog has them: how many, who votes, what goes there."""
from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.versions import LEVEL_SHARDS_ADDED
from mayfly.node.catalog import (
    AddMember,
    AddShards,
    Catalog,
    CatalogCommand,
    DeclareQueue,
    Done,
    FoundCluster,
    MalformedSnapshot,
    NodeLost,
    NodeStarted,
    PlaceGroup,
    QueueDeclared,
    Refusal,
    RemoveMember,
    RemoveQueues,
)
from mayfly.node.limits import SHARDS

FOUNDING_SHARDS = 4


def founded(nodes: int = 3, level: int = LEVEL_SHARDS_ADDED, up: int | None = None) -> Catalog:
    """A cluster with so many members, the first ones of which are up, each in a failure domain of its own."""
    catalog = Catalog(FOUNDING_SHARDS)
    catalog.apply(FoundCluster(tuple((id, f"n{id}", f"h{id}:1") for id in range(1, nodes + 1)), 3, level))
    for id in range(1, (nodes if up is None else up) + 1):
        start(catalog, id)
    return catalog


def start(catalog: Catalog, id: int, domain: str = "") -> None:
    catalog.apply(NodeStarted(id, 1 << 20, f"n{id}", failure_domain=domain or f"machine {id}"))


def restored(catalog: Catalog) -> Catalog:
    again = Catalog(FOUNDING_SHARDS)
    again.restore(catalog.snapshot())
    return again


def declare(catalog: Catalog, name: str, node_id: int = 0) -> int:
    answer = catalog.apply(DeclareQueue("/", name, durable=True, node_id=node_id))
    assert isinstance(answer, QueueDeclared), answer
    return answer.queue.shard


def test_a_command_that_comes_twice_adds_once() -> None:
    catalog = founded()
    assert catalog.apply(AddShards(7)) == Done()
    assert catalog.apply(AddShards(7)) == Done(changed=False)
    assert (catalog.shard_count, len(catalog.shard_queue_counts), sorted(catalog.members.plan)) == (7, 7, [*range(8)])
    assert [catalog.members.first_voters(shard) is None for shard in range(9)] == [*[True] * 5, *[False] * 3, True]


@pytest.mark.parametrize(("total", "said"), [(3, "total = 3"), (-1, "total = -1"), (SHARDS + 1, f"to {SHARDS} are")])
def test_shards_are_neither_taken_away_nor_without_end(total: int, said: str) -> None:
    catalog = founded()
    before = catalog.snapshot()
    answer = catalog.apply(AddShards(total))
    assert isinstance(answer, Refusal)
    assert said in answer.text
    assert catalog.snapshot() == before


def test_below_its_level_it_is_refused_in_words() -> None:
    catalog = founded(level=LEVEL_SHARDS_ADDED - 1)
    answer = catalog.apply(AddShards(5))
    assert isinstance(answer, Refusal)
    assert "adding shards needs feature level 6, the cluster is at 5" in answer.text
    assert isinstance(Catalog(FOUNDING_SHARDS).apply(AddShards(5)), Refusal)


def test_what_is_there_stays_where_it_is() -> None:
    catalog = founded(5)
    catalog.apply(PlaceGroup(1, ("n1", "n2", "n3")))
    before, version = dict(catalog.members.plan), catalog.members.version
    catalog.apply(AddShards(FOUNDING_SHARDS + 20))
    plan = catalog.members.plan
    assert {group: plan[group] for group in before} == before
    assert catalog.members.version == version + 1, "every node's engine follows"
    votes, leads = Counter(id for voters in plan.values() for id in voters), Counter(v[0] for v in plan.values())
    assert all(len(set(voters)) == 3 for voters in plan.values())
    assert max(votes.values()) - min(votes.values()) <= 2
    assert max(leads.values()) - min(leads.values()) <= 1


def test_voters_of_a_new_shard_are_in_different_failure_domains() -> None:
    catalog = founded(6, up=0)
    for id in range(1, 7):
        start(catalog, id, "abc"[(id - 1) // 2])
    catalog.apply(AddShards(12))
    for shard in range(FOUNDING_SHARDS + 1, 13):
        assert {(id - 1) // 2 for id in catalog.members.plan[shard]} == {0, 1, 2}


def test_members_that_are_down_are_spared_where_others_suffice() -> None:
    catalog = founded(5)
    catalog.apply(NodeLost(2, 1 << 20))
    catalog.apply(AddShards(8))
    assert all(2 not in catalog.members.plan[shard] for shard in range(5, 9))
    catalog.apply(NodeLost(4, 1 << 20))
    catalog.apply(NodeLost(5, 1 << 20))
    catalog.apply(AddShards(9))
    assert sorted(catalog.members.plan[9]) == [1, 2, 3], "two of three are up"
    catalog.apply(NodeLost(3, 1 << 20))
    assert catalog.apply(AddShards(10)) == Refusal(
        406, "1 of 5 members are up: a new shard has 3 voters, 2 of them have to be up"
    )


def test_who_has_not_come_yet_is_not_up() -> None:
    catalog = founded(3, up=1)
    assert isinstance(catalog.apply(AddShards(5)), Refusal)
    start(catalog, 2)
    assert catalog.apply(AddShards(5)) == Done()


def test_new_queues_go_to_the_new_shards_first() -> None:
    catalog = founded()
    for number in range(40):
        declare(catalog, f"old{number}", 1 + number % 3)
    catalog.apply(AddShards(6))
    assert {declare(catalog, f"new{number}", 1 + number % 3) for number in range(12)} == {5, 6}


def test_the_first_voters_are_kept_whatever_becomes_of_them() -> None:
    """C1. A voter that was down when the shard was added begins with them, however late it hears of it."""
    catalog = founded()
    catalog.apply(AddShards(5))
    first = catalog.members.first_voters(5)
    assert first == catalog.members.plan[5]
    assert first is not None
    answer = catalog.apply(AddMember("n9", "h9:1", "data of n9", (1, LEVEL_SHARDS_ADDED)))
    assert not isinstance(answer, Refusal)
    start(catalog, 4)
    catalog.apply(RemoveMember(f"n{first[0]}"))
    assert first[0] not in catalog.members.plan[5]
    assert catalog.members.first_voters(5) == restored(catalog).members.first_voters(5) == first


def test_a_snapshot_has_them_from_their_level_on() -> None:
    catalog = founded(level=LEVEL_SHARDS_ADDED - 1)
    assert msgspec.msgpack.decode(catalog.snapshot())[:2] == [6, FOUNDING_SHARDS]
    catalog = founded()
    catalog.apply(AddShards(6))
    declare(catalog, "q")
    assert msgspec.msgpack.decode(catalog.snapshot())[:2] == [7, FOUNDING_SHARDS]
    again = restored(catalog)
    assert (again.shard_count, again.shard_queue_counts) == (6, catalog.shard_queue_counts)
    assert again.snapshot() == catalog.snapshot()
    with pytest.raises(MalformedSnapshot, match="founded with 4 shards, this node's with 6"):
        Catalog(6).restore(catalog.snapshot())


def test_a_snapshot_from_before_is_read_as_of_no_added_shards() -> None:
    catalog = founded(level=LEVEL_SHARDS_ADDED - 1)
    stored = msgspec.msgpack.decode(catalog.snapshot())
    members = 8
    stored[members] = stored[members][:6]
    again = Catalog(FOUNDING_SHARDS)
    again.restore(msgspec.msgpack.encode(stored))
    assert (again.shard_count, again.members.plan) == (FOUNDING_SHARDS, catalog.members.plan)
    assert again.snapshot() == catalog.snapshot()


NODES = st.integers(1, 5)
CHANGES: st.SearchStrategy[CatalogCommand] = st.one_of(
    st.builds(AddShards, st.integers(FOUNDING_SHARDS, 12)),
    st.builds(
        NodeStarted, NODES, st.integers(1, 3).map(lambda starts: starts << 20), st.just(""),
        failure_domain=st.sampled_from(["", "a", "b", "c"]),
    ),
    st.builds(NodeLost, NODES, st.integers(1, 3).map(lambda starts: starts << 20)),
    st.builds(AddMember, st.just(""), st.sampled_from(["x:1", "y:1"]), st.sampled_from(["d", "e"]), st.just((1, 9))),
    st.builds(RemoveMember, NODES.map(str)),
    st.builds(PlaceGroup, st.integers(0, 12), st.lists(NODES.map(str), max_size=3).map(tuple)),
    st.builds(DeclareQueue, st.just("/"), st.text("abc", min_size=1, max_size=2), st.just(True), node_id=NODES),
    st.builds(RemoveQueues, st.lists(st.integers(1, 12), max_size=3).map(tuple)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CHANGES, max_size=30), st.integers(0, 30))
def test_c1_replicas_with_and_without_a_snapshot_in_the_middle_agree(
    commands: list[CatalogCommand], restored_after: int
) -> None:
    straight, other = founded(), founded()
    for position, command in enumerate(commands):
        if position == restored_after:
            other = restored(other)
        before, first = straight.shard_count, dict(straight.members.plan)
        assert straight.apply(command, position) == other.apply(command, position)
        assert straight.shard_count == len(straight.shard_queue_counts) >= before
        assert sorted(straight.members.plan) == [*range(straight.shard_count + 1)]
        if isinstance(command, AddShards):
            assert {group: straight.members.plan[group] for group in first} == first
        for shard in range(before + 1, straight.shard_count + 1):
            voters = straight.members.first_voters(shard)
            assert voters == straight.members.plan[shard]
            assert voters is not None
            assert 2 * sum(node.alive for node in straight.nodes() if node.id in voters) > len(voters) > 0
    assert straight.snapshot() == other.snapshot()


@pytest.mark.parametrize("shard", [0, FOUNDING_SHARDS + 3, 1 << 40])
def test_a_snapshot_with_a_queue_in_a_shard_that_there_is_not_is_refused(shard: int) -> None:
    catalog = founded()
    catalog.apply(AddShards(FOUNDING_SHARDS + 2), 0)
    declare(catalog, "q")
    stored = msgspec.msgpack.decode(catalog.snapshot())
    stored[4][0][3] = shard
    with pytest.raises(MalformedSnapshot, match=f"contradicts itself: .*shard {shard}"):
        Catalog(FOUNDING_SHARDS).restore(msgspec.msgpack.encode(stored))
