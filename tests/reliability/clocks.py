"""Clocks that are set and that drift, each for one node's process alone, by `wall_clock.c` in front of its calls.

Linux and a C compiler: `why_impossible` says which is missing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.reliability import preloaded

_SOURCE: Final = Path(__file__).parent.parent / "integration" / "wall_clock.c"
_MILLION: Final = 1_000_000


def why_impossible() -> str:
    """Why clocks of processes can't be changed on this machine; empty when they can."""
    return preloaded.why_impossible("clocks are changed")


@dataclass(slots=True)
class _Setting:
    ahead_s: int = 0
    ppm: int = 0
    since_ns: int = 0
    gained_ns: int = 0

    def gained(self, now_ns: int) -> int:
        """By how much the clocks are ahead for having gone faster, in ns."""
        return self.gained_ns + max(0, now_ns - self.since_ns) * self.ppm // _MILLION


class Clocks:
    """The clocks of each node, all right at first."""

    def __init__(self, folder: Path, ids: Sequence[int]) -> None:
        """The library and what clocks show are kept in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._library = preloaded.build_library(_SOURCE, folder)
        self._settings = {id: _Setting() for id in ids}
        self.widest_ms: float = 0.0
        """The most by which two nodes' clocks have differed for having gone faster or slower."""
        for id in ids:
            self._write(id)

    def words(self, id: int) -> list[str]:
        """The words before the command of a node that goes by these clocks."""
        return ["env", f"LD_PRELOAD={self._library}", f"WALL_CLOCK_AHEAD_FILE={self._file(id)}"]

    def step(self, id: int, ahead_s: int) -> None:
        """Set the wall clock of a node to so many seconds ahead of the machine's; its other clocks stay."""
        self._settings[id].ahead_s = ahead_s
        self._write(id)

    def drift(self, id: int, ppm: int) -> None:
        """All clocks of a node go faster by so many millionths from now on; 0: as fast as the machine's. What they have
        gained they keep."""
        now_ns = time.monotonic_ns()
        setting = self._settings[id]
        setting.gained_ns, setting.since_ns, setting.ppm = setting.gained(now_ns), now_ns, ppm
        gained_ns = [each.gained(now_ns) for each in self._settings.values()]
        self.widest_ms = max(self.widest_ms, (max(gained_ns) - min(gained_ns)) / _MILLION)
        self._write(id)

    def _write(self, id: int) -> None:
        setting = self._settings[id]
        written = self._file(id).with_suffix(".new")
        written.write_text(f"{setting.ahead_s} {setting.ppm} {setting.since_ns} {setting.gained_ns}\n")
        written.replace(self._file(id))

    def _file(self, id: int) -> Path:
        return self._folder / f"clocks-of-node{id}"
