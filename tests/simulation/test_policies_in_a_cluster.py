"""Policies in whole simulated clusters: effective within a second on every node, and whatever leaders die."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from mayfly.node.catalog import CatalogCommand, ClearPolicy, SetPolicy
from mayfly.node.catalog.arguments import MAX_TTL_MS
from simulation.cluster import faults
from simulation.cluster.events import SECOND_US
from simulation.cluster.faults import Fault
from simulation.node.run import Simulation
from simulation.node.scenario import NodeScenario
from tests.node.readings import policy_of
from tests.simulation.catalog_changes import once_founded, run, submit
from tests.simulation.scenarios import at, three_nodes


def harmless(number: int, pattern: str, name: str = "p", operator: bool = False) -> SetPolicy:
    """A policy that no client notices, with a value that tells it from others."""
    definition = {"message-ttl": MAX_TTL_MS - number, "expires": MAX_TTL_MS - number}
    return SetPolicy("/", name, pattern, definition, number % 3, operator=operator)


def test_effective_within_a_second_on_every_node() -> None:
    """Set on each node in turn, while clients work and nothing fails."""
    simulation = Simulation(replace(three_nodes(500), changes=()))
    checked = []

    def changed(number: int) -> Callable[[], None]:
        node = number % 3 + 1

        def change() -> None:
            command: CatalogCommand = harmless(number, "") if number % 4 else ClearPolicy("/", "p")
            submit(simulation, node, command)
            simulation.queue.after(SECOND_US, check)

        def check() -> None:
            wanted = MAX_TTL_MS - number if number % 4 else None
            for program in simulation.programs():
                record = program.engine.catalog.queue("/", "plain")
                assert record is not None
                assert program.engine.catalog.effective_settings(record).expires_ms == wanted
                queue = program.engine.shards[record.shard].queue(record.id)
                assert queue is not None
                assert queue.settings.expires_ms == wanted, f"node {program.machine.id}, change {number}"
            checked.append(number)

        return change

    def begin() -> None:
        for number in range(1, 6):
            simulation.queue.after(int(number * 1.2 * SECOND_US), changed(number))

    once_founded(simulation, begin)
    run(simulation)
    assert checked == [1, 2, 3, 4, 5]


def chaos(scenario: NodeScenario, plan: list[Fault], seed: int) -> Simulation:
    """A cluster whose policies change at random moments on random nodes, under faults."""
    simulation = Simulation(replace(scenario, plan=tuple(plan), changes=()))
    random = Random(seed)
    once_founded(simulation, lambda: give_changes(simulation, random))
    return simulation


def give_changes(simulation: Simulation, random: Random) -> None:
    """Fifty within eight seconds, and one at the end that reaches every queue: it can't end up where it began."""
    for number in range(50):
        pattern, name = random.choice(["", "^p", "t", "^(work|fanned)", "d$"]), random.choice(["p", "o"])
        operator = random.random() < 0.3
        command: CatalogCommand = harmless(number, pattern, name, operator)
        if random.random() < 0.2:
            command = ClearPolicy("/", name, operator)
        node, delay_us = random.choice([1, 2, 3]), random.randrange(8 * SECOND_US)

        def give(node: int = node, command: CatalogCommand = command) -> None:
            submit(simulation, node, command)

        simulation.queue.after(delay_us, give)
    last = harmless(101, "", "zz")
    simulation.queue.after(8 * SECOND_US + SECOND_US // 2, lambda: submit(simulation, 1, last))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_c1_changes_survive_crashes_and_leaders_that_come_and_go(seed: int) -> None:
    scenario = three_nodes(500 + 10 * seed)
    plan = [at(0.2 + 0.1 * n, faults.TRANSFER, n % 3 + 1, amount=n) for n in range(50)]
    plan += [at(0.5 + 1.3 * n, faults.CRASH, (n + seed) % 3 + 1, lasts=0.4) for n in range(5)]
    simulation = chaos(scenario, plan, seed)
    run(simulation)
    assert all(policy_of(program.engine.catalog, "/", "zz") for program in simulation.programs())


def test_changes_survive_a_power_failure_and_snapshots() -> None:
    """Everything goes down at once; logs are compacted all the time."""
    scenario = three_nodes(560)
    scenario = replace(scenario, node_profile=replace(scenario.node_profile, compact_entries=20))
    plan = [at(1.5 * n, faults.CRASH, 1, 2, 3, lasts=0.3) for n in range(1, 4)]
    run(chaos(scenario, plan, 7))
