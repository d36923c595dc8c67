"""Hosts whose cluster grows and shrinks."""

from collections.abc import Callable

from mayfly.cluster.host.placement import first_plan, replanned
from tests.cluster.host.three_hosts import Cluster


class Changing(Cluster):
    """A cluster whose members change; every host is told at the same moment."""

    def __init__(
        self, size: int, groups: int = 3, compact_entries: int = 1 << 40, everywhere: bool = True, keep: int = 0
    ) -> None:
        """`everywhere`: all have a replica of every group, and not of group 0 alone."""
        self.members = list(range(1, size + 1))
        self.plan = first_plan(range(groups), self.members, 3)
        super().__init__(size, groups, compact_entries, keep, everywhere=everywhere)
        if not everywhere:
            self.follow()

    def step(self, until: Callable[[], object] = lambda: False) -> None:
        super().step(until)
        for node in self.nodes.values():
            node.host.reconfigure(self.now)

    def become(self, *voting: int, with_learners: tuple[int, ...] = ()) -> None:
        """The cluster shall have these nodes; new ones are started with nothing."""
        self.members = sorted({*voting, *with_learners})
        self.plan = replanned(self.plan, voting, 3)
        for id in self.members:
            if id not in self.stores:
                self.add(id, self.members)
        self.follow()

    def start(self, id: int) -> None:
        super().start(id)
        if not self.everywhere and len(self.nodes) == len(self.ids):
            self.follow()

    def follow(self) -> None:
        """Every host is told of members and plan."""
        for node in self.nodes.values():
            node.host.set_members(self.members, self.plan, self.now, everywhere=self.everywhere)

    def replicas(self, group: int) -> list[int]:
        """The nodes that shall have a group."""
        return list(self.members) if self.everywhere or group == 0 else sorted(self.plan[group])

    def settled(self) -> bool:
        """Whether every group has the members and the leader that the plan wants."""
        for group, chosen in self.plan.items():
            leader = self.leader(group)
            if leader != chosen[0]:
                return False
            present = self.nodes[leader].host.groups[group].conf_state
            if present.voters_outgoing or sorted(present.voters) != sorted(chosen):
                return False
            if sorted(present.learners) != sorted(set(self.replicas(group)) - set(chosen)):
                return False
            running = [id for id in self.members if id in self.nodes]
            wanted = [id for id in self.replicas(group) if id in running]
            if [id for id in running if group in self.nodes[id].host.groups] != wanted:
                return False
        return True
