"""Turns to route: bounded by steps, one for each that stands in line."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mayfly.node.catalog import Catalog
from mayfly.node.catalog.routing_steps import RoutingSteps, RoutingTurns
from mayfly.node.limits import ROUTING_STEPS_PER_TURN

COSTS = st.lists(st.integers(0, ROUTING_STEPS_PER_TURN), min_size=1, max_size=8)


class Worker:
    """Somebody with messages of these costs to route, on one of the channels of `who`."""

    def __init__(self, turns: RoutingTurns, who: str, costs: list[int], done: list[tuple[str, int]]) -> None:
        self.turns = turns
        self.who = who
        self.left = costs
        self.done = done

    def go_on(self) -> None:
        while self.left:
            if self.turns.is_over:
                self.turns.enter(self.who, self.go_on)
                return
            cost = self.left.pop(0)
            self.turns.steps.taken += cost
            self.done.append((self.who, cost))


@given(st.lists(st.tuples(st.sampled_from("abc"), COSTS), max_size=8))
def test_each_turn_is_bounded_and_each_has_its_own(work: list[tuple[str, list[int]]]) -> None:
    turns = RoutingTurns(RoutingSteps())
    done: list[tuple[str, int]] = []
    workers = [Worker(turns, who, list(costs), done) for who, costs in work]
    for worker in workers:
        worker.go_on()
    rounds = 0
    while turns.has_waiting:
        before, first = turns.steps.taken, turns._line[0]
        count = len(done)
        turns.begin()
        assert done[count][0] == first, "who has waited longest"
        dearest = max(cost for _, cost in done[count:])
        assert turns.steps.taken - before < ROUTING_STEPS_PER_TURN + max(1, dearest)
        rounds += 1
    assert sorted(done) == sorted((who, cost) for who, costs in work for cost in costs)
    assert rounds <= 1 + sum(map(sum, (costs for _, costs in work))) // ROUTING_STEPS_PER_TURN
    assert not turns._waiting and not turns._line


def test_the_line_goes_round_by_who_waits_and_not_by_how_often() -> None:
    turns = RoutingTurns(RoutingSteps())
    done: list[tuple[str, int]] = []
    turns.steps.taken += ROUTING_STEPS_PER_TURN
    for _ in range(10):
        Worker(turns, "many", [ROUTING_STEPS_PER_TURN] * 3, done).go_on()
    Worker(turns, "one", [ROUTING_STEPS_PER_TURN] * 3, done).go_on()
    for _ in range(6):
        turns.begin()
    assert [who for who, _ in done] == ["many", "one"] * 3


def test_steps_go_on_when_the_catalog_is_replaced() -> None:
    """A snapshot has none of them; a turn that is over stays over."""
    catalog = Catalog(1)
    catalog.routing_turns.steps.taken += ROUTING_STEPS_PER_TURN + 5
    before = catalog.routing_steps
    assert catalog.routing_turns.is_over
    catalog.restore(catalog.snapshot())
    assert catalog.routing_steps == before and catalog.routing_turns.is_over
    catalog.routing_turns.begin()
    assert not catalog.routing_turns.is_over
    catalog.route("/", "amq.direct", "k")
    assert catalog.routing_steps > before
