"""Brakes while leaders come and go, nodes crash, and clocks are stepped (RULES R5)."""

from __future__ import annotations

from dataclasses import replace

from simulation.cluster import faults
from simulation.cluster.events import SECOND_US
from simulation.node.scenario import NodeScenario
from tests.simulation.scenarios import at, run, three_nodes

LEADERS = 5
"""Of one shard, at least."""
BRAKES = 4
"""So often the queue is on brake, at least."""


def braking(seed: int) -> NodeScenario:
    return replace(three_nodes(seed), brakes=True, changes=(), growth=())


def test_r5_nothing_is_delivered_on_brake_while_leaders_die_and_clocks_are_stepped() -> None:
    """R5, C2. Handovers five times a second, each node crashes, one clock is stepped to and fro, and once the power
    fails."""
    plan = [at(0.3 + 0.2 * n, faults.TRANSFER, n % 3 + 1, amount=n) for n in range(25)]
    plan += [at(1.5 + 0.9 * n, faults.CRASH, n % 3 + 1, lasts=0.4) for n in range(4)]
    plan += [at(1.0 + n, faults.CLOCK_STEP, 2, amount=(-1) ** n * SECOND_US) for n in range(4)]
    plan += [at(5.0, faults.CRASH, 1, 2, 3, lasts=0.2)]
    plan.sort(key=lambda fault: fault.at_us)
    simulation = run(replace(braking(3), plan=tuple(plan)))
    assert simulation.braking is not None
    assert simulation.braking.times >= BRAKES
    terms = [group.term for program in simulation.programs() for group in program.engine.host.groups.values()]
    assert max(terms) > LEADERS
