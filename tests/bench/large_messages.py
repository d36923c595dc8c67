"""What large messages to many queues do to others: `python -m tests.bench.large_messages [--mib 16] [--times 5]`.

Three nodes on loopback: of this tree, uncompiled, or with `--installed` of the installed package. A process publishes
large messages to a fanout exchange with 16 queues, one after the other, confirmed; with `--dead-letters` it publishes
them to a queue in which they die at once, and that exchange is where they go then. Meanwhile each node gets a small
message every 10 ms for a queue of its own: the times until it is confirmed and until it comes are told, with the most
memory of each node and how many terms began: elections, or leads handed over because the plan prefers a node with less
to do.
"""

import argparse
import json
import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from bench.clusters import page
from bench.mayfly_cluster import Mayfly, MayflyCluster

QUEUES: Final = 16
DYING: Final = "dying"
PACE_S: Final = 0.01
CALM_S: Final = 3.0
LOOK_S: Final = 0.05


def publish_large(
    uri: str, mib: int, times: int, dead_letters: bool, told: "multiprocessing.Queue[list[float]]"
) -> None:
    """Publish, until it is confirmed and has come to all queues; tell how long each took, in seconds."""
    body = bytes(mib << 20)
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    channel.confirm_delivery()
    took: list[float] = []
    properties = pika.BasicProperties(delivery_mode=2, expiration="0" if dead_letters else None)
    for number in range(times):
        began_s = time.monotonic()
        channel.basic_publish(*(("", DYING) if dead_letters else ("large", "")), body, properties)
        while min(waiting(channel, f"large{queue}") for queue in range(QUEUES)) <= number:
            time.sleep(LOOK_S)
        took.append(time.monotonic() - began_s)
    told.put(took)
    connection.close()


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
    parser.add_argument("--dead-letters", action="store_true", help="they die, and are routed after that")
    parser.add_argument("--installed", action="store_true", help="the installed package instead of this tree")
    options = parser.parse_args()
    with Mayfly(source=not options.installed).three_nodes() as cluster:
        channel = pika.BlockingConnection(pika.URLParameters(cluster.uris[0])).channel()
        channel.exchange_declare("large", "fanout", durable=True)
        for number in range(QUEUES):
            channel.queue_declare(f"large{number}", durable=True)
            channel.queue_bind(f"large{number}", "large")
        channel.queue_declare(DYING, durable=True, arguments={"x-dead-letter-exchange": "large"})
        for node in range(3):
            channel.queue_declare(f"small{node}", durable=True)
        channel.connection.close()
        cluster.wait_until_well()
        small = [Small(uri, f"small{node}") for node, uri in enumerate(cluster.uris)]
        time.sleep(CALM_S)
        for node, each in enumerate(small):
            print(f"before, node {node + 1}: confirmed {described(each.confirmed_s)}")
            each.confirmed_s.clear()
            each.came_s.clear()
        before = terms(cluster)
        told: multiprocessing.Queue[list[float]] = multiprocessing.Queue()
        process = multiprocessing.Process(
            target=publish_large, args=(cluster.uris[0], options.mib, options.times, options.dead_letters, told)
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
