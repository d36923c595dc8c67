"""What it costs to refuse a passive declare: the catalog must be current first.

    python tests/bench/catalog_reads.py [seconds]

Three whole nodes in one process, without sockets; with `synced` their logs are LMDB files, each write with its sync,
one after the other. Every client asks for a queue that is not there, over and over. Two ways to be current take turns:
a read index (as the product has it), and a command in the log that changes nothing, shared by those who wait.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pamqp import commands

from mayfly.cluster.store.lmdb_store import LmdbLogStore
from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.catalog import RemoveQueues
from mayfly.node.engine.engine import Engine
from tests.node.broker.three_brokers import ThreeBrokers

TURNS = 3


class LoggedBarrier:
    """A command in the log for all who wait."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[OnDone] = []
        self._under_way = False

    def wait(self, done: OnDone) -> None:
        self._waiting.append(done)
        if not self._under_way:
            self._begin()

    def _begin(self) -> None:
        self._under_way = True
        waiting, self._waiting = self._waiting, []

        def applied(result: object) -> None:
            self._under_way = False
            if self._waiting:
                self._begin()
            for done in waiting:
                done(None)

        self._engine.submit_catalog(RemoveQueues(()), applied)


def read_index(brokers: ThreeBrokers) -> None:
    for node in brokers.nodes.values():
        vars(node.engine).pop("catalog_barrier", None)


def log_entry(brokers: ThreeBrokers) -> None:
    for node in brokers.nodes.values():
        node.engine.catalog_barrier = LoggedBarrier(node.engine).wait  # type: ignore[method-assign]


def refusals(brokers: ThreeBrokers, clients: list[Any], seconds: float) -> tuple[float, float]:
    """Refused passive declares per second, and CPU us of the process for each."""
    ask = commands.Queue.Declare(queue="absent", passive=True)
    count = 0
    began, cpu_began = time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        brokers.running = False
        for client in clients:
            client.send(1, ask)
        brokers.running = True
        brokers.settle()
        for client in clients:
            (closed,) = client.take(1)
            assert closed.reply_code == 404
            client.send(1, commands.Channel.CloseOk(), commands.Channel.Open())
            client.take(1)
        count += len(clients)
    return count / (time.monotonic() - began), 1e6 * (time.process_time() - cpu_began) / count


def measure(name: str, brokers: ThreeBrokers, seconds: float) -> None:
    for where, id in (("the leader's node", brokers.leader()), ("another node", brokers.followers()[0])):
        for number in (1, 50):
            clients = [brokers.nodes[id].client() for _ in range(number)]
            rows: dict[str, list[tuple[float, float]]] = {"log entry": [], "read index": []}
            ways: list[tuple[str, Callable[[ThreeBrokers], None]]] = [
                ("log entry", log_entry), ("read index", read_index),
            ]  # fmt: skip
            for _ in range(TURNS):
                for way, choose in ways:
                    choose(brokers)
                    rows[way].append(refusals(brokers, clients, seconds))
            best = {way: (max(rate for rate, _ in each), min(cpu for _, cpu in each)) for way, each in rows.items()}
            text = ", ".join(f"{way} {rate:.0f}/s {cpu:.0f} us CPU" for way, (rate, cpu) in best.items())
            rates, cpus = zip(best["log entry"], best["read index"], strict=True)
            print(f"{name}, {where}, {number} clients: {text}; {rates[1] / rates[0]:.1f}x the rate, "
                  f"{cpus[1] / cpus[0]:.2f}x the CPU")


def main() -> None:
    """Print the figures."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    measure("memory", ThreeBrokers(), seconds)
    with tempfile.TemporaryDirectory() as folder:
        brokers = ThreeBrokers(lambda id: LmdbLogStore(Path(folder) / str(id), node_identity=f"bench/{id}"))
        measure("synced", brokers, seconds)


if __name__ == "__main__":
    main()
