"""Three nodes of MayflyMQ, and of RabbitMQ, for `bench/expiry.py`: started, watched and ended."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SHARED: Final = Path(os.environ.get("MAYFLY_SHARED", ROOT.parent / "shared")) / "bench"
BASE_PORT: Final = int(os.environ.get("BASE_PORT", "6872"))
NODES: Final = 3
START_S: Final = 60
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Cluster:
    """A running broker: where clients connect, and what its processes use."""

    def __init__(self, name: str, uris: list[str], pids: list[int], http: list[int]) -> None:
        self.name, self.uris, self.pids, self.http = name, uris, pids, http

    def cpu_s(self) -> float:
        """CPU that the nodes have used, together."""
        return sum(_cpu_s(pid) for pid in self.pids)

    def memory_bytes(self) -> int:
        """Memory of the nodes, together, without files that are mapped: those pages are the system's to take back."""
        return sum(_anonymous_bytes(pid) for pid in self.pids)

    def metric(self, name: str) -> list[float]:
        """A metric of MayflyMQ, summed over its samples, for each node."""
        values = []
        for port in self.http:
            lines = page(port, "/metrics").splitlines()
            values.append(sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))))
        return values


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _anonymous_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return str(answer.read().decode())


@contextmanager
def mayfly(source: bool) -> Iterator[Cluster]:
    """Three nodes by `mayfly up`, from the installed package or (`source`) from this tree, uncompiled."""
    with tempfile.TemporaryDirectory(prefix="mayfly-bench-") as data:
        up = ["-m", "node", "up", "--nodes", str(NODES), "--base-port", str(BASE_PORT), "--data-dir", data]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)} if source else dict(os.environ)
        if not source:
            environment.pop("PYTHONPATH", None)
        log = Path(data) / "up.log"
        with log.open("w") as output:
            command = [sys.executable, *([] if source else ["-P"]), *up]
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT if source else data, env=environment
            )
            try:
                http = [BASE_PORT + 10_000 + node for node in range(NODES)]
                _wait_until_ready(http, log, process)
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                uris = [f"amqp://guest:guest@127.0.0.1:{BASE_PORT + node}/%2f" for node in range(NODES)]
                # Leaders spread over the nodes in the first seconds.
                time.sleep(4)
                yield Cluster("MayflyMQ", uris, [int(pid) for pid in children], http)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def _wait_until_ready(ports: list[int], log: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    waiting = set(ports)
    while waiting or log.read_text().count(" serves: ") < NODES:
        # It ends at once if something else has its ports, and whatever that is might answer.
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"nodes did not become ready:\n{log.read_text()}")
        for port in list(waiting):
            try:
                page(port, "/health/ready")
                waiting.discard(port)
            except (OSError, urllib.error.HTTPError):
                pass
        time.sleep(0.1)


@contextmanager
def rabbitmq() -> Iterator[Cluster]:
    """Three nodes of the packaged server."""
    with tempfile.TemporaryDirectory(prefix="rabbitmq-bench-") as data:
        # Not the port of `rabbitmq-cluster` when it is started by hand.
        environment = {**os.environ, "RMQ_BASE": data, "RMQ_PORT": os.environ.get("RMQ_PORT", "5781")}

        def ask(what: str) -> str:
            command = ["bash", str(SHARED / "rabbitmq-cluster"), what]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            if done.returncode:
                sys.exit(f"rabbitmq-cluster {what}: {done.stdout}{done.stderr}")
            return done.stdout.strip()

        try:
            uris = ask("start").splitlines()[-1].split(",")
            yield Cluster("RabbitMQ", uris, [int(pid) for pid in ask("pids").split(",")], [])
        finally:
            ask("stop")


def has_rabbitmq() -> bool:
    """Whether it can be started here."""
    return SHARED.is_dir() and Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists()
