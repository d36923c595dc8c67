"""`make bench-recovery`: how long nodes take to come back, with 100 000, 1 000 000 and 5 000 000 messages in one queue.

    python -P bench/recovery.py [--messages 100000,1000000,5000000] [--size 100] [--source] [--write FILE]

Three nodes; a queue is filled to each size in turn, and each time

    killed    a follower of the queue gets SIGKILL and is started again: until it serves, until it has caught up
    replaced  the same with its folder emptied: it takes a snapshot of everything
    all       all nodes get SIGKILL and are started again: until all serve, until the first message comes

While a follower is down a tenth as many messages as are there go through another queue: that is what it catches up
with, besides what it had. *Silence* is the longest that any node that serves took meanwhile to answer a request that
costs nothing. All figures are kept in bench-results/recovery.json.
"""

import argparse
import datetime
import json
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from pamqp import commands

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.amqp_pipeline import Pipeline, PipelineError
from bench.clusters import NODES, BrokerFailed, Cluster, page, wait_until
from bench.load_generator import LoadGenerator
from bench.machine import describe_machine, load_average, only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly, MayflyCluster
from bench.silence import LongestSilence

RAW: Final = ROOT / "bench-results" / "recovery.json"
_QUEUE: Final = "recovery-0"
_MISSED_PART: Final = 10
"""Of the messages, one of so many goes through while a follower is down."""
_CATCHES_UP_S: Final = 900
_READY_S: Final = 30
"""What a client had not acknowledged is ready again by then."""
_LONGEST_SILENCE_MS: Final = 100
Row = dict[str, float]


