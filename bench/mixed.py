"""`make bench-mixed`: does traffic notice what else a cluster does about time?

    python -P bench/mixed.py [--seconds 30] [--part 100] [--source] [--write FILE]

Three nodes. Traffic: 30 000 messages/s of 1 KB through one queue, confirmed, delivered, acknowledged; latencies count
from when a message was due. First alone, then beside all of this at once, then alone again:

    deaths      10 000 messages/s that expire after a second, into a dead-letter queue that another node leads
    renewals     5 000 leases/s that are renewed: 3 000 queues that are declared again and again
    short lives  1 000 queues/s that are declared, and expire after two seconds

`--part 50` asks for half of each of those. All clients share the machine with the nodes.
"""

import argparse
import datetime
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pamqp import commands

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.amqp_pipeline import Pipeline, PipelineError, message
from bench.clusters import NODES, BrokerFailed, Cluster, ReplicatedCluster
from bench.load_generator import LoadGenerator
from bench.machine import describe_machine, load_average, only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly
from bench.rest import settle

RATE: Final = 30_000
DEATHS_S: Final = 10_000
RENEWALS_S: Final = 5_000
SHORT_LIVES_S: Final = 1_000
BESIDE: Final = "beside all of that"
MOST: Final = 2.0
"""Times the p99 of traffic alone, at the most."""
_REACHED: Final = 0.95
"""Of what is asked for beside the traffic."""
_LEASES: Final = 3_000
_LEASE_MS: Final = 60_000
_SHORT_LEASE_MS: Final = 2_000
_TTL_MS: Final = 1_000
_TURN_S: Final = 0.1
_SETTLE_S: Final = 2.0
_TRIES: Final = 4
_WINDOW: Final = 2_000
_BODY: Final = bytes(200)
_QUORUM: Final = {"x-queue-type": "quorum"}
_PERCENTILES: Final = ("p50", "p90", "p99", "p999", "max")
Figures = dict[str, float]


