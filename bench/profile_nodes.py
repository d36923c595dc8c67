"""Where the time goes: CPU microseconds for a message by stage, over three nodes, sampled while they work.

    python bench/profile_nodes.py [--seconds 10] [--write docs/measurements/performance.md] [--source] [--raw FOLDER]

Each load of `LOADS` runs on fresh nodes. A stage's share of the samples (`bench.stages`) times the CPU of a message is
its budget. Beside it stands what this machine takes for the unavoidable part of it (`bench.machine_limits`).

Compiled nodes are sampled by perf, where they use a CPU (Debian: linux-perf; as root); the source tree by py-spy (`pip
install py-spy`), which takes a thread that waits in C for one that works now and then.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.clusters import BrokerFailed
from bench.compiled_stacks import record
from bench.load_generator import LoadGenerator
from bench.machine import describe_machine, load_average, only_benchmark
from bench.machine_limits import Limit, measure_limits
from bench.marked_page import write_figures
from bench.mayfly_cluster import Mayfly, MayflyCluster
from bench.stages import (
    ACKNOWLEDGE,
    APPLY,
    CONFIRM,
    DELIVER,
    LOG,
    PARSE,
    READ,
    REPLICATE,
    ROUTE,
    STAGES,
    WRITE,
    count_stages,
    hottest,
)

PROGRAM: Final = "bench/profile_nodes.py"
LOADS: Final = {
    "1 queue, 1 KB, full speed": ["--size", "1024"],
    "1 queue, 1 KB, 1 000/s": ["--size", "1024", "--rate", "1000"],
}
_WARM_UP_S: Final = 3
_UNDER_WAY_ENTRIES: Final = 300
"""So many entries of the log, over all groups and nodes, show that the load has begun."""
_SAMPLES_PER_S: Final = 199
_HOT: Final = 12

# The limits that bound a stage, and how often a message meets them on three nodes.
_BOUNDS: Final = {
    READ: [("send and receive of 1 KB", 2.0)],
    PARSE: [("copy of 1 KB", 1.0)],
    ROUTE: [],
    REPLICATE: [("send and receive of 1 KB", 1.5)],
    LOG: [("CRC-32 of 1 KB", 3.0), ("put and commit of 1 KB in LMDB", 3.0)],
    APPLY: [],
    CONFIRM: [],
    DELIVER: [],
    ACKNOWLEDGE: [],
    WRITE: [("send and receive of 1 KB", 0.5)],
}


class Profile:
    """One load: CPU of a message, samples by stage, what was seen most often."""

    def __init__(self, result: dict[str, Any], lines: list[str]) -> None:
        self.cpu_us = float(result["broker_cpu_per_100k"]) * 10
        self.rate_s = float(result["confirmed_s"])
        self.counts: Counter[str] = count_stages(lines)
        self.hot = hottest(lines, _HOT)

    def budget_us(self, stage: str) -> float:
        """A stage's part of the CPU of a message."""
        return self.cpu_us * self.counts[stage] / max(1, self.counts.total())


def profile(cluster: MayflyCluster, load: list[str], seconds: int, compiled: bool, folder: Path) -> Profile:
    """Run a load and sample the nodes meanwhile."""
    results: list[dict[str, Any]] = []
    words = [*load, "--seconds", str(seconds + 4 * _WARM_UP_S), "--delete-start", "--delete-end"]
    running = threading.Thread(target=lambda: results.append(LoadGenerator().run(cluster, words)))
    before = sum(cluster.metric("mayfly_raft_commit_index"))
    running.start()
    # It may have to wait for another benchmark to end.
    while running.is_alive() and sum(cluster.metric("mayfly_raft_commit_index")) < before + _UNDER_WAY_ENTRIES:
        time.sleep(0.1)
    time.sleep(_WARM_UP_S)
    if compiled:
        lines = record(cluster.pids, seconds, _SAMPLES_PER_S, folder / "perf.data")
    else:
        lines = _spy(cluster.pids, seconds, folder)
    running.join()
    if not results:
        raise BrokerFailed("amqpload failed, see above")
    return Profile(results[0], lines)


