"""How long a client waits for bind-ok and unbind-ok from three real nodes.

    PYTHONPATH=. python tests/bench/binding_latency.py [base port]

The nodes run the code of this source tree; to compare two states of it, run it in a checkout of each, in turn.
"""

import sys
import tempfile
import time
from pathlib import Path

import pika

from bench.clusters import until_spread
from mayfly.node.local_nodes.local_cluster import LocalCluster, fetch, plan_cluster

PAIRS = 200


def waits_ms(port: int) -> list[float]:
    """Each wait of one client of the node with this AMQP port, sorted."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    found: list[float] = []
    for number in range(PAIRS):
        for change in (channel.queue_bind, channel.queue_unbind):
            began_s = time.monotonic()
            change("q", "amq.direct", f"k{number}")
            found.append(1000 * (time.monotonic() - began_s))
    connection.close()
    return sorted(found)


def main() -> None:
    """Print the figures."""
    base_port = int(sys.argv[1]) if len(sys.argv) > 1 else 8100
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(plan_cluster(3, base_port, Path(folder)))
        cluster.start()
        try:
            cluster.wait_until_serving(timeout_s=90)
            until_spread([plan.http.port for plan in cluster.plans])
            leader = fetch(cluster.plans[0].http, "/status")[1]["groups"][0]["leader"]
            for where, position in (("the catalog's leader", leader - 1), ("another node", leader % 3)):
                found = waits_ms(cluster.plans[position].amqp.port)
                p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
                print(f"{where}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {1000 * len(found) / sum(found):.0f}/s")
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
