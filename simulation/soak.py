"""`python -m simulation soak --hours 8`: fresh seeds for all simulators, for as long as one likes.

A line a minute says how far it is. A seed that fails is printed, and written to a file of its own with all that is
needed to see it again; so is one that does not end. Ctrl-C ends early, with the totals. The exit code is 1 if a seed
failed. `make soak HOURS=8` is the same.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simulation.runner import Crew, Task
from simulation.simulator import Simulator
from simulation.simulators import SIMULATORS
from simulation.totals import add_simulated, write_tables

CPU_LIMIT_S = 60.0
REPORT_EVERY_S = 60.0
SHOWN_LINES = 4
"""How much of a failure is printed at once; its file has all of it."""


class Tally:
    """What was run, what is next, and what failed. Knows no clock and no process."""

    def __init__(self, simulators: Sequence[Simulator[Any]], first_seed: int) -> None:
        self._simulators = simulators
        self._next_seeds = [first_seed] * len(simulators)
        self._cpu_s = [0.0] * len(simulators)
        self._under_way = [0] * len(simulators)
        self._virtual_us = [0] * len(simulators)
        self.done = [0] * len(simulators)
        self.failed: list[list[int]] = [[] for _ in simulators]

    def next_task(self) -> Task:
        """The next seed of the simulator that has had the least of its share."""

        def used(place: int) -> float:
            done = self.done[place]
            expected_s = self._under_way[place] * (self._cpu_s[place] / done if done else 1.0)
            return (self._cpu_s[place] + expected_s) / self._simulators[place].share

        place = min(range(len(self._simulators)), key=used)
        task = Task(place, self._next_seeds[place])
        self._next_seeds[place] += 1
        self._under_way[place] += 1
        return task

    def finished(self, task: Task, cpu_s: float, failure: str, virtual_us: int = 0) -> None:
        """A seed is done; `failure` is "" if it went well, and it was so long for its cluster."""
        self._under_way[task.place] -= 1
        self._cpu_s[task.place] += cpu_s
        self.done[task.place] += 1
        if failure:
            self.failed[task.place].append(task.seed)
        else:
            self._virtual_us[task.place] += virtual_us

    def any_failed(self) -> bool:
        """Whether a seed failed."""
        return any(self.failed)

    def line(self, elapsed_s: float) -> str:
        """How far it is."""
        clock = time.strftime("%H:%M:%S", time.gmtime(elapsed_s % 86_400))
        days = f"{int(elapsed_s // 86_400)}d " if elapsed_s >= 86_400 else ""
        counts = ", ".join(
            f"{simulator.name} {done}" for simulator, done in zip(self._simulators, self.done, strict=True)
        )
        return f"{days}{clock}  {counts} seeds, {sum(map(len, self.failed))} failed"

    def totals(self) -> str:
        """What came of it, a line for each simulator."""
        lines: list[str] = []
        for place, simulator in enumerate(self._simulators):
            done, cpu_s, failed = self.done[place], self._cpu_s[place], self.failed[place]
            each = f", {cpu_s / done:.3f} CPU s each" if done else ""
            first = f" from {self._next_seeds[place] - done - self._under_way[place]}" if done else ""
            text = f": {', '.join(map(str, failed))}" if failed else ""
            hours = self._virtual_us[place] / 3_600e6
            lines.append(
                f"{simulator.name}: {done} seeds{first}{each}, {hours:.2f} hours of clusters, "
                f"{len(failed)} failed{text}"
            )
        return "\n".join(lines)

    def add_to(self, file: Path) -> None:
        """Add what was run to a file of totals."""
        for place, simulator in enumerate(self._simulators):
            if self.done[place]:
                failed = len(self.failed[place])
                well = self.done[place] - failed
                add_simulated(file, simulator.name, well, failed, self._virtual_us[place], self._cpu_s[place])


def soak(
    simulators: Sequence[Simulator[Any]],
    first_seed: int,
    seconds: float,
    workers: int,
    directory: Path,
    cpu_limit_s: float,
    say: Callable[[str], None],
) -> Tally:
    """Run fresh seeds for so long; `say` gets the lines for the user. KeyboardInterrupt ends it early."""
    tally = Tally(simulators, first_seed)
    started_s = time.monotonic()
    next_report_s = started_s + REPORT_EVERY_S
    crew = Crew(simulators, workers, cpu_limit_s)
    try:
        say(f"{seconds / 3_600:g} hours on {workers} processes, seeds from {first_seed}")
        while (now_s := time.monotonic()) < started_s + seconds:
            if now_s >= next_report_s:
                say(tally.line(now_s - started_s))
                next_report_s += REPORT_EVERY_S
            crew.give(tally.next_task)
            until_s = min(next_report_s, started_s + seconds)
            for result in crew.results(max(0.0, until_s - now_s)):
                virtual_us = result.outcome.virtual_us if result.outcome is not None else 0
                tally.finished(result.task, result.cpu_s, result.failure, virtual_us)
                if result.failure:
                    _report(simulators[result.task.place], result.task.seed, result.failure, directory, say)
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        crew.end()
    return tally


def _report(simulator: Simulator[Any], seed: int, failure: str, directory: Path, say: Callable[[str], None]) -> None:
    text = simulator.report(seed, failure)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{simulator.name}-{seed}.txt"
    file.write_text(text + "\n")
    lines = text.splitlines()
    shown = lines[:SHOWN_LINES] + (["  ..."] if len(lines) > SHOWN_LINES + 1 else [])
    say("\n".join([*shown, lines[-1], f"all of it: {file}"]))


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit code says whether all seeds went well."""
    names = [simulator.name for simulator in SIMULATORS]
    parser = argparse.ArgumentParser(prog="python -m simulation soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="how long; fractions are allowed (default: 1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a CPU)")
    parser.add_argument("--first", type=int, help="the first seed (default: the milliseconds since 1970)")
    parser.add_argument("--only", choices=names, action="append", help="this simulator alone; may be repeated")
    parser.add_argument("--directory", type=Path, default=Path("soak-failures"), help="where failures are written")
    parser.add_argument("--cpu-limit", type=float, default=CPU_LIMIT_S, help="CPU seconds a seed may take (60)")
    parser.add_argument("--totals", type=Path, help="a file of totals, to which this run is added")
    parser.add_argument("--page", type=Path, help="the page whose tables of totals are written anew then")
    options = parser.parse_args(arguments)
    for name in ("hours", "workers", "cpu_limit"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}, and must be more than 0")
    simulators = [each for each in SIMULATORS if options.only is None or each.name in options.only]
    # Less than a thousand seeds a second are run: no later run meets the same ones.
    first = options.first if options.first is not None else time.time_ns() // 1_000_000
    # Both, for a shell starts what runs in its background with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    tally = soak(
        simulators, first, options.hours * 3_600, options.workers, options.directory, options.cpu_limit,
        lambda text: print(text, flush=True),
    )
    print(tally.totals())
    if options.totals is not None:
        tally.add_to(options.totals)
        if options.page is not None:
            write_tables(options.totals, options.page)
    return 1 if tally.any_failed() else 0

