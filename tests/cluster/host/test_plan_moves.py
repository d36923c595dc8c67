"""The next changes of a plan: few, never too many at one node, never without a majority, and with an end."""

import random
from collections import Counter
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.host.failure_domains import FailureDomains, Path, path_of
from mayfly.cluster.host.placement import Plan, first_plan
from mayfly.cluster.host.plan_moves import (
    IDLE_WEIGHT,
    MOST_CHANGES,
    Change,
    Situation,
    left_alone,
    next_changes,
    owed,
)

NODES = tuple(range(1, 10))
GROUPS = st.sampled_from([1, 2, 5, 17])
FACTORS = st.sampled_from([1, 2, 3, 5])
MEMBERS = st.sets(st.sampled_from(NODES), min_size=1).map(sorted)
DOMAINS = st.lists(
    st.sampled_from(["", "a", "b", "x/1", "x/2", "y/1", "y/2", "z/1"]), min_size=len(NODES), max_size=len(NODES)
).map(lambda names: {node: path_of(name) for node, name in zip(NODES, names, strict=True)})
LOADS = st.dictionaries(st.integers(0, 16), st.integers(0, 1000))


class World:
    """Groups that follow a plan, each in its time."""

    def __init__(self, plan: Plan, nodes: list[int], factor: int, domains: Mapping[int, Path]) -> None:
        self.plan = plan
        self.present = {group: set(voters) for group, voters in plan.items()}
        self.nodes, self.factor, self.domains = nodes, factor, domains
        self.pinned: list[int] = []
        self.loads: dict[int, int] = {}
        self.away: list[int] = []
        self.down: list[int] = []
        self.moved = 0

    def situation(self) -> Situation:
        moving = {group: present for group, present in self.present.items() if present != set(self.plan[group])}
        return Situation(
            self.plan, self.nodes, self.factor, self.domains, self.pinned, self.away, self.down, self.loads, moving
        )

    def step(self) -> list[Change]:
        """Ask for changes, check what is true of all, and put them into the plan."""
        coming, going = self.busy()
        changes = next_changes(self.situation())
        missing = {*self.away, *self.down}
        assert len(changes) <= MOST_CHANGES and len({group for group, _ in changes}) == len(changes)
        for group, voters in changes:
            before = self.plan[group]
            come, go = set(voters) - set(before), set(before) - set(voters)
            assert len(come) <= 1 and len(go) <= 1, "one vote at a time"
            assert not come & missing and come <= set(self.nodes)
            assert voters and len(set(voters)) == len(voters)
            present = self.present[group]
            assert 2 * len(present - missing) > len(present), "a group without a majority is left alone"
            if present != set(before):
                assert go and not go & present, "a move that is under way is given up only if it could not end"
            come -= present
            assert not come & coming and not go & going - missing, "one in and one out"
            coming |= come
            going |= go & present
            self.plan[group] = voters
            self.moved += len(come)
        return changes

    def busy(self) -> tuple[set[int], set[int]]:
        """To whom replicas come, and from whom they go."""
        pairs = [(set(self.plan[group]), present) for group, present in self.present.items()]
        return set().union(*(plan - had for plan, had in pairs)), set().union(*(had - plan for plan, had in pairs))

    def settle(self, groups: Collection[int] | None = None) -> None:
        """Groups get the voters of the plan, as far as those are there."""
        for group in self.plan if groups is None else groups:
            if not set(self.plan[group]) - self.present[group] & {*self.away, *self.down}:
                self.present[group] = set(self.plan[group])

    def run(self, most: int = 2000) -> int:
        """Until nothing is to be done; how many steps that took."""
        for count in range(most):
            self.settle()
            if not self.step():
                return count
        raise AssertionError("there is no end")

    def weights(self, leads: bool) -> dict[int, int]:
        sums = dict.fromkeys(self.nodes, 0)
        for group, voters in self.plan.items():
            for node in voters[:1] if leads else voters:
                if node in sums:
                    sums[node] += IDLE_WEIGHT + self.loads.get(group, 0)
        return sums


def spread_is_best(voters: Collection[int], nodes: Collection[int], domains: Mapping[int, Path]) -> bool:
    """No single vote could be moved to where it is spread better; see test_placement_in_domains for why that is all."""
    known = FailureDomains(sorted({*nodes, *voters}), domains)
    return all(
        known.gain(list(voters), heavy, light) >= known.no_gain
        for heavy in voters
        for light in nodes
        if light not in voters
    )


