"""`make bench`: MayflyMQ, RabbitMQ and JetStream on this machine under the same loads, ratios, aims, and whether they
are met.

    python -P bench/side_by_side.py [--quick] [--only a1k,kill] [--runs 3] [--seconds 8] [--alone] [--source]
                                    [--write | --no-write] [--again FILE]

RabbitMQ is today's, where ../shared/bench can make a folder with it (root, mmdebstrap), else the packaged one.
JetStream runs twice: syncing before it answers, as the others do, and as it does by default.

In every round each broker is started afresh, three nodes on loopback and then a single one, and does every load once;
brokers take turns, so that a disturbance hits all. Leaders are killed and frozen after the rounds, by clients of AMQP.
Every run of a load generator (`amqpload` and `natsload` of ../shared/bench) and every fault is checked for messages
that were lost, came twice or out of order. What fails is told at the end and costs no other figure; then the exit code
is 1.

A full run puts its figures into docs/measurements/benchmarks.md and README.md; a quick or partial one does if told to
by --write.
All figures are kept in bench-results/side-by-side.json, of which --again makes the tables without measuring.
"""

import argparse
import datetime
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.clusters import Broker, BrokerFailed, Cluster, ReplicatedCluster
from bench.comparison import JETSTREAM, JETSTREAM_LATE, MAYFLY, PEERS, RABBITMQ, Results
from bench.comparison_report import about, aims_table, excerpt, failures, lavinmq, page
from bench.failover import measure_freeze, measure_kill
from bench.jetstream_cluster import Jetstream
from bench.load_generator import PROGRAMS, LoadGenerator, command_line
from bench.loads import CLUSTER_LOADS, Timing, measure_load, stages
from bench.machine import describe_machine, load_average, machine_to_itself, only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly
from bench.newer_peers import newer_peers
from bench.rabbitmq_cluster import Rabbitmq

