"""`python -m simulation.node --seed 17 [--trace]` replays one seed; `--seeds 1:5000` runs a range of them."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable

from simulation.cluster.seed_options import add_seed_options, seeds_of
from simulation.node.run import Outcome, Simulation
from simulation.node.scenario import Scenario, draw_scenario

MOST_SHOWN = 10


def run_seed(seed: int, trace: bool = False, verbose: bool = False) -> bool:
    """Run one seed and report; False if it broke a promise or a node failed."""
    told: list[str] = []
    failure = failure_of(seed, print if trace else None, lambda outcome: told.append(summary(outcome)))
    if failure:
        print(failure)
    if verbose and told:
        print(draw_scenario(seed).describe())
        print(*told)
    return not failure


def failure_of(
    seed: int, sink: Callable[[str], None] | None = None, ended: Callable[[Outcome], None] = lambda outcome: None
) -> str:
    """Run one seed; "" when it kept all promises, else all one needs to know of its failure.

    `sink` gets the trace, `ended` what came of a run that came to its end.
    """
    scenario = draw_scenario(seed)
    try:
        outcome = Simulation(scenario, sink).run()
    except Exception as error:
        return failure_text(scenario, [f"{type(error).__name__}: {error}"]) + "\n" + traceback.format_exc()
    ended(outcome)
    if not outcome.violations:
        return ""
    return failure_text(scenario, [str(violation) for violation in outcome.violations])


def failure_text(scenario: Scenario, reasons: list[str]) -> str:
    """All one needs to know of a failing seed: what went wrong, under which faults, and how to see it again."""
    shown = [f"  {reason}" for reason in reasons[:MOST_SHOWN]]
    if len(reasons) > MOST_SHOWN:
        shown.append(f"  ... and {len(reasons) - MOST_SHOWN} more")
    return "\n".join(
        [
            f"SEED {scenario.seed} FAILED",
            *shown,
            scenario.describe(),
            f"replay: python -m simulation.node --seed {scenario.seed} --trace",
        ]
    )


def summary(outcome: Outcome) -> str:
    """One line about a run."""
    counts = ", ".join(f"{number} {name}" for name, number in outcome.counts.items())
    return f"seed {outcome.seed}: {outcome.events} events, {counts}, trace {outcome.trace_digest}"


def main() -> int:
    """Run what the command line asks for; the exit code says whether all promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m simulation.node", description=__doc__)
    add_seed_options(parser)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = seeds_of(options)
    if options.seeds is None:
        return 0 if run_seed(seeds[0], options.trace, True) else 1
    started = time.perf_counter()
    failed = [seed for seed in seeds if not run_seed(seed, options.trace)]
    print(
        f"{len(seeds)} seeds in {time.perf_counter() - started:.0f} s, {len(failed)} failed"
        + (f": {failed}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
