"""A stream with millions of messages on one node: what memory they take, and how long the node takes to start."""

import time
from typing import Final

from pamqp import commands

from bench.amqp_pipeline import Pipeline
from bench.clusters import Cluster, wait_until
from bench.load_generator import LoadGenerator
from bench.mayfly_cluster import MayflyNode
from bench.rest import settle

SIZE: Final = 100
_STREAM: Final = "kept-0"
_PATTERN: Final = "kept-%d"
_SNAPSHOT_S: Final = 5.0
"""The index is written to disk some time after the messages; a node that ends at once would have more to read."""


def measure_retained(generator: LoadGenerator, node: MayflyNode, count: int) -> dict[str, float]:
    """Publish them, look, end the node and start it again."""
    settle(node)
    memory, cache = node.memory_bytes(), _cached(node)
    load = [
        "--queue-type", "stream", "--pattern", _PATTERN, "--publish-only", "--count", str(count), "--size", str(SIZE),
        "--window", "4000", "--max-time", "600",
    ]
    published = generator.run(node, load)
    settle(node)
    time.sleep(_SNAPSHOT_S)
    settle(node)
    grown, cached = node.memory_bytes() - memory, _cached(node) - cache
    node.end()
    start_s, began_s = node.start_again(), time.monotonic()
    # Ready is one thing, to have the stream is another.
    wait_until(lambda: _there(node) == count, f"{count} messages are there again", 300, every_s=0.02)
    there_s = start_s + time.monotonic() - began_s
    settle(node)
    after = node.memory_bytes() - memory
    return {
        "published_s": float(published["confirmed_s"]),
        "cpu_us": float(published["broker_cpu_per_100k"]) * 10,
        "bytes": (grown - cached) / count,
        "bytes_with_cache": grown / count,
        "bytes_after_start": after / count,
        "start_s": start_s,
        "there_s": there_s,
        "start_cpu_s": node.cpu_s(),
    }


def _cached(cluster: Cluster) -> float:
    return sum(cluster.metric("mayfly_entry_cache_bytes"))


def _there(node: MayflyNode) -> int:
    ask = commands.Queue.Declare(queue=_STREAM, passive=True)
    with Pipeline(node.uris[0]) as client:
        client.open_channels()
        return int(client.call(ask, commands.Queue.DeclareOk).message_count)
