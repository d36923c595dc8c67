"""Three MayflyMQ nodes and three RabbitMQ nodes, one after the other, on this machine, under the same load.

    python bench/side_by_side.py [--seconds 8] [--runs 3] [--only a1k,b1k] [--skip-rabbitmq]

The load generator `amqpload` and the scripts that start RabbitMQ live in ../shared/bench; they are built in a folder of
their own. What counts are the ratios of one run of this program: machines are shared, and single figures drift.

Columns: confirmed messages per second, consumed messages per second, broker CPU per message summed over the three
nodes, end-to-end latency p50 and p99. A further row measures latency at a rate that saturates neither broker.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("MAYFLY_SHARED", ROOT.parent / "shared")) / "bench"
BASE_PORT = 6772
START_SECONDS = 60

LOADS = {
    "a1k: 1 queue, 1 KB": ["--size", "1024"],
    "b1k: 4 queues, 1 KB": ["--size", "1024", "--producers", "4", "--consumers", "4", "--queues", "4"],
    "a1k at 1000/s": ["--size", "1024", "--rate", "1000"],
}


class Cluster:
    """Three nodes of a broker: where to connect, whose CPU to count."""

    def __init__(self, name: str, uris: str, pids: str) -> None:
        self.name, self.uris, self.pids = name, uris, pids


def build_tools() -> Path:
    """amqpload and the scripts, in a folder that may be written."""
    if not SHARED.is_dir():
        sys.exit(f"no load generator: {SHARED} is missing (MAYFLY_SHARED says where it is)")
    tools = ROOT / "build" / "bench-tools"
    tools.mkdir(parents=True, exist_ok=True)
    for source in SHARED.iterdir():
        shutil.copy(source, tools / source.name)
        (tools / source.name).chmod(0o755)
    done = subprocess.run(["make", "-s", "-C", str(tools)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"amqpload can't be built (Debian: apt-get install gcc make librabbitmq-dev):\n{done.stderr}")
    return tools


def run_load(tools: Path, cluster: Cluster, load: list[str], seconds: int) -> dict[str, Any]:
    """One run of amqpload; ends the program if it fails."""
    command = [
        str(tools / "amqpload"), "--uris", cluster.uris, "--cpu-pids", cluster.pids, "--queue-type", "quorum",
        "--label", cluster.name, "--seconds", str(seconds), "--warmup", "2", "--window", "1000", "--prefetch", "1000",
        "--delete-start", "--delete-end", "--strict", *load,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 10 + 60)
    if done.returncode:
        sys.exit(f"{cluster.name}: amqpload ended with {done.returncode}\n{done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(tools: Path, cluster: Cluster, names: list[str], seconds: int, runs: int) -> dict[str, dict[str, float]]:
    """Medians of several runs of every load."""
    medians = {}
    for name in names:
        results = [run_load(tools, cluster, LOADS[name], seconds) for _ in range(runs)]
        medians[name] = {
            "confirmed": statistics.median(r["confirmed_s"] for r in results),
            "consumed": statistics.median(r["consumed_s"] for r in results),
            "cpu_us": statistics.median(r["broker_cpu_per_100k"] * 10 for r in results),
            "p50": statistics.median(r["latency_ms"]["p50"] for r in results),
            "p99": statistics.median(r["latency_ms"]["p99"] for r in results),
            "memory": statistics.median(r["broker_rss_mb"] for r in results),
        }
        print(f"  {cluster.name} {name}: " + ", ".join(f"{k} {v:.1f}" for k, v in medians[name].items()), flush=True)
    return medians


def measure_mayfly(tools: Path, names: list[str], seconds: int, runs: int) -> dict[str, dict[str, float]]:
    """Three nodes by `mayfly up`, with their data under the system's temporary folder."""
    with tempfile.TemporaryDirectory(prefix="mayfly-bench-") as data:
        up = ["up", "--nodes", "3", "--base-port", str(BASE_PORT), "--data-dir", data]
        command = [sys.executable, "-P", "-m", "node", *up]
        log = (Path(data) / "up.log").open("w")
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for_leaders(Path(data) / "up.log")
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            uris = ",".join(f"amqp://guest:guest@127.0.0.1:{BASE_PORT + node}/%2f" for node in range(3))
            return measure(tools, Cluster("mayfly", uris, ",".join(children)), names, seconds, runs)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            log.close()


def wait_for_leaders(log: Path) -> None:
    """Until every node is ready and the leaders had time to spread."""
    deadline = time.monotonic() + START_SECONDS
    waiting = {BASE_PORT + 10_000 + node for node in range(3)}
    while waiting:
        if time.monotonic() > deadline:
            sys.exit(f"nodes did not become ready:\n{log.read_text()}")
        for port in list(waiting):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=1):
                    waiting.discard(port)
            except OSError:
                time.sleep(0.1)


def measure_rabbitmq(tools: Path, names: list[str], seconds: int, runs: int) -> dict[str, dict[str, float]]:
    """Three RabbitMQ nodes of the packaged server."""
    script = str(tools / "rabbitmq-cluster")
    with tempfile.TemporaryDirectory(prefix="rabbitmq-bench-") as data:
        environment = {**os.environ, "RMQ_BASE": data}

        def ask(what: str) -> str:
            done = subprocess.run([script, what], env=environment, capture_output=True, text=True, timeout=180)
            return done.stdout.strip()

        try:
            uris = ask("start")
            return measure(tools, Cluster("rabbitmq", uris.splitlines()[-1], ask("pids")), names, seconds, runs)
        finally:
            ask("stop")


def main() -> None:
    """Measure, and print both with ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip-rabbitmq", action="store_true")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    names = [name for name in LOADS if not arguments.only or name.partition(":")[0] in wanted]
    tools = build_tools()
    ours = measure_mayfly(tools, names, arguments.seconds, arguments.runs)
    theirs: dict[str, dict[str, float]] = {}
    if arguments.skip_rabbitmq or not Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists():
        print("RabbitMQ is not installed (Debian: apt-get install rabbitmq-server): MayflyMQ alone")
    else:
        theirs = measure_rabbitmq(tools, names, arguments.seconds, arguments.runs)
    print("\n| load | broker | confirmed/s | consumed/s | broker CPU us/message | latency p50 / p99 ms | memory MB |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        for broker, rows in (("MayflyMQ", ours), ("RabbitMQ", theirs)):
            if name in rows:
                row = rows[name]
                print(
                    f"| {name} | {broker} | {row['confirmed']:.0f} | {row['consumed']:.0f} | {row['cpu_us']:.0f} "
                    f"| {row['p50']:.1f} / {row['p99']:.1f} | {row['memory']:.0f} |"
                )
        if name in theirs:
            a, b = ours[name], theirs[name]
            print(
                f"| {name} | ratio | {a['confirmed'] / b['confirmed']:.1f}x | {a['consumed'] / b['consumed']:.1f}x "
                f"| {a['cpu_us'] / b['cpu_us']:.2f}x | {a['p50'] / b['p50']:.2f}x / {a['p99'] / b['p99']:.2f}x "
                f"| {a['memory'] / b['memory']:.2f}x |"
            )


if __name__ == "__main__":
    main()