@settings(max_examples=150, deadline=None)
@given(GROUPS, FACTORS, MEMBERS, DOMAINS, LOADS, st.lists(st.tuples(MEMBERS, DOMAINS, LOADS), min_size=1, max_size=3))
def test_whatever_changes_it_ends_and_then_stays(
    groups: int,
    factor: int,
    nodes: list[int],
    domains: dict[int, Path],
    loads: dict[int, int],
    changes: list[tuple[list[int], dict[int, Path], dict[int, int]]],
) -> None:
    world = World(first_plan(range(groups), nodes, factor), nodes, factor, domains)
    for present, places, load in [(nodes, domains, loads), *changes]:
        world.nodes, world.domains, world.loads = present, places, load
        world.run()
        for voters in world.plan.values():
            assert len(voters) == min(factor, len(present)) and set(voters) <= set(present)
            assert spread_is_best(voters, present, places), "two on one host while another one has room"
        assert not world.step(), "it stays"
        assert owed(world.situation()) == []


@settings(max_examples=150, deadline=None)
@given(GROUPS, st.sampled_from([3, 5]), MEMBERS, DOMAINS, st.integers(0, 1 << 30))
def test_moves_that_take_their_time_and_nodes_that_come_and_go(
    groups: int, factor: int, nodes: list[int], domains: dict[int, Path], seed: int
) -> None:
    some = random.Random(seed)
    world = World(first_plan(range(groups), nodes, factor), nodes, factor, domains)
    for _ in range(60):
        if some.random() < 0.2:
            world.nodes = sorted(some.sample(NODES, some.randint(1, len(NODES))))
        if some.random() < 0.2:
            world.away = some.sample(world.nodes, some.randint(0, len(world.nodes) // 2))
        if some.random() < 0.3:
            world.down = some.sample(NODES, some.randint(0, 2))
        if some.random() < 0.1:
            world.loads = {group: some.randint(0, 500) for group in range(groups)}
        world.step()
        world.settle(some.sample(range(groups), some.randint(0, groups)))
    world.down, world.away = [], []
    world.run()
    assert all(len(voters) == min(factor, len(world.nodes)) for voters in world.plan.values())


@given(LOADS, st.integers(0, 1 << 30))
def test_load_that_is_nearly_the_same_moves_nothing(loads: dict[int, int], seed: int) -> None:
    """Hysteresis: what was evened out is not touched again for a tenth more or less of load."""
    some = random.Random(seed)
    world = World(first_plan(range(17), range(1, 7), 3), list(range(1, 7)), 3, {})
    world.loads = dict.fromkeys(range(17), 100)
    world.run()
    world.loads = {group: some.randint(95, 105) for group in range(17)}
    assert not world.step()


def test_leaders_follow_the_load() -> None:
    world = World(first_plan(range(17), [1, 2, 3], 3), [1, 2, 3], 3, {})
    hot = [group for group, voters in world.plan.items() if voters[0] == 1]
    world.loads = dict.fromkeys(hot, 200)
    before = world.weights(leads=True)
    world.run()
    after = world.weights(leads=True)
    assert max(before.values()) - min(before.values()) >= 1000
    assert max(after.values()) - min(after.values()) <= 400
    assert world.moved == 0, "nothing was copied for it"


def test_a_new_node_gets_its_share_one_replica_at_a_time() -> None:
    world = World(first_plan(range(17), [1, 2, 3], 3), [1, 2, 3, 4], 3, {})
    assert world.run() >= 12
    votes = Counter(node for voters in world.plan.values() for node in voters)
    assert max(votes.values()) - min(votes.values()) <= 2
    assert world.moved <= votes[4]
    leads = Counter(voters[0] for voters in world.plan.values())
    assert max(leads.values()) - min(leads[node] for node in world.nodes) <= 1


def test_who_is_away_is_replaced_and_leads_nothing_and_gets_its_share_when_it_is_back() -> None:
    nodes = [1, 2, 3, 4]
    world = World(first_plan(range(17), nodes, 3), nodes, 3, {})
    world.away = world.down = [2]
    world.run()
    assert all(2 not in voters and len(voters) == 3 for voters in world.plan.values())
    world.away, world.down = [], []
    world.run()
    votes = Counter(node for voters in world.plan.values() for node in voters)
    assert min(votes.values()) >= 11


def test_who_can_not_be_replaced_keeps_its_votes() -> None:
    world = World(first_plan(range(17), [1, 2, 3], 3), [1, 2, 3], 3, {})
    before = {group: set(voters) for group, voters in world.plan.items()}
    world.away = world.down = [2]
    world.run()
    assert {group: set(voters) for group, voters in world.plan.items()} == before
    assert all(voters[0] != 2 for voters in world.plan.values()), "but does not lead"


def test_a_group_without_a_majority_is_left_alone_and_the_others_are_not() -> None:
    plan: Plan = {0: (1, 2, 3), 1: (1, 2, 4), 2: (3, 4, 5)}
    world = World(plan, [1, 2, 3, 4, 5], 3, {})
    world.away = world.down = [1, 2]
    assert left_alone(plan, [1, 2]) == [0, 1]
    assert not world.step()
    world.away = world.down = [3]
    world.run()
    assert all(3 not in voters for voters in world.plan.values())


def test_nothing_is_spread_in_a_group_with_one_that_leaves_before_it_can_go() -> None:
    """Two of three present voters are down, one of them goes in a move under way; 3 leaves."""
    plan: Plan = {0: (1, 3), 1: (1, 2, 5)}
    moving = {0: (3, 8, 9)}
    domains = {1: path_of("a"), 3: path_of("a"), 4: path_of("b")}
    situation = Situation(plan, [1, 2, 4, 5], 3, domains, down=[8, 9], moving=moving)
    assert 0 not in dict(next_changes(situation))


def test_a_node_that_was_just_started_anew_moves_nothing() -> None:
    world = World(first_plan(range(17), [1, 2, 3, 4], 3), [1, 2, 3, 4], 3, {})
    world.run()
    world.down = [2]
    assert not world.step(), "it is missing, and not away"
    world.nodes = [1, 2, 3, 4, 5]
    for group, voters in world.step():
        assert 2 not in world.present[group] | set(voters), "and what it votes in waits for it"


def test_a_move_to_a_node_that_goes_is_made_to_another_one() -> None:
    world = World({0: (1, 2, 3)}, [1, 2, 3, 4, 5], 3, {})
    world.nodes = [1, 2, 4, 5]
    assert world.step() == [(0, (1, 2, 4))]
    assert not world.step(), "it is under way"
    world.down = [4]
    assert not world.step(), "it may come back"
    assert owed(world.situation()) == []
    world.away = [4]
    assert owed(world.situation()) == [0]
    assert world.step() == [(0, (1, 2, 5))]


def test_a_leaving_node_gives_up_one_replica_at_a_time_and_a_dead_one_all_at_once() -> None:
    for down, most in (([], 1), ([4], MOST_CHANGES)):
        world = World(first_plan(range(17), range(1, 9), 3), [1, 2, 3, 5, 6, 7, 8], 3, {})
        world.down = list(down)
        leaving = [change for change in world.step() if 4 in world.present[change[0]]]
        assert 1 <= len(leaving) <= most
        assert (len(leaving) > 1) == bool(down)
        world.settle()
        world.run()
        assert all(4 not in voters for voters in world.plan.values())


@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_evened_out_before_all_have_said_where_they_are(known: bool) -> None:
    plan = first_plan(range(17), [1, 2, 3], 3)
    situation = Situation(plan, [1, 2, 3, 4], 3, {}, domains_known=known)
    assert bool(next_changes(situation)) == known


def test_three_hosts_with_several_processes_each_have_a_voter_each() -> None:
    nodes = list(range(1, 10))
    domains = {node: (f"host{(node - 1) // 3}",) for node in nodes}
    world = World(first_plan(range(17), nodes, 3), nodes, 3, domains)
    world.run()
    for voters in world.plan.values():
        assert len({domains[node] for node in voters}) == 3
    assert max(world.weights(leads=False).values()) - min(world.weights(leads=False).values()) <= 2 * IDLE_WEIGHT


def test_what_an_operator_chose_stays() -> None:
    world = World({0: (1, 2), 1: (1, 2, 3), 2: (1, 2, 3)}, [1, 2, 3, 4, 5, 6], 3, {1: ("a",), 2: ("a",)})
    world.pinned = [0]
    world.run()
    assert world.plan[0] == (1, 2)
