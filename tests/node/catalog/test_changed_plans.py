"""The plan from feature level 6 on: changed by commands that say how, and members that are away."""

import msgspec
import pytest

from mayfly.cluster.host.failure_domains import path_of
from mayfly.cluster.versions import LEVEL_PLANS
from mayfly.node.catalog import (
    NEVER_STARTED,
    AddMember,
    AddShards,
    Catalog,
    DeclareQueue,
    Done,
    FoundCluster,
    MemberAway,
    MemberBack,
    MemberGone,
    NodeLost,
    NodeStarted,
    PlaceGroup,
    PlanGroups,
    QueueDeclared,
    QueuesRemoved,
    Refusal,
    RemoveMember,
)

LIFE = 1 << 20


def founded(level: int = LEVEL_PLANS, nodes: int = 4, with_queue: bool = True) -> Catalog:
    catalog = Catalog(4)
    catalog.apply(FoundCluster(tuple((id, f"n{id}", f"h{id}:1") for id in range(1, nodes + 1)), 3, level))
    for id in range(1, nodes + 1):
        catalog.apply(NodeStarted(id, LIFE, ""))
    if with_queue:
        assert isinstance(catalog.apply(DeclareQueue("/", "q", durable=True)), QueueDeclared)
    return catalog


def planned(catalog: Catalog, *changes: tuple[int, tuple[int, ...]]) -> object:
    return catalog.apply(PlanGroups(catalog.members.version, changes))


def lose(catalog: Catalog, id: int) -> None:
    catalog.apply(NodeLost(id, LIFE))
    assert catalog.apply(MemberAway(id, LIFE)) == Done()


def same_after_a_snapshot(catalog: Catalog) -> None:
    """C1: a replica that came from a snapshot goes on as one that did not."""
    copy = Catalog(4)
    copy.restore(catalog.snapshot())
    assert copy.snapshot() == catalog.snapshot()
    joins = AddMember("x", "x:1", "s", (1, 9))
    for command in (NodeStarted(2, 2 * LIFE, "", {}, "", "z/h"), RemoveMember("n1"), joins):
        assert copy.apply(command) == catalog.apply(command)
    assert copy.snapshot() == catalog.snapshot()


def test_a_plan_is_changed_for_the_members_that_it_was_made_for() -> None:
    catalog = founded()
    version = catalog.members.version
    assert planned(catalog, (1, (4, 3, 2)), (2, (3, 4, 1))) == Done()
    assert catalog.members.plan[1] == (4, 3, 2) and catalog.members.plan[2] == (3, 4, 1)
    assert catalog.members.version == version + 1
    assert catalog.apply(PlanGroups(version, ((1, (1, 2, 3)),))) == Done(changed=False), "it is another version"
    assert catalog.members.plan[1] == (4, 3, 2)
    same_after_a_snapshot(catalog)


@pytest.mark.parametrize(
    "change",
    [(1, ()), (1, (1, 1, 2)), (1, (1, 2, 9)), (9, (1, 2, 3)), (1, (1, 2, 5))],
)
def test_what_is_no_plan_is_refused_and_nothing_is_changed(change: tuple[int, tuple[int, ...]]) -> None:
    catalog = founded()
    catalog.apply(AddMember("n5", "n5:1", "data", (1, LEVEL_PLANS)))
    before = catalog.snapshot()
    assert isinstance(planned(catalog, (2, (1, 2, 3)), change), Refusal)
    assert catalog.snapshot() == before


def test_a_silent_member_is_away_until_it_is_back() -> None:
    catalog = founded()
    assert catalog.apply(MemberAway(4, LIFE)) == Done(changed=False), "it is up"
    catalog.apply(NodeLost(4, LIFE))
    assert catalog.apply(MemberAway(4, LIFE - 1)) == Done(changed=False), "another life"
    assert catalog.apply(MemberAway(4, LIFE)) == Done()
    assert catalog.apply(MemberAway(4, LIFE)) == Done(changed=False)
    assert catalog.members.those_away() == [4]
    assert isinstance(planned(catalog, (1, (1, 2, 4) if 4 not in catalog.members.plan[1] else (1, 2, 9))), Refusal)
    assert isinstance(catalog.apply(PlaceGroup(1, ("n4",))), Refusal)
    catalog.apply(NodeStarted(4, 2 * LIFE, ""))
    assert catalog.members.those_away() == [4], "until somebody says so: it may go again at once"
    assert catalog.apply(MemberBack(4)) == Done()
    assert catalog.apply(MemberBack(4)) == Done(changed=False)
    assert catalog.members.those_away() == []
    same_after_a_snapshot(catalog)


def test_a_founder_that_never_started_may_be_away() -> None:
    catalog = Catalog(2)
    catalog.apply(FoundCluster(((1, "a", "a:1"), (2, "b", "b:1"), (3, "c", "c:1")), 3, LEVEL_PLANS))
    catalog.apply(NodeStarted(1, LIFE, ""))
    assert catalog.apply(MemberAway(3, LIFE)) == Done(changed=False), "it has no life"
    assert catalog.apply(MemberAway(1, NEVER_STARTED)) == Done(changed=False), "it has one"
    assert catalog.apply(MemberAway(3, NEVER_STARTED)) == Done()
    assert catalog.members.those_away() == [3]