RAW: Final = ROOT / "bench-results" / "side-by-side.json"
PAGE: Final = ROOT / "docs" / "measurements" / "benchmarks.md"
README: Final = ROOT / "README.md"
PROGRAM: Final = "make bench"
FAULTS: Final = ("kill", "freeze")
START: Final = "start"
EVERYTHING: Final = (START, *CLUSTER_LOADS, "single", *FAULTS)
_IDLE_S: Final = 5


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often."""

    timing: Timing
    runs: int
    parts: tuple[str, ...]
    faults: dict[str, dict[str, int]]
    """By broker, how often which fault is made."""

    def times(self, broker: str, fault: str) -> int:
        """How often the fault is made; never with a broker whose clients are not of AMQP."""
        return self.faults.get(broker, {}).get(fault, 0) if fault in self.parts else 0

    def describe(self, brokers: list[Broker]) -> str:
        """In a sentence or two."""
        made = ", ".join(
            f"{broker.name} {times} x {fault}"
            for broker in brokers for fault in FAULTS if (times := self.times(broker.name, fault))
        )
        timing = self.timing
        return (
            f"{self.runs} run(s) of every load, {timing.seconds} s each of which the first {timing.warmup_s} s do not "
            f"count. Faults: {made or 'none'}."
        )


FULL: Final = Plan(
    Timing(8, 2), 3, EVERYTHING, {MAYFLY: {"kill": 10, "freeze": 5}, RABBITMQ: {"kill": 3, "freeze": 3}}
)
QUICK: Final = Plan(
    Timing(3, 1), 1, (START, "memory", "a1k", "b1k", "window1", "steady", *FAULTS),
    {MAYFLY: {"kill": 3, "freeze": 1}, RABBITMQ: {"kill": 0, "freeze": 0}},
)


class Comparison:
    """Measures as planned, and collects."""

    def __init__(
        self,
        plan: Plan,
        brokers: list[Broker],
        generator: LoadGenerator,
        alone: Callable[[], AbstractContextManager[None]] = machine_to_itself,
    ) -> None:
        """`alone` is entered around each fault: nothing else is to measure on the machine meanwhile."""
        self._plan, self._brokers, self._generator, self._alone = plan, brokers, generator, alone
        self.results = Results()

    def run(self) -> None:
        """All of it."""
        for number in range(self._plan.runs):
            # Who comes first takes turns as well.
            for broker in self._brokers if number % 2 == 0 else reversed(self._brokers):
                self._attempt(f"{broker.name} three nodes", partial(self._cluster_loads, broker))
                self._attempt(f"{broker.name} single node", partial(self._single_load, broker))
        for broker in self._brokers:
            self._attempt(f"{broker.name} faults", partial(self._faults, broker))

    def _attempt(self, what: str, work: Callable[[], None]) -> bool:
        """Whether it succeeds. A failure is noted, so that it costs no more than its own figures."""
        try:
            work()
        except Exception as error:
            text = f"{what}: {type(error).__name__}: {error}"
            print(f"  FAILED {text}", flush=True)
            self.results.failures.append(text)
            return False
        return True

    def _measure(self, broker: str, what: str, work: Callable[[], dict[str, float]]) -> bool:
        def measure() -> None:
            measured = work()
            self.results.add(broker, measured)
            shown = ", ".join(f"{key} {value:,.2f}" for key, value in measured.items())
            print(f"  {broker} {what}: {shown}", flush=True)

        return self._attempt(f"{broker} {what}", measure)

    def _cluster_loads(self, broker: Broker) -> None:
        names = [name for name in CLUSTER_LOADS if name in self._plan.parts]
        if not names and START not in self._plan.parts:
            return
        began_s = time.monotonic()
        with broker.three_nodes() as cluster:
            if START in self._plan.parts:
                self._measure(broker.name, START, partial(_started, cluster, time.monotonic() - began_s))
            for name in names:
                maximum = self.results.latest(broker.name, "a1k.confirmed_s")
                half = None if maximum is None else maximum / 2
                load = partial(measure_load, self._generator, cluster, name, self._plan.timing, half)
                self._measure(broker.name, name, load)

    def _single_load(self, broker: Broker) -> None:
        if "single" in self._plan.parts:
            with broker.single_node() as node:
                load = partial(measure_load, self._generator, node, "single", self._plan.timing, None)
                self._measure(broker.name, "single", load)

    def _faults(self, broker: Broker) -> None:
        left = [(fault, number) for fault in FAULTS for number in range(self._plan.times(broker.name, fault))]
        while left:
            with broker.three_nodes() as cluster:
                assert isinstance(cluster, ReplicatedCluster)
                while left:
                    fault, number = left.pop(0)
                    make = partial(_make, fault, cluster, number, self._alone)
                    if self._measure(broker.name, f"{fault} {number + 1}", make):
                        continue
                    # The cluster might not be well again, and everything in it would wait in vain.
                    left = [each for each in left if each[0] != fault]
                    break


def _started(cluster: Cluster, serving_s: float) -> dict[str, float]:
    """What nodes take that have just started and have nothing to do. What they do only at first is not looked at."""
    resident_mb = cluster.resident_bytes() / (1 << 20)
    time.sleep(_IDLE_S)
    before_s, began_s = cluster.cpu_s(), time.monotonic()
    time.sleep(_IDLE_S)
    idle = (cluster.cpu_s() - before_s) / (time.monotonic() - began_s)
    return {"start.serving_s": serving_s, "start.resident_mb": resident_mb, "start.idle_percent": 100 * idle}


def _make(
    fault: str, cluster: ReplicatedCluster, number: int, alone: Callable[[], AbstractContextManager[None]]
) -> dict[str, float]:
    measures = {"kill": measure_kill, "freeze": measure_freeze}
    with alone():
        figures = measures[fault](cluster, number)
    return {f"{fault}.{key}": value for key, value in figures.items()}


def main() -> None:
    """Measure, print, and write if it is a full run."""
    arguments = parsed()
    if arguments.again is not None:
        results = Results.from_json(arguments.again.read_text())
        finish(results, arguments.write)
        return
    with only_benchmark():
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """As `main`, when no other benchmark runs."""
    plan = planned(arguments)
    brokers: list[Broker] = [Mayfly(arguments.source), *([] if arguments.alone else peers())]
    try:
        comparison = Comparison(plan, brokers, LoadGenerator())
        described = describe(plan, brokers)
    except BrokerFailed as failure:
        sys.exit(str(failure))
    results, began_s = comparison.results, time.monotonic()
    comparison.run()
    took = f"{(time.monotonic() - began_s) / 60:.1f} minutes, starting the nodes included"
    results.about = {**described, "load_after": load_average(), "took": took}
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(results.to_json())
    full = plan == FULL and len(brokers) == 1 + len(PEERS) and not arguments.source
    finish(results, arguments.write or (full and not arguments.no_write))


def peers() -> list[Broker]:
    """Those that can be started here; says which can't."""
    root = newer_peers()
    rabbitmq = Rabbitmq(root)
    found: list[Broker] = [rabbitmq] if rabbitmq.installed() else []
    if root is None:
        print("JetStream and today's RabbitMQ are left out: they take root and Debian's mmdebstrap")
    else:
        found += [Jetstream(JETSTREAM, root, "always"), Jetstream(JETSTREAM_LATE, root, "default")]
    if not found:
        print("RabbitMQ is not installed either (Debian: apt-get install rabbitmq-server): MayflyMQ alone")
    return found


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under three minutes: fewer rows, one short run of each")
    parser.add_argument("--only", default="", help=f"some of {','.join(EVERYTHING)}")
    parser.add_argument("--runs", type=int, help="rounds, and at most so many faults of a kind")
    parser.add_argument("--seconds", type=int, help="of a run, a quarter of which does not count")
    parser.add_argument("--alone", action="store_true", help="MayflyMQ without its peers")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", action="store_true", help="write the documents though it is not a full run")
    parser.add_argument("--no-write", action="store_true", help="leave the documents as they are")
    parser.add_argument("--again", type=Path, metavar="FILE", help="the tables of an earlier run; measures nothing")
    arguments = parser.parse_args()
    if unknown := set(filter(None, arguments.only.split(","))) - set(EVERYTHING):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; there are {', '.join(EVERYTHING)}")
    for name in ("runs", "seconds"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name}: {value}; 1 or more")
    return arguments


