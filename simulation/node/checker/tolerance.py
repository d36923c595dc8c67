"""How exact the checker may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far true time may be from what nodes take for the time.

    `drift_ppm` bounds how fast or slow a clock may run; `early_ms` how far a shard clock may jump ahead
    in true time (None when clocks were stepped on purpose: then only shard clocks judge); `late_ms` how
    long, in a calm cluster, an expiry, a delivery or a lease's end may take beyond its time.
    """

    drift_ppm: int = 0
    early_ms: int | None = 0
    late_ms: int = 1_000
    settle_ms: int = 3_000
    """How long after the last fault a cluster may need before `late_ms` holds."""

    def shortest_us(self, period_ms: int) -> int:
        """The shortest true time in which a clock within the drift can count `period_ms`."""
        return period_ms * 1_000 - period_ms * self.drift_ppm // 1_000 - 1_000
