"""What large messages to many queues do to others: `python -m tests.bench.large_messages [--mib 16] [--times 5]`.

Three nodes on loopback: of this tree, uncompiled, or with `--installed` of the installed package. A process publishes
large messages, one after the other, that go to 16 queues in one of the ways below. Meanwhile each node gets a small
message every 10 ms for a queue of its own: the times until it is confirmed and until it comes are told, with the most
memory of each node and how many terms began: elections, or leads handed over because the plan prefers a node with less
to do.

    publish       to a fanout exchange with the 16 queues, confirmed
    transaction   the same, in a transaction for each
    dead-letters  to a queue in which they die at once, and that exchange is where they go then
    redrive       the same, to queues of dead letters, from which they are redriven to one queue
    copies        to a stream that 16 others copy
    to-memory     as dead letters, and the 16 queues are in one node's memory
    from-memory   as dead letters, and the queue in which they die is
    get           to one queue, confirmed, and got there at another node
    fed           the same of queues with one replica each, at a node without one
    memory        the same of a queue in one node's memory, published at another and got at the third
"""

import argparse
import base64
import json
import multiprocessing
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from bench.clusters import page
from bench.mayfly_cluster import Mayfly, MayflyCluster

QUEUES: Final = 16
GOT: Final = "large0"
DYING: Final = "dying"
PUBLISH: Final = "publish"
TRANSACTION: Final = "transaction"
DEAD_LETTERS: Final = "dead-letters"
REDRIVE: Final = "redrive"
COPIES: Final = "copies"
TO_MEMORY: Final = "to-memory"
FROM_MEMORY: Final = "from-memory"
GET: Final = "get"
FED: Final = "fed"
MEMORY: Final = "memory"
WAYS: Final = (PUBLISH, TRANSACTION, DEAD_LETTERS, REDRIVE, COPIES, TO_MEMORY, FROM_MEMORY, GET, FED, MEMORY)
_GOT_WAYS: Final = (GET, FED, MEMORY)
_DYING_WAYS: Final = (DEAD_LETTERS, REDRIVE, TO_MEMORY, FROM_MEMORY)
PACE_S: Final = 0.01
CALM_S: Final = 3.0
LOOK_S: Final = 0.05


def publish_large(
    uri: str, elsewhere: str, http: int, way: str, mib: int, times: int, told: "multiprocessing.Queue[list[float]]"
) -> None:
    """Publish, until it has come to all queues, or was got at the node `elsewhere`; tell how long each took, in
    seconds."""
    body = bytes(mib << 20)
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    if way == TRANSACTION:
        channel.tx_select()
    else:
        channel.confirm_delivery()
    took: list[float] = []
    if way in _GOT_WAYS:
        other = pika.BlockingConnection(pika.URLParameters(elsewhere))
        for _ in range(times):
            channel.basic_publish("", GOT, body, pika.BasicProperties(delivery_mode=2))
            began_s = time.monotonic()
            while other.channel().basic_get(GOT, auto_ack=True)[0] is None:
                time.sleep(LOOK_S)
            took.append(time.monotonic() - began_s)
        told.put(took)
        other.close()
        connection.close()
        return
    dies = way in _DYING_WAYS
    exchange, key = ("", DYING) if dies else ("", "origin") if way == COPIES else ("large", "")
    properties = pika.BasicProperties(delivery_mode=2, expiration="0" if dies else None)
    for number in range(times):
        began_s = time.monotonic()
        channel.basic_publish(exchange, key, body, properties)
        if way == TRANSACTION:
            channel.tx_commit()
        while min(waiting(channel, f"large{queue}") for queue in range(QUEUES)) <= (0 if way == REDRIVE else number):
            time.sleep(LOOK_S)
        if way == REDRIVE:
            for queue in range(QUEUES):
                start_redrive(http, f"large{queue}")
            while waiting(channel, DYING) < QUEUES:
                time.sleep(LOOK_S)
            channel.queue_purge(DYING)
        took.append(time.monotonic() - began_s)
    told.put(took)
    connection.close()


def get_request(http: int, path: str) -> urllib.request.Request:
    """A request to a node on this machine, as guest."""
    request = urllib.request.Request(f"http://127.0.0.1:{http}{path}")
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    return request


def start_redrive(http: int, queue: str) -> None:
    """Back to where its messages died."""
    request = get_request(http, f"/api/mayfly/queues/%2F/{queue}/redrive")
    request.method, request.data = "POST", b"{}"
    urllib.request.urlopen(request, timeout=60).close()


