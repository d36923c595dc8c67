"""`make bench-disturbed`: latency by due time at half of the maximum, while something happens to the cluster.

    python -P bench/disturbed.py [--seconds 60] [--backlog 1000000] [--source] [--write FILE]

Three nodes; 1 KB messages go through one queue at half of the most that it carries, by clients of nodes that stay.
After a third of the time

    nothing     happens
    snapshots   of a shard are written and its log compacted as it grows, with a backlog of messages in the same shard
    catch up    a follower that was down meanwhile is started again
    replaced    the same with its folder emptied: it takes snapshots of everything
    drained     the leader of the queue is told to stop (SIGTERM), and started again
    killed      the leader of the queue gets SIGKILL, and is started again

Percentiles are those of the whole run but for its first tenth, from the moment at which a message was due to be
published to its arrival at the consumer. A message that is lost fails its row; one that comes twice is counted. All
figures are kept in bench-results/disturbed.json.
"""

import argparse
import datetime
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.amqp_pipeline import Pipeline, PipelineError
from bench.clusters import NODES, BrokerFailed, Cluster, page, wait_until
from bench.load_generator import LoadGenerator
from bench.machine import describe_machine, load_average, only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly, MayflyCluster
from bench.open_loop import maximum_of

RAW: Final = ROOT / "bench-results" / "disturbed.json"
_QUEUE: Final = "disturbed-0"
_PERCENTILES: Final = ("p50", "p90", "p99", "p999", "p9999", "max")
_MOST_NAMES: Final = 200
"""So many queues are declared at most to find one in a shard: there are sixteen."""
_ENDS_WITHIN_S: Final = 60
Row = dict[str, float | str]


