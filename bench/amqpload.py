"""The load generator in C of ../shared/bench: built, run under the machine's benchmark lock, its answer read."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from bench.clusters import ROOT, SHARED, BrokerFailed, Cluster
from bench.machine import machine_to_itself

_MAX_S: Final = 180
_COMMON: Final = ("--queue-type", "quorum", "--window", "1000", "--prefetch", "1000", "--strict")


class Amqpload:
    """The program, built in a folder that may be written."""

    def __init__(self) -> None:
        """Raises BrokerFailed if it can't be built."""
        if not SHARED.is_dir():
            raise BrokerFailed(f"no load generator: {SHARED} is missing (MAYFLY_SHARED says where it is)")
        tools = ROOT / "build" / "bench-tools"
        tools.mkdir(parents=True, exist_ok=True)
        for source in SHARED.iterdir():
            if source.is_file():
                shutil.copy(source, tools / source.name)
        done = subprocess.run(["make", "-s", "-C", str(tools)], capture_output=True, text=True)
        if done.returncode:
            needs = "Debian: apt-get install gcc make librabbitmq-dev"
            raise BrokerFailed(f"amqpload can't be built ({needs}):\n{done.stderr}")
        self.program: Path = tools / "amqpload"

    def run(self, cluster: Cluster, load: list[str]) -> dict[str, Any]:
        """One run. Raises BrokerFailed if messages were lost, came twice or out of order, or it did not get through."""
        command = command_line(str(self.program), ",".join(cluster.uris), ",".join(map(str, cluster.pids)), load)
        with machine_to_itself():
            done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _MAX_S)
        if done.returncode:
            raise BrokerFailed(f"{shlex.join(command)}\nended with {done.returncode}: {done.stdout}{done.stderr}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def command_line(program: str, uris: str, pids: str, load: list[str]) -> list[str]:
    """The words of a run. A window or prefetch in `load` has precedence."""
    return [program, "--uris", uris, "--cpu-pids", pids, "--max-time", str(_MAX_S), *_COMMON, *load]


def figures(result: dict[str, Any]) -> dict[str, float]:
    """What the table is made of."""
    return {
        "confirmed_s": float(result["confirmed_s"]),
        "consumed_s": float(result["consumed_s"]),
        "cpu_us": float(result["broker_cpu_per_100k"]) * 10,
        "latency_p50_ms": float(result["latency_ms"]["p50"]),
        "latency_p99_ms": float(result["latency_ms"]["p99"]),
        "confirm_p50_ms": float(result["confirm_ms"]["p50"]),
        "confirm_p99_ms": float(result["confirm_ms"]["p99"]),
        "other_cores": float(result["other_cores"]),
    }

