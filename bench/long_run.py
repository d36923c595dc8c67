"""`make bench-long-run`: an hour at half speed; are memory, files and latency flat?

    python -P bench/long_run.py [--minutes 60] [--part 60] [--source] [--write FILE]

Three nodes, one queue (1 KB, confirmed, delivered, acknowledged): first the most that goes through, then half of that,
by due time, in runs of `--part` seconds. After each: latencies of the run, memory and descriptors of all nodes, octets
in their folders. All figures are kept in bench-results/long-run.json.
"""

import argparse
import contextlib
import datetime
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.clusters import BrokerFailed
from bench.load_generator import LoadGenerator
from bench.machine import describe_machine, load_average, only_benchmark
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly, MayflyCluster
from bench.open_loop import maximum_of

RAW: Final = ROOT / "bench-results" / "long-run.json"
_MEGABYTE: Final = 1 << 20
_WARMUP_S: Final = 5
_FLAT: Final = 1.2
"""The last quarter's median against the second's, at the most: in the first caches fill."""
_FLAT_FIGURES: Final = ("resident MB", "anonymous MB", "files MB", "descriptors", "p50 ms", "p99 ms", "CPU us")
Row = dict[str, float]


def measure(minutes: int, part_s: int, source: bool) -> tuple[float, list[Row]]:
    """The rate, and a row for each part. Raises BrokerFailed."""
    generator = LoadGenerator()
    rows: list[Row] = []
    with Mayfly(source).three_nodes() as cluster:
        rate = maximum_of(generator, cluster) / 2
        for number in range(max(1, minutes * 60 // part_s)):
            result = generator.run(cluster, [
                "--size", "1024", "--rate", f"{rate:.0f}", "--seconds", str(part_s), "--warmup", str(_WARMUP_S),
            ])  # fmt: skip
            latencies = result["latency_ms"]
            rows.append({
                "minute": (number + 1) * part_s / 60, **used(cluster),
                "p50 ms": float(latencies["p50"]), "p99 ms": float(latencies["p99"]),
                "p99.9 ms": float(latencies["p999"]), "longest ms": float(latencies["max"]),
                "CPU us": float(result["broker_cpu_per_100k"]) * 10,
                "cores used by others": float(result["other_cores"]),
            })  # fmt: skip
            RAW.parent.mkdir(exist_ok=True)
            RAW.write_text(json.dumps({"rate": rate, "rows": rows}, indent=1))
            print(f"  {rows[-1]}", flush=True)
    return rate, rows


def used(cluster: MayflyCluster) -> Row:
    """What the nodes have, together."""
    return {
        "resident MB": cluster.resident_bytes() / _MEGABYTE,
        "anonymous MB": cluster.memory_bytes() / _MEGABYTE,
        "files MB": sum(octets_in(cluster.data_folder(place)) for place in range(len(cluster.pids))) / _MEGABYTE,
        "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in cluster.pids),
    }


def octets_in(folder: Path) -> int:
    """What its files take on the disk."""
    octets = 0
    for path in folder.rglob("*"):
        # Nodes delete files meanwhile.
        with contextlib.suppress(FileNotFoundError):
            octets += path.stat().st_blocks * 512 if path.is_file() else 0
    return octets


def report(rate: float, rows: list[Row]) -> list[str]:
    """As Markdown: a tenth of the rows, and what changed from the second quarter to the last."""
    names = list(rows[0])
    shown = rows[:: max(1, len(rows) // 10)]
    lines = [f"{rate:,.0f} messages/s.", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    lines += [f"| {' | '.join(f'{row[name]:,.1f}' for name in names)} |" for row in shown]
    quarter = len(rows) // 4
    if not quarter:
        return lines
    lines += ["", "| the last quarter to the second, medians | ratio | flat |", "|---|---|---|"]
    for name in _FLAT_FIGURES:
        before = statistics.median([row[name] for row in rows[quarter : 2 * quarter]])
        ratio = statistics.median([row[name] for row in rows[-quarter:]]) / before
        lines.append(f"| {name} | {ratio:.2f}x | {'yes' if ratio <= _FLAT else '**no**'} |")
    return lines


def main() -> None:
    """Measure, print, write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--part", type=int, default=60, help="seconds of one run")
    parser.add_argument("--source", action="store_true", help="run this tree uncompiled, not the installed package")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the figures into this document")
    arguments = parser.parse_args()
    before = load_average()
    try:
        rate, rows = measure(arguments.minutes, arguments.part, arguments.source)
    except BrokerFailed as failure:
        sys.exit(str(failure))
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {describe_machine()}; load average {before} before, "
        f"{load_average()} after; {arguments.minutes} minutes; MayflyMQ {Mayfly(arguments.source).version()}.",
        "", *report(rate, rows),
    ]  # fmt: skip
    print("\n".join(lines))
    if arguments.write is not None:
        write_figures(arguments.write, "bench/long_run.py", lines)


if __name__ == "__main__":
    with only_benchmark():
        main()
