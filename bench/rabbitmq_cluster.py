"""Nodes of RabbitMQ for benchmarks, today's or the packaged one, by the script in ../shared/bench."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.clusters import NODES, SHARED, Broker, BrokerFailed, Cluster, ReplicatedCluster, wait_until
from bench.newer_peers import package_version

# Not the port of `rabbitmq-cluster` when it is started by hand.
BASE_PORT: Final = int(os.environ.get("RMQ_PORT", "5781"))
_SINGLE_PORT: Final = BASE_PORT + 10
_SCRIPT_S: Final = 300
_WELL_S: Final = 120
_CALM_S: Final = 3


class Script:
    """`rabbitmq-cluster`, with a folder for its data."""

    def __init__(self, port: int, folder: str, root: Path | None) -> None:
        self._environment = {**os.environ, "RMQ_BASE": folder, "RMQ_PORT": str(port)}
        if root is not None:
            self._environment["RMQ_ROOT"] = str(root)

    def ask(self, *words: str) -> str:
        """What it answers. Raises BrokerFailed with its words if it fails."""
        done = subprocess.run(
            ["bash", str(SHARED / "rabbitmq-cluster"), *words], env=self._environment, capture_output=True, text=True,
            timeout=_SCRIPT_S,
        )
        if done.returncode:
            raise BrokerFailed(f"rabbitmq-cluster {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def pids(self) -> list[int]:
        """Of the nodes that run, in their order."""
        return [int(pid) for pid in self.ask("pids").split(",")]


class RabbitmqCluster(ReplicatedCluster):
    """Nodes that `rabbitmq-cluster` started."""

    def __init__(self, uris: list[str], script: Script) -> None:
        super().__init__("RabbitMQ", uris, script.pids(), [])
        self._script = script

    def leader_of(self, queue: str) -> int:
        """The place of the queue's leader; the script calls nodes pb1@localhost and so on."""
        name = self._script.ask("leader", queue)
        try:
            return int(name.partition("@")[0].removeprefix("pb")) - 1
        except ValueError:
            raise BrokerFailed(f"leader of {queue}: {name!r}") from None

    def queues(self) -> int:
        """As the first node has it."""
        return int(self._script.ask("ctl", "1", "eval", "rabbit_amqqueue:count()."))

    def start_again(self, place: int) -> None:
        """By the script."""
        self._script.ask("start-node", str(place + 1))
        self.pids = self._script.pids()

    def wait_until_well(self) -> None:
        """Until every node counts all of them."""

        def well() -> bool:
            counts = [
                self._script.ask("ctl", str(place + 1), "eval", "length(rabbit_nodes:all_running()).")
                for place in range(len(self.pids))
            ]
            return set(counts) == {str(NODES)}

        wait_until(well, "all nodes know each other", _WELL_S, every_s=0.5)
        time.sleep(_CALM_S)


class Rabbitmq(Broker):
    """Today's server in the root folder that `newer-peers` makes, or without one the server that Debian packages."""

    name = "RabbitMQ"

    def __init__(self, root: Path | None) -> None:
        self._root = root

    def installed(self) -> bool:
        """Whether it can be started here."""
        return self._root is not None or (SHARED.is_dir() and Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists())

    def version(self) -> str:
        """Version of the package."""
        return package_version(self._root, "rabbitmq-server")

    def commands(self) -> list[str]:
        """How the nodes are started."""
        root = "" if self._root is None else f"RMQ_ROOT={self._root} "
        return [
            f"{root}RMQ_BASE=FOLDER RMQ_PORT={BASE_PORT} ../shared/bench/rabbitmq-cluster start",
            f"{root}RMQ_BASE=FOLDER RMQ_PORT={_SINGLE_PORT} ../shared/bench/rabbitmq-cluster --nodes 1 start",
        ]

    @contextmanager
    def three_nodes(self) -> Iterator[RabbitmqCluster]:
        """A cluster of three."""
        with _started(NODES, BASE_PORT, self._root) as (script, uris):
            yield RabbitmqCluster(uris, script)

    @contextmanager
    def single_node(self) -> Iterator[Cluster]:
        """A cluster of one."""
        with _started(1, _SINGLE_PORT, self._root) as (script, uris):
            yield Cluster(self.name, uris, script.pids(), [])


@contextmanager
def _started(nodes: int, port: int, root: Path | None) -> Iterator[tuple[Script, list[str]]]:
    # A node that is killed may still write when its folder goes.
    with tempfile.TemporaryDirectory(prefix="rabbitmq-bench-", ignore_cleanup_errors=True) as folder:
        script = Script(port, folder, root)
        try:
            uris = script.ask("--nodes", str(nodes), "start").splitlines()[-1].split(",")
            yield script, uris
        finally:
            # Its data goes with it, so there is nothing to end in order. `stop` ends what its nodes leave behind.
            script.ask("kill")
            script.ask("stop")
            if root is not None:
                # The script has mounted the folder there; nothing of it may be under the root when it goes.
                subprocess.run(["umount", f"{root}{folder}"], capture_output=True, check=False)
