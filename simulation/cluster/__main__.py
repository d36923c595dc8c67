"""`python -m simulation.cluster [--hosts | --machines] --seed 17 [--trace]` or `--seeds 1:5000`: Raft groups on the
worst network, with `--hosts` whole hosts on machines and disks that fail, with `--machines` machines of two hosts that
are lost as a whole."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from simulation.cluster.host_group import HostSimulation
from simulation.cluster.host_scenario import draw_scenario
from simulation.cluster.machine_loss import MachineLoss, draw_machines
from simulation.cluster.raft_group import RaftGroup
from simulation.cluster.seed_options import add_seed_options, seeds_of

Sink = Callable[[str], None] | None


def _run_raft_group(seed: int, sink: Sink) -> str:
    group = RaftGroup(seed, sink)
    group.run()
    applied = group.observer.highest_applied
    return f"{applied} entries, {len(group.observer.leaders)} leaders, trace {group.trace.digest()}"


def _run_hosts(seed: int, sink: Sink) -> str:
    scenario = draw_scenario(seed)
    if sink is not None:
        sink(scenario.describe())
    simulation = HostSimulation(scenario, sink)
    simulation.run()
    return _what_happened(simulation)


def _run_machines(seed: int, sink: Sink) -> str:
    scenario = draw_machines(seed)
    if sink is not None:
        sink(scenario.describe())
    simulation = MachineLoss(scenario, sink)
    simulation.run()
    return _what_happened(simulation)


def _what_happened(simulation: HostSimulation) -> str:
    happened = {**simulation.cluster.effects, **simulation.counts}
    told = ", ".join(f"{count} {what}" for what, count in sorted(happened.items()))
    return f"{told}; trace {simulation.trace.digest()}"


def main() -> int:
    """Run the seeds asked for; the exit code says whether all of them kept what must hold."""
    parser = argparse.ArgumentParser(prog="python -m simulation.cluster", description=__doc__)
    parser.add_argument("--hosts", action="store_true", help="whole hosts in place of bare Raft groups")
    parser.add_argument("--machines", action="store_true", help="machines of two hosts, lost as a whole")
    add_seed_options(parser)
    options = parser.parse_args()
    run = _run_machines if options.machines else _run_hosts if options.hosts else _run_raft_group
    seeds = seeds_of(options)
    failed: list[int] = []
    for seed in seeds:
        try:
            told = run(seed, print if options.trace else None)
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}")
        else:
            if len(seeds) <= 20:
                print(f"seed {seed}: {told}")
    print(f"{len(seeds)} seeds, {len(failed)} failed {failed[:20] if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
