"""Nodes that are told to stop, in simulated clusters: hosts by seeds, whole nodes with clients by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.cluster import faults
from simulation.cluster.events import SECOND_US
from simulation.cluster.host_group import HostSimulation
from simulation.cluster.host_scenario import draw_scenario
from simulation.node.run import Simulation
from simulation.simulators import HOSTS
from tests.simulation.scenarios import at, run, three_nodes


def test_seeds_of_hosts_have_nodes_that_drain() -> None:
    """With whatever else those seeds have; among them drains that are cut short by crashes."""
    drained = 0
    for seed in range(9000, 9012):
        scenario = draw_scenario(seed)
        if any(fault.kind == faults.DRAIN for fault in scenario.plan):
            simulation = HostSimulation(scenario)
            HOSTS.kept(simulation)
            drained += simulation.cluster.effects.get(faults.DRAIN, 0)
    assert drained >= 3


def test_hosts_that_drain_in_turn_and_together_with_failures() -> None:
    """Each in turn, then two at once, one of which is killed meanwhile; disks hang and links are cut."""
    scenario = next(it for it in map(draw_scenario, range(500, 600)) if len(it.founders) == 3)
    plan = (
        *(at(1 + node, faults.DRAIN, node, lasts=0.5) for node in (1, 2, 3)),
        at(6, faults.STUCK_DISK, 2, lasts=1.5),
        at(6.1, faults.DRAIN, 1, 2, lasts=1),
        at(6.3, faults.CRASH, 1, lasts=1),
        at(9, faults.PARTITION, 3, lasts=1),
        at(9.2, faults.DRAIN, 3, lasts=0.5),
    )
    simulation = HostSimulation(replace(scenario, plan=plan, changes=()))
    HOSTS.kept(simulation)
    assert simulation.cluster.effects[faults.DRAIN] >= 4


@pytest.mark.parametrize("first_seed", [1, 60])
def test_whole_nodes_drain_in_turn_under_clients(first_seed: int) -> None:
    """A rolling restart, twice: everything is confirmed, delivered, leased and dead-lettered as it must be."""
    plan = tuple(at(0.4 + 1.4 * turn, faults.DRAIN, turn % 3 + 1, lasts=0.3) for turn in range(4))
    simulation: Simulation = run(replace(three_nodes(first_seed), plan=plan, changes=()))
    assert simulation.cluster.effects[faults.DRAIN] >= 3


def test_whole_nodes_drain_while_others_fail() -> None:
    plan = (
        at(0.5, faults.DRAIN, 1, lasts=0.5),
        at(0.7, faults.CRASH, 2, lasts=1.0),
        at(2.5, faults.DRAIN, 2, 3, lasts=0.4),
        at(2.8, faults.CRASH, 3, lasts=0.6),
        at(4.0, faults.STUCK_DISK, 2, lasts=1.0),
        at(4.1, faults.DRAIN, 2, lasts=0.5),
    )
    scenario = three_nodes(80)
    assert scenario.timeline.calm > 4 * SECOND_US
    run(replace(scenario, plan=plan, changes=()))
