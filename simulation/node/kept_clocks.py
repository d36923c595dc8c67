"""What a simulated node keeps of groups' clocks that are ahead of its own, as `node.shell.kept_ahead` does."""

from __future__ import annotations

from mayfly.cluster.host.clocks_ahead import ClocksAhead, clocks_ahead, is_to_be_kept
from mayfly.cluster.host.host import Host
from simulation.cluster.clocks import SimulatedProcessClock

LOOK_MS = 1_000


class KeptClocks:
    """The file of one node; it holds for as long as its machine stays up."""

    def __init__(self) -> None:
        self._kept: ClocksAhead = {}
        self._beside: SimulatedProcessClock | None = None
        self._look_ms = 0

    def found(self, clock: SimulatedProcessClock) -> ClocksAhead:
        """What a process that starts with this clock finds."""
        self._look_ms = 0
        return self._kept if self._beside is clock else {}

    def look(self, host: Host, clock: SimulatedProcessClock, now_ms: int) -> None:
        """Keep what is worth it, once a second."""
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        found = clocks_ahead(host.groups.values(), host.clocks.bound_ms, now_ms)
        if self._beside is not clock or is_to_be_kept(found, self._kept):
            self._kept, self._beside = found, clock
