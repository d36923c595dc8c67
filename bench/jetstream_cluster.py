"""Nodes of NATS JetStream for benchmarks, by the script in ../shared/bench: streams with work queue retention on three
nodes, in files.

Their clients are those of `natsload`; faults are made by clients of AMQP, so none are made here.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.clusters import NODES, SHARED, Broker, BrokerFailed, Cluster
from bench.newer_peers import package_version

BASE_PORT: Final = int(os.environ.get("NATS_PORT", "6300"))
_SCRIPT_S: Final = 120


class Jetstream(Broker):
    """nats-server of a root folder. `sync`: "always", before an answer; "default", every two minutes."""

    def __init__(self, name: str, root: Path, sync: str) -> None:
        self.name: str = name
        self._root = root
        self._sync = sync

    def version(self) -> str:
        """Version of the package."""
        return package_version(self._root, "nats-server")

    def commands(self) -> list[str]:
        """How the nodes are started."""
        start = f"NATS_BASE=FOLDER NATS_PORT={BASE_PORT} ../shared/bench/nats-cluster"
        return [f"{start} --sync {self._sync} start", f"{start} --nodes 1 --sync {self._sync} start"]

    @contextmanager
    def three_nodes(self) -> Iterator[Cluster]:
        """A cluster of three."""
        with self._started(NODES) as cluster:
            yield cluster

    @contextmanager
    def single_node(self) -> Iterator[Cluster]:
        """A cluster of one."""
        with self._started(1) as cluster:
            yield cluster

    @contextmanager
    def _started(self, nodes: int) -> Iterator[Cluster]:
        with tempfile.TemporaryDirectory(prefix="nats-bench-", ignore_cleanup_errors=True) as folder:
            environment = {
                **os.environ, "NATS_BASE": f"{folder}/nodes", "NATS_PORT": str(BASE_PORT),
                "NATS_BIN": str(self._root / "usr/sbin/nats-server"),
            }  # fmt: skip

            def ask(*words: str) -> str:
                command = ["bash", str(SHARED / "nats-cluster"), *words]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SCRIPT_S)
                if done.returncode:
                    raise BrokerFailed(f"nats-cluster {' '.join(words)}: {done.stdout}{done.stderr}")
                return done.stdout.strip()

            try:
                uris = ask("--nodes", str(nodes), "--sync", self._sync, "start").splitlines()[-1].split(",")
                yield Cluster(self.name, uris, [int(pid) for pid in ask("pids").split(",")], [])
            finally:
                ask("kill")
