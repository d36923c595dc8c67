"""What consensus costs: CPU of an idle group per second, and of a batch of proposals.

    python tests/bench/raft_groups.py [groups]

Three hosts in one process, without sockets and disks (frames are handed over as objects, writes succeed at once), so
the figures are of `cluster.host.host`, `cluster.group.group` and `cluster.raft` alone. Settings are those of a node.
"""

import sys
import time
from collections.abc import Callable

from mayfly.cluster.host.host import Host
from tests.cluster.host.three_hosts import TICK_MS, Cluster

IDLE_S = 20
BATCHES = 3000


def cpu_s(work: Callable[[], None]) -> float:
    """CPU seconds that this process spends on some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def settle(groups: int) -> Cluster:
    """Three hosts whose groups all have a leader, and nothing to do."""
    cluster = Cluster(3, groups)
    cluster.run_until(lambda: all(cluster.leader(group) for group in range(groups)))
    for _ in range(6000 // TICK_MS):
        cluster.step()
    return cluster


def idle(cluster: Cluster) -> float:
    """CPU seconds of one host in a second."""

    def pass_time() -> None:
        for _ in range(IDLE_S * 1000 // TICK_MS):
            cluster.step()

    return cpu_s(pass_time) / IDLE_S / 3


def propose(cluster: Cluster, node: Host) -> float:
    """CPU seconds of all three hosts for one batch, from submission to the answer."""
    answered: list[object] = []

    def all_batches() -> None:
        for number in range(BATCHES):
            node.submit(0, [b"word"], 4, True, answered.append)
            while len(answered) <= number:
                cluster.exchange()

    return cpu_s(all_batches) / BATCHES


def main() -> None:
    """Print the figures."""
    groups = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    cluster = settle(groups)
    host_s = idle(cluster)
    print(f"{groups} idle groups on each of 3 hosts: {100 * host_s:.2f} % of a core per host")
    print(f"an idle group: {1e6 * host_s / groups:.0f} us of CPU per second on each host")
    lead = cluster.leader(0)
    other = next(id for id in cluster.ids if id != lead)
    for name, id in (("the leader's node", lead), ("another node", other)):
        cost = propose(cluster, cluster.nodes[id].host)
        print(f"a batch from {name}: {1e6 * cost:.0f} us of CPU on 3 hosts together")


if __name__ == "__main__":
    main()
