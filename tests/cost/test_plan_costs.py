"""What it costs to look for the next changes of the plan of a large cluster, which its catalog's leader does in its
loop, whatever else is to be done."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.cost.metered import MeteredCopy

NODES = 50
GROUPS = 1_025
STEPS_FOR_A_GROUP = 500
"""All that is looked at; a turn for each node, voter and level would be ten times as much."""

SPREADS: dict[str, Mapping[int, tuple[str, ...]]] = {
    "two zones": {node: (f"z{node % 2}", f"h{node}") for node in range(1, NODES + 1)},
    "three zones": {node: (f"z{node % 3}", f"h{node}") for node in range(1, NODES + 1)},
    "two hosts": {node: (f"h{node % 2}",) for node in range(1, NODES + 1)},
}


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("domains", SPREADS.values(), ids=list(SPREADS))
def test_a_look_at_a_large_plan_is_a_bounded_look_at_each_group(
    domains: Mapping[int, tuple[str, ...]], busy: bool
) -> None:
    """Also where every group waits for nodes that are busy."""
    copy = MeteredCopy("mayfly.cluster.host.plan_moves", "mayfly.cluster.host.failure_domains")
    moves = copy.module("mayfly.cluster.host.plan_moves")
    plan = {group: tuple(1 + (group + place) % NODES for place in range(3)) for group in range(GROUPS)}
    moving = {group: (*voters[:2], NODES + 1) for group, voters in plan.items() if busy and group < 200}
    situation = moves.Situation(plan, range(1, NODES + 1), 3, domains, moving=moving)
    copy.meter.steps = 0
    moves.next_changes(situation)
    assert copy.meter.steps < STEPS_FOR_A_GROUP * GROUPS
