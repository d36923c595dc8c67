"""What has to be so in the end: one cluster, with everybody in it and all that was said to be done."""

from __future__ import annotations

from simulation.cluster.events import MILLISECOND_US
from simulation.node.forming.ground import Ground


def complaint_about(run: Ground) -> str:
    """What is not yet as it has to be; "" if nothing."""
    present = [place for place in run.places if place not in run.absent]
    for place in present:
        if not place.node:
            waits = "" if place.forming is None else place.forming.describe(run.queue.now_us // MILLISECOND_US)
            return f"place {place.number} is nobody: {waits}"
    programs = run.programs()
    if len(programs) != len(present) or not all(program.ready for program in programs):
        return f"not all serve: {[(program.machine.id, program.ready) for program in programs]}"
    expected = {place.node: place.store for place in present}
    absent = {place.number for place in run.absent}
    for program in programs:
        members = program.engine.catalog.members
        known = {record.id: record.store for record in members.with_replicas() if record.id not in absent}
        if known != expected:
            return f"node {program.machine.id} knows the members {known}, they are {expected}"
        if any(record.state != "member" for record in members.with_replicas()):
            return f"node {program.machine.id}: {members.with_replicas()}"
        vhosts = {vhost.name for vhost in program.engine.catalog.vhosts()}
        missing = [name for name in run.accepted if name not in vhosts]
        if missing:
            return f"node {program.machine.id} lacks what was said to be done: {missing}"
    return ""
