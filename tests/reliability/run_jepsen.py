"""`make chaos-jepsen`: the runs that RabbitMQ makes with Jepsen on its quorum queues, by their names.

    python -P tests/reliability/run_jepsen.py [--seconds 180] [--only polling] [--seed N] [--write FILE]

Fourteen, as https://github.com/rabbitmq/jepsen (ci/jepsen-test.sh) has them: five nodes, a partition of 10 or 30 s
every 20 s for three minutes, shards with five replicas or with three, consumers that are sent messages, that poll, or
both, and two in which messages die first. The load, the clients and the judge are those of `make chaos`.
Runs the MayflyMQ that this Python has installed, or with PYTHONPATH=. the source tree. Exit code 0: every promise kept.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Behind whatever MayflyMQ is installed: this brings in nothing but the tests' own modules then.
sys.path.append(str(ROOT))

if TYPE_CHECKING:
    from tests.reliability.chaos import Run

NODES: Final = 5
BETWEEN_S: Final = (20.0, 20.0)
RATE: Final = 200.0
TARGET: Final = "chaos-jepsen"
THEIRS: Final = "[passes](https://github.com/rabbitmq/jepsen/actions)"
"""Of each of them: they publish one verdict for all, which is that of their workflow, and it fails if one run does."""
_HOW: Final = {"mixed": "mixed", "asynchronous": "consuming", "polling": "polling"}


@dataclass(frozen=True, slots=True)
class JepsenRun:
    """One of theirs, in their words."""

    network_partition: str
    partition_duration_s: float
    consumer_type: str = "mixed"
    quorum_initial_group_size: int = NODES
    dead_letter: bool = False

    @property
    def name(self) -> str:
        """Their options, but for those that all have."""
        size = self.quorum_initial_group_size
        return " ".join([
            self.network_partition, f"{self.partition_duration_s:g} s", self.consumer_type,
            *([] if size == NODES else [f"group size {size}"]), *(["dead letter"] if self.dead_letter else []),
        ])  # fmt: skip

    def run(self, seed: int, seconds: float) -> Run:
        """Ours that does the same."""
        from tests.reliability.chaos import Run
        from tests.reliability.dead_letters import DeadLetterRun

        run: Run
        if self.dead_letter:
            run = DeadLetterRun(seed, seconds, [self.network_partition], RATE, messages=int(RATE * seconds * 0.8))
        else:
            run = Run(seed, seconds, [self.network_partition], RATE)
        run.least_faults = 1
        run.nodes, run.replicas = NODES, self.quorum_initial_group_size
        run.partition_s, run.between_s = self.partition_duration_s, BETWEEN_S
        run.how_they_consume = _HOW[self.consumer_type]
        return run


RUNS: Final = (
    JepsenRun("random-partition-halves", 30),
    JepsenRun("partition-halves", 30),
    JepsenRun("partition-majorities-ring", 30),
    JepsenRun("partition-random-node", 30),
    JepsenRun("random-partition-halves", 10),
    JepsenRun("random-partition-halves", 10, quorum_initial_group_size=3),
    JepsenRun("partition-halves", 10),
    JepsenRun("partition-majorities-ring", 10),
    JepsenRun("partition-random-node", 10),
    JepsenRun("partition-random-node", 10, "asynchronous"),
    JepsenRun("partition-random-node", 10, "asynchronous", quorum_initial_group_size=3),
    JepsenRun("partition-random-node", 10, "polling"),
    JepsenRun("random-partition-halves", 30, dead_letter=True),
    JepsenRun("partition-halves", 30, dead_letter=True),
)


def carry_out(jepsen: JepsenRun, seed: int, seconds: float, folder: Path) -> Run:
    """The run, judged."""
    from tests.reliability.chaos import carry_out_run
    from tests.reliability.dead_letters import DeadLetterRun, carry_out_dead_letters

    run = jepsen.run(seed, seconds)
    if isinstance(run, DeadLetterRun):
        carry_out_dead_letters(run, folder)
    else:
        carry_out_run(run, folder)
    return run


def row_of(jepsen: JepsenRun, run: Run) -> str:
    """A row of the table."""
    clients = run.clients
    assert clients is not None
    broken = "; ".join(str(violation) for violation in run.violations[:2]).replace("|", "/") or "nothing"
    return (
        f"| {jepsen.name} | {len(run.faults)} | {clients.confirmed()} | {len(clients.history.deliveries)} "
        f"| {broken[:300]} | {THEIRS} |"
    )


def main() -> None:
    """Run all, print, write; ends the process."""
    from simulation.totals import write_tables
    from tests.reliability import network
    from tests.reliability.run_chaos import add_to_totals, replace_figures, save

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="of each run")
    parser.add_argument("--only", default="", help="runs with this in their names")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are replaced")
    parser.add_argument("--totals", type=Path, help="file of totals to which each run is added")
    arguments = parser.parse_args()
    chosen = [each for each in RUNS if arguments.only in each.name]
    if not chosen:
        parser.error(f"no run has {arguments.only!r} in its name; there are: {'; '.join(each.name for each in RUNS)}")
    reason = network.why_impossible()
    if reason:
        sys.exit(f"no partitions on this machine: {reason}")
    rows, broken = [], 0
    build = ""
    for jepsen in chosen:
        folder = Path(tempfile.mkdtemp(prefix="mayfly-jepsen-"))
        print(f"{jepsen.name}, seed {arguments.seed}; data in {folder}", flush=True)
        run = carry_out(jepsen, arguments.seed, arguments.seconds, folder)
        build = run.build
        if arguments.totals is not None:
            add_to_totals(arguments.totals, TARGET, [run])
        rows.append(row_of(jepsen, run))
        print(rows[-1], flush=True)
        if run.violations:
            broken += 1
            print(f"data, logs and history.txt in {save(run, folder)}", flush=True)
        else:
            shutil.rmtree(folder)
    text = "\n".join([
        f"{time.strftime('%Y-%m-%d')}, {arguments.seconds:g} s each, seed {arguments.seed}, {NODES} nodes, "
        f"{RATE:g} messages/s; mayfly {build}, Python {platform.python_version()}, {os.cpu_count()} CPUs, "
        f"load average {os.getloadavg()[1]:.1f}.",
        "",
        "| run | partitions | confirmed | delivered | broken | RabbitMQ's own |",
        "|---|---|---|---|---|---|",
        *rows,
    ])  # fmt: skip
    print("\n" + text, flush=True)
    if arguments.write is not None:
        replace_figures(arguments.write, TARGET, text)
        if arguments.totals is not None:
            write_tables(arguments.totals, arguments.write)
    if broken:
        sys.exit(f"promises were broken in {broken} of {len(chosen)} runs")


if __name__ == "__main__":
    main()
