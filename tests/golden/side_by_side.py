"""`make golden`: plays all recorded scenarios against three MayflyMQ nodes, and three RabbitMQ nodes, and compares.

    python -P tests/golden/side_by_side.py [--rabbitmq] [--queue-type TYPE] [--only TEXT] [--jobs 8] [--verbose]

Scenarios, recordings and the script that starts RabbitMQ are those in ../shared (or MAYFLY_SHARED). With --rabbitmq the
RabbitMQ under RMQ_ROOT (see ../shared/bench/README.md for 4.3.6), or else the one that is installed here, is played
first. Runs the MayflyMQ that this Python has installed, or with PYTHONPATH=. the source tree. Exit code 1: MayflyMQ's
answer to some scenario differs and docs/deviations.md does not say why, or says so of one that matches.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parents[2]
# Behind whatever MayflyMQ is installed: this brings in nothing but the tests' own modules then.
sys.path.append(str(ROOT))

if TYPE_CHECKING:
    from tests.golden.recordings import Verdict

RABBITMQ_SERVER: Final = Path(os.environ.get("RMQ_ROOT", "") + "/usr/lib/rabbitmq/bin/rabbitmq-server")
RABBITMQ_PORT: Final = 5_781
_MOST_DETAILS: Final = 3
_LONGEST_DETAIL: Final = 400


def main() -> None:
    """Play, compare, print; ends the process."""
    from tests.golden.recordings import GOLDEN, QUEUE_TYPES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rabbitmq", action="store_true", help="play the scenarios against RabbitMQ as well")
    parser.add_argument("--queue-type", choices=QUEUE_TYPES, help="queues of this type alone")
    parser.add_argument("--only", default="", help="scenarios whose names have this")
    parser.add_argument("--jobs", type=int, default=8, help="scenarios at the same time")
    parser.add_argument("--verbose", action="store_true", help="every difference, in full")
    arguments = parser.parse_args()
    if not GOLDEN.is_dir():
        sys.exit(f"no recordings: {GOLDEN} is missing (MAYFLY_SHARED says where `golden` is)")
    if arguments.rabbitmq and not RABBITMQ_SERVER.exists():
        sys.exit(f"no RabbitMQ: {RABBITMQ_SERVER} is missing (RMQ_ROOT says under which folder it is)")
    types = (arguments.queue_type,) if arguments.queue_type else QUEUE_TYPES
    with tempfile.TemporaryDirectory(prefix="mayfly-golden-") as name:
        folder = Path(name)
        theirs: dict[str, dict[str, Verdict]] = {}
        if arguments.rabbitmq:
            with rabbitmq(folder / "rabbitmq") as (uri, mgmt):
                theirs = {each: _judged("RabbitMQ", uri, mgmt, folder, each, arguments, False) for each in types}
        with mayfly(folder / "mayfly") as (uri, mgmt):
            ours = {each: _judged("MayflyMQ", uri, mgmt, folder, each, arguments, True) for each in types}
    for each in types:
        print(f"\n{each} queues")
        show(ours[each], theirs.get(each, {}), arguments.verbose)
    if not all(verdict.fine for verdicts in ours.values() for verdict in verdicts.values()):
        sys.exit(1)


def _judged(
    broker: str, uri: str, mgmt: str, folder: Path, queue_type: str, arguments: argparse.Namespace, excused: bool
) -> dict[str, Verdict]:
    """Play all scenarios with queues of this type. `excused`: docs/deviations.md may say why something differs."""
    from tests.golden.recordings import DEVIATIONS, documented, judge, judged_again, play, recorded

    reasons = documented(DEVIATIONS.read_text(encoding="utf-8"), queue_type) if excused else {}
    began_s = time.monotonic()
    given = play(uri, mgmt, folder / f"{broker}-{queue_type}.json", queue_type, arguments.only, arguments.jobs)
    verdicts = judge(recorded(queue_type), given, reasons)
    verdicts = judged_again(verdicts, uri, mgmt, folder, queue_type, reasons)
    took_s = time.monotonic() - began_s
    print(f"{broker}: {len(verdicts)} scenarios on {queue_type} queues in {took_s:.0f} s", flush=True)
    return verdicts


def show(ours: dict[str, Verdict], theirs: dict[str, Verdict], verbose: bool) -> None:
    """Scenario by scenario, and totals."""
    broker_width = 40 if theirs else 0
    print(f"\n{'scenario':45} {'RabbitMQ here':{broker_width}}MayflyMQ" if theirs else f"\n{'scenario':45} MayflyMQ")
    for name, verdict in ours.items():
        their_word = theirs[name].word if name in theirs else ""
        print(f"{name:45} {their_word:{broker_width}}{verdict.word}")
        if verbose or not verdict.fine:
            details = verdict.details if verbose else verdict.details[:_MOST_DETAILS]
            for detail in details:
                print(f"      {detail if verbose else detail[:_LONGEST_DETAIL]}")
    for broker, verdicts in (("RabbitMQ here", theirs), ("MayflyMQ", ours)):
        if verdicts:
            words = Counter(verdict.word for verdict in verdicts.values())
            print(f"{broker}: " + ", ".join(f"{word}: {count}" for word, count in words.most_common()))


@contextmanager
def mayfly(folder: Path) -> Iterator[tuple[str, str]]:
    """Three nodes: where clients connect, and, on another node, where policies are set."""
    from tests.integration.nodes import Nodes

    nodes = Nodes(folder)
    try:
        nodes.serve()
        yield f"amqp://guest:guest@{nodes.plan(1).amqp}/%2F", f"http://{nodes.plan(2).http}"
    finally:
        nodes.stop()


@contextmanager
def rabbitmq(folder: Path) -> Iterator[tuple[str, str]]:
    """Three nodes of the packaged server: where clients connect, and where policies are set."""
    from tests.golden.recordings import SHARED

    script = str(SHARED / "bench" / "rabbitmq-cluster")
    environment = {**os.environ, "RMQ_BASE": str(folder), "RMQ_PORT": str(RABBITMQ_PORT)}

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script, *words], env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    try:
        started = ask("--management", "start")
        if started.returncode:
            sys.exit(f"RabbitMQ does not start: {started.stdout}{started.stderr}")
        yield f"amqp://guest:guest@127.0.0.1:{RABBITMQ_PORT}/%2F", f"http://127.0.0.1:{RABBITMQ_PORT + 10_001}"
    finally:
        ask("stop")


if __name__ == "__main__":
    main()
