"""Clocks that are wrong in the ways real ones are: offset, drift, and steps that an operator or NTP makes.

The wall clock is read once, when the first process starts after its machine did, and monotonic time counts from there;
so a step of the wall clock reaches a node only through a restart of the machine (RULES C3, L8, T14), while drift is
always with it.
"""

from __future__ import annotations

EPOCH_MS = 1_790_000_000_000
"""What a perfect wall clock shows at true time 0, in Unix milliseconds."""


class MachineClock:
    """The clocks of one machine as functions of true time."""

    def __init__(self, offset_us: int = 0, drift_ppm: int = 0) -> None:
        self.offset_us = offset_us
        self.drift_ppm = drift_ppm

    def elapsed_us(self, true_us: int) -> int:
        """Monotonic time at `true_us`: never steps, but runs `drift_ppm` millionths fast or slow."""
        return true_us + true_us * self.drift_ppm // 1_000_000

    def wall_us(self, true_us: int) -> int:
        """The wall clock in microseconds since 1970."""
        return EPOCH_MS * 1_000 + self.elapsed_us(true_us) + self.offset_us

    def step(self, delta_us: int) -> None:
        """Set the wall clock forward or back; monotonic time does not notice."""
        self.offset_us += delta_us


class SimulatedProcessClock:
    """What one process takes for the time: the wall clock at its start plus the monotonic time since."""

    def __init__(self, machine: MachineClock, started_at_us: int) -> None:
        self._machine = machine
        self._origin_us = machine.wall_us(started_at_us) - machine.elapsed_us(started_at_us)

    def now_ms(self, true_us: int) -> int:
        """Unix milliseconds as this process believes them."""
        return (self._origin_us + self._machine.elapsed_us(true_us)) // 1_000

    def error_ms(self, true_us: int) -> int:
        """How far this process is ahead (positive) of a perfect clock."""
        return self.now_ms(true_us) - EPOCH_MS - true_us // 1_000
