"""A member that stays silent is replaced where it votes, under clients, and is a member like others when it is back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from mayfly.node.catalog import AddShards
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.node.moves import draw_moves
from simulation.node.nodes import SimulatedNode
from simulation.node.run import Simulation
from simulation.node.scenario import NodeScenario, draw_scenario
from tests.simulation.catalog_changes import once_founded, run, submit

LOOK_EVERY_US = 20 * MILLISECOND_US
GOES = 5
MORE_SHARDS = 2


def five_nodes(first_seed: int, replace_after_ms: int) -> NodeScenario:
    """The first scenario from this seed on with five nodes, of which one is down for six seconds; nothing else ails."""
    seed = first_seed
    while len(draw_scenario(seed).nodes) != GOES:
        seed += 1
    drawn = draw_scenario(seed)
    profile = replace(
        drawn.node_profile, session_timeout_ms=1_500, replace_after_ms=replace_after_ms, replication_factor=3
    )
    return replace(drawn, plan=(), absent=GOES, changes=(), growth=(), node_profile=profile)


class Watch:
    """What becomes of the member that goes, as the nodes have it that lead the catalog."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.was_away = False
        self.was_out = False
        """Whether no group had it as a voter, though it was a member."""
        self.is_back = False
        self.reading: set[int] = set()
        """The groups that the member's process had replicas of at its start, and has no answer from yet whether these
        are up to date, or are no more: it is not ready before."""
        self._process: SimulatedNode | None = None

    def look(self) -> None:
        for program in self.simulation.programs():
            if program.engine.host.groups[0].established and program.engine.catalog.members.founded:
                self._look_at(program)
            if program.machine.id == GOES and program is not self._process:
                self._process = program
                self.reading = set(program.engine.host.groups)
                for group in list(self.reading):
                    program.engine.host.read_index(group, partial(self._is_read, program, group))
        self.simulation.queue.after(LOOK_EVERY_US, self.look)

    def _is_read(self, program: SimulatedNode, group: int, result: object) -> None:
        if program is self._process:
            self.reading.discard(group)

    def _look_at(self, program: SimulatedNode) -> None:
        members = program.engine.catalog.members
        record = members.get(GOES)
        assert record is not None and record.state == "member", "it is not removed"
        assert members.those_away() in ([], [GOES]), "only who is silent is away"
        self.was_away |= record.away
        votes = any(
            group.established and GOES in group.conf_state.voters
            for each in self.simulation.programs()
            for group in each.engine.host.groups.values()
        )
        if record.away and not votes:
            self.was_out = True
            assert all(len(voters) == 3 for voters in members.plan.values())
        self.is_back = self.was_out and not record.away and members.still_planned_on(GOES) > 0 and votes


@pytest.mark.parametrize("first_seed", [1, 100])
def test_a_silent_member_is_replaced_and_gets_votes_again_when_it_is_back(first_seed: int) -> None:
    simulation = Simulation(five_nodes(first_seed, 500))
    watch = Watch(simulation)
    once_founded(simulation, watch.look)
    run(simulation)
    assert watch.was_away and watch.was_out and watch.is_back
    assert not watch.reading


def test_who_is_silent_for_less_than_that_is_not_replaced() -> None:
    simulation = Simulation(five_nodes(1, 60_000))
    watch = Watch(simulation)
    plans = []

    def begin() -> None:
        watch.look()
        plans.append(dict(simulation.programs()[0].engine.catalog.members.plan))

    once_founded(simulation, begin)
    run(simulation)
    assert not watch.was_away
    assert simulation.programs()[0].engine.catalog.members.plan == plans[0]


LARGE_AMONG_FEW_LANES_BYTES = 10_000


def with_moves_and_growth(first_seed: int) -> Simulation:
    """While the member is silent and replaced, queues move and shards are added, to which queues move as well."""
    scenario = five_nodes(first_seed, 500)
    shards = scenario.node_profile.shards
    if shards == 1:
        # All letters go by the same few lanes. Were they large, in pieces of a thousand octets over slow links, a queue
        # that moves would wait longer for some hundred of them than it may (EARLIER_DEATHS_MS).
        large_bytes = max(scenario.node_profile.large_body_bytes, LARGE_AMONG_FEW_LANES_BYTES)
        scenario = replace(scenario, node_profile=replace(scenario.node_profile, large_body_bytes=large_bytes))
    queues = tuple(sorted(set(scenario.topology.queues) - {"removed"}))
    moves = draw_moves(scenario.seed, queues, shards + MORE_SHARDS, 4 * SECOND_US, 9 * SECOND_US)
    simulation = Simulation(replace(scenario, moves=moves))
    watch = Watch(simulation)

    def grow() -> None:
        leader = next(it for it in simulation.programs() if it.engine.host.groups[0].established)
        submit(simulation, leader.machine.id, AddShards(shards + MORE_SHARDS))

    def begin() -> None:
        watch.look()
        simulation.queue.after(round(7.2 * SECOND_US), grow)

    once_founded(simulation, begin)
    run(simulation)
    catalog = simulation.programs()[0].engine.catalog
    assert watch.was_away and watch.was_out
    assert catalog.shard_count == shards + MORE_SHARDS
    return simulation


def meet(first_seeds: range) -> None:
    made = into_added = 0
    for first_seed in first_seeds:
        simulation = with_moves_and_growth(first_seed)
        shards = simulation.scenario.node_profile.shards
        made += simulation.happened()["moves made"]
        queues = simulation.programs()[0].engine.catalog.queues()
        into_added += sum(queue.shard > shards for queue in queues)
    assert made > 5 * len(first_seeds) and into_added > 0


def test_queues_move_and_shards_are_added_while_a_silent_member_is_replaced() -> None:
    meet(range(1, 200, 50))


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(200, 1_200, 50))
def test_they_meet_in_many_seeds(first_seed: int) -> None:
    meet(range(first_seed, first_seed + 50, 5))
