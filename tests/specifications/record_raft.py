"""Records seeds of the Raft simulator into a module: `python -P record_raft.py SEED,SEED STEPS MODULE.tla`.

A program of its own so that it can run with broken sources (tests/bugs).
"""

import sys
from pathlib import Path

from simulation.cluster.raft_scenario import draw_scenario
from tests.specifications.raft_traces import TracedRun, module_of, recorded_steps


def main(seeds: str, steps: str, file: str) -> None:
    """Writes the first so many steps of each run."""
    runs = []
    for seed in map(int, seeds.split(",")):
        scenario = draw_scenario(seed)
        recorded = recorded_steps(scenario, int(steps))
        runs.append(TracedRun(recorded, scenario.pre_vote, f"seed {seed}"))
    Path(file).write_text(module_of(runs, Path(file).stem), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
