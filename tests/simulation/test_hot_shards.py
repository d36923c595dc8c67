"""A shard with three busy queues, while others have next to nothing to do: they are spread by themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mayfly.cluster.versions import LEVELS
from simulation.node.scenario import BUSY, with_busy
from tests.simulation.scenarios import run, three_nodes


@pytest.mark.slow
def test_busy_queues_of_one_shard_are_spread_while_they_are_used() -> None:
    """Clients notice nothing, and all judges are content (docs/decisions/queues.md, 27)."""
    drawn = three_nodes(40)
    profile = replace(drawn.node_profile, shards=4, level=LEVELS.highest, replication_factor=3)
    calm = replace(
        drawn, node_profile=profile, changes=(), growth=(), clock_offsets_us=(0, 0, 0), publishers=1, leaseholders=0,
        limits=False, transactions=False, reluctant=False, schedules=False, streams=False, recurring=False,
        gap_us=600_000,
    )  # fmt: skip
    simulation = run(with_busy(calm, shard=2))
    programs = simulation.programs()
    assert sum(program.engine.membership.plan.queues_moved for program in programs) == 2
    shards = {record.name: record.shard for record in programs[0].engine.catalog.queues() if record.name in BUSY}
    assert len(set(shards.values())) == len(BUSY), shards
