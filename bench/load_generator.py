"""The load generators in C of ../shared/bench, one for AMQP and one for JetStream, with the same options and answers:
built, run under the machine's benchmark lock, their answer read.
"""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from bench.clusters import ROOT, SHARED, BrokerFailed, Cluster
from bench.machine import machine_to_itself

_MAX_S: Final = 180
_COMMON: Final = ("--window", "1000", "--prefetch", "1000", "--strict")
_FORMAT: Final = (r'\"p50\":%.3f,', r'\"p50\":%.3f,\"p90\":%.3f,\"p9999\":%.3f,')
_FIGURES: Final = ("h_q(h, .5) / 1e3,", "h_q(h, .5) / 1e3, h_q(h, .9) / 1e3, h_q(h, .9999) / 1e3,")
"""Percentiles that the generators know and do not print, put into the copies."""
_OWN: Final = {"amqp": ("--queue-type", "quorum"), "nats": ()}
"""By the scheme of the broker's URIs, as PROGRAMS. A stream of JetStream has three replicas where there are three."""
PROGRAMS: Final = {"amqp": "amqpload", "nats": "natsload"}


class LoadGenerator:
    """The programs, built in a folder that may be written."""

    def __init__(self) -> None:
        """Raises BrokerFailed if they can't be built."""
        if not SHARED.is_dir():
            raise BrokerFailed(f"no load generator: {SHARED} is missing (MAYFLY_SHARED says where it is)")
        self.folder: Path = ROOT / "build" / "bench-tools"
        self.folder.mkdir(parents=True, exist_ok=True)
        for source in SHARED.iterdir():
            if source.suffix == ".c":
                (self.folder / source.name).write_text(with_more_percentiles(source.read_text()))
            elif source.is_file():
                shutil.copy(source, self.folder / source.name)
        done = subprocess.run(["make", "-s", "-C", str(self.folder)], capture_output=True, text=True)
        if done.returncode:
            needs = "Debian: apt-get install gcc make librabbitmq-dev"
            raise BrokerFailed(f"the load generators can't be built ({needs}):\n{done.stderr}")

    def run(self, cluster: Cluster, load: list[str]) -> dict[str, Any]:
        """One run. Raises BrokerFailed if messages were lost, came twice or out of order, or it did not get through."""
        command = command_line(str(self.folder), ",".join(cluster.uris), ",".join(map(str, cluster.pids)), load)
        with machine_to_itself():
            done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _MAX_S)
        if done.returncode:
            raise BrokerFailed(f"{shlex.join(command)}\nended with {done.returncode}: {done.stdout}{done.stderr}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def with_more_percentiles(source: str) -> str:
    """A generator's source that prints p90 and p9999. Raises BrokerFailed where the places are not as they were."""
    for old, new in (_FORMAT, _FIGURES):
        if source.count(old) != 1:
            raise BrokerFailed(f"the load generator's source has {old!r} {source.count(old)} times, once expected")
        source = source.replace(old, new)
    return source


def command_line(folder: str, uris: str, pids: str, load: list[str]) -> list[str]:
    """The words of a run. A window or prefetch in `load` has precedence."""
    scheme = uris.partition(":")[0]
    program = str(Path(folder) / PROGRAMS[scheme])
    return [
        program, "--uris", uris, "--cpu-pids", pids, "--max-time", str(_MAX_S), *_OWN[scheme], *_COMMON, *load
    ]  # fmt: skip


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
