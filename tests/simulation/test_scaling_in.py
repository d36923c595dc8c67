"""Members that leave whole simulated clusters at the same time, and how long that takes on the virtual clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mayfly.node.catalog import RemoveMember
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.node.run import Simulation
from simulation.node.scenario import NodeScenario, draw_scenario
from tests.simulation.catalog_changes import once_founded, run, submit

LOOK_EVERY_US = 10 * MILLISECOND_US
WITHIN_US = 4 * SECOND_US
"""For each step (a replica where there was none, votes, handover, votes, gone) a look of the leader's at its groups,
every 250 ms, and a barrier."""


def _five_nodes(first_seed: int) -> NodeScenario:
    """The first scenario from this seed on with five nodes, without faults and other changes."""
    seed = first_seed
    while len(draw_scenario(seed).nodes) != 5:
        seed += 1
    return replace(draw_scenario(seed), plan=(), absent=0, changes=())


@pytest.mark.parametrize("first_seed", [1, 100])
def test_two_of_five_are_out_within_four_seconds(first_seed: int) -> None:
    """Both at once, under clients: no promise is broken, and nobody waits for anything but the steps themselves."""
    simulation = Simulation(_five_nodes(first_seed))
    began_us: list[int] = []
    out_us: dict[int, int] = {}

    def look() -> None:
        for program in simulation.programs():
            for node in (4, 5):
                record = program.engine.catalog.members.get(node)
                if record is not None and record.state == "removed":
                    out_us.setdefault(node, simulation.queue.now_us)
        if len(out_us) < 2:
            simulation.queue.after(LOOK_EVERY_US, look)

    def begin() -> None:
        began_us.append(simulation.queue.now_us)
        for node in (4, 5):
            submit(simulation, 1, RemoveMember(str(node)))
        look()

    once_founded(simulation, begin)
    run(simulation)
    assert sorted(out_us) == [4, 5]
    took_us = max(out_us.values()) - began_us[0]
    print(f"seed {simulation.scenario.seed}: {took_us / SECOND_US:.2f} s")
    assert took_us <= WITHIN_US
