"""`python -m simulation.node.lease_edges --seed 17 [--trace]` replays one seed; `--seeds 1:5000` runs a range."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable

from simulation.cluster.seed_options import add_seed_options, seeds_of
from simulation.node.lease_edges.course import EdgeOutcome, EdgeRun
from simulation.node.lease_edges.plan import draw_plan


def failure_of(
    seed: int, sink: Callable[[str], None] | None = None, ended: Callable[[EdgeOutcome], None] = lambda outcome: None
) -> str:
    """Run one seed; "" when it kept all promises, else all one needs to know of its failure."""
    plan = draw_plan(seed)
    try:
        outcome = EdgeRun(plan, sink).run()
    except Exception as error:
        reasons = [f"{type(error).__name__}: {error}", traceback.format_exc()]
    else:
        ended(outcome)
        reasons = [str(violation) for violation in outcome.violations]
    if not reasons:
        return ""
    return "\n".join(
        [
            f"SEED {seed} FAILED",
            *(f"  {reason}" for reason in reasons[:10]),
            plan.describe(),
            f"replay: python -m simulation.node.lease_edges --seed {seed} --trace",
        ]
    )


def main() -> int:
    """Run what the command line asks for; the exit code says whether all promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m simulation.node.lease_edges", description=__doc__)
    add_seed_options(parser)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = seeds_of(options)
    if options.seeds is None:
        failure = failure_of(seeds[0], print if options.trace else None)
        print(failure or draw_plan(seeds[0]).describe())
        return 1 if failure else 0
    started, failed = time.process_time(), []
    answers: dict[str, int] = {}

    def count(outcome: EdgeOutcome) -> None:
        for use in outcome.story.uses:
            key = f"{use.kind}: {use.answer}"
            answers[key] = answers.get(key, 0) + 1

    for seed in seeds:
        failure = failure_of(seed, ended=count)
        if failure:
            failed.append(seed)
            print(failure)
    print("; ".join(f"{key} {number}" for key, number in sorted(answers.items())))
    print(
        f"{len(seeds)} seeds in {time.process_time() - started:.0f} s of CPU time, {len(failed)} failed"
        + (f": {failed}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
