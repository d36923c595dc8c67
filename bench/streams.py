"""`make bench-streams`: streams beside RabbitMQ's and JetStream's on this machine, each aim, and whether it is met.

    python -P bench/streams.py [--quick] [--only publish,read,deaths,retained] [--rounds 2] [--alone] [--source]
                               [--write PAGE]

Three nodes on loopback, started afresh for every part, and for every broker in turn:

    publish   1 KB, with confirms: rate, CPU of all nodes
    read      from the start, by one consumer and by ten, spread over the nodes
    deaths    messages with random TTLs of 1 to 60 s: how late they are gone, and their CPU; JetStream syncs before it
              answers, as MayflyMQ does
    retained  messages of 100 bytes on a single node: memory, and how long the node takes to start

`amqpload` of ../shared/bench publishes and reads; readers check that nothing is missing, damaged or out of order. What
fails is told at the end and costs no other figure; then the exit code is 1.
"""

import argparse
import datetime
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.clusters import Broker, BrokerFailed, Cluster
from bench.comparison import JETSTREAM, MAYFLY, PEERS, AtLeastTimes, AtMost, AtMostTimes, Results, Row
from bench.comparison_report import about, aims_table, failures, runs_table, verdict
from bench.jetstream_cluster import Jetstream
from bench.load_generator import LoadGenerator, figures
from bench.machine import describe_machine, load_average, only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly
from bench.newer_peers import newer_peers
from bench.rabbitmq_cluster import Rabbitmq
from bench.side_by_side import commit
from bench.stream_deaths import measure_jetstream_deaths, measure_mayfly_deaths
from bench.stream_retained import measure_retained

PROGRAM: Final = "make bench-streams"
PARTS: Final = ("publish", "read", "deaths", "retained")
READERS: Final = (1, 10)
_STREAM: Final = ("--queue-type", "stream", "--size", "1024")
ROWS: Final = (
    Row("publish.confirmed_s", "publish, 1 KB: confirmed msg/s", (AtLeastTimes(2),)),
    Row("publish.cpu_us", "publish, 1 KB: CPU per message, all nodes, us", (AtMostTimes(0.5),), 1),
    Row("read1.consumed_s", "read from the start, 1 consumer: msg/s", (AtLeastTimes(2),)),
    Row("read1.cpu_us", "read from the start, 1 consumer: CPU per message, us", (), 1),
    Row("read10.consumed_s", "read from the start, 10 consumers: msg/s of all", (AtLeastTimes(2),)),
    Row("read10.cpu_us", "read from the start, 10 consumers: CPU per delivery, us", (), 1),
    Row("deaths.published_s", "publish with random TTLs of 1-60 s, 100 B: msg/s"),
    Row("deaths.late_p50_ms", "gone after the deadline, p50 ms"),
    Row("deaths.late_p99_ms", "gone after the deadline, p99 ms", (AtMost(300, "ms"),)),
    Row("deaths.late_max_ms", "gone after the deadline, the last, ms"),
    Row("deaths.cpu_node_us", "CPU of each that is gone, on each node, us", (AtMost(5, "us"),), 2),
    Row("deaths.cpu_us", "CPU of each that is gone, all nodes, us", (AtMostTimes(0.5, JETSTREAM),), 2),
    Row("deaths.whole_cpu_us", "CPU of each, published and gone, us", (AtMostTimes(0.5, JETSTREAM),), 1),
    Row("retained.bytes", "a message of 100 B that is kept: memory of the node, bytes", (AtMost(16, "bytes"),), 1),
    Row("retained.bytes_with_cache", "with the log entries that are cached", (), 1),
    Row("retained.bytes_after_start", "after a start, all that the node takes more than an empty one", (), 1),
    Row("retained.start_s", "start of the node with all of them until it is ready, s", (AtMost(3, "s"),), 2),
    Row("retained.there_s", "until the stream answers with all of them, s", (AtMost(3, "s"),), 2),
)


class Sizes:
    """How much of everything."""

    def __init__(self, quick: bool) -> None:
        self.rounds = 1 if quick else 2
        self.publish_s, self.warmup_s = (4, 1) if quick else (8, 2)
        self.read = 50_000 if quick else 200_000
        self.deaths = 100_000 if quick else 1_000_000
        self.retained = 1_000_000 if quick else 10_000_000


def publish(generator: LoadGenerator, cluster: Cluster, sizes: Sizes) -> dict[str, float]:
    """One publisher, at full speed."""
    timed = ["--seconds", str(sizes.publish_s), "--warmup", str(sizes.warmup_s)]
    load = [*_STREAM, "--publish-only", *timed, "--delete-start", "--delete-end"]
    return _named("publish", figures(generator.run(cluster, load)))


def read(generator: LoadGenerator, cluster: Cluster, sizes: Sizes) -> dict[str, float]:
    """What was published before, by one consumer and then by ten, each all of it."""
    generator.run(cluster, [*_STREAM, "--publish-only", "--count", str(sizes.read), "--delete-start"])
    measured: dict[str, float] = {}
    for readers in READERS:
        count = sizes.read * readers
        # Each consumer checks its own order; what all of them have in common looks like repeats.
        load = [*_STREAM, "--consume-only", "--consumers", str(readers), "--count", str(count), "--cons-offset", "1"]
        result = generator.run(cluster, [*load, "--multi-ack", "100"], strict=False)
        _check_reading(cluster, result, sizes.read, readers)
        measured.update(_named(f"read{readers}", figures(result)))
    return measured


