"""What `bench/growth.py` turns, and what it measures at each point: one function for each knob.

CPU is that of all nodes together, less what they use when nothing is asked of them.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from bench.amqp_pipeline import Pipeline, content, marshal, publish_method
from bench.clusters import BrokerFailed, Cluster, page
from bench.growth_clients import ManyConnections, Sink, call_all, keyed, take
from bench.growth_cluster import Idle, Load, Measuring, Used
from bench.silence import LongestSilence

Point = dict[str, float]
Points = Iterator[tuple[int, Point]]

_QUORUM: Final = {"x-queue-type": "quorum"}
_BODY: Final = bytes(128)
_MIB: Final = 1 << 20
_RATE_S: Final = 12


def message_size(measuring: Measuring, load: Load, sizes: Sequence[int]) -> Points:
    """Publish, replicate, deliver and acknowledge messages of a size, over two queues."""
    with measuring.nodes() as cluster:
        idle = Idle(cluster)
        _warm_up(load, cluster)
        for size in sizes:
            window = max(4, min(500, 4 * _MIB // size))
            count = max(150, min(20_000, 96 * _MIB // size))
            yield size, load.cost(
                cluster, idle, size=size, count=count, window=window, prefetch=window, producers=2, consumers=2,
                queues=2, pattern=f"size-{size}-%d", delete_end=True,
            )


def queues(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """Declare more and more queues; then messages to all in turn, ten to each at least, consumed and acknowledged."""
    with measuring.nodes() as cluster:
        idle = Idle(cluster)
        _warm_up(load, cluster)
        memory, names = _memory_bytes(cluster), list[str]()
        for count in counts:
            new = [f"queue-{number}" for number in range(len(names), count)]
            with Pipeline(cluster.uris[0]) as client, Used(cluster, idle) as declaring:
                client.declare_all(new, _QUORUM)
            names += new
            grown = _memory_bytes(cluster) - memory
            clients = min(4, count)
            busy = {
                "size": 128, "window": 500, "prefetch": 500, "producers": clients, "consumers": clients,
                "queues": count, "pattern": "queue-%d", "no_declare": True,
            }  # fmt: skip
            load.run(cluster, count=2 * count + 1000, **busy)  # The first message of a queue costs more.
            yield count, {
                **load.cost(cluster, Idle(cluster), count=max(200_000, 10 * count), **busy),
                "declare_cpu_us": declaring.cpu_s / len(new) * 1e6,
                **_if_measurable("memory_bytes", grown, count),
                "metrics_ms": _page_ms(cluster, "/metrics"),
            }


def rates(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """So many messages a second through one queue, by due time; with what nodes take at rest, and without it."""
    with measuring.nodes() as cluster:
        idle = Idle(cluster)
        _warm_up(load, cluster)
        for count in counts:
            run = load.run(cluster, size=1024, rate=count, seconds=_RATE_S, warmup=2, pattern=f"rate-{count}-%d")
            all_us = float(run["broker_cpu_per_100k"]) * 10
            yield count, {
                "cpu_us": all_us, "beyond_rest_us": max(0.0, all_us - idle.cores / run["consumed_s"] * 1e6),
                "rate": run["consumed_s"], "p50_ms": run["latency_ms"]["p50"], "p99_ms": run["latency_ms"]["p99"],
            }  # fmt: skip


def idle_connections(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """Connections that do nothing, beside a load that is always the same."""
    with measuring.nodes() as cluster, ManyConnections(cluster.uris) as connections:
        idle = Idle(cluster)
        _warm_up(load, cluster)
        memory, opened = _memory_bytes(cluster), 0
        for count in counts:
            with Used(cluster, idle) as opening:
                connections.grow(count)
            grown = _memory_bytes(cluster) - memory
            # Connections cost something while nothing is asked of them: that is no part of a message.
            idle = Idle(cluster)
            cost = load.cost(
                cluster, idle, size=128, count=20_000, window=500, prefetch=500, producers=2, consumers=2, queues=2,
            )
            yield count, {
                **cost,
                "open_cpu_us": opening.cpu_s / (count - opened) * 1e6,
                **_if_measurable("memory_bytes", grown, count),
                "idle_cores": idle.cores,
            }
            opened = count


def active_connections(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """Every connection publishes a message, waits for its confirm, and publishes the next; to sixteen queues."""
    with measuring.nodes() as cluster, ManyConnections(cluster.uris) as connections:
        _warm_up(load, cluster)
        names = [f"active-{number}" for number in range(16)]
        with Pipeline(cluster.uris[0]) as client:
            client.declare_all(names, _QUORUM)
        messages = [publish_method(name) + content(_BODY) for name in names]
        prepared = 0
        with Sink(cluster.uris[0], names) as sink:
            for count in counts:
                connections.grow(count)
                connections.prepare_to_publish(prepared)
                prepared = count
                rounds = max(4, min(100, 10_000 // count))
                with Used(cluster, Idle(cluster)) as used:
                    connections.publish_rounds(rounds, lambda place: messages[place % len(messages)])
                    sink.wait_for(rounds * count)
                yield count, used.each(rounds * count)


def consumers(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """Consumers share one queue; every message is acknowledged. So many messages that the end of a thousand connections
    counts for little."""
    with measuring.nodes() as cluster:
        idle = Idle(cluster)
        _warm_up(load, cluster)
        for count in counts:
            yield count, load.cost(
                cluster, idle, size=128, count=200_000, window=500, prefetch=50, consumers=count,
                pattern=f"consumers-{count}-%d", delete_end=True,
            )


def topic_bindings(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """Patterns with `*` and `#` on a topic exchange; a message matches one of them."""

    def pattern(number: int) -> str:
        return (f"w{number}.*.x", f"*.w{number}.#", f"#.w{number}", f"w{number}.#.y")[number % 4]

    same = ("w0.u.x", "w0.u{}.x")
    yield from _bindings(measuring, load, counts, "topic", lambda n: commands.Queue.Bind(routing_key=pattern(n)), same)


def direct_bindings(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """Keys on a direct exchange; a message goes by one of them."""
    yield from _bindings(measuring, load, counts, "direct", lambda n: commands.Queue.Bind(routing_key=f"w{n}"), ("w0",))


def _bindings(
    measuring: Measuring, load: Load, counts: Sequence[int], kind: str,
    bind: Callable[[int], commands.Queue.Bind], keys: tuple[str, ...],
) -> Points:
    """`keys`: one that is always the same; then, if there are such, one that never comes again."""
    messages = 10_000
    with measuring.nodes() as cluster, Pipeline(cluster.uris[0]) as client:
        idle = Idle(cluster)
        _warm_up(load, cluster)
        names = [f"bound-{number}" for number in range(8)]
        client.declare_all(names, _QUORUM)
        client.call(commands.Exchange.Declare(exchange="bench", exchange_type=kind), commands.Exchange.DeclareOk)
        bound = published = 0
        with Sink(cluster.uris[1], names) as sink:
            for count in counts:
                with Used(cluster, idle) as binding:
                    call_all(client, _binds(names, bind, bound, count), commands.Queue.BindOk)
                point = {"bind_cpu_us": binding.cpu_s / (count - bound) * 1e6}
                bound = count
                for field, key in zip(("same", "new"), keys, strict=False):
                    with Used(cluster, idle) as used, Pipeline(cluster.uris[0]) as publisher:
                        sent = (key.format(number) for number in range(published, published + messages))
                        publisher.publish_all(keyed("bench", sent, _BODY), 500)
                        sink.wait_for(messages)
                    published += messages
                    point[f"{field}_cpu_us"] = used.cpu_s / messages * 1e6
                yield count, point


def _binds(
    names: Sequence[str], bind: Callable[[int], commands.Queue.Bind], first: int, end: int
) -> Iterator[commands.Queue.Bind]:
    for number in range(first, end):
        method = bind(number)
        method.exchange, method.queue = "bench", names[number % len(names)]
        yield method


def headers_bindings(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """Bindings with a header each on a headers exchange; a message has the header of one of them."""
    messages = 5_000
    with measuring.nodes() as cluster, Pipeline(cluster.uris[0]) as client:
        idle = Idle(cluster)
        _warm_up(load, cluster)
        client.declare_all(["bound"], _QUORUM)
        client.call(commands.Exchange.Declare(exchange="bench", exchange_type="headers"), commands.Exchange.DeclareOk)
        message = marshal(commands.Basic.Publish(exchange="bench"), 1) + content_with_header("number", 0, _BODY)
        bound = 0
        with Sink(cluster.uris[1], ["bound"]) as sink:
            for count in counts:
                with Used(cluster, idle) as binding:
                    binds = (
                        commands.Queue.Bind(queue="bound", exchange="bench", arguments={"number": number})
                        for number in range(bound, count)
                    )
                    call_all(client, binds, commands.Queue.BindOk)
                point = {"bind_cpu_us": binding.cpu_s / (count - bound) * 1e6}
                bound = count
                with Used(cluster, idle) as used, Pipeline(cluster.uris[0]) as publisher:
                    publisher.publish_all((message for _ in range(messages)), 500)
                    sink.wait_for(messages)
                yield count, {**point, "same_cpu_us": used.cpu_s / messages * 1e6}


def content_with_header(name: str, value: int, body: bytes) -> bytes:
    """Header and body frame of a persistent message with one header field."""
    properties = commands.Basic.Properties(delivery_mode=2, headers={name: value})
    head = frame.marshal(ContentHeader(0, len(body), properties), 1)
    return bytes(head + frame.marshal(ContentBody(body), 1))


def backlog(measuring: Measuring, load: Load, depths: Sequence[int]) -> Points:
    """Messages of 100 bytes wait in one queue: what it costs to add to them, and to take from them."""
    size, taken, at_once, bytes_on_disk = 100, 50_000, 500_000, 700
    room = shutil.disk_usage(tempfile.gettempdir()).free
    if depths[-1] * bytes_on_disk * 3 > room:
        raise BrokerFailed(
            f"{depths[-1]:,} messages in three nodes need {depths[-1] * bytes_on_disk * 3 / 1e9:.0f} GB in "
            f"{tempfile.gettempdir()}, where {room / 1e9:.0f} GB are free"
        )
    with measuring.nodes() as cluster:
        idle = Idle(cluster)
        _warm_up(load, cluster)
        memory, depth = _memory_bytes(cluster), 0
        queue = {"pattern": "backlog-%d", "size": size}
        load.run(cluster, declare_only=True, **queue)
        for wanted in depths:
            count = wanted - depth
            with LongestSilence(cluster) as silence, Used(cluster, idle) as used:
                for start in range(0, count, at_once):
                    some = min(at_once, count - start)
                    load.run(cluster, publish_only=True, no_declare=True, count=some, window=2000, **queue)
            # Not while a snapshot is being made: that holds the state twice.
            _settle(cluster, idle)
            grown = _memory_bytes(cluster) - memory
            few = min(taken, wanted // 2)
            with Used(cluster, idle) as taking:
                take(cluster.uris[1], "backlog-0", few)
            depth = wanted - few
            yield wanted, {
                **{f"publish_{key}": value for key, value in used.each(count).items()},
                **{f"consume_{key}": value for key, value in taking.each(few).items()},
                "memory_mb": grown / len(cluster.pids) / 1e6,
                "silence_ms": silence.longest_ms,
            }


def shards(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """The same load over sixteen queues, with so many shards on three nodes."""
    for count in counts:
        with measuring.nodes(shards=count) as cluster:
            yield count, _whole_load(load, cluster)


def nodes(measuring: Measuring, load: Load, counts: Sequence[int]) -> Points:
    """The same load over sixteen queues, with so many nodes and three replicas of each shard, or as many as there are
    nodes; clients on all of them."""
    for count in counts:
        with measuring.nodes(count, replication_factor=min(count, 3)) as cluster:
            yield count, _whole_load(load, cluster)


def _whole_load(load: Load, cluster: Cluster) -> Point:
    _warm_up(load, cluster)
    idle = Idle(cluster)
    clients = max(4, len(cluster.uris))
    cost = load.cost(
        cluster, idle, size=128, count=400_000, window=250, prefetch=250, producers=clients, consumers=clients,
        queues=16,
    )
    return {**cost, "idle_cores": idle.cores, "memory_mb": cluster.memory_bytes() / len(cluster.pids) / 1e6}


# ---------------------------------------------------------------------- what several have in common


def _warm_up(load: Load, cluster: Cluster) -> None:
    """The first messages of a process cost more."""
    load.run(cluster, size=128, count=2000, queues=4, producers=2, consumers=2, pattern="warm-%d", delete_end=True)


def _page_ms(cluster: Cluster, path: str) -> float:
    """The least time of several requests: how long a node's loop is busy with it."""
    best = math.inf
    for _ in range(5):
        began = time.monotonic()
        page(cluster.http[0], path)
        best = min(best, (time.monotonic() - began) * 1000)
    return best


def _if_measurable(field: str, grown_bytes: float, count: int) -> Point:
    """Memory of each of so many, if it is more than what a process grows by anyway."""
    return {field: grown_bytes / count} if count >= 100 and grown_bytes > 0 else {}


def _memory_bytes(cluster: Cluster) -> float:
    """Of all nodes, without the cache of log entries: it has a fixed budget."""
    return cluster.memory_bytes() - sum(cluster.metric("mayfly_entry_cache_bytes"))


def _settle(cluster: Cluster, idle: Idle) -> None:
    """Wait until what was begun is done."""
    for _ in range(30):
        if Idle(cluster).cores < idle.cores + 0.2:
            return
