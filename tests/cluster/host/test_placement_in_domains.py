"""Plans over failure domains: a group's voters are spread over them, and nothing is moved for the sake of it."""

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.host.failure_domains import Path, path_of, whole
from mayfly.cluster.host.placement import Plan, first_plan, replanned

FACTORS = st.sampled_from([1, 2, 3, 5])
GROUPS = st.sampled_from([1, 2, 5, 17])
NODES = range(1, 11)
PLACES = st.lists(st.sampled_from(["", "a", "b", "c", "d", "e"]), min_size=len(NODES), max_size=len(NODES)).map(
    lambda names: dict(zip(NODES, names, strict=True))
)
MEMBERS = st.sets(st.sampled_from(list(NODES)), min_size=1).map(sorted)


def flat(domains: Mapping[int, str]) -> dict[int, Path]:
    """As before there were zones with hosts in them."""
    return {node: whole(name) for node, name in domains.items()}


def crowding(chosen: Collection[int], domains: Mapping[int, str]) -> Counter[str]:
    return Counter(domains.get(node) or f"only {node}" for node in chosen)


def squares(counts: Collection[int]) -> int:
    return sum(count * count for count in counts)


def least_squares(count: int, nodes: Collection[int], domains: Mapping[int, str]) -> int:
    """What the most even spread of so many voters comes to: each to the domain that has the fewest and a free node."""
    room = crowding(nodes, domains)
    taken = dict.fromkeys(room, 0)
    for _ in range(count):
        taken[min((name for name in room if taken[name] < room[name]), key=lambda name: taken[name])] += 1
    return squares(taken.values())


def check_spread(plan: Plan, nodes: Collection[int], factor: int, domains: Mapping[int, str]) -> None:
    count = min(factor, len(nodes))
    for chosen in plan.values():
        assert len(set(chosen)) == len(chosen) == count and set(chosen) <= set(nodes)
        counts = crowding(chosen, domains)
        assert squares(counts.values()) == least_squares(count, nodes, domains), (chosen, counts)
        if len(crowding(nodes, domains)) >= count:
            assert set(counts.values()) == {1}


def votes(plan: Plan, nodes: Collection[int]) -> dict[int, int]:
    counted = Counter(node for chosen in plan.values() for node in chosen)
    return {node: counted[node] for node in nodes}


def moved(before: Plan, after: Plan) -> int:
    return sum(len(set(after[group]) - set(before[group])) for group in before)


@settings(max_examples=200, deadline=None)
@given(GROUPS, FACTORS, MEMBERS, PLACES, st.lists(st.tuples(MEMBERS, PLACES), min_size=1, max_size=4))
def test_voters_are_spread_whatever_happens(
    groups: int, factor: int, nodes: list[int], domains: dict[int, str], changes: list[tuple[list[int], dict[int, str]]]
) -> None:
    plan = first_plan(range(groups), nodes, factor)
    for present, places in [(nodes, domains), *changes]:
        plan = replanned(plan, present, factor, (), flat(places))
        check_spread(plan, present, factor, places)
        assert replanned(plan, present, factor, (), flat(places)) == plan, "a plan that is good is kept"


@settings(max_examples=200, deadline=None)
@given(GROUPS, FACTORS, MEMBERS, PLACES, PLACES)
def test_no_more_moves_than_must_be(
    groups: int, factor: int, nodes: list[int], domains: dict[int, str], others: dict[int, str]
) -> None:
    """Other domains: a group is touched if it has to be, and then by the moves that it takes; the rest is evenness."""
    plan = replanned(first_plan(range(groups), nodes, factor), nodes, factor, (), flat(domains))
    after = replanned(plan, nodes, factor, (), flat(others))
    needed = 0
    for chosen in plan.values():
        counts, best = crowding(chosen, others), least_squares(len(chosen), nodes, others)
        while squares(counts.values()) > best:
            room = crowding(nodes, others)
            light = min((name for name in room if counts[name] < room[name]), key=lambda name: counts[name])
            counts[counts.most_common(1)[0][0]] -= 1
            counts[light] += 1
            needed += 1
    uneven = max(votes(plan, nodes).values()) - min(votes(plan, nodes).values()) > 2
    if not needed and not uneven:
        assert after == plan
    # A vote that was moved for the spread may have to move once more, or another one for it, to be even.
    assert moved(plan, after) <= 2 * needed + (groups * factor if uneven else 0)


