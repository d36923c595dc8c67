"""Clusters for `bench/growth.py`: any number of nodes and shards, and what is used while something is measured."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.clusters import ROOT, START_S, BrokerFailed, Cluster, answers, running, until_spread, wait_until
from bench.load_generator import LoadGenerator

BASE_PORT: Final = int(os.environ.get("BASE_PORT", "9500"))
_HTTP_OFFSET: Final = 10_000
_READY: Final = "/health/ready"
_IDLE_S: Final = 5.0
"""The system counts CPU in hundredths of a second; an idle node uses one or two of them each second."""


class Measuring:
    """Nodes of MayflyMQ as started by `mayfly up`, from the installed package or (`source`) this tree, uncompiled."""

    def __init__(self, source: bool) -> None:
        self.source = source

    @contextmanager
    def nodes(self, count: int = 3, **settings: int) -> Iterator[Cluster]:
        """So many nodes with these settings; a leader for every shard, spread over the nodes."""
        with tempfile.TemporaryDirectory(prefix="mayfly-growth-") as data:
            environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            environment |= {f"MAYFLY_{name.upper()}": str(value) for name, value in settings.items()}
            if self.source:
                environment["PYTHONPATH"] = str(ROOT)
            up = ["-m", "mayfly", "up", "--nodes", str(count), "--base-port", str(BASE_PORT), "--data-dir", data]
            log = Path(data) / "up.log"
            ports = range(BASE_PORT, BASE_PORT + count)
            http = [port + _HTTP_OFFSET for port in ports]
            words = [sys.executable, *([] if self.source else ["-P"]), *up]
            with running(words, log, environment, 2 * START_S) as process:

                def serve() -> bool:
                    # It ends at once if something else has its ports, and whatever that is might answer.
                    if process.poll() is not None:
                        raise BrokerFailed(f"MayflyMQ has ended:\n{log.read_text()}")
                    return log.read_text().count(" serves: ") == count and all(answers(port, _READY) for port in http)

                wait_until(serve, f"{count} nodes serve", START_S)
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                uris = [f"amqp://guest:guest@127.0.0.1:{port}/%2f" for port in ports]
                until_spread(http)
                yield Cluster("MayflyMQ", uris, [int(pid) for pid in children], http)


class Idle:
    """What a cluster uses when nothing is asked of it."""

    def __init__(self, cluster: Cluster) -> None:
        began, before = time.monotonic(), cluster.cpu_s()
        time.sleep(_IDLE_S)
        self.cores = (cluster.cpu_s() - before) / (time.monotonic() - began)


class Used:
    """CPU of all nodes (less what they use when idle) and time, from entering to leaving."""

    def __init__(self, cluster: Cluster, idle: Idle) -> None:
        self._cluster, self._idle = cluster, idle
        self.cpu_s = self.seconds = 0.0

    def __enter__(self) -> "Used":
        self._before, self._began = self._cluster.cpu_s(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self.cpu_s = max(0.0, self._cluster.cpu_s() - self._before - self._idle.cores * self.seconds)

    def each(self, count: int) -> dict[str, float]:
        """CPU for each of so many, and their rate."""
        return {"cpu_us": self.cpu_s / count * 1e6, "rate": count / self.seconds}


class Load:
    """The load generator in C."""

    def __init__(self) -> None:
        """Raises BrokerFailed if it can't be built."""
        self._amqpload = LoadGenerator()

    def run(self, cluster: Cluster, **options: Any) -> dict[str, Any]:
        """One run with these options, on quorum queues, publishers and consumers on different nodes; its result. Raises
        BrokerFailed."""
        load = ["--cons-offset", "1"]
        for name, value in options.items():
            load += ["--" + name.replace("_", "-"), *([] if value is True else [str(value)])]
        return self._amqpload.run(cluster, load)

    def cost(self, cluster: Cluster, idle: Idle, **options: Any) -> dict[str, float]:
        """CPU for each message, less what idle nodes use, and the rate of one run."""
        result = self.run(cluster, **options)
        cpu_s = max(0.0, result["broker_cpu_s"] - idle.cores * result["elapsed_s"])
        return {"cpu_us": cpu_s / result["consumed"] * 1e6, "rate": result["consumed_s"]}
