"""Members of the cluster in the catalog: how they come and go, and what becomes of the plan."""

import pytest

from mayfly.node.catalog import (
    AddMember,
    Catalog,
    Done,
    FoundCluster,
    MemberAdded,
    MemberGone,
    NodeLost,
    NodeStarted,
    PlaceGroup,
    PreferLeader,
    QueuesRemoved,
    Refusal,
    RemoveMember,
)
from mayfly.node.catalog.members import Members

THREE = FoundCluster(tuple((id, f"n{id}", f"h{id}:1") for id in (1, 2, 3)), 3)


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(4)
    assert catalog.apply(THREE) == Done()
    return catalog


def _join(catalog: Catalog, name: str, address: str = "", store: str = "") -> int:
    answer = catalog.apply(AddMember(name, address or f"{name}:1", store or f"data of {name}"))
    assert isinstance(answer, MemberAdded), answer
    return answer.member.id


def _start(catalog: Catalog, id: int, store: str = "") -> None:
    catalog.apply(NodeStarted(id, 1 << 20, "", {}, store))


def _states(catalog: Catalog) -> dict[int, str]:
    return {record.id: record.state for record in catalog.members.all()}


def test_a_cluster_is_founded_once(catalog: Catalog) -> None:
    assert catalog.apply(FoundCluster(((7, "x", "y"),), 1)) == Done(changed=False)
    assert _states(catalog) == {1: "member", 2: "member", 3: "member"}
    assert catalog.members.plan == {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 2, 3), 4: (2, 3, 1)}
    assert Catalog(4).apply(AddMember("a", "b", "c")) == Refusal(406, "the cluster has not been founded yet; try again")


@pytest.mark.parametrize(
    "command",
    [
        FoundCluster((), 3),
        FoundCluster(((0, "a", "b"),), 3),
        FoundCluster(((65536, "a", "b"),), 3),
        FoundCluster(((1, "a", "b"), (1, "c", "d")), 3),
        FoundCluster(((1, "a", "b"),), 0),
    ],
)
def test_what_founds_no_cluster_is_refused(command: FoundCluster) -> None:
    catalog = Catalog(4)
    before = catalog.snapshot()
    answer = catalog.apply(command)
    assert isinstance(answer, Refusal) and "expected" in answer.text
    assert catalog.snapshot() == before
    assert catalog.apply(THREE) == Done()


def test_a_node_joins_without_a_vote_and_gets_votes_when_it_has_started(catalog: Catalog) -> None:
    before = dict(catalog.members.plan)
    assert _join(catalog, "n4") == 4
    assert _states(catalog)[4] == "joining"
    assert catalog.members.plan == before
    _start(catalog, 4)
    assert _states(catalog)[4] == "member"
    assert any(4 in voters for voters in catalog.members.plan.values())


def test_joining_again_with_the_same_data_is_the_same_member(catalog: Catalog) -> None:
    assert _join(catalog, "n4") == _join(catalog, "n4") == 4
    assert isinstance(catalog.apply(AddMember("n4", "elsewhere:1", "other data")), Refusal)
    assert isinstance(catalog.apply(AddMember("n5", "h2:1", "other data")), Refusal)
    assert isinstance(catalog.apply(AddMember("n5", "h5:1", "")), Refusal)


def test_a_member_leaves_and_its_id_is_never_used_again(catalog: Catalog) -> None:
    assert _join(catalog, "n4") == 4
    _start(catalog, 4)
    assert catalog.apply(RemoveMember("n4")) == Done()
    assert catalog.apply(RemoveMember("4")) == Done(changed=False)
    assert _states(catalog)[4] == "leaving"
    assert all(4 not in voters and len(voters) == 3 for voters in catalog.members.plan.values())
    assert [record.id for record in catalog.members.with_replicas()] == [1, 2, 3, 4]
    assert catalog.apply(MemberGone(4)) == QueuesRemoved()
    assert [record.id for record in catalog.members.with_replicas()] == [1, 2, 3]
    assert isinstance(catalog.apply(RemoveMember("n4")), Refusal)
    assert isinstance(catalog.apply(AddMember("n4", "n4:1", "data of n4")), Refusal), "removed data does not come back"
    assert _join(catalog, "n4", store="new data") == 5
    _start(catalog, 4)
    assert _states(catalog)[4] == "removed", "nothing brings it back"


def test_the_last_member_stays(catalog: Catalog) -> None:
    assert catalog.apply(RemoveMember("n1")) == Done()
    assert catalog.apply(RemoveMember("n2")) == Done()
    assert catalog.apply(RemoveMember("n3")) == Refusal(406, "n3 is the last member")
    assert set(catalog.members.plan.values()) == {(3,)}