def measure(counts: list[int], size: int, source: bool, rows: list[Row]) -> None:
    """A row for each size is added to ``rows``. Raises BrokerFailed, and what clients raise."""
    generator = LoadGenerator()
    there = 0
    with Mayfly(source).three_nodes() as cluster:
        for count in counts:
            fill(generator, cluster, count - there, size, first=not there)
            there = count
            cluster.wait_until_agreed()
            row: Row = {"messages": count}
            missed = partial(go_through, generator, cluster, count // _MISSED_PART, size)
            row |= comes_back(cluster, "killed", False, missed)
            row |= comes_back(cluster, "replaced", True, missed)
            row |= all_come_back(cluster)
            until_ready(cluster, count)
            rows.append(row)
            RAW.parent.mkdir(exist_ok=True)
            RAW.write_text(json.dumps(rows, indent=1))
            print(f"  {row}", flush=True)


def fill(generator: LoadGenerator, cluster: MayflyCluster, count: int, size: int, first: bool) -> None:
    """Publish so many more."""
    generator.run(cluster, [
        "--publish-only", "--pattern", "recovery-%d", "--size", str(size), "--count", str(count),
        *(["--delete-start"] if first else []),
    ])  # fmt: skip


def go_through(generator: LoadGenerator, cluster: MayflyCluster, count: int, size: int) -> None:
    """So many are published to another queue and consumed, beside a node that is down."""
    alive = [place for place in range(NODES) if not cluster.has_ended(place)]
    pids = [cluster.pids[place] for place in alive]
    there = Cluster(cluster.name, [cluster.uris[place] for place in alive], pids, [])
    generator.run(there, ["--pattern", "missed-%d", "--size", str(size), "--count", str(count), "--delete-end"])


def comes_back(cluster: MayflyCluster, name: str, empty: bool, missed: Callable[[], None]) -> Row:
    """A follower of the queue is killed, and started again when it has ``missed`` something; with `empty` without what
    it had."""
    cluster.wait_until_agreed()
    place = (cluster.leader_of(_QUEUE) + 1) % NODES
    cluster.kill(place)
    wait_until(lambda: cluster.has_ended(place), "a killed node has ended", _CATCHES_UP_S)
    if empty:
        shutil.rmtree(cluster.data_folder(place))
    missed()
    with LongestSilence(cluster) as silence:
        began_s = time.monotonic()
        cluster.start_again(place)
        serves_s = time.monotonic() - began_s
        wait_until(lambda: has_caught_up(cluster, place), f"node {place + 1} has caught up", _CATCHES_UP_S)
        caught_up_s = time.monotonic() - began_s
    return {
        f"{name}_serves_s": serves_s, f"{name}_caught_up_s": caught_up_s, f"{name}_silence_ms": silence.longest_ms
    }  # fmt: skip


def has_caught_up(cluster: MayflyCluster, place: int) -> bool:
    """Whether every group has all of its voters, and the node has applied what the others know to be committed in it.
    One that was emptied is another member, which replicas come to by and by."""
    if not is_settled(cluster, (place + 1) % NODES):
        return False
    applied, commits = progress(cluster, place, "applied"), dict[int, int]()
    for other in range(NODES):
        if other != place:
            for group, commit in progress(cluster, other, "commit").items():
                commits[group] = max(commit, commits.get(group, 0))
    return bool(applied) and all(applied.get(group, -1) >= commit for group, commit in commits.items())


def is_settled(cluster: MayflyCluster, place: int) -> bool:
    """Whether a node knows of no replica that is to move."""
    try:
        rows: list[dict[str, Any]] = json.loads(page(cluster.http[place], "/shards"))["shards"]
    except OSError:
        return False
    return all(len(row["voters"]) == NODES and not row["changing"] and not row["owed"] for row in rows)


def progress(cluster: MayflyCluster, place: int, field: str) -> dict[int, int]:
    """By group, as the node says; nothing if it does not answer."""
    try:
        rows: list[dict[str, Any]] = json.loads(page(cluster.http[place], "/status"))["groups"]
    except OSError:
        return {}
    return {int(row["group"]): int(row[field]) for row in rows}


def all_come_back(cluster: MayflyCluster) -> Row:
    """All nodes are killed at once, and started again at once."""
    for place in range(NODES):
        cluster.kill(place)
    wait_until(lambda: all(map(cluster.has_ended, range(NODES))), "the killed nodes have ended", _CATCHES_UP_S)
    with LongestSilence(cluster) as silence:
        began_s = time.monotonic()
        cluster.start_again(*range(NODES))
        serve_s = time.monotonic() - began_s
        with Pipeline(cluster.uris[0]) as client:
            client.open_channels()
            # Not acknowledged: it goes back as the connection ends.
            client.call(commands.Basic.Get(queue=_QUEUE), commands.Basic.GetOk)
        message_s = time.monotonic() - began_s
    return {"all_serve_s": serve_s, "all_message_s": message_s, "all_silence_ms": silence.longest_ms}


def until_ready(cluster: MayflyCluster, count: int) -> None:
    """Until so many messages are in the queue. Raises BrokerFailed."""
    wait_until(lambda: ready(cluster) == count, f"{count} messages are in the queue, as were confirmed", _READY_S)


def ready(cluster: MayflyCluster) -> int:
    """How many messages the queue has."""
    with Pipeline(cluster.uris[0]) as client:
        client.open_channels()
        answer = client.call(commands.Queue.Declare(queue=_QUEUE, passive=True), commands.Queue.DeclareOk)
        return int(answer.message_count)


def report(rows: list[Row]) -> list[str]:
    """As Markdown, with the aim."""
    lines = [
        "| messages | a follower killed: serves s | caught up s | silence ms | replaced, empty: serves s | caught up s "
        "| silence ms | all killed: all serve s | first message s | silence ms |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shown = [
            f"{row[f'{name}_{figure}']:.{0 if figure.endswith('ms') else 1}f}"
            for name, figures in (
                ("killed", ("serves_s", "caught_up_s", "silence_ms")),
                ("replaced", ("serves_s", "caught_up_s", "silence_ms")),
                ("all", ("serve_s", "message_s", "silence_ms")),
            )
            for figure in figures
        ]
        lines.append(f"| {row['messages']:,.0f} | {' | '.join(shown)} |")
    longest = max(row["replaced_silence_ms"] for row in rows)
    met = "met" if longest <= _LONGEST_SILENCE_MS else "not met"
    return [
        *lines, "",
        f"Aim: while a node takes a snapshot nobody is silent for more than {_LONGEST_SILENCE_MS} ms: {met} "
        f"({longest:.0f} ms).",
    ]  # fmt: skip


def main() -> None:
    """Measure, print, write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", default="100000,1000000,5000000", help="sizes of the queue, growing")
    parser.add_argument("--size", type=int, default=100, help="octets of each body")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the figures into this document")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.messages.split(",")]
    before = load_average()
    rows: list[Row] = []
    failed = ""
    try:
        measure(counts, arguments.size, arguments.source, rows)
    except (BrokerFailed, PipelineError, OSError) as failure:
        failed = f"The next size failed: {failure}"
        if not rows:
            sys.exit(failed)
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {describe_machine()}; load average {before} before, "
        f"{load_average()} after; {arguments.size} octets each; MayflyMQ {Mayfly(arguments.source).version()}.",
        "", *report(rows), *(["", failed] if failed else []),
    ]  # fmt: skip
    print("\n".join(lines))
    if arguments.write is not None:
        write_figures(arguments.write, "bench/recovery.py", lines)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    with only_benchmark():
        main()
