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


class FailureDomains:
    """The domains of some nodes, by level: that of the zones is the first one."""

    def __init__(self, nodes: Sequence[int], paths: Mapping[int, Path]) -> None:
        known = {node: paths.get(node, ()) for node in nodes}
        self._levels = max([1, *(len(path) for path in known.values())])
        self._domains: dict[int, tuple[Path | int, ...]] = {
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
        """What it would do to the spread of these voters if `light` took the place of `heavy`: below `no_gain` they
        would be spread better, above it worse. Zones count first."""
        before, after = self._domains[heavy], self._domains[light]
        more, fewer = self.crowding(chosen, heavy), self.crowding(chosen, light)
        return tuple(
            0 if before[level] == after[level] else fewer[level] - more[level] + 1 for level in range(self._levels)
        )

    def all_apart(self, chosen: Sequence[int]) -> bool:
        """Whether no two of these voters are in one zone."""
        return len({self._domains[node][0] for node in chosen}) == len(chosen)

    @property
    def no_gain(self) -> tuple[int, ...]:
        """The gain of a change that spreads voters neither better nor worse."""
        return (0,) * self._levels