def test_operators_place_groups_and_choose_leaders(catalog: Catalog) -> None:
    _join(catalog, "n4")
    assert isinstance(catalog.apply(PlaceGroup(1, ("n4", "n1"))), Refusal), "it has not started"
    _start(catalog, 4)
    assert catalog.apply(PlaceGroup(1, ("n4", "1"))) == Done()
    assert catalog.members.plan[1] == (4, 1)
    assert catalog.apply(PreferLeader(1, "n1")) == Done()
    assert catalog.members.plan[1] == (1, 4)
    assert isinstance(catalog.apply(PreferLeader(1, "n2")), Refusal)
    assert isinstance(catalog.apply(PreferLeader(9, "n2")), Refusal)
    assert isinstance(catalog.apply(PlaceGroup(1, ("n1", "n1"))), Refusal)
    catalog.apply(RemoveMember("n3"))
    assert catalog.members.plan[1] == (1, 4) and catalog.members.pinned(1), "as long as its voters are there"
    catalog.apply(RemoveMember("n4"))
    assert len(catalog.members.plan[1]) == 2 and not catalog.members.pinned(1)


def test_every_change_is_in_the_version_and_in_the_snapshot(catalog: Catalog) -> None:
    version = catalog.members.version
    for command in (AddMember("n4", "x:1", "s"), NodeStarted(4, 1 << 20, "four"), PlaceGroup(2, ("four",)),
                    RemoveMember("n1"), MemberGone(1)):  # fmt: skip
        catalog.apply(command)
        assert catalog.members.version > version
        version = catalog.members.version
        copy = Catalog(4)
        copy.restore(catalog.snapshot())
        assert copy.snapshot() == catalog.snapshot()
        assert copy.members.plan == catalog.members.plan
    catalog.apply(NodeStarted(4, 2 << 20, "four"))
    assert catalog.members.version == version


def _is_in(catalog: Catalog, id: int, failure_domain: str) -> None:
    catalog.apply(NodeStarted(id, 1 << 20, "", {}, "", failure_domain))


def test_the_plan_follows_failure_domains_once_all_are_known(catalog: Catalog) -> None:
    catalog = Catalog(16)
    catalog.apply(FoundCluster(tuple((id, f"n{id}", f"h{id}:1") for id in range(1, 7)), 3))
    before = dict(catalog.members.plan)
    domains = {id: "abc"[(id - 1) // 2] for id in range(1, 7)}
    for id in range(1, 6):
        _is_in(catalog, id, domains[id])
        assert catalog.members.plan == before, "nobody is moved while one has not spoken"
    _is_in(catalog, 6, "c")
    assert catalog.members.plan != before
    assert all({domains[id] for id in voters} == {"a", "b", "c"} for voters in catalog.members.plan.values())
    plan, version = dict(catalog.members.plan), catalog.members.version
    for id, domain in domains.items():
        _is_in(catalog, id, domain)
    assert (catalog.members.plan, catalog.members.version) == (plan, version)


def test_a_node_that_comes_back_in_another_failure_domain_is_believed() -> None:
    catalog = Catalog(4)
    catalog.apply(FoundCluster(tuple((id, f"n{id}", f"h{id}:1") for id in range(1, 5)), 3))
    for id, domain in enumerate("aabc", 1):
        _is_in(catalog, id, domain)
    assert all(not {1, 2} <= set(voters) for voters in catalog.members.plan.values())
    _is_in(catalog, 2, "c")
    member = catalog.members.get(2)
    assert member is not None and member.failure_domain == "c"
    assert all(not {2, 4} <= set(voters) for voters in catalog.members.plan.values())
    _is_in(catalog, 2, "")
    assert catalog.members.get(2) == member, "who says nothing has not moved"


def test_an_incarnation_that_was_lost_stays_lost(catalog: Catalog) -> None:
    catalog.apply(NodeStarted(1, 5, "one"))
    catalog.apply(NodeLost(1, 5))
    catalog.apply(NodeStarted(1, 5, "one", {}, "", "a"))
    node, member = catalog.node(1), catalog.members.get(1)
    assert node is not None and not node.alive
    assert member is not None and member.failure_domain == "a"


def test_a_member_whose_data_is_gone_is_replaced_by_its_namesake() -> None:
    """Same name and address, other data, and the old one not up: it leaves, and the new one is another member."""
    members = Members(2, None)
    members.found(FoundCluster(((1, "a", "a:1"), (2, "b", "b:1"), (3, "c", "c:1")), 3), 0)
    comes = AddMember("c", "c:1", "new data")
    version = members.version
    with pytest.raises(Refusal, match="still there"):
        members.add(comes, 1, lambda id: True)
    assert members.version == version
    with pytest.raises(Refusal, match="remove it first"):
        members.add(AddMember("c", "elsewhere:1", "new data"), 1, lambda id: id != 3)
    new = members.add(comes, 1, lambda id: id != 3)
    old = members.get(3)
    assert (new.id, new.name, new.address, new.state) == (4, "c", "c:1", "joining")
    assert old is not None and (old.state, old.name) == ("leaving", "c-was-3")
    assert members.add(comes, 2, lambda id: id != 3) == new
    assert all(3 not in voters for voters in members.plan.values())
    # Its disk is lost once more, before the first one is out.
    again = members.add(AddMember("c", "c:1", "newer data"), 3, lambda id: id not in (3, 4))
    assert again.id == 5 and members.find("c") == again


def test_the_last_member_is_nobodys_predecessor() -> None:
    members = Members(2, None)
    members.found(FoundCluster(((1, "a", "a:1"),), 3), 0)
    with pytest.raises(Refusal, match="last member"):
        members.add(AddMember("a", "a:1", "new data"), 1, lambda id: False)