def _spy(pids: list[int], seconds: int, folder: Path) -> list[str]:
    """Stacks of interpreted frames of these processes."""
    files = [folder / f"node{place + 1}.txt" for place in range(len(pids))]
    try:
        samplers = [
            subprocess.Popen(
                ["py-spy", "record", "--pid", str(pid), "--format", "raw", "--output", str(file), "--nonblocking",
                 "--rate", str(_SAMPLES_PER_S), "--duration", str(seconds), "--threads"],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for pid, file in zip(pids, files, strict=True)
        ]  # fmt: skip
    except FileNotFoundError as error:
        raise BrokerFailed("py-spy is not there: pip install py-spy") from error
    for sampler in samplers:
        _, errors = sampler.communicate()
        if sampler.returncode:
            raise BrokerFailed(f"py-spy: {errors.strip()}")
    return [line for file in files for line in file.read_text().splitlines()]


def report(profiles: dict[str, Profile], limits: dict[str, Limit], version: str) -> list[str]:
    """The figures as lines of Markdown."""
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {version}; {describe_machine()}; load average {load_average()}.", "",
        "| stage | " + " | ".join(f"{name}: us, share" for name in profiles) + " | limit of this machine |",
        "|---|" + "---|" * (len(profiles) + 1),
    ]
    for stage in STAGES:
        budgets = [(each.budget_us(stage), each.cpu_us) for each in profiles.values()]
        cells = [f"{budget_us:.2f}, {budget_us / cpu_us:.0%}" for budget_us, cpu_us in budgets]
        bounds = [f"{times:g} x {limits[name]}" for name, times in _BOUNDS.get(stage, [])]
        lines.append(f"| {stage} | " + " | ".join(cells) + f" | {'; '.join(bounds)} |")
    totals = [f"{p.cpu_us:.1f} at {p.rate_s:.0f}/s, {p.counts.total()} samples" for p in profiles.values()]
    floor_us = sum(limits[name].cpu_us * times for bounds in _BOUNDS.values() for name, times in bounds)
    lines += [f"| all | {' | '.join(totals)} | {floor_us:.1f} us |", ""]
    lines.append("Limits: " + "; ".join(str(limit) for limit in limits.values()) + ".")
    for name, one in profiles.items():
        lines += ["", f"Seen most often at {name}:", ""]
        lines += ["| stage | innermost frame of the project | us |", "|---|---|---|"]
        for stage, frame, count in one.hot:
            lines.append(f"| {stage} | `{frame}` | {one.cpu_us * count / max(1, one.counts.total()):.1f} |")
    return lines


def main() -> None:
    """Measure, print, and with --write put the figures into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="of sampling for each load")
    parser.add_argument("--write", type=Path, help="a page with marks for these figures")
    parser.add_argument("--source", action="store_true", help="this tree, uncompiled")
    parser.add_argument("--raw", type=Path, help="keep the sampler's files in this folder")
    arguments = parser.parse_args()
    mayfly = Mayfly(arguments.source)
    compiled = not arguments.source and "compiled" in mayfly.version()
    profiles: dict[str, Profile] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="mayfly-profile-") as name:
            for number, (load_name, load) in enumerate(LOADS.items()):
                folder = (arguments.raw or Path(name)) / f"load{number + 1}"
                folder.mkdir(parents=True, exist_ok=True)
                with mayfly.three_nodes() as cluster:
                    profiles[load_name] = profile(cluster, load, arguments.seconds, compiled, folder)
            lines = report(profiles, measure_limits(Path(name)), mayfly.version())
        print("\n".join(lines))
        if arguments.write is not None:
            write_figures(arguments.write, PROGRAM, lines)
    except (BrokerFailed, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    with only_benchmark():
        main()