@settings(max_examples=200, deadline=None)
@given(GROUPS, FACTORS, MEMBERS, PLACES, st.data())
def test_one_node_goes_and_only_its_votes_go(
    groups: int, factor: int, nodes: list[int], domains: dict[int, str], data: st.DataObject
) -> None:
    if len(nodes) < 2:
        return
    plan = replanned(first_plan(range(groups), nodes, factor), nodes, factor, (), flat(domains))
    gone = data.draw(st.sampled_from(nodes))
    left = [node for node in nodes if node != gone]
    after = replanned(plan, left, factor, (), flat(domains))
    check_spread(after, left, factor, domains)
    lost = votes(plan, nodes)[gone]
    assert moved(plan, after) <= 2 * lost + 2


@settings(max_examples=200, deadline=None)
@given(GROUPS, FACTORS, st.integers(2, 5), st.integers(1, 3))
def test_hosts_of_one_size_share_evenly(groups: int, factor: int, hosts: int, each: int) -> None:
    """As with --processes: votes and leaders are as even as without domains."""
    nodes = list(range(1, hosts * each + 1))
    domains = {node: f"host{(node - 1) // each}" for node in nodes}
    plan = replanned(first_plan(range(groups), nodes, factor), nodes, factor, (), flat(domains))
    check_spread(plan, nodes, factor, domains)
    counted = votes(plan, nodes)
    assert max(counted.values()) - min(counted.values()) <= 2
    leads = Counter(chosen[0] for chosen in plan.values())
    assert max(leads.values()) - min(leads[node] for node in nodes) <= 2


