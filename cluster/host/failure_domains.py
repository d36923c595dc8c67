"""What nodes may be lost together with, and how voters are spread over it (pure).

A failure domain is a path from the greatest part to the least, such as zone and host: nodes with the same beginning may
be lost together. One of a single part, such as a host, is the same as before there were paths. A node without a path is
alone in a domain of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Final

SEPARATOR: Final = "/"

Path = tuple[str, ...]


def path_of(text: str) -> Path:
    """The failure domain that somebody has written as `zone/host`; empty parts are none."""
    return tuple(part for part in text.split(SEPARATOR) if part)


def whole(text: str) -> Path:
    """The same where a separator means nothing."""
    return (text,) if text else ()


Domain = Path | int
"""Of some level: a path, or a node that is alone."""


class Spread:
    """How some voters are spread over the domains of each level."""

    def __init__(self, domains: Mapping[int, Sequence[Domain]], levels: int, chosen: Sequence[int]) -> None:
        self._domains: Mapping[int, Sequence[Domain]] = domains
        self._levels: int = levels
        self._counts: list[dict[Domain, int]] = [{} for _ in range(levels)]
        self._parents: list[dict[Domain, Domain]] = [{} for _ in range(levels)]
        for node in chosen:
            above: Domain = 0
            for level, domain in enumerate(domains[node]):
                counts = self._counts[level]
                counts[domain] = counts.get(domain, 0) + 1
                self._parents[level][domain] = above
                above = domain

    def gain(self, heavy: int, light: int) -> tuple[int, ...]:
        """What it would do to the spread if `light` took the place of `heavy`: below `FailureDomains.no_gain` they
        would be spread better, above it worse. Zones count first."""
        before, after = self._domains[heavy], self._domains[light]
        gains: list[int] = []
        for level in range(self._levels):
            if before[level] == after[level]:
                gains.append(0)
            else:
                counts = self._counts[level]
                gains.append(counts.get(after[level], 0) - counts[before[level]] + 1)
        return tuple(gains)

    def kinds(self, population: "Population") -> int:
        """How many likenesses there are among the nodes of a population to which all these voters belong, without
        them."""
        elsewhere = population.total
        found = 0
        within: list[dict[Domain, int]] = [{} for _ in range(self._levels)]
        for level in range(self._levels):
            for domain, above in self._parents[level].items():
                count = population.counts[level].get(domain, 0)
                if level == 0:
                    elsewhere -= count
                else:
                    within[level - 1][above] -= count
                within[level][domain] = count if level < self._levels - 1 else count - self._counts[level][domain]
        for left in within:
            for count in left.values():
                found += count > 0
        return found + (elsewhere > 0)

    def likeness(self, node: int) -> tuple[int, Domain]:
        """Nodes that do not vote and have the same likeness can replace each other: the least domain of theirs that has
        voters."""
        domains = self._domains[node]
        found: tuple[int, Domain] = (-1, 0)
        for level in range(self._levels):
            if domains[level] not in self._counts[level]:
                break
            found = (level, domains[level])
        return found


class Population:
    """How many of some nodes are in each domain."""

    def __init__(self, domains: Mapping[int, Sequence[Domain]], levels: int, nodes: Sequence[int]) -> None:
        self.total: int = len(nodes)
        self.counts: list[dict[Domain, int]] = [{} for _ in range(levels)]
        for node in nodes:
            for counts, domain in zip(self.counts, domains[node], strict=True):
                counts[domain] = counts.get(domain, 0) + 1


class FailureDomains:
    """The domains of some nodes, by level: that of the zones is the first one."""

    def __init__(self, nodes: Sequence[int], paths: Mapping[int, Path]) -> None:
        known = {node: paths.get(node, ()) for node in nodes}
        self._levels = max([1, *(len(path) for path in known.values())])
        self._domains: dict[int, tuple[Domain, ...]] = {
            # Of two that say no more than their zone nothing more is known: they count as on one host.
            node: tuple(path[: level + 1] or node for level in range(self._levels))
            for node, path in known.items()
        }

    def crowding(self, chosen: Sequence[int], node: int) -> tuple[int, ...]:
        """How many of these voters are in the node's domain, of each level."""
        places = self._domains[node]
        counts = [0] * self._levels
        for other in chosen:
            theirs = self._domains[other]
            for level in range(self._levels):
                counts[level] += theirs[level] == places[level]
        return tuple(counts)

    def gain(self, chosen: Sequence[int], heavy: int, light: int) -> tuple[int, ...]:
        """See `Spread.gain`."""
        return self.spread_of(chosen).gain(heavy, light)

    def spread_of(self, chosen: Sequence[int]) -> Spread:
        """How these voters are spread."""
        return Spread(self._domains, self._levels, chosen)

    def population_of(self, nodes: Sequence[int]) -> Population:
        """How many of these nodes are in each domain."""
        return Population(self._domains, self._levels, nodes)

    def all_apart(self, chosen: Sequence[int]) -> bool:
        """Whether no two of these voters are in one zone."""
        return len({self._domains[node][0] for node in chosen}) == len(chosen)

    @property
    def no_gain(self) -> tuple[int, ...]:
        """The gain of a change that spreads voters neither better nor worse."""
        return (0,) * self._levels
