"""`make bench-latency`: latency under load, open loop: messages are stamped when they were due, so that stalls show.

    python -P bench/open_loop.py [--seconds 300] [--shares 10,25,50,75,90] [--alone] [--source] [--write FILE]

Each broker of `make bench`, three nodes with one queue: first its maximum (1 KB, confirm window 1000; what was
confirmed and consumed, the median of three runs), then so many percent of its own maximum, each for so long.
Percentiles are end to end, from the moment at which a message was due to be published to its arrival at the consumer.
A share that fails costs no other. All figures are kept in bench-results/open-loop.json.
"""

import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.clusters import Broker, BrokerFailed, Cluster
from bench.comparison import MAYFLY
from bench.load_generator import LoadGenerator
from bench.machine import describe_machine, load_average, only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly
from bench.side_by_side import peers

_SHAPE: Final = ("--size", "1024", "--delete-start", "--delete-end")
RAW: Final = ROOT / "bench-results" / "open-loop.json"
_MAXIMUM_S: Final = 20
_MAXIMUM_RUNS: Final = 3
_PERCENTILES: Final = ("p50", "p90", "p99", "p999", "p9999", "max")
_LONGEST_S: Final = 120
"""A run of the load generator ends by itself at 180 s, and needs some of them for what waits at its end; longer ones
are several, and the worst of each figure counts."""
_HALF: Final = 50
_P999_AT_HALF_MS: Final = 15


def timed(seconds: int) -> list[str]:
    """The words for a run of so long, of which the first tenth does not count."""
    return ["--seconds", str(seconds), "--warmup", str(max(1, seconds // 10))]


def measure(
    generator: LoadGenerator, broker: Broker, shares: list[int], seconds: int, failures: list[str]
) -> list[dict[str, float]]:
    """A row for each share of the broker's maximum; a share that fails is told in ``failures``. Raises BrokerFailed
    where there is no maximum."""
    rows: list[dict[str, float]] = []
    maximum = 0.0
    for share in shares:
        # Each share on nodes of its own: what one leaves behind is no part of the next.
        with broker.three_nodes() as cluster:
            maximum = maximum or maximum_of(generator, cluster)
            rate = maximum * share / 100
            try:
                results = [
                    generator.run(cluster, [*_SHAPE, *timed(part), "--rate", f"{rate:.0f}"]) for part in parts(seconds)
                ]
            except BrokerFailed as failure:
                failures.append(f"{broker.name} at {share} %, {rate:.0f} msg/s: {failure}")
                continue
        rows.append({"share": share, "rate": rate, **worst(results)})
        print(f"  {broker.name} {share} %: {rows[-1]}", flush=True)
    return rows


def maximum_of(generator: LoadGenerator, cluster: Cluster) -> float:
    """What is both confirmed and consumed in a second: at a higher rate a queue would grow."""
    runs = [generator.run(cluster, [*_SHAPE, *timed(_MAXIMUM_S)]) for _ in range(_MAXIMUM_RUNS)]
    return statistics.median([min(float(run["confirmed_s"]), float(run["consumed_s"])) for run in runs])


def parts(seconds: int) -> list[int]:
    """Runs that are together so long, of equal length but for the last."""
    return [min(_LONGEST_S, seconds - done) for done in range(0, seconds, _LONGEST_S)]


def verdict(measured: dict[str, list[dict[str, float]]]) -> str:
    """Whether the tail at half of the maximum is as short as aimed for; empty if it was not measured."""
    tails = {broker: row["p999"] for broker, rows in measured.items() for row in rows if row["share"] == _HALF}
    ours = tails.pop(MAYFLY, None)
    if ours is None:
        return ""
    longer = [broker for broker, tail in tails.items() if ours >= tail]
    met = "met" if ours <= _P999_AT_HALF_MS and not longer else "not met"
    return (
        f"Aim: p99.9 at {_HALF} % at most {_P999_AT_HALF_MS} ms, and below that of each peer: {met} "
        f"({', '.join([f'{ours:.1f} ms', *[f'{broker} {tail:.1f} ms' for broker, tail in tails.items()]])})."
    )


def worst(results: list[dict[str, Any]]) -> dict[str, float]:
    """Of several runs at one rate: the highest of each figure."""
    figures = {name: max(float(each["latency_ms"][name]) for each in results) for name in _PERCENTILES}
    figures["cpu_us"] = max(float(each["broker_cpu_per_100k"]) * 10 for each in results)
    figures["other_cores"] = max(float(each["other_cores"]) for each in results)
    return figures


def table(measured: dict[str, list[dict[str, float]]]) -> list[str]:
    """As Markdown."""
    lines = [
        "| broker | of its maximum | msg/s | p50 ms | p90 | p99 | p99.9 | p99.99 | longest | CPU of a message, us "
        "| cores used by others |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for broker, rows in measured.items():
        for row in rows:
            shown = " | ".join(f"{row[name]:.1f}" for name in _PERCENTILES)
            rate = f"{row['rate']:,.0f}".replace(",", " ")
            lines.append(
                f"| {broker} | {row['share']:.0f} % | {rate} | {shown} | {row['cpu_us']:.0f} "
                f"| {row['other_cores']:.2f} |"
            )
    return lines


def main() -> None:
    """Measure all, print, write where asked to; exit code 1 if a broker failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300, help="at each rate")
    parser.add_argument("--shares", default="10,25,50,75,90", help="of the maximum, in percent")
    parser.add_argument("--alone", action="store_true", help="MayflyMQ without its peers")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the figures into this document")
    arguments = parser.parse_args()
    shares = [int(share) for share in arguments.shares.split(",")]
    brokers: list[Broker] = [Mayfly(arguments.source), *([] if arguments.alone else peers())]
    measured: dict[str, list[dict[str, float]]] = {}
    failures: list[str] = []
    before = load_average()
    generator = LoadGenerator()
    for broker in brokers:
        try:
            measured[broker.name] = measure(generator, broker, shares, arguments.seconds, failures)
        except BrokerFailed as failure:
            failures.append(f"{broker.name}: {failure}")
    versions = ", ".join(f"{broker.name} {broker.version()}" for broker in brokers)
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {describe_machine()}; load average {before} before, "
        f"{load_average()} after; {arguments.seconds} s at each rate. {versions}.",
        "", *table(measured), "", verdict(measured), *(["", "Failed:", "", *failures] if failures else []),
    ]  # fmt: skip
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps({"about": lines[0], "measured": measured, "failures": failures}, indent=1))
    print("\n".join(lines))
    if arguments.write is not None:
        write_figures(arguments.write, "bench/open_loop.py", lines)
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    with only_benchmark():
        main()