def _check_reading(cluster: Cluster, result: dict[str, Any], count: int, readers: int) -> None:
    wrong = {
        key: result[key] for key in ("out_of_order", "foreign", "corrupt", "redelivered") if result[key]
    }
    repeats = count * (readers - 1)
    if result["duplicates"] != repeats:
        wrong["duplicates"] = result["duplicates"] - repeats
    if wrong:
        raise BrokerFailed(f"{cluster.name}: {readers} consumers that read {count} messages from the start: {wrong}")


def _named(load: str, measured: dict[str, float]) -> dict[str, float]:
    return {f"{load}.{key}": value for key, value in measured.items()}


class Measuring:
    """All parts that were asked for, and what came of them."""

    def __init__(self, parts: Sequence[str], sizes: Sizes, source: bool, alone: bool) -> None:
        root = None if alone else newer_peers()
        rabbitmq = Rabbitmq(root)
        self._mayfly = Mayfly(source)
        self._rabbitmq: Broker | None = rabbitmq if not alone and rabbitmq.installed() else None
        self._jetstream = None if root is None else Jetstream(JETSTREAM, root, "always")
        self._parts, self._sizes = parts, sizes
        self._generator = LoadGenerator()
        self.results = Results()

    def run(self) -> None:
        """One after the other."""
        loads: dict[str, Callable[[LoadGenerator, Cluster, Sizes], dict[str, float]]] = {
            "publish": publish, "read": read
        }
        asked = [name for name in loads if name in self._parts]
        brokers = [each for each in (self._mayfly, self._rabbitmq) if each is not None]
        for number in range(self._sizes.rounds if asked else 0):
            for broker in brokers if number % 2 == 0 else reversed(brokers):
                work = partial(self._loads, broker, [loads[each] for each in asked])
                self._attempt(broker.name, " and ".join(asked), work)
        if "deaths" in self._parts:
            self._attempt(MAYFLY, "deaths", partial(self._deaths, self._mayfly, measure_mayfly_deaths))
            if self._jetstream is not None:
                self._attempt(JETSTREAM, "deaths", partial(self._deaths, self._jetstream, measure_jetstream_deaths))
        if "retained" in self._parts:
            self._attempt(MAYFLY, "retained", self._retained)

    def _attempt(self, broker: str, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (Exception, SystemExit) as error:
            text = f"{broker} {what}: {type(error).__name__}: {error}"
            print(f"  FAILED {text}", flush=True)
            self.results.failures.append(text)

    def _add(self, broker: str, measured: dict[str, float]) -> None:
        self.results.add(broker, measured)
        print(f"  {broker}: " + ", ".join(f"{key} {value:,.2f}" for key, value in measured.items()), flush=True)

    def _loads(
        self, broker: Broker, loads: Sequence[Callable[[LoadGenerator, Cluster, Sizes], dict[str, float]]]
    ) -> None:
        with broker.three_nodes() as cluster:
            for load in loads:
                self._add(broker.name, load(self._generator, cluster, self._sizes))

    def _deaths(self, broker: Broker, measure: Callable[[Cluster, int], dict[str, float]]) -> None:
        with broker.three_nodes() as cluster:
            self._add(broker.name, _named("deaths", measure(cluster, self._sizes.deaths)))

    def _retained(self) -> None:
        with self._mayfly.single_node() as node:
            self._add(MAYFLY, _named("retained", measure_retained(self._generator, node, self._sizes.retained)))

    def versions(self) -> dict[str, str]:
        """Of those that run."""
        brokers = [each for each in (self._mayfly, self._rabbitmq, self._jetstream) if each is not None]
        return {**dict.fromkeys((MAYFLY, *PEERS), "not run"), **{each.name: each.version() for each in brokers}}


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about a tenth of the sizes, one round")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--rounds", type=int, help="of publishing and reading")
    parser.add_argument("--alone", action="store_true", help="MayflyMQ without its peers")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, help="a page with a place for the figures")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: unknown part {', '.join(sorted(unknown))}")
    sizes = Sizes(arguments.quick)
    sizes.rounds = arguments.rounds or sizes.rounds
    with only_benchmark():
        try:
            measuring = Measuring(parts, sizes, arguments.source, arguments.alone)
        except BrokerFailed as failure:
            sys.exit(str(failure))
        before, began_s = load_average(), time.monotonic()
        measuring.run()
    results = measuring.results
    results.about = {
        "command": f"python -P bench/streams.py {' '.join(sys.argv[1:])}".strip(),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC", "commit": commit(),
        "machine": describe_machine(), "load_before": before, "load_after": load_average(),
        "took": f"{(time.monotonic() - began_s) / 60:.1f} minutes, starting the nodes included",
        "plan": f"{sizes.rounds} round(s) of publishing ({sizes.publish_s} s, of which the first {sizes.warmup_s} s do "
        f"not count) and reading ({sizes.read:,} messages); {sizes.deaths:,} messages with TTLs, "
        f"{sizes.retained:,} kept.",
        **measuring.versions(),
    }
    lines = [
        *about(results), "", *aims_table(results, ROWS), "", verdict(results, ROWS), *failures(results), "",
        "### Every run of streams", "", *runs_table(results, ROWS),
    ]
    print("\n" + "\n".join(lines))
    if arguments.write is not None:
        write_figures(arguments.write, PROGRAM, lines)
    if results.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
