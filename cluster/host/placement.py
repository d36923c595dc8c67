"""Which nodes vote in which group, and which of them should lead it.

`replication_factor` nodes have a replica of a group, and vote in it; clients of the others are told what it does by its
leader (`cluster.host.feeding`). The catalog's group is on every node: those that do not vote in it learn. Voters and
preferred leaders go round the nodes, so that each node leads its share. Nodes of one *failure domain* (a machine, a
rack, a zone) may be lost together: no two of them vote in one group while there are as many domains as voters, and with
fewer domains their votes are spread as evenly as can be; over zones first, and in each zone over its hosts
(`cluster.host.failure_domains`).

A *plan* maps each group to its voters, the preferred leader first. `voters` makes the first plan of a cluster, before
anybody has said what its failure domain is; `replanned` follows a change of the members or their domains, and moves no
more than it must. Both depend on nothing but what they are
given, so that every replica that computes a plan comes to the same one.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from mayfly.cluster.host.failure_domains import FailureDomains, Path

Plan = dict[int, tuple[int, ...]]
NO_DOMAINS: Final[Mapping[int, Path]] = MappingProxyType({})
"""Every node is in a failure domain of its own."""
EVERYWHERE: Final = 0
"""The group that every node has: the catalog's."""


def voters(group: int, nodes: Sequence[int], replication_factor: int) -> list[int]:
    """The voting nodes of a group in a new cluster, the preferred leader first. `nodes` is sorted."""
    count = min(replication_factor, len(nodes))
    first = group % len(nodes)
    return [nodes[(first + step) % len(nodes)] for step in range(count)]


def learners(group: int, nodes: Sequence[int], replication_factor: int) -> list[int]:
    """The other nodes of a new cluster: of a group that is everywhere they have a replica that does not vote."""
    chosen = set(voters(group, nodes, replication_factor))
    return [node for node in nodes if node not in chosen]


def first_plan(groups: Sequence[int], nodes: Sequence[int], replication_factor: int) -> Plan:
    """The plan of a new cluster."""
    ordered = sorted(nodes)
    return {group: tuple(voters(group, ordered, replication_factor)) for group in groups}


def replanned(
    plan: Mapping[int, Sequence[int]],
    nodes: Sequence[int],
    replication_factor: int,
    pinned: Collection[int] = (),
    domains: Mapping[int, Path] = NO_DOMAINS,
) -> Plan:
    """The plan for other members: who stays keeps what it has, the rest is spread evenly.

    A voter that is no longer among `nodes` is replaced by the node with the fewest votes in the failure domains with
    the fewest; then votes move to other domains where a group has too many in one; then, where that puts no more of a
    group into one domain, from the node with the most to the one with the fewest while that makes it more even, and
    after them preferred leaderships. Groups in `pinned` keep voters and order, unless one of their voters has gone.
    `domains` says which failure domain a node is in; one without (empty, or missing) is alone in one of its own.
    """
    making = _Making(plan, sorted(nodes), replication_factor, pinned, domains)
    making.fill()
    making.spread()
    making.even_votes()
    making.even_leaders()
    return {group: tuple(chosen) for group, chosen in making.plan.items()}