@pytest.mark.parametrize("order", ["by host", "in turn"])
def test_two_processes_on_each_of_three_hosts(order: str) -> None:
    nodes = list(range(1, 7))
    domains = {node: "abc"[(node - 1) // 2 if order == "by host" else (node - 1) % 3] for node in nodes}
    plan = replanned(first_plan(range(17), nodes, 3), nodes, 3, (), flat(domains))
    assert all(sorted(domains[node] for node in chosen) == ["a", "b", "c"] for chosen in plan.values())
    if order == "in turn":
        assert plan == first_plan(range(17), nodes, 3), "what is spread already is left alone"


def test_growing_by_a_process_on_each_host() -> None:
    """Three hosts of one node each; every further node takes votes from its own host's first one, and no others."""
    nodes, domains = [1, 2, 3], {1: "a", 2: "b", 3: "c"}
    plan = first_plan(range(17), nodes, 3)
    for node, host in ((4, "a"), (5, "b"), (6, "c")):
        nodes.append(node)
        domains[node] = host
        after = replanned(plan, nodes, 3, (), flat(domains))
        check_spread(after, nodes, 3, domains)
        for group, chosen in after.items():
            assert set(chosen) - set(plan[group]) <= {node}
        plan = after
    assert sorted(votes(plan, nodes).values()) == [8, 8, 8, 9, 9, 9]


def test_what_an_operator_chose_stays() -> None:
    plan = first_plan(range(3), [1, 2, 3, 4], 3)
    plan[1] = (1, 2, 3)
    domains = {1: "a", 2: "a", 3: "b", 4: "c"}
    after = replanned(plan, [1, 2, 3, 4], 3, {1}, flat(domains))
    assert after[1] == (1, 2, 3)
    assert {1, 2} - set(after[0])


def test_a_vote_goes_rather_than_a_leadership() -> None:
    plan: Plan = {0: (2, 1, 3)}
    assert replanned(plan, [1, 2, 3, 4], 3, (), flat({1: "a", 2: "a", 3: "b", 4: "c"})) == {0: (2, 4, 3)}


def test_plans_without_zones_are_those_of_the_release_before() -> None:
    """C1: below the level of replica sets all members must come to the same plan, older ones too. The digest was taken
    with their code."""
    some, digest = random.Random(7), hashlib.sha256()
    for _ in range(400):
        nodes = sorted(some.sample(range(1, 12), some.randint(1, 8)))
        factor = some.choice((1, 2, 3, 5))
        plan = first_plan(range(some.choice((2, 5, 17))), nodes, factor)
        for _ in range(4):
            nodes = sorted(some.sample(range(1, 12), some.randint(1, 8)))
            domains = {node: some.choice(("", "a", "b", "c/d", "c/e")) for node in nodes}
            plan = replanned(plan, nodes, factor, some.sample(range(2), 1), flat(domains))
            digest.update(repr(sorted(plan.items())).encode())
    assert digest.hexdigest() == "ac2690351d8c027302f0471da56d8a1cda415f11230ddcf6aa4ffef50cf37ac9"


ZONED = st.lists(
    st.sampled_from(["", "x", "x/1", "x/2", "y/1", "y/2", "y/3", "z/1"]), min_size=len(NODES), max_size=len(NODES)
).map(lambda names: {node: path_of(name) for node, name in zip(NODES, names, strict=True)})


def spread(chosen: Collection[int], domains: Mapping[int, Path]) -> tuple[int, int]:
    """How uneven voters are over zones, and over the hosts in them."""
    zones = Counter[object](domains.get(node, ())[:1] or node for node in chosen)
    hosts = Counter[object](domains.get(node, ()) or node for node in chosen)
    return squares(zones.values()), squares(hosts.values())


@settings(max_examples=150, deadline=None)
@given(FACTORS, MEMBERS, ZONED, st.lists(st.tuples(MEMBERS, ZONED), min_size=1, max_size=3))
def test_voters_are_spread_over_zones_and_then_over_hosts(
    factor: int, nodes: list[int], domains: dict[int, Path], changes: list[tuple[list[int], dict[int, Path]]]
) -> None:
    plan = first_plan(range(3), nodes, factor)
    for present, places in [(nodes, domains), *changes]:
        plan = replanned(plan, present, factor, (), places)
        count = min(factor, len(present))
        best = min(spread(chosen, places) for chosen in itertools.combinations(present, count))
        assert [spread(chosen, places) for chosen in plan.values()] == [best] * len(plan)
        assert replanned(plan, present, factor, (), places) == plan, "a plan that is good is kept"


def test_two_zones_of_three_hosts_with_two_processes_each() -> None:
    nodes = list(range(1, 13))
    domains = {node: ("xy"[(node - 1) // 6], str((node - 1) // 2)) for node in nodes}
    plan = replanned(first_plan(range(17), nodes, 5), nodes, 5, (), domains)
    for chosen in plan.values():
        assert sorted(Counter(domains[node][0] for node in chosen).values()) == [2, 3]
        assert len({domains[node] for node in chosen}) == 5, "no two on one host"


def test_zones_count_before_hosts() -> None:
    """Two of four on the only host of a zone, rather than three in the other zone."""
    domains = dict(enumerate((("x", "1"), ("x", "1"), ("x", "1"), ("y", "1"), ("y", "2"), ("y", "3")), 1))
    plan = replanned({0: (1, 4, 5, 6)}, [1, 2, 3, 4, 5, 6], 4, (), domains)
    assert sorted(domains[node][0] for node in plan[0]) == ["x", "x", "y", "y"]


def test_the_processes_of_one_host_share_the_shards_that_have_one_replica() -> None:
    nodes, domains = [1, 2, 3, 4], dict.fromkeys((1, 2, 3, 4), ("here",))
    plan = replanned(first_plan(range(17), nodes, 1), nodes, 1, (), domains)
    assert sorted(votes(plan, nodes).values()) == [4, 4, 4, 5]


@pytest.mark.parametrize(
    ("text", "path"), [("", ()), ("rack", ("rack",)), ("z/h", ("z", "h")), ("/z//h/", ("z", "h")), ("/", ())]
)
def test_how_a_domain_is_written(text: str, path: Path) -> None:
    assert path_of(text) == path
