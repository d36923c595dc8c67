"""Messages that wait for their time, and messages that expire anywhere: the part `scheduled` of `bench/expiry.py`.

What is due is said as `x-deliver-at`, and lags are by the wall clock, which nodes and clients of one machine share.
"""

import random
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pamqp import commands

from bench.amqp_pipeline import Pipeline, in_threads, marshal, publish_method, with_properties
from bench.clusters import NODES, Cluster, page
from bench.rest import cpu_at_rest, idle_cpu, settle

QUEUES: Final = 48
CONSUMED: Final = 3
"""Connections that consume what is due."""
WINDOW: Final = 2000
ROUNDS: Final = 4
"""In turn with as many of plain publishing."""
ROUND_PART: Final = 10
"""A round publishes one of so many messages."""
LOOKS_EACH_S: Final = 5.0
HOUR_S: Final = 3600
DUE_AFTER_S: Final = 3.0
DUE_WITHIN_S: Final = 20.0
PUBLISHED_EACH_S: Final = 20_000
"""No slower than this, on any machine on which the figures mean something: what is due later is published by then."""
DEATHS_WITHIN_S: Final = 60.0
PATIENCE_S: Final = 300.0
BODY: Final = bytes(100)
EXCHANGE: Final = "scheduled-later"
_STAMP: Final = struct.Struct(">d")
"""In bodies: when the message is due, by the wall clock."""
_HEADER: Final = struct.Struct(">q")
_LAG: Final = re.compile(
    r'^mayfly_expiry_lag_seconds_bucket\{(?:[^}]*,)?le="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE
)


def due_content(body: bytes, header: str, ms: int, message_id: str) -> bytes:
    """A message with `x-deliver-at` or `x-delay`; with an id unless that is empty."""
    name = header.encode()
    headers = bytes((len(name),)) + name + b"l" + _HEADER.pack(ms)
    return with_properties(body, headers=headers, message_id=message_id)


# ---------------------------------------------------------------------- what waits


def measure_scheduled(cluster: Cluster, count: int, due_count: int, burst: int) -> dict[str, float]:
    """`count` messages wait in 48 queues, due in one to ten hours; then `due_count` of the same queues are due
    over 20 s, and `burst` in one second, there and through a delayed exchange."""
    queues = [f"scheduled-{number}" for number in range(QUEUES)]
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all(queues, {"x-queue-type": "quorum", "x-allow-schedule": True})
    idle_before = cpu_at_rest(cluster)
    memory, cache = cluster.memory_bytes(), sum(cluster.metric("mayfly_entry_cache_bytes"))
    cpu_s, began = cluster.cpu_s(), time.monotonic()
    publish_scheduled(cluster, queues, count, seed=7, named=False)
    took_s, published_cpu_s = time.monotonic() - began, cluster.cpu_s() - cpu_s
    settle(cluster)
    grown = cluster.memory_bytes() - memory
    cached = sum(cluster.metric("mayfly_entry_cache_bytes")) - cache
    result = {
        "publish_s": took_s,
        "publish_cpu_us": published_cpu_s / count * 1e6,
        "idle_cpu_empty": idle_before,
        "idle_cpu": cpu_at_rest(cluster),
        "bytes_per_message_node": (grown - cached) / count / NODES,
        "bytes_per_message_node_with_cache": grown / count / NODES,
    }
    lags, _ = _delivered(cluster, queues, due_count, DUE_WITHIN_S, "")
    result.update(_spread("lag", sorted(lags)))
    _, result["burst_s"] = _delivered(cluster, queues, burst, 1.0, "")
    targets = [f"routed-{number}" for number in range(CONSUMED)]
    _bind(cluster, targets)
    _, result["burst_exchange_s"] = _delivered(cluster, targets, burst, 1.0, EXCHANGE)
    return result


def measure_ids(cluster: Cluster, count: int) -> dict[str, float]:
    """Memory of as many that have ids."""
    queues = [f"named-{number}" for number in range(QUEUES)]
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all(queues, {"x-queue-type": "quorum", "x-allow-schedule": True})
    settle(cluster)
    memory, cache = cluster.memory_bytes(), sum(cluster.metric("mayfly_entry_cache_bytes"))
    publish_scheduled(cluster, queues, count, seed=7)
    settle(cluster)
    cached = sum(cluster.metric("mayfly_entry_cache_bytes")) - cache
    return {"bytes_per_named_message_node": (cluster.memory_bytes() - memory - cached) / count / NODES}


