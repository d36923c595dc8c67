"""Runs of the simulators, each from a seed.

python -m simulation hosts --seed 17 [--trace]   one run, with all events
python -m simulation hosts --seeds 1:5000        many, on all CPUs
python -m simulation soak --hours 8              fresh seeds for all simulators
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from simulation import soak
from simulation.runner import run_seeds
from simulation.simulator import Outcome, Simulator
from simulation.simulators import CLUSTERS, SIMULATORS

MOST_TOLD = 20
"""Of so many seeds each is told of."""


def show(simulator: Simulator[Any], seed: int, trace: bool) -> bool:
    """One seed: its settings, its faults, what happened, the hash of the trace, and how to see it again."""
    print(simulator.draw(seed).describe())
    outcomes: list[Outcome] = []
    failure = simulator.failure_of(seed, print if trace else None, outcomes.append)
    for outcome in outcomes:
        print(outcome.summary())
    print(simulator.report(seed, failure) if failure else f"replay: {simulator.replay(seed)}")
    return not failure


def run_range(simulator: Simulator[Any], seeds: range, workers: int, cpu_limit_s: float) -> bool:
    """Many seeds: those that fail, and what happened in all of them together."""
    done, cpu_s = 0, 0.0
    failed: list[int] = []
    total: dict[str, int] = {}
    try:
        for result in run_seeds(simulator, seeds, workers, cpu_limit_s):
            done += 1
            cpu_s += result.cpu_s
            if result.failure:
                failed.append(result.task.seed)
                print(simulator.report(result.task.seed, result.failure), flush=True)
            if result.outcome is not None:
                for what, number in result.outcome.counts.items():
                    total[what] = total.get(what, 0) + number
                if len(seeds) <= MOST_TOLD:
                    print(result.outcome.summary(), flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    print(", ".join(f"{number} {what}" for what, number in sorted(total.items())))
    print(f"{done} seeds, {len(failed)} failed{f' {failed}' if failed else ''}, {cpu_s:.0f} s of CPU time")
    return not failed


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit code says whether all promises were kept."""
    if arguments[:1] == ["soak"]:
        return soak.main(arguments[1:])
    simulators = {simulator.name: simulator for simulator in SIMULATORS}
    parser = argparse.ArgumentParser(
        prog="python -m simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{simulator.name:10}{simulator.about}" for simulator in SIMULATORS)
        + "\nsoak      all of them; see `python -m simulation soak --help`",
    )
    parser.add_argument("simulator", nargs="?", choices=[*simulators], default=CLUSTERS.name)
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, default=1, help="one seed (default: 1)")
    seeds.add_argument("--seeds", type=_range, help="a range of seeds, the end left out: 1:5000")
    parser.add_argument("--trace", action="store_true", help="print every event of the run of one seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes for a range (one a CPU)")
    parser.add_argument("--cpu-limit", type=float, default=soak.CPU_LIMIT_S, help="CPU seconds for a seed of a range")
    options = parser.parse_args(arguments)
    if options.workers < 1 or not options.cpu_limit > 0:
        parser.error("--workers and --cpu-limit must be more than 0")
    simulator = simulators[options.simulator]
    if options.seeds is None:
        logging.disable(logging.CRITICAL)
        return 0 if show(simulator, options.seed, options.trace) else 1
    if options.trace:
        parser.error("--trace is for one seed")
    return 0 if run_range(simulator, options.seeds, options.workers, options.cpu_limit) else 1


def _range(text: str) -> range:
    first, end = (int(part) for part in text.split(":"))
    return range(first, end)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
