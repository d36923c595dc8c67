"""`make chaos`: kills, freezes and partitions real nodes under load for minutes, judges, and prints figures.

    python -P tests/reliability/run_chaos.py [--minutes 5] [--faults kill,freeze,partition] [--seed N] [--write FILE]

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
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Behind whatever MayflyMQ is installed: this brings in nothing but the tests' own modules then.
sys.path.append(str(ROOT))

if TYPE_CHECKING:
    from tests.reliability.chaos import Run

BEGIN: Final = "<!-- written by `make chaos`: begin -->"
END: Final = "<!-- written by `make chaos`: end -->"
MOST_SHOWN: Final = 20


def main() -> None:
    """Run, print, write; ends the process."""
    from tests.reliability.chaos import Run, carry_out_run
    from tests.reliability.faults import KINDS, PARTITION, kinds_of
    from tests.reliability.network import why_impossible

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--faults", default="", help=f"comma-separated: {', '.join([*KINDS, PARTITION])}; none: all")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--rate", type=float, default=600.0, help="messages per second")
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are replaced")
    arguments = parser.parse_args()
    try:
        kinds = kinds_of([word.strip() for word in arguments.faults.split(",") if word.strip()] or list(KINDS))
    except ValueError as error:
        parser.error(str(error))
    reason = why_impossible() if any(KINDS[kind][0] == PARTITION for kind in kinds) else ""
    if reason:
        if arguments.faults:
            sys.exit(f"no partitions on this machine: {reason}")
        print(f"Without partitions: {reason}", flush=True)
        kinds = [kind for kind in kinds if KINDS[kind][0] != PARTITION]
    run = Run(arguments.seed, 60 * arguments.minutes, kinds, arguments.rate)
    folder = Path(tempfile.mkdtemp(prefix="mayfly-chaos-"))
    print(f"{arguments.minutes:g} minutes, seed {run.seed}, faults: {', '.join(kinds)}; data in {folder}", flush=True)
    carry_out_run(run, folder)
    text = report(run)
    print("\n" + text, flush=True)
    if arguments.write is not None:
        replace_figures(arguments.write, text)
    if run.violations:
        sys.exit(f"{len(run.violations)} promises were broken; data, logs and history.txt in {save(run, folder)}")
    shutil.rmtree(folder)


def report(run: Run) -> str:
    """The figures of a run, in Markdown."""
    from tests.reliability.figures import counts, notes_of, table, waits_by_kind

    clients = run.clients
    assert clients is not None
    history = clients.history
    notes = notes_of(clients.homes, clients.confirms, clients.moves)
    waits = waits_by_kind(run.faults, notes, history.calm_us)
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {run.seconds / 60:g} minutes, {len(run.faults)} faults, seed {run.seed}, "
        f"{run.rate:g} messages/s; mayfly {run.build}, Python {platform.python_version()}, "
        f"{os.cpu_count()} CPUs, load average {os.getloadavg()[1]:.1f}.",
        "",
        *table(waits),
        "",
        ", ".join(f"{name}: {number}" for name, number in counts(history).items()) + ".",
        "",
        f"Acknowledgements known to have been applied: {len(clients.proven)}. "
        f"Connections and channels closed by a node: {len(clients.refusals)}. "
        f"Promises broken: {len(run.violations)}.",
    ]
    lines += [f"- {violation}" for violation in run.violations[:MOST_SHOWN]]
    return "\n".join(lines)


def replace_figures(file: Path, text: str) -> None:
    """Put the text between the two marks."""
    before, _, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"{file} has no lines {BEGIN!r} and {END!r}")
    file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def save(run: Run, folder: Path) -> Path:
    """Write down what happened, for whoever looks for the cause."""
    clients = run.clients
    assert clients is not None
    with (folder / "history.txt").open("w", encoding="utf-8") as file:
        print(f"seed {run.seed}, mayfly {run.build}", file=file)
        for part in (
            *(run.violations, run.faults, clients.refusals, clients.history.attachments),
            *(clients.history.publishes.values(), clients.history.deliveries),
        ):
            for line in part:
                print(line, file=file)
    return folder


if __name__ == "__main__":
    main()