class _Making:
    """A plan while it is being made."""

    def __init__(
        self,
        plan: Mapping[int, Sequence[int]],
        nodes: list[int],
        replication_factor: int,
        pinned: Collection[int],
        domains: Mapping[int, Path],
    ) -> None:
        self._nodes = nodes
        self._domains = FailureDomains(nodes, domains)
        self._count = min(replication_factor, len(nodes))
        present = set(nodes)
        self._fixed = {group for group in pinned if plan.get(group) and present.issuperset(plan[group])}
        self.plan: dict[int, list[int]] = {}
        for group in sorted(plan):
            kept = [node for node in plan[group] if node in present]
            self.plan[group] = kept if group in self._fixed else kept[: self._count]

    def _votes(self) -> dict[int, int]:
        votes = dict.fromkeys(self._nodes, 0)
        for chosen in self.plan.values():
            for node in chosen:
                votes[node] += 1
        return votes

    def _leads(self) -> dict[int, int]:
        leads = dict.fromkeys(self._nodes, 0)
        for chosen in self.plan.values():
            leads[chosen[0]] += 1
        return leads

    def _free(self, chosen: Sequence[int]) -> list[int]:
        return [node for node in self._nodes if node not in chosen]

    def _roomiest(self, chosen: Sequence[int], votes: Mapping[int, int]) -> int | None:
        """Who should vote beside these: of the domains with the fewest of them the node with the fewest votes."""
        return min(
            self._free(chosen),
            key=lambda node: (self._domains.crowding(chosen, node), votes[node], node),
            default=None,
        )

    def fill(self) -> None:
        """Give every group as many voters as it should have."""
        votes = self._votes()
        for group, chosen in self.plan.items():
            if group in self._fixed:
                continue
            while len(chosen) < self._count and (node := self._roomiest(chosen, votes)) is not None:
                chosen.append(node)
                votes[node] += 1

    def spread(self) -> None:
        """Move votes to other failure domains until no group has two more in one than in another with a free node."""
        votes = self._votes()
        for group, chosen in self.plan.items():
            while group not in self._fixed and (move := self._vote_to_spread(chosen, votes)) is not None:
                heavy, light = move
                chosen[chosen.index(heavy)] = light
                votes[heavy] -= 1
                votes[light] += 1

    def _vote_to_spread(self, chosen: list[int], votes: Mapping[int, int]) -> tuple[int, int] | None:
        best: tuple[tuple[int, ...], int, int, bool, int, int] | None = None
        for light in self._free(chosen):
            for heavy in chosen:
                gain = self._domains.gain(chosen, heavy, light)
                # Rather a vote than a leadership, and that of the node with the most votes.
                rank = (gain, votes[light], light, heavy == chosen[0], -votes[heavy], -heavy)
                if gain < self._domains.no_gain and (best is None or rank < best):
                    best = rank
        return None if best is None else (-best[5], best[2])

    def even_votes(self) -> None:
        """Move votes until no two nodes differ by more than two (as in a first plan), or no move is possible."""
        votes = self._votes()
        while (move := self._vote_to_move(votes)) is not None:
            group, heavy, light = move
            chosen = self.plan[group]
            chosen[chosen.index(heavy)] = light
            votes[heavy] -= 1
            votes[light] += 1

    def _vote_to_move(self, votes: dict[int, int]) -> tuple[int, int, int] | None:
        for heavy, light in self._unequal(votes, 2):
            movable = [
                group
                for group, chosen in self.plan.items()
                if group not in self._fixed
                and heavy in chosen
                and light not in chosen
                and self._domains.gain(chosen, heavy, light) <= self._domains.no_gain
            ]
            if movable:
                # Rather a vote than a leadership: the next step moves those that have to.
                return min(movable, key=lambda group: (self.plan[group][0] == heavy, group)), heavy, light
        return None

    def even_leaders(self) -> None:
        """Put other voters first until no two nodes lead numbers that differ by more than one, or none can."""
        leads = self._leads()
        while (move := self._leader_to_move(leads)) is not None:
            group, heavy, light = move
            chosen = self.plan[group]
            chosen.remove(light)
            chosen.insert(0, light)
            leads[heavy] -= 1
            leads[light] += 1

    def _leader_to_move(self, leads: dict[int, int]) -> tuple[int, int, int] | None:
        for heavy, light in self._unequal(leads, 1):
            for group, chosen in self.plan.items():
                if group not in self._fixed and chosen[0] == heavy and light in chosen:
                    return group, heavy, light
        return None

    @staticmethod
    def _unequal(load: dict[int, int], bearable: int) -> list[tuple[int, int]]:
        """Pairs (more, less) that differ by more than what is bearable, the most different first."""
        pairs = [(heavy, light) for heavy in load for light in load if load[heavy] - load[light] > bearable]
        return sorted(pairs, key=lambda pair: (load[pair[1]] - load[pair[0]], pair))
