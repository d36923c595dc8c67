"""A queue that is longer than memory: published whole, then consumed whole and in order; what the nodes' memory was.

    python bench/long_queue.py [--messages 5000000] [--size 1024] [--limit-mib 512] [--source]

Three nodes with `memory_limit_bytes`, one quorum queue, `amqpload --strict`: a message that is lost, comes twice or out
of order is a failure, and so is a node whose memory, or an alarm, went above the limit. The data are in a temporary
folder (TMPDIR), about 1.3 times the messages on each node, and are gone afterwards.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from bench.clusters import BrokerFailed, Cluster, page
from bench.growth_cluster import Measuring
from bench.load_generator import PROGRAMS, LoadGenerator
from bench.machine import anonymous_bytes, describe_machine, load_average, only_benchmark, resident_bytes

_MIB: Final = 1024 * 1024
_MAX_S: Final = 7200
_LOOK_S: Final = 0.5
_ON_DISK: Final = 1.6
"""Bytes on the disk of a node for each byte of a message, at the most."""


class Memory:
    """The most that nodes use while this is entered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.anonymous_mib = self.resident_mib = self.now_mib = 0
        self.alarms = 0

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.now_mib = _most(anonymous_bytes, self._cluster)
            self.anonymous_mib = max(self.anonymous_mib, self.now_mib)
            self.resident_mib = max(self.resident_mib, _most(resident_bytes, self._cluster))
            self.alarms += sum("\nmayfly_memory_alarm 1" in page(port, "/metrics") for port in self._cluster.http)


def _most(bytes_of: Callable[[int], int], cluster: Cluster) -> int:
    return max(bytes_of(pid) for pid in cluster.pids) // _MIB


def run(program: str, cluster: Cluster, *options: str) -> dict[str, Any]:
    """One run of amqpload. Raises BrokerFailed."""
    common = ["--queue-type", "quorum", "--strict", "--pattern", "long-%d", "--max-time", str(_MAX_S)]
    command = [program, "--uris", ",".join(cluster.uris), "--cons-offset", "1", *common, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BrokerFailed(f"{' '.join(command)}\nended with {done.returncode}: {done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(messages: int, size: int, limit_bytes: int, source: bool) -> bool:
    """Publish, look, consume; whether the nodes stayed below the limit."""
    needed = int(3 * messages * (size + 200) * _ON_DISK)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if needed > free:
        raise BrokerFailed(f"{needed / 1e9:.0f} GB are needed in {tempfile.gettempdir()}, {free / 1e9:.0f} are free")
    program = str(LoadGenerator().folder / PROGRAMS["amqp"])
    settings = {"memory_limit_bytes": limit_bytes} if limit_bytes else {}
    within = True
    with Measuring(source).nodes(**settings) as cluster:
        shape = ["--count", str(messages), "--size", str(size)]
        phases = {
            "published": ["--publish-only", "--window", "2000", *shape],
            "consumed": ["--consume-only", "--no-declare", "--prefetch", "1000", "--idle", "60", *shape],
        }
        print(f"start: at most {_most(anonymous_bytes, cluster)} MiB anonymous of a node", flush=True)
        for phase, options in phases.items():
            began = time.monotonic()
            with Memory(cluster) as memory:
                result = run(program, cluster, *options)
            took_s = time.monotonic() - began
            print(
                f"{phase} {messages:,} of {size} bytes in {took_s:.0f} s ({messages / took_s:,.0f}/s): at most "
                f"{memory.anonymous_mib} MiB anonymous, {memory.resident_mib} MiB resident of a node; "
                f"at its end {memory.now_mib} MiB; looks that saw an alarm: {memory.alarms}",
                flush=True,
            )
            count = result["confirmed"] if phase == "published" else result["consumed"]
            if count != messages:
                raise BrokerFailed(f"{count} {phase}, {messages} expected: {result}")
            within = within and not memory.alarms and (not limit_bytes or memory.anonymous_mib * _MIB <= limit_bytes)
    return within


def main() -> None:
    """Measure, say what was, exit with 1 if a node was above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--limit-mib", type=int, default=512, help="memory_limit_bytes of each node; 0: not set")
    parser.add_argument("--source", action="store_true", help="nodes of this tree, uncompiled")
    arguments = parser.parse_args()
    print(f"{describe_machine()}, load average {load_average()}", flush=True)
    try:
        within = measure(arguments.messages, arguments.size, arguments.limit_mib * _MIB, arguments.source)
    except BrokerFailed as failure:
        sys.exit(str(failure))
    if not within:
        sys.exit(f"above the limit of {arguments.limit_mib} MiB")


if __name__ == "__main__":
    with only_benchmark():
        main()
