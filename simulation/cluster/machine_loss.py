"""Machines with two nodes each, of which every one is lost as a whole, and one of them for good.

Voters are spread over failure domains (`cluster.host.placement`), so whichever machine goes, every group keeps a
majority: commands are answered while it is away, and nothing that was answered is missing when it never comes back.
"""

from __future__ import annotations

from dataclasses import replace

from simulation.cluster.events import MILLISECOND_US
from simulation.cluster.host_group import HostSimulation
from simulation.cluster.host_scenario import USUAL_OFFSET_MS, HostScenario, draw_scenario
from simulation.cluster.randomness import stream

MACHINES = 3
NODES_OF_A_MACHINE = 2
_NODES = MACHINES * NODES_OF_A_MACHINE


def draw_machines(seed: int, told: bool = True) -> HostScenario:
    """The scenario of a seed. Unless `told`, the directory takes every node for a domain of its own."""
    drawn, random = draw_scenario(seed), stream(seed, "machines")
    offsets = tuple(random.randint(-USUAL_OFFSET_MS, USUAL_OFFSET_MS) * MILLISECOND_US for _ in range(_NODES))
    profile = replace(
        drawn.profile, groups=2, replication_factor=3, nodes_per_domain=NODES_OF_A_MACHINE if told else 1
    )
    # Groups have to be at rest before the next machine goes: with hardly a snapshot that can be read they rarely are.
    return replace(
        drawn, founders=tuple(range(1, _NODES + 1)), profile=profile, plan=(), changes=(), offsets_us=offsets,
        damaged=min(drawn.damaged, 0.4),
    )


def nodes_of(machine: int) -> tuple[int, ...]:
    """The nodes of a machine; machines count from 0."""
    first = machine * NODES_OF_A_MACHINE + 1
    return tuple(range(first, first + NODES_OF_A_MACHINE))


class MachineLoss(HostSimulation):
    """A run: each machine in turn goes and comes back, the last one does not."""

    def pass_time(self) -> None:
        """The machines go one after the other."""
        random = stream(self.scenario.seed, "order of machines")
        order = random.sample(range(MACHINES), MACHINES)
        self.begin()
        for machine in order:
            self._until_at_rest()
            self._lose(machine)
            if machine != order[-1]:
                for node in nodes_of(machine):
                    self.cluster.start(node)
        lost = nodes_of(order[-1])
        for node in lost:
            self.cluster.take_away(node)
            self.cluster.machines[node].disk.wipe()
        self.operator.see_off(lost)
        self.wait_for(lambda: not self.operator.busy and self.all_settled() and self.led())
        self.calm_down(lost)
        self.come_to_rest()

    def _until_at_rest(self) -> None:
        self.wait_for(
            lambda: len(self.members()) == _NODES and self.all_settled() and self.led() and self._domains_are_told()
        )

    def _domains_are_told(self) -> bool:
        """Whether the plan knows which nodes share a machine. Founders announce that a moment after the first plan."""
        if self.scenario.profile.nodes_per_domain == 1:
            return True
        machines = [
            {(node - 1) // NODES_OF_A_MACHINE for node in group.conf_state.voters}
            for it in self.members()
            for group in it.host.groups.values()
        ]
        return all(len(voters) == MACHINES for voters in machines)

    def _lose(self, machine: int) -> None:
        """All its nodes end at the same moment; every group goes on without them."""
        self.trace.add("machine lost", machine)
        for node in nodes_of(machine):
            self.cluster.crash(node)
        self.wait_for(self.led)
        # What is applied after this was committed by those that are left.
        applied = [observer.highest_applied for observer in self.observers]
        self.wait_for(
            lambda: all(
                observer.highest_applied > before + 1 for observer, before in zip(self.observers, applied, strict=True)
            )
        )
        self.count("machine lost")
