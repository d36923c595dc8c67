"""An outage in which the node with the newest data loses it, and meets one that has seen little or nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from mayfly.cluster.group.settings import BOOTSTRAP_TERM
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.memory_store import SimulatedDisk
from simulation.node.forming.ground import Ground
from simulation.node.forming.place import StartPlace


class Outage:
    """Two found, and one of them stops at once; the third comes late and serves with the other. All stop, the late one
    loses its disk, and it comes back with the one that stopped."""

    def __init__(self, run: Ground, random: Random, founders: Sequence[StartPlace]) -> None:
        self._run = run
        self._random = random
        self._first, self._stale, self._late = founders
        self._stays_away = True
        """Whether the one that stopped early does not start again yet."""

    def plan(self) -> None:
        """Have it happen."""
        queue = self._run.queue
        after_us = self._random.randint(0, 1_000) * MILLISECOND_US
        for place in (self._first, self._stale):
            queue.at(self._random.randint(0, SECOND_US), partial(self._run.start, place))
        self._run.when(self._stale_has_voted, lambda: queue.after(after_us, self._late_comes))

    def keeps_away(self, place: StartPlace) -> bool:
        """Whether a place is not started again while this lasts."""
        return self._stays_away and place is self._stale and place.life > 0

    def _stale_has_voted(self) -> bool:
        program = self._run.program_of(self._stale)
        return program is not None and not program.engine.untouched

    def _late_comes(self) -> None:
        self._run.start(self._late)
        if self._random.random() < 0.5:
            self._run.when(lambda: self._late.node != 0, self._stop_stale)
        else:
            self._run.queue.after(self._random.randint(0, SECOND_US), self._stop_stale)

    def _stop_stale(self) -> None:
        run, late = self._run, self._late
        run.stop(self._stale)
        disk = run.cluster.machines[self._stale.node].disk
        assert isinstance(disk, SimulatedDisk)
        if not any(group.hard_state.term > BOOTSTRAP_TERM or group.entries for group in disk.load().values()):
            # It is as one that never started; two such of three can't know of a cluster.
            self._stays_away = False
        for place in run.places:
            run.start(place)
        run.when(
            lambda: late.node == late.number and run.serves(late) and run.serves(self._first),
            lambda: run.queue.after(self._random.randint(0, 3 * SECOND_US), self._lose_late),
        )

    def _lose_late(self) -> None:
        run, random, late = self._run, self._random, self._late
        if run.calm or not self._stays_away or self._stale.up or not (self._first.node and late.node == late.number):
            return
        run.count("outages with a stale founder")
        run.trace.add("outage")
        for place in run.places:
            run.stop(place)
        run.wipe(late)
        self._stays_away = False
        for place in (self._stale, late):
            run.queue.after(random.randint(0, SECOND_US), partial(run.start, place))
        away_us = random.choice((SECOND_US, 4 * SECOND_US, 12 * SECOND_US))
        for place in run.places:
            run.queue.after(away_us + random.randint(0, SECOND_US), partial(run.start, place))
