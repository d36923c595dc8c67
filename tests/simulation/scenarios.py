"""Scenarios made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mayfly.cluster.host.frame import Frame
from simulation.cluster.events import SECOND_US
from simulation.cluster.faults import Fault
from simulation.node.run import Simulation
from simulation.node.scenario import NodeScenario, draw_scenario
from simulation.simulators import CLUSTERS


def run(scenario: NodeScenario, on_wire: Callable[[Frame, int, int], Frame] | None = None) -> Simulation:
    simulation = Simulation(scenario, on_wire=on_wire)
    CLUSTERS.kept(simulation)
    return simulation


def three_nodes(first_seed: int) -> NodeScenario:
    """The first scenario from this seed on that has three nodes, without its faults."""
    seed = first_seed
    while len(draw_scenario(seed).nodes) != 3:
        seed += 1
    return replace(draw_scenario(seed), plan=(), absent=0)


def at(seconds: float, kind: str, *nodes: int, lasts: float = 0, amount: int = 0) -> Fault:
    return Fault(int(seconds * SECOND_US), kind, nodes, int(lasts * SECOND_US), amount)