def publish_scheduled(cluster: Cluster, queues: Sequence[str], count: int, seed: int, named: bool = True) -> None:
    """So many, each with an id if they are `named`, over all nodes."""
    methods = [publish_method(queue) for queue in queues]
    now_ms = round(time.time() * 1000)

    def messages(place: int) -> Iterator[bytes]:
        chance = random.Random(seed + place)
        own = methods[place::NODES]
        for number in range(place, count, NODES):
            due_ms = now_ms + chance.randrange(HOUR_S * 1000, 10 * HOUR_S * 1000)
            yield own[number % len(own)] + due_content(
                BODY, "x-deliver-at", due_ms, f"{seed}-{number:08}" if named else ""
            )

    _publish_everywhere(cluster, messages)


def _publish_everywhere(cluster: Cluster, messages: Callable[[int], Iterator[bytes]]) -> None:
    def publisher(place: int) -> Callable[[], None]:
        def work() -> None:
            with Pipeline(cluster.uris[place]) as client:
                client.publish_all(messages(place), WINDOW)

        return work

    in_threads([publisher(place) for place in range(NODES)])


def _bind(cluster: Cluster, queues: Sequence[str]) -> None:
    """A delayed exchange, with a queue for each key."""
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all(queues, {"x-queue-type": "quorum"})
        declare = commands.Exchange.Declare(
            exchange=EXCHANGE, exchange_type="x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        client.call(declare, commands.Exchange.DeclareOk)
        for queue in queues:
            bind = commands.Queue.Bind(queue=queue, exchange=EXCHANGE, routing_key=queue)
            client.call(bind, commands.Queue.BindOk)


def _delivered(
    cluster: Cluster, queues: Sequence[str], count: int, within_s: float, exchange: str
) -> tuple[list[float], float]:
    """How much later than they are due `count` messages arrive at consumers of the queues, in ms, and when the last
    does, in s. They are due within so many s from a moment on by which all are published."""
    consumers = [Pipeline(cluster.uris[place]) for place in range(CONSUMED)]
    for place, client in enumerate(consumers):
        client.begin_to_consume(queues[place::CONSUMED])
        client.give_up_after(LOOKS_EACH_S)
    due_s = time.time() + DUE_AFTER_S + count / PUBLISHED_EACH_S
    methods = [marshal(commands.Basic.Publish(exchange=exchange, routing_key=queue), 1) for queue in queues]
    lags: list[float] = []
    last = [due_s]

    def messages(place: int) -> Iterator[bytes]:
        for number in range(place, count, NODES):
            due_ms = round((due_s + number * within_s / count) * 1000)
            if exchange:  # it knows delays alone
                header, ms = "x-delay", max(1, due_ms - round(time.time() * 1000))
            else:
                header, ms = "x-deliver-at", due_ms
            stamped = _STAMP.pack(due_ms / 1000) + BODY
            yield methods[number % len(methods)] + due_content(stamped, header, ms, f"due-{number:08}")

    def take(body: bytes) -> bool:
        last[0] = time.time()
        lags.append((last[0] - _STAMP.unpack_from(body)[0]) * 1000)
        return len(lags) < count

    def consume(client: Pipeline) -> Callable[[], None]:
        def work() -> None:
            try:
                with client:
                    client.take_deliveries(take, lambda: len(lags) < count and time.time() < last_s[0])
            except BaseException:
                last_s[0] = 0.0  # Nobody waits for what this one would have taken.
                raise

        return work

    last_s = [due_s + within_s + PATIENCE_S]
    in_threads([*map(consume, consumers), lambda: _publish_everywhere(cluster, messages)])
    if len(lags) != count:
        sys.exit(f"{cluster.name}: {len(lags)} messages that were due have arrived, {count} were published")
    return lags, last[0] - due_s


def _spread(name: str, lags: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_min_ms": lags[0], f"{name}_p50_ms": lags[len(lags) // 2],
        f"{name}_p99_ms": lags[int(len(lags) * 0.99)], f"{name}_max_ms": lags[-1],
    }


# ---------------------------------------------------------------------- what publishing costs


def measure_publishing(cluster: Cluster, count: int) -> dict[str, float]:
    """The same messages in turn to queues in which they wait, and to queues that take the header for any other, in
    which they are ready; and to the former with ids, by which they can be cancelled: CPU of each. Between two rounds
    the nodes come to rest."""
    names = {
        kind: [f"{kind}-{each}" for each in range(QUEUES)] for kind in ("scheduled", "scheduled_with_id", "plain")
    }
    with Pipeline(cluster.uris[0]) as client:
        for kind, queues in names.items():
            allowed = {} if kind == "plain" else {"x-allow-schedule": True}
            client.declare_all(queues, {"x-queue-type": "quorum", **allowed})
    each = max(1, count // ROUND_PART)
    spent = dict.fromkeys(names, 0.0)
    for number in range(ROUNDS):
        for kind, queues in names.items():
            settle(cluster)
            cpu_s = cluster.cpu_s()
            publish_scheduled(cluster, queues, each, seed=100 + number, named=kind == "scheduled_with_id")
            spent[kind] += cluster.cpu_s() - cpu_s
    result = {f"{kind}_us": spent_s / ROUNDS / each * 1e6 for kind, spent_s in spent.items()}
    for kind, spent_s in spent.items():
        result[f"{kind}_ratio"] = spent_s / spent["plain"]
    return result


# ---------------------------------------------------------------------- what expires anywhere


def measure_deaths(cluster: Cluster, count: int, anywhere: bool) -> dict[str, float]:
    """`count` messages with deadlines within a minute die: at random behind live heads, or in order at the head of
    their queues. CPU of each death on a node, without what the cluster takes at rest, and how late they were."""
    queues = [f"dying-{number}" for number in range(QUEUES)]
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all(queues, {**arguments, "x-expire-scope": "any"} if anywhere else arguments)
        if anywhere:
            client.publish_all((publish_method(queue) + with_properties(BODY) for queue in queues), WINDOW)
    first_s = time.time() + DUE_AFTER_S + 2 * count / PUBLISHED_EACH_S
    methods = [publish_method(queue) for queue in queues]

    def messages(place: int) -> Iterator[bytes]:
        chance = random.Random(place)
        own = methods[place::NODES]
        for number in range(place, count, NODES):
            part = chance.random() if anywhere else number / count
            ttl_ms = max(1, round((first_s + part * DEATHS_WITHIN_S - time.time()) * 1000))
            yield own[number % len(own)] + with_properties(BODY, expiration=str(ttl_ms))

    before, died = _lag_buckets(cluster), _died(cluster)
    _publish_everywhere(cluster, messages)
    if time.time() > first_s:
        print("  (some died before all were published: the machine is too slow or too busy)", flush=True)
    time.sleep(max(0.0, first_s - time.time()))
    cpu_s, began = cluster.cpu_s(), time.monotonic()
    while _died(cluster) < died + count * NODES:
        if time.monotonic() > began + DEATHS_WITHIN_S + PATIENCE_S:
            sys.exit(f"{cluster.name}: not all of {count} messages have died")
        time.sleep(1)
    spent_s, took_s = cluster.cpu_s() - cpu_s, time.monotonic() - began
    settle(cluster)
    spent_s -= idle_cpu(cluster, 5.0) / 100 * took_s
    return {
        "cpu_us_node": spent_s / count / NODES * 1e6,
        "late_p50_ms": _quantile(before, _lag_buckets(cluster), 0.5),
        "late_p99_ms": _quantile(before, _lag_buckets(cluster), 0.99),
    }


def _died(cluster: Cluster) -> int:
    return int(sum(cluster.metric("mayfly_expiry_lag_seconds_count")))


def _lag_buckets(cluster: Cluster) -> dict[float, float]:
    """By the upper ends in s: how many died so late or less, on all nodes."""
    found: dict[float, float] = {}
    for port in cluster.http:
        for end, number in _LAG.findall(page(port, "/metrics")):
            found[float(end)] = found.get(float(end), 0.0) + float(number)
    return found


def _quantile(before: dict[float, float], after: dict[float, float], part: float) -> float:
    """The upper end in ms of the bucket in which it is."""
    grown = {end: after[end] - before.get(end, 0.0) for end in sorted(after)}
    total = max(grown.values(), default=0.0)
    return next((end * 1000 for end, number in grown.items() if number >= part * total), 0.0)
