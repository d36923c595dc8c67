"""What happens to places while a cluster forms: crashes, cuts, and disks that are emptied."""

from __future__ import annotations

from functools import partial

from simulation.cluster.events import SECOND_US
from simulation.node.forming.ground import Ground
from simulation.node.forming.place import StartPlace
from simulation.node.membership import settled


class Faults:
    """The faults of one run."""

    def __init__(self, run: Ground) -> None:
        self._run = run

    def strike(self) -> None:
        """One of them, somewhere."""
        run = self._run
        if run.calm:
            return
        place = run.random.choice(run.places)
        kind = run.random.choice(("crash", "crash", "cut off", "cut", "wipe", "wipe", "wipe"))
        if kind == "crash" and place.up:
            run.stop(place)
            run.queue.after(run.random.randint(0, 8 * SECOND_US), partial(run.start, place))
        elif kind == "wipe" and place not in run.absent and self._may_wipe(place):
            kind = "wiped as a node" if place.node else "wiped while asking"
            run.wipe(place)
            run.queue.after(run.random.randint(0, 8 * SECOND_US), partial(run.start, place))
        elif kind == "cut off":
            for other in run.places:
                run.cuts.for_a_while(place, other)
        elif kind == "cut":
            run.cuts.for_a_while(place, run.random.choice(run.places))
        else:
            return
        run.trace.add("fault", kind, place.number)
        run.count(kind)

    def _may_wipe(self, place: StartPlace) -> bool:
        """One that has no data yet; else, where no outage takes a disk, one of a cluster at rest that has all that it
        wants, of three voters or more: what a majority loses can't be told from what never was. Nor can what the only
        founder loses."""
        run = self._run
        if not place.node:
            return place.up
        if run.loses_a_disk or (len(run.founders) == 1 and place.is_founder):
            return False
        programs = run.programs()
        if not programs or place.unproven or len(programs) != len([each for each in run.places if each.node]):
            return False
        newest = max(program.engine.catalog.members.version for program in programs)
        members = programs[0].engine.catalog.members
        stores = {record.id: record.store for record in members.with_replicas()}
        return (
            all(program.ready and settled(program) for program in programs)
            and all(program.engine.catalog.members.version == newest for program in programs)
            and all(len(voters) >= 3 for voters in members.plan.values())
            and stores == {each.node: each.store for each in run.places if each.node}
        )
