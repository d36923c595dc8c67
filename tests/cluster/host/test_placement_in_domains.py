"""Plans over failure domains: a group's voters are spread over them, and nothing is moved for the sake of it."""

from collections import Counter
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.host.placement import Plan, first_plan, replanned

FACTORS = st.sampled_from([1, 2, 3, 5])
GROUPS = st.sampled_from([1, 2, 5, 17])
NODES = range(1, 11)
PLACES = st.lists(st.sampled_from(["", "a", "b", "c", "d", "e"]), min_size=len(NODES), max_size=len(NODES)).map(
    lambda names: dict(zip(NODES, names, strict=True))
)
MEMBERS = st.sets(st.sampled_from(list(NODES)), min_size=1).map(sorted)


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
        plan = replanned(plan, present, factor, (), places)
        check_spread(plan, present, factor, places)
        assert replanned(plan, present, factor, (), places) == plan, "a plan that is good is kept"


@settings(max_examples=200, deadline=None)
@given(GROUPS, FACTORS, MEMBERS, PLACES, PLACES)
def test_no_more_moves_than_must_be(
    groups: int, factor: int, nodes: list[int], domains: dict[int, str], others: dict[int, str]
) -> None:
    """Other domains: a group is touched if it has to be, and then by the moves that it takes; the rest is evenness."""
    plan = replanned(first_plan(range(groups), nodes, factor), nodes, factor, (), domains)
    after = replanned(plan, nodes, factor, (), others)
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
    plan = replanned(first_plan(range(groups), nodes, factor), nodes, factor, (), domains)
    gone = data.draw(st.sampled_from(nodes))
    left = [node for node in nodes if node != gone]
    after = replanned(plan, left, factor, (), domains)
    check_spread(after, left, factor, domains)
    lost = votes(plan, nodes)[gone]
    assert moved(plan, after) <= 2 * lost + 2


@settings(max_examples=200, deadline=None)
@given(GROUPS, FACTORS, st.integers(2, 5), st.integers(1, 3))
def test_hosts_of_one_size_share_evenly(groups: int, factor: int, hosts: int, each: int) -> None:
    """As with --processes: votes and leaders are as even as without domains."""
    nodes = list(range(1, hosts * each + 1))
    domains = {node: f"host{(node - 1) // each}" for node in nodes}
    plan = replanned(first_plan(range(groups), nodes, factor), nodes, factor, (), domains)
    check_spread(plan, nodes, factor, domains)
    counted = votes(plan, nodes)
    assert max(counted.values()) - min(counted.values()) <= 2
    leads = Counter(chosen[0] for chosen in plan.values())
    assert max(leads.values()) - min(leads[node] for node in nodes) <= 2


@pytest.mark.parametrize("order", ["by host", "in turn"])
def test_two_processes_on_each_of_three_hosts(order: str) -> None:
    nodes = list(range(1, 7))
    domains = {node: "abc"[(node - 1) // 2 if order == "by host" else (node - 1) % 3] for node in nodes}
    plan = replanned(first_plan(range(17), nodes, 3), nodes, 3, (), domains)
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
        after = replanned(plan, nodes, 3, (), domains)
        check_spread(after, nodes, 3, domains)
        for group, chosen in after.items():
            assert set(chosen) - set(plan[group]) <= {node}
        plan = after
    assert sorted(votes(plan, nodes).values()) == [8, 8, 8, 9, 9, 9]


def test_what_an_operator_chose_stays() -> None:
    plan = first_plan(range(3), [1, 2, 3, 4], 3)
    plan[1] = (1, 2, 3)
    domains = {1: "a", 2: "a", 3: "b", 4: "c"}
    after = replanned(plan, [1, 2, 3, 4], 3, {1}, domains)
    assert after[1] == (1, 2, 3)
    assert {1, 2} - set(after[0])


def test_a_vote_goes_rather_than_a_leadership() -> None:
    plan: Plan = {0: (2, 1, 3)}
    assert replanned(plan, [1, 2, 3, 4], 3, (), {1: "a", 2: "a", 3: "b", 4: "c"}) == {0: (2, 4, 3)}