def test_a_group_most_of_whose_voters_are_away_is_left_alone() -> None:
    catalog = founded(nodes=5)
    assert planned(catalog, (1, (1, 2, 3)), (2, (2, 4, 5))) == Done()
    lose(catalog, 1)
    assert planned(catalog, (1, (3, 2, 1))) == Done(), "one of three is missing"
    lose(catalog, 2)
    refused = planned(catalog, (1, (3, 4, 5)))
    assert isinstance(refused, Refusal) and "left alone" in refused.text
    assert planned(catalog, (2, (4, 5, 3))) == Done()


def test_somebody_is_always_there() -> None:
    catalog = founded(nodes=2)
    lose(catalog, 1)
    catalog.apply(NodeLost(2, LIFE))
    assert catalog.apply(MemberAway(2, LIFE)) == Done(changed=False)


def test_the_log_itself_moves_nothing_where_there_are_queues() -> None:
    for with_queue in (True, False):
        catalog = founded(with_queue=with_queue)
        before = dict(catalog.members.plan)
        assert catalog.apply(RemoveMember("n4")) == Done()
        assert (catalog.members.plan == before) == with_queue
        gone = catalog.apply(MemberGone(4))
        record = catalog.members.get(4)
        assert gone == QueuesRemoved() and record is not None
        assert record.state == ("leaving" if with_queue else "removed"), "not while the plan names it"


def test_a_pinned_group_stays_pinned_until_its_voters_are_others() -> None:
    catalog = founded()
    catalog.apply(PlaceGroup(1, ("n1", "n2")))
    planned(catalog, (1, (2, 1)))
    assert catalog.members.pinned(1)
    planned(catalog, (1, (2, 3)))
    assert not catalog.members.pinned(1)


def test_domains_are_paths_from_that_level_on() -> None:
    """C1: below it all that is written is one name, as members know it that can't read paths."""
    for level, zones in ((LEVEL_PLANS - 1, {1, 2}), (LEVEL_PLANS, {2})):
        catalog = founded(level, 6, with_queue=False)
        domains = {id: f"{'xxyyyy'[id - 1]}/{id}" for id in range(1, 7)}
        for id, domain in domains.items():
            catalog.apply(NodeStarted(id, LIFE, "", {}, "", domain))
        seen = {len({path_of(domains[id])[0] for id in voters}) for voters in catalog.members.plan.values()}
        assert seen == zones


def test_added_shards_are_spread_by_paths_too() -> None:
    """C1: as all else that is planned at that level."""
    catalog = founded(nodes=6)
    domains = {id: f"{'xxyyyy'[id - 1]}/{id}" for id in range(1, 7)}
    for id, domain in domains.items():
        catalog.apply(NodeStarted(id, LIFE, "", {}, "", domain))
    assert catalog.apply(AddShards(9)) == Done()
    assert all(len({path_of(domains[id])[0] for id in catalog.members.plan[shard]}) == 2 for shard in range(5, 10))


def test_who_is_away_votes_in_no_added_shard_while_there_are_others() -> None:
    catalog = founded()
    lose(catalog, 4)
    catalog.apply(NodeStarted(4, 2 * LIFE, ""))
    assert catalog.members.those_away() == [4], "it is up, and has yet to stay"
    assert catalog.apply(AddShards(6)) == Done()
    assert all(set(catalog.members.plan[shard]) == {1, 2, 3} for shard in (5, 6))
    lose(catalog, 3)
    assert catalog.apply(AddShards(7)) == Done()
    assert set(catalog.members.plan[7]) == {1, 2, 4}, "it is there, the other one is not"
    same_after_a_snapshot(catalog)


def test_below_that_level_the_new_commands_change_nothing() -> None:
    catalog = founded(LEVEL_PLANS - 1)
    catalog.apply(NodeLost(4, LIFE))
    before = catalog.snapshot()
    assert planned(catalog, (1, (4, 3, 2))) == Done(changed=False)
    assert catalog.apply(MemberAway(4, LIFE)) == Done(changed=False)
    assert catalog.apply(MemberBack(4)) == Done(changed=False)
    assert catalog.snapshot() == before
    plan = dict(catalog.members.plan)
    catalog.apply(RemoveMember("n4"))
    assert catalog.members.plan != plan, "and the log replans"


class OldMemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """As it was before members could be away."""

    id: int
    name: str
    address: str
    state: str
    store: str = ""
    changed_ms: int = 0
    failure_domain: str = ""


def test_members_of_the_level_before_read_what_is_written_in_it() -> None:
    stored = msgspec.msgpack.decode(founded(LEVEL_PLANS - 1).snapshot())
    rows = msgspec.convert(stored[8][3], list[OldMemberRecord])
    assert [row.id for row in rows] == [1, 2, 3, 4]
