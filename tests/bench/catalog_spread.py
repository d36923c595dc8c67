"""What it costs to answer a bind only when the other nodes know of it.

    python tests/bench/catalog_spread.py [seconds]

Three whole nodes in one process, without sockets and disks. One client binds and unbinds, waiting for each answer. Two
ways take turns: answering when the client's own node has the change, and when all have it (as the product does).
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from pamqp import commands

from mayfly.node.broker.cluster_facade import OnDone
from tests.node.broker.three_brokers import ThreeBrokers

TURNS = 3


def at_once(brokers: ThreeBrokers) -> None:
    def answer(done: OnDone, everywhere: bool = False) -> None:
        done(None)

    for node in brokers.nodes.values():
        node.engine.catalog_spread = answer  # type: ignore[method-assign]
        node.engine.spread.applied = _tell_nobody  # type: ignore[method-assign]


def everywhere(brokers: ThreeBrokers) -> None:
    for node in brokers.nodes.values():
        vars(node.engine).pop("catalog_spread", None)
        vars(node.engine.spread).pop("applied", None)


def _tell_nobody() -> None:
    """Instead of a word to those whose commands were applied."""


def bindings(brokers: ThreeBrokers, client: Any, seconds: float) -> tuple[float, float]:
    """CPU us of the process, and frames between nodes, for one change."""
    bind = commands.Queue.Bind(queue="q", exchange="amq.direct", routing_key="k")
    unbind = commands.Queue.Unbind(queue="q", exchange="amq.direct", routing_key="k")
    count, frames_before = 0, brokers.frames
    began, cpu_began = time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        assert isinstance(client.call(1, bind), commands.Queue.BindOk)
        assert isinstance(client.call(1, unbind), commands.Queue.UnbindOk)
        count += 2
    return 1e6 * (time.process_time() - cpu_began) / count, (brokers.frames - frames_before) / count


def main() -> None:
    """Print the figures."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    brokers = ThreeBrokers()
    for where, id in (("the leader's node", brokers.leader()), ("another node", brokers.followers()[0])):
        client = brokers.nodes[id].client()
        client.declare("q")
        ways: list[tuple[str, Callable[[ThreeBrokers], None]]] = [("at once", at_once), ("everywhere", everywhere)]
        rows: dict[str, list[tuple[float, float]]] = {way: [] for way, _ in ways}
        for _ in range(TURNS):
            for way, choose in ways:
                choose(brokers)
                rows[way].append(bindings(brokers, client, seconds))
        best = {way: (min(cpu for cpu, _ in each), min(frames for _, frames in each)) for way, each in rows.items()}
        text = ", ".join(f"{way} {cpu:.0f} us CPU in {frames:.1f} frames" for way, (cpu, frames) in best.items())
        print(f"a change from {where}: {text}; {best['everywhere'][0] / best['at once'][0]:.2f}x the CPU")


if __name__ == "__main__":
    main()