def declare(channel: BlockingChannel, way: str) -> None:
    """The queues, and how they are reached."""
    channel.exchange_declare("large", "fanout", durable=True)
    if way == COPIES:
        channel.queue_declare("origin", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(QUEUES):
        arguments: dict[str, object] | None = None
        if way == COPIES:
            arguments = {"x-queue-type": "stream", "x-sources": ["origin"]}
        channel.queue_declare(f"large{number}", durable=way not in (TO_MEMORY, MEMORY), arguments=arguments)
        channel.queue_bind(f"large{number}", "large")
    channel.queue_declare(DYING, durable=way != FROM_MEMORY, arguments={"x-dead-letter-exchange": "large"})
    for node in range(3):
        channel.queue_declare(f"small{node}", durable=True)


def waiting(channel: BlockingChannel, queue: str) -> int:
    """How many messages are in the queue."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


class Small:
    """A paced publisher of small messages, which consumes them as well, each on a connection of its own."""

    def __init__(self, uri: str, queue: str) -> None:
        self.confirmed_s: list[float] = []
        self.came_s: list[float] = []
        self._uri, self._queue = uri, queue
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._publish), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Publish no more, and wait for what is on its way."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _publish(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._uri))
        channel = connection.channel()
        channel.confirm_delivery()
        while not self._stop.is_set():
            began_s = time.monotonic()
            channel.basic_publish("", self._queue, repr(began_s).encode(), pika.BasicProperties(delivery_mode=2))
            self.confirmed_s.append(time.monotonic() - began_s)
            time.sleep(PACE_S)
        connection.close()

    def _consume(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._uri))
        channel = connection.channel()
        for method, _, body in channel.consume(self._queue, auto_ack=True, inactivity_timeout=0.5):
            if method is not None:
                self.came_s.append(time.monotonic() - float(body or b"0"))
            elif self._stop.is_set():
                break
        connection.close()


def terms(cluster: MayflyCluster) -> int:
    """The sum of all groups' terms: it grows by one at least with each change of leaders."""
    return sum(int(row["term"]) for row in json.loads(page(cluster.http[0], "/status"))["groups"])


@contextmanager
def most_memory(pids: list[int]) -> Iterator[list[int]]:
    """The most resident memory of each process meanwhile, in MB."""
    most = [0] * len(pids)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(LOOK_S):
            for place, pid in enumerate(pids):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                most[place] = max(most[place], pages * 4096 // 1_000_000)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        stop.set()
        thread.join()


def described(times_s: list[float]) -> str:
    """Median, one in a hundred, and the longest, in ms."""
    ordered = sorted(times_s)
    hundredth = ordered[int(len(ordered) * 0.99)]
    return (
        f"{len(ordered)} messages, p50 {statistics.median(ordered) * 1000:.1f} ms, p99 {hundredth * 1000:.0f} ms,"
        f" longest {ordered[-1] * 1000:.0f} ms"
    )


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, default=PUBLISH, help="how they come to the queues")
    parser.add_argument("--installed", action="store_true", help="the installed package instead of this tree")
    options = parser.parse_args()
    if options.way == FED:
        os.environ["MAYFLY_REPLICATION_FACTOR"] = "1"
    with Mayfly(source=not options.installed).three_nodes() as cluster:
        channel = pika.BlockingConnection(pika.URLParameters(cluster.uris[0])).channel()
        declare(channel, options.way)
        channel.connection.close()
        cluster.wait_until_well()
        small = [Small(uri, f"small{node}") for node, uri in enumerate(cluster.uris)]
        time.sleep(CALM_S)
        for node, each in enumerate(small):
            print(f"before, node {node + 1}: confirmed {described(each.confirmed_s)}")
            each.confirmed_s.clear()
            each.came_s.clear()
        before = terms(cluster)
        # Queues in a node's memory are in that of the first one.
        leader = 1 if options.way == MEMORY else cluster.leader_of(GOT) if options.way in _GOT_WAYS else 0
        told: multiprocessing.Queue[list[float]] = multiprocessing.Queue()
        process = multiprocessing.Process(
            target=publish_large,
            args=(
                cluster.uris[leader], cluster.uris[(leader + 1) % 3], cluster.http[0],
                options.way, options.mib, options.times, told,
            ),
        )
        with most_memory(cluster.pids) as most:
            process.start()
            process.join()
            time.sleep(1)
        for each in small:
            each.stop()
        took = told.get() if not process.exitcode else []
        print(f"{options.mib} MiB to {QUEUES} queues: " + ", ".join(f"{each:.1f} s" for each in took))
        for node, each in enumerate(small):
            print(f"meanwhile, node {node + 1}: confirmed {described(each.confirmed_s)}")
            print(f"meanwhile, node {node + 1}: delivered {described(each.came_s)}")
        print(f"most memory of each node: {', '.join(map(str, most))} MB; new terms: {terms(cluster) - before}")


if __name__ == "__main__":
    main()
