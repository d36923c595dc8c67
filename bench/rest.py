"""A cluster at rest: what it uses when nobody asks for anything."""

import time
from typing import Final

from bench.clusters import Cluster

IDLE_S: Final = 10.0


def settle(cluster: Cluster) -> None:
    """Wait until the nodes use little CPU."""
    for _ in range(30):
        if idle_cpu(cluster, 1.0) < 30:
            return


def cpu_at_rest(cluster: Cluster) -> float:
    """CPU of all nodes, in per cent of one core, when what came before has been tidied up.

    Snapshots of what was declared are still being written when nobody waits any more. So windows follow each other, for
    25 s at most, until one is not a tenth cheaper than the one before: those two are averaged.
    """
    before = idle_cpu(cluster, IDLE_S / 2)
    for _ in range(4):
        after = idle_cpu(cluster, IDLE_S / 2)
        if after > before * 0.9:
            break
        before = after
    return (before + after) / 2


def idle_cpu(cluster: Cluster, seconds: float) -> float:
    """CPU of all nodes over some seconds, in per cent of one core."""
    before = cluster.cpu_s()
    time.sleep(seconds)
    return (cluster.cpu_s() - before) / seconds * 100