def planned(arguments: argparse.Namespace) -> Plan:
    """The full or the quick plan, changed as the arguments say."""
    plan = QUICK if arguments.quick else FULL
    parts = tuple(arguments.only.split(",")) if arguments.only else plan.parts
    timing, faults = plan.timing, plan.faults
    if arguments.seconds is not None:
        timing = Timing(arguments.seconds, arguments.seconds // 4)
    if arguments.runs is not None:
        faults = {
            broker: {fault: min(times, arguments.runs) for fault, times in made.items()}
            for broker, made in faults.items()
        }
    return Plan(timing, arguments.runs or plan.runs, parts, faults)


def describe(plan: Plan, brokers: list[Broker]) -> dict[str, str]:
    """Where, when and how, for the report."""
    call = "make bench" if plan == FULL else f"bench/side_by_side.py {' '.join(sys.argv[1:])}".strip()
    quick = "A quick run: fewer rows, and too few and too short runs to rely on. " if plan.runs < FULL.runs else ""
    lines = [line for broker in brokers for line in broker.commands()]
    for name in (*CLUSTER_LOADS, "single"):
        if name in plan.parts:
            lines += [
                shlex.join(command_line("../shared/bench", f"{scheme}://URIS", "PIDS", options))
                for options in stages(name, plan.timing).values() for scheme in PROGRAMS
            ]
    return {
        "command": call,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "commit": commit(),
        "machine": describe_machine(),
        "load_before": load_average(),
        "plan": quick + plan.describe(brokers),
        "commands": "\n".join(lines),
        MAYFLY: "not run",
        **dict.fromkeys(PEERS, "not run"),
        **{broker.name: broker.version() for broker in brokers},
    }


def finish(results: Results, write: bool) -> None:
    """Print the tables, write them if asked to; exit code 1 if something failed."""
    print("\n".join(["", *about(results), "", *aims_table(results), "", *lavinmq(results), *failures(results)]))
    if write:
        write_figures(PAGE, PROGRAM, page(results))
        write_figures(README, PROGRAM, excerpt(results))
        print(f"\nwritten to {PAGE.relative_to(ROOT)} and {README.relative_to(ROOT)}")
    if results.failures:
        sys.exit(1)


def commit() -> str:
    """Of the source tree, and whether there are changes besides."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


if __name__ == "__main__":
    main()
