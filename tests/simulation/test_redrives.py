"""Redrives while leaders come and go, nodes crash, and networks fail (RULES R1)."""

from __future__ import annotations

from dataclasses import replace

from simulation.cluster import faults
from simulation.node.scenario import NodeScenario
from tests.simulation.scenarios import at, run, three_nodes

LEADERS = 5
"""Of one shard, at least."""


def redriving(seed: int) -> NodeScenario:
    return replace(three_nodes(seed), redrives=True, changes=(), growth=())


def test_r1_r4_each_moves_once_in_order_while_leaders_die_all_the_time() -> None:
    """R1; and R4: each death is noted once. Handovers five times a second, each node crashes, and once the power
    fails."""
    plan = [at(0.3 + 0.2 * n, faults.TRANSFER, n % 3 + 1, amount=n) for n in range(25)]
    plan += [at(1.5 + 0.9 * n, faults.CRASH, n % 3 + 1, lasts=0.4) for n in range(4)]
    plan += [at(5.0, faults.CRASH, 1, 2, 3, lasts=0.2)]
    simulation = run(replace(redriving(7), plan=tuple(plan)))
    operator = simulation.redriving
    assert operator is not None
    assert operator.ahead is not None
    assert operator.ahead.moves > 0
    terms = [group.term for program in simulation.programs() for group in program.engine.host.groups.values()]
    assert max(terms) > LEADERS
