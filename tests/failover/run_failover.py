"""`make test-failover`: containers are killed, paused, cut off and lose disks under load; judges, prints figures.

    python -P tests/failover/run_failover.py [--rounds 3] [--minutes 8] [--faults kill,isolate] [--seed N]
                                                 [--nodes 5] [--moves]

Needs a Docker engine on this machine, and root. Exit code 0: every promise kept.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Behind whatever MayflyMQ is installed: this brings in nothing but the tests' own modules then.
sys.path.append(str(ROOT))
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

if TYPE_CHECKING:
    from tests.failover.run import FailoverRun

MOST_SHOWN: Final = 20


def main() -> None:
    """Run, print, write; ends the process."""
    from tests.failover.engine import IMAGE, make_image, make_image_of, why_no_engine

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="each fault so many times")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no other fault begins after so long")
    parser.add_argument("--faults", default="", help="comma-separated; none: all")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--rate", type=float, default=300.0, help="messages per second; half as many more expire")
    parser.add_argument("--nodes", type=int, default=3, help="with three replicas of each shard")
    parser.add_argument("--moves", action="store_true", help="queues and replicas move all the while")
    parser.add_argument("--upgrade-from", metavar="COMMIT", default="", help="a rolling upgrade to these sources")
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are replaced")
    arguments = parser.parse_args()
    reason = why_no_engine()
    if reason:
        sys.exit(f"no failover tests on this machine: {reason}")

    from tests.failover.faults import KINDS
    from tests.failover.run import FailoverRun, carry_out_run
    from tests.failover.upgrade import upgrades_of
    from tests.reliability.run_chaos import replace_figures

    kinds = [word.strip() for word in arguments.faults.split(",") if word.strip()] or list(KINDS)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        parser.error(f"no fault is called {unknown[0]!r}; there are {', '.join(KINDS)}")
    print("building the image ...", flush=True)
    make_image()
    run = FailoverRun(
        arguments.seed, arguments.rounds, kinds, arguments.rate, arguments.minutes, nodes=arguments.nodes,
        moves=arguments.moves and not arguments.upgrade_from,
    )  # fmt: skip
    if arguments.upgrade_from:
        try:
            run.image, run.next_image = make_image_of(arguments.upgrade_from, f"{IMAGE}-before"), IMAGE
        except ValueError as error:
            sys.exit(str(error))
        reason = run.way.fault()
        if reason:
            sys.exit(f"no rolling upgrade from {arguments.upgrade_from}: {reason}")
        run.kinds = kinds = upgrades_of(run.way)
    folder = Path(tempfile.mkdtemp(prefix="mayfly-failover-"))
    print(f"{arguments.rounds} round(s), seed {run.seed}, faults: {', '.join(kinds)}; logs in {folder}", flush=True)
    carry_out_run(run, folder)
    text = report(run)
    print("\n" + text, flush=True)
    if arguments.write is not None:
        replace_figures(arguments.write, "test-failover", text)
    if run.violations:
        sys.exit(f"{len(run.violations)} promises were broken; logs in {folder}")
    shutil.rmtree(folder)


def report(run: FailoverRun) -> str:
    """The figures of a run, in Markdown."""
    from tests.failover.run import messages_checked, table
    from tests.reliability.figures import counts

    streams, dead = run.streams.clients, run.dead.clients
    assert streams is not None and dead is not None and run.leases is not None
    dead_arrived = {(delivery.queue, delivery.message_id) for delivery in dead.history.deliveries}
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {run.nodes} nodes, {len(run.faults)} faults in {run.seconds:.0f} s, "
        f"{run.streams.moves_asked} moves of queues and {run.streams.places_asked} of replicas, seed {run.seed}, "
        f"{run.rate:g} messages/s that are consumed and {run.rate / 2:g} that expire; mayfly {run.build}, "
        f"{os.cpu_count()} CPUs, load average {os.getloadavg()[1]:.1f}.",
        "",
        *table(run),
        "",
        f"Messages checked: {messages_checked(run)}; "
        + ", ".join(f"{name}: {number}" for name, number in counts(streams.history).items())
        + ".",
        "",
        f"Messages that were to expire, confirmed: {dead.confirmed()}; dead letters that came: {len(dead_arrived)}. "
        f"Leases that ran out: {sum(1 for lease in run.leases.leases if lease.gone_s)} of {len(run.leases.leases)}. "
        f"Promises broken: {len(run.violations)}.",
    ]
    lines += [f"Not possible on this machine: {kind} ({reason})." for kind, reason in run.impossible.items()]
    lines += [f"- {violation}" for violation in run.violations[:MOST_SHOWN]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
