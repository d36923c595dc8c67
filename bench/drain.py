"""How long clients are without confirms when the node that leads their queue is told to stop (SIGTERM).

    python -m bench.drain --times 5            # the installed package; --source: this tree, uncompiled

For each time: the pause at a client of another node, what the node took to end, and until its own client was served by
another node. Fails if a confirmed message is lost, or one came twice or out of order.
"""

import argparse
import statistics
import time
from typing import Final

from bench.clusters import NODES, ReplicatedCluster, wait_until
from bench.confirm_stream import ConfirmStream
from bench.failover import MOVER_RATE, RATE, check_messages, declare, longest_gap_s, served_again_s, until_flowing
from bench.machine import only_benchmark
from bench.mayfly_cluster import Mayfly

_BEFORE_S: Final = 1.5
_AFTER_S: Final = 2.0
_END_S: Final = 30


def measure_drain(cluster: ReplicatedCluster, number: int) -> dict[str, float]:
    """One stop of the leader, in seconds. It is started again. Raises BrokerFailed."""
    queue = f"drained-{number}"
    victim = declare(cluster, queue)
    next_one, third = (victim + 1) % NODES, (victim + 2) % NODES
    uris = cluster.uris
    with (
        ConfirmStream(1, queue, [uris[third]], RATE) as survivor,
        ConfirmStream(2, queue, [uris[victim], uris[next_one]], MOVER_RATE) as mover,
    ):
        until_flowing([survivor, mover], time.monotonic(), _BEFORE_S)
        told_s = cluster.terminate(victim)
        wait_until(lambda: cluster.has_ended(victim), "the node ends", _END_S, every_s=0.01)
        ended_s = time.monotonic()
        until_flowing([survivor], ended_s, _AFTER_S)
        watched_until_s = time.monotonic()
        wait_until(lambda: served_again_s(mover) is not None, "confirms for its client", _END_S)
        again_s = served_again_s(mover)
    cluster.start_again(victim)
    check_messages(cluster, queue, [survivor, mover])
    cluster.wait_until_well()
    assert again_s is not None
    gap_s = longest_gap_s([confirm.moment_s for confirm in survivor.confirms], told_s, watched_until_s)
    return {"gap_s": gap_s, "ended_s": ended_s - told_s, "reconnect_s": again_s - told_s}


def main() -> None:
    """Measure, and print each and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--source", action="store_true", help="this tree, uncompiled")
    options = parser.parse_args()
    broker = Mayfly(options.source)
    print(broker.version())
    found: list[dict[str, float]] = []
    with broker.three_nodes() as cluster:
        for number in range(options.times):
            found.append(measure_drain(cluster, number))
            print(", ".join(f"{name} {value:.3f}" for name, value in found[-1].items()), flush=True)
    for name in found[0]:
        values = [each[name] for each in found]
        print(f"{name}: median {statistics.median(values):.3f}, {min(values):.3f} to {max(values):.3f}")


if __name__ == "__main__":
    with only_benchmark():
        main()
