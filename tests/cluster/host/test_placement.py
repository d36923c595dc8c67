"""Plans: even, complete, and changed no more than they must be."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from mayfly.cluster.host.placement import Plan, first_plan, replanned


def _votes(plan: Plan) -> Counter[int]:
    return Counter(node for chosen in plan.values() for node in chosen)


def _leads(plan: Plan) -> Counter[int]:
    return Counter(chosen[0] for chosen in plan.values())


def _moved(before: Plan, after: Plan) -> int:
    return sum(len(set(after[group]) - set(before[group])) for group in before)


def test_a_cluster_that_does_not_change_keeps_its_plan() -> None:
    for size in (1, 2, 3, 5, 8):
        nodes = range(1, size + 1)
        plan = first_plan(range(17), nodes, 3)
        assert replanned(plan, nodes, 3) == plan


@pytest.mark.parametrize("sizes", [(1, 2, 3, 4, 5, 4, 3), (3, 4, 5), (5, 4, 3, 2, 1)])
def test_growing_and_shrinking_step_by_step(sizes: tuple[int, ...]) -> None:
    plan = first_plan(range(17), range(1, sizes[0] + 1), 3)
    for before, size in pairwise(sizes):
        nodes = range(1, size + 1)
        after = replanned(plan, nodes, 3)
        assert all(len(set(chosen)) == min(3, size) and set(chosen) <= set(nodes) for chosen in after.values())
        votes, leads = _votes(after), _leads(after)
        assert max(votes.values()) - min(votes[node] for node in nodes) <= 2
        assert max(leads.values()) - min(leads[node] for node in nodes) <= 2
        if size < before:
            gone = _votes(plan)[before] if size >= 3 else 0
            assert _moved(plan, after) <= gone + 2
        elif size > 3:
            assert _moved(plan, after) <= votes[size]
        plan = after


def test_a_pinned_group_stays_until_one_of_its_voters_goes() -> None:
    plan = first_plan(range(5), [1, 2, 3], 3)
    plan[2] = (3, 1)
    assert replanned(plan, [1, 2, 3, 4, 5], 3, {2})[2] == (3, 1)
    after = replanned(plan, [1, 2, 4, 5], 3, {2})
    assert 3 not in after[2] and len(after[2]) == 3 and 1 in after[2]


def test_any_change_gives_a_whole_plan() -> None:
    some = random.Random(1)
    for _ in range(200):
        nodes = sorted(some.sample(range(1, 12), some.randint(1, 8)))
        factor = some.choice((1, 2, 3, 5))
        plan = first_plan(range(some.choice((2, 5, 17))), nodes, factor)
        for _ in range(4):
            nodes = sorted(some.sample(range(1, 12), some.randint(1, 8)))
            plan = replanned(plan, nodes, factor, some.sample(range(2), 1))
            for chosen in plan.values():
                assert len(set(chosen)) == len(chosen) and set(chosen) <= set(nodes) and chosen