class Disturbed:
    """Three nodes, the queue, and who leads it."""

    def __init__(self, generator: LoadGenerator, cluster: MayflyCluster, rate: float, seconds: int) -> None:
        self._generator, self._cluster, self._rate, self._seconds = generator, cluster, rate, seconds
        with Pipeline(cluster.uris[0]) as client:
            client.declare_all([_QUEUE], {"x-queue-type": "quorum"})

    @property
    def leader(self) -> int:
        """The place of the node that leads the queue."""
        return self._cluster.leader_of(_QUEUE)

    def run(self, name: str, without: int | None, act: Callable[[], None]) -> Row:
        """The load, by clients of all nodes but one; ``act`` is done after a third of the time. Raises what it raises,
        and BrokerFailed."""
        cluster = self._cluster
        stay = [place for place in range(NODES) if place != without]
        pids = [cluster.pids[place] for place in stay]
        there = Cluster(cluster.name, [cluster.uris[place] for place in stay], pids, [])
        load = [
            "--size", "1024", "--pattern", "disturbed-%d", "--no-declare", "--rate", f"{self._rate:.0f}",
            "--seconds", str(self._seconds), "--warmup", str(self._seconds // 10),
        ]  # fmt: skip
        found: list[dict[str, Any] | BaseException] = []

        def publish() -> None:
            try:
                found.append(self._generator.run(there, load, strict=False))
            except BaseException as failure:
                found.append(failure)

        thread = threading.Thread(target=publish)
        began_s = time.monotonic()
        thread.start()
        try:
            time.sleep(self._seconds / 3)
            act()
            acted_s = time.monotonic() - began_s - self._seconds / 3
        finally:
            thread.join()
        result = found[0]
        if isinstance(result, BaseException):
            raise BrokerFailed(f"{name}: {result}")
        if result["lost"]:
            raise BrokerFailed(f"{name}: {result['lost']} messages are lost")
        row: Row = {"while": name, "acted_s": acted_s, "duplicates": float(result["duplicates"])}
        row |= {each: float(result["latency_ms"][each]) for each in _PERCENTILES}
        row |= {"consumed_s": float(result["consumed_s"]), "other_cores": float(result["other_cores"])}
        print(f"  {row}", flush=True)
        cluster.wait_until_agreed()
        return row

    def down(self, place: int, empty: bool) -> None:
        """A node gets SIGKILL, and maybe loses what it has."""
        self._cluster.kill(place)
        wait_until(lambda: self._cluster.has_ended(place), "a killed node has ended", _ENDS_WITHIN_S)
        if empty:
            shutil.rmtree(self._cluster.data_folder(place))

    def up(self, place: int) -> None:
        """It is started again; returns when it serves."""
        self._cluster.start_again(place)

    def killed(self, place: int) -> None:
        """It goes and comes back."""
        self.down(place, empty=False)
        self.up(place)

    def drained(self, place: int) -> None:
        """It is told to stop, and comes back."""
        self._cluster.terminate(place)
        wait_until(lambda: self._cluster.has_ended(place), "a drained node has ended", _ENDS_WITHIN_S)
        self.up(place)

    def fill_its_shard(self, count: int) -> None:
        """So many messages wait in another queue of the same shard."""
        shard = self._shard_of(_QUEUE)
        for number in range(_MOST_NAMES):
            name = f"backlog-{number}"
            with Pipeline(self._cluster.uris[0]) as client:
                client.declare_all([f"{name}-0"], {"x-queue-type": "quorum"})
            if self._shard_of(f"{name}-0") == shard:
                break
        else:
            raise BrokerFailed(f"none of {_MOST_NAMES} queues is in shard {shard}")
        self._generator.run(self._cluster, [
            "--publish-only", "--pattern", f"{name}-%d", "--no-declare", "--size", "100", "--count", str(count),
        ])  # fmt: skip

    def _shard_of(self, queue: str) -> int:
        return int(json.loads(page(self._cluster.http[0], f"/queues/%2F/{queue}"))["shard"])


def measure(seconds: int, backlog: int, source: bool, rows: list[Row]) -> float:
    """A row for each event is added to ``rows``; the rate. Raises BrokerFailed, and what clients raise."""
    generator = LoadGenerator()
    with Mayfly(source).three_nodes() as cluster:
        rate = maximum_of(generator, cluster) / 2

        def note(row: Row) -> None:
            rows.append(row)
            RAW.parent.mkdir(exist_ok=True)
            RAW.write_text(json.dumps({"rate": rate, "rows": rows}, indent=1))

        load = Disturbed(generator, cluster, rate, seconds)
        note(load.run("nothing", None, lambda: None))
        load.fill_its_shard(backlog)
        note(load.run("snapshots", None, lambda: None))
        for name, empty in (("catch up", False), ("replaced", True)):
            follower = (load.leader + 1) % NODES
            load.down(follower, empty)
            note(load.run(name, follower, partial(load.up, follower)))
        leader = load.leader
        note(load.run("drained", leader, partial(load.drained, leader)))
        leader = load.leader
        note(load.run("killed", leader, partial(load.killed, leader)))
    return rate


def report(rate: float, backlog: int, rows: list[Row]) -> list[str]:
    """As Markdown."""
    lines = [
        f"{rate:,.0f} messages/s are due; a backlog of {backlog:,} messages from *snapshots* on.", "",
        "| while | msg/s | p50 ms | p90 | p99 | p99.9 | p99.99 | longest | until it serves again s | twice "
        "| cores used by others |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shown = " | ".join(f"{row[each]:.1f}" for each in _PERCENTILES)
        again = f"{row['acted_s']:.1f}" if float(row["acted_s"]) > 0.1 else ""
        lines.append(
            f"| {row['while']} | {row['consumed_s']:,.0f} | {shown} | {again} | {row['duplicates']:,.0f} "
            f"| {row['other_cores']:.2f} |"
        )
    return lines


def main() -> None:
    """Measure, print, write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="of each run")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="messages that wait in the shard")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the figures into this document")
    arguments = parser.parse_args()
    before, rows, failed, rate = load_average(), list[Row](), "", 0.0
    try:
        rate = measure(arguments.seconds, arguments.backlog, arguments.source, rows)
    except (BrokerFailed, PipelineError, OSError) as failure:
        failed = f"Ended: {failure}"
        if not rows:
            sys.exit(failed)
        rate = float(json.loads(RAW.read_text())["rate"])
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {describe_machine()}; load average {before} before, "
        f"{load_average()} after; {arguments.seconds} s each; MayflyMQ {Mayfly(arguments.source).version()}.",
        "", *report(rate, arguments.backlog, rows), *(["", failed] if failed else []),
    ]  # fmt: skip
    print("\n".join(lines))
    if arguments.write is not None:
        write_figures(arguments.write, "bench/disturbed.py", lines)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    with only_benchmark():
        main()