class Beside:
    """What is done beside the traffic, from entering to leaving, and how much of it."""

    def __init__(self, cluster: Cluster, part: float) -> None:
        self._cluster, self._part = cluster, part
        self._ended = threading.Event()
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._clients: list[Pipeline] = []
        self._began_s = 0.0
        self.counts: dict[str, int] = {}
        self.rates: Figures = {}
        self.failures: list[BaseException] = []

    def __enter__(self) -> "Beside":
        for place in range(NODES):
            self._lease(place)
        for place in range(NODES):
            self._start(self._publish_mortals, place)
            self._start(self._bury, place)
            self._start(self._renew, place)
            self._start(self._declare, place)
        self._began_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        lasted_s = time.monotonic() - self._began_s
        self.rates = {name: count / lasted_s for name, count in self.counts.items()}
        self._ended.set()
        for client in self._clients:
            client.hang_up()
        for thread in self._threads:
            thread.join()

    def _lease(self, place: int) -> None:
        """The queues that a node's clients renew."""
        with self._client(place) as client:
            client.declare_all(self._leased(place), {**_QUORUM, "x-expires": _LEASE_MS})

    @staticmethod
    def _leased(place: int) -> list[str]:
        return [f"mixed-lease-{place}-{number}" for number in range(_LEASES // NODES)]

    def _client(self, place: int) -> Pipeline:
        return Pipeline(self._cluster.uris[place % NODES])

    def _start(self, work: Callable[[int, Pipeline], None], place: int) -> None:
        client = self._client(place)
        self._clients.append(client)

        def run() -> None:
            try:
                work(place, client)
            except (OSError, PipelineError, TimeoutError) as failure:
                if not self._ended.is_set():
                    self.failures.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _count(self, name: str, number: int) -> None:
        with self._counting:
            self.counts[name] = self.counts.get(name, 0) + number

    def _portions(self, rate: float) -> Iterator[int]:
        """How many are due by now, at this rate of all nodes, one portion after the other; what came late is made up
        for with two turns' worth at most."""
        own = rate * self._part / NODES
        due_s = time.monotonic()
        while not self._ended.wait(max(0.0, due_s + _TURN_S - time.monotonic())):
            passed_s = min(time.monotonic() - due_s, 2 * _TURN_S)
            due_s = time.monotonic()
            yield max(1, round(own * passed_s))

    def _publish_mortals(self, place: int, client: Pipeline) -> None:
        one = message(f"mixed-mortal-{place}", _BODY)
        client.call_confirms()
        for portion in self._portions(DEATHS_S):
            client.publish_more([one] * portion, _WINDOW)
            self._count("published to die", portion)

    def _bury(self, place: int, client: Pipeline) -> None:
        def take(_: bytes) -> bool:
            self._count("dead letters", 1)
            return True

        client.consume(f"mixed-dead-{place}", take)

    def _renew(self, place: int, client: Pipeline) -> None:
        names = self._leased(place)
        at = 0
        for portion in self._portions(RENEWALS_S):
            again = [names[(at + number) % len(names)] for number in range(portion)]
            at += portion
            client.declare_all(again, {**_QUORUM, "x-expires": _LEASE_MS})
            self._count("renewals", portion)

    def _declare(self, place: int, client: Pipeline) -> None:
        made = 0
        for portion in self._portions(SHORT_LIVES_S):
            names = [f"mixed-short-{place}-{made + number}" for number in range(portion)]
            made += portion
            client.declare_all(names, {**_QUORUM, "x-expires": _SHORT_LEASE_MS})
            self._count("queues declared", portion)


def declare_mortal(cluster: ReplicatedCluster) -> None:
    """The queues where something dies, and, led by other nodes, those where it goes."""
    for place in range(NODES):
        mortal, dead = f"mixed-mortal-{place}", f"mixed-dead-{place}"
        routed = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        with Pipeline(cluster.uris[place]) as client:
            client.declare_all([mortal], {**_QUORUM, "x-message-ttl": _TTL_MS, **routed})
        for other in range(1, NODES * _TRIES):
            # Which shard a queue goes to is not the client's to say.
            with Pipeline(cluster.uris[(place + other) % NODES]) as client:
                client.declare_all([dead], _QUORUM)
                if cluster.leader_of(dead) != cluster.leader_of(mortal):
                    break
                client.call(commands.Queue.Delete(queue=dead), commands.Queue.DeleteOk)
    time.sleep(_SETTLE_S)


def demand_elsewhere(cluster: ReplicatedCluster) -> None:
    """Raises BrokerFailed where dead letters stay on the node that leads what they come from."""
    for place in range(NODES):
        if cluster.leader_of(f"mixed-dead-{place}") == cluster.leader_of(f"mixed-mortal-{place}"):
            raise BrokerFailed(f"mixed-dead-{place} is led where its messages die")


@contextmanager
def beside(cluster: Cluster, part: float) -> Iterator[Beside]:
    """All of it, once it has begun. Raises BrokerFailed if a client of it failed."""
    others = Beside(cluster, part)
    with others:
        time.sleep(_SETTLE_S)
        yield others
    if others.failures:
        raise BrokerFailed(f"beside the traffic: {others.failures[0]!r}")


def traffic(generator: LoadGenerator, cluster: Cluster, seconds: int) -> Figures:
    """Latencies by due time, CPU of all nodes in cores. Raises BrokerFailed."""
    result: dict[str, Any] = generator.run(cluster, [
        "--size", "1024", "--rate", str(RATE), "--seconds", str(seconds), "--warmup", str(max(1, seconds // 10)),
        "--delete-start", "--delete-end",
    ])  # fmt: skip
    figures = {name: float(result["latency_ms"][name]) for name in _PERCENTILES}
    figures["consumed_s"] = float(result["consumed_s"])
    # Of which the first tenth does not count.
    figures["cores"] = float(result["broker_cpu_s"]) / (float(result["elapsed_s"]) - max(1, seconds // 10))
    return figures


def measure(seconds: int, part: float, source: bool) -> tuple[list[tuple[str, Figures]], Figures]:
    """Traffic alone, beside the rest, and alone again; the rates of the rest."""
    generator = LoadGenerator()
    with Mayfly(source).three_nodes() as cluster:
        rows = [("alone", traffic(generator, cluster, seconds))]
        # Leads move to and fro by what they do, so not before that.
        settle(cluster)
        declare_mortal(cluster)
        demand_elsewhere(cluster)
        with beside(cluster, part) as others:
            rows.append((BESIDE, traffic(generator, cluster, seconds)))
        time.sleep(_SETTLE_S + _SHORT_LEASE_MS / 1000)
        rows.append(("alone again", traffic(generator, cluster, seconds)))
    return rows, others.rates


def report(rows: list[tuple[str, Figures]], rates: Figures, part: float) -> list[str]:
    """As Markdown, with the aim."""
    lines = [
        "| traffic | msg/s | p50 ms | p90 | p99 | p99.9 | longest | CPU of all nodes, cores |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows:
        shown = " | ".join(f"{row[each]:.1f}" for each in _PERCENTILES)
        lines.append(f"| {name} | {row['consumed_s']:,.0f} | {shown} | {row['cores']:.2f} |")
    alone = [figures["p99"] for name, figures in rows if name != BESIDE]
    ratios = [rows[1][1]["p99"] / p99 for p99 in alone]
    asked = {
        "published to die": DEATHS_S, "dead letters": DEATHS_S, "renewals": RENEWALS_S,
        "queues declared": SHORT_LIVES_S,
    }  # fmt: skip
    reached = ", ".join(f"{name} {rates.get(name, 0):,.0f} of {each * part:,.0f}" for name, each in asked.items())
    short = any(rates.get(name, 0) < _REACHED * each * part for name, each in asked.items())
    met = "not decided, for the rest was not reached" if short else "met" if max(ratios) <= MOST else "not met"
    return [
        *lines, "", f"Beside it, a second: {reached}.", "",
        f"Aim: p99 beside all of that at most {MOST:.0f}x the p99 alone: {met} "
        f"({' and '.join(f'{ratio:.1f}x' for ratio in ratios)}, of before and after).",
    ]  # fmt: skip


def main() -> None:
    """Measure, print, write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30, help="of each of the three runs")
    parser.add_argument("--part", type=int, default=100, help="so many percent of what is done beside the traffic")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the figures into this document")
    arguments = parser.parse_args()
    part = arguments.part / 100
    before = load_average()
    try:
        rows, rates = measure(arguments.seconds, part, arguments.source)
    except BrokerFailed as failure:
        sys.exit(str(failure))
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {describe_machine()}; load average {before} before, "
        f"{load_average()} after; {arguments.seconds} s each; MayflyMQ {Mayfly(arguments.source).version()}.",
        "", *report(rows, rates, part),
    ]  # fmt: skip
    print("\n".join(lines))
    if arguments.write is not None:
        write_figures(arguments.write, "bench/mixed.py", lines)


if __name__ == "__main__":
    with only_benchmark():
        main()
