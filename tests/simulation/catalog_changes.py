"""Changes of the catalog in whole simulated clusters, and whether the shards follow."""

from __future__ import annotations

from collections.abc import Callable

from mayfly.node.catalog import CatalogCommand
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.shard.settings import encode_terms
from simulation.cluster.events import MILLISECOND_US
from simulation.node.nodes import SimulatedNode
from simulation.node.run import Simulation
from simulation.simulators import CLUSTERS


def submit(simulation: Simulation, node: int, command: CatalogCommand) -> None:
    """Give a command to a node; lost if it does not run."""
    machine = simulation.cluster.machines[node]

    def give() -> None:
        if isinstance(machine.program, SimulatedNode):
            machine.program.engine.submit_catalog(command, lambda _: None)

    machine.call(give)


def once_founded(simulation: Simulation, begin: Callable[[], None]) -> None:
    """Run something when every node has every queue, and then on the clock of the faults' plan, about."""

    def look() -> None:
        names = {plan.name for plan in simulation.scenario.topology.queues.values() if plan.expires_ms is None}
        known = [{queue.name for queue in program.engine.catalog.queues()} for program in simulation.programs()]
        if known and all(names <= each for each in known):
            begin()
        else:
            simulation.queue.after(50 * MILLISECOND_US, look)

    look()


def out_of_step(simulation: Simulation) -> list[str]:
    """Queues whose shards have other settings than the catalog of their node wants, on any node."""
    found = []
    for program in simulation.programs():
        engine = program.engine
        for record in engine.catalog.queues():
            shard = engine.shards.get(record.shard)
            queue = None if shard is None else shard.queue(record.id)
            if queue is not None and queue.terms_bytes != encode_terms(shard_settings(engine.catalog, record)):
                found.append(f"{record.name} on node {program.machine.id}")
    return found


def run(simulation: Simulation) -> None:
    CLUSTERS.kept(simulation)
    assert out_of_step(simulation) == []
