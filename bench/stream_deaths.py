"""Messages of a stream with random TTLs of 1 to 60 s: how late they are gone, and what that costs.

A stream of MayflyMQ and one of JetStream with three replicas, published to in the same way, each by a client of its own
kind. Lateness is seen from outside: the stream is asked again and again how many messages it has, and the number that
should be gone by then is known.
"""

import itertools
import random
import struct
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pamqp import commands

from bench.amqp_pipeline import Pipeline, publish_method, with_properties
from bench.clusters import NODES, Cluster
from bench.nats_pipeline import NatsPipeline
from bench.rest import settle

SECOND_MS: Final = 1_000
LEAST_MS: Final = 1_000
MOST_MS: Final = 60_000
WINDOW: Final = 2000
BODY: Final = bytes(100)
_STREAM: Final = "short-lived"
_KINDS: Final = 4096
"""Different TTLs; their messages are made beforehand."""
_LOOK_S: Final = 0.05
_LOOKED_AT_S: Final = 10
_PATIENCE_S: Final = 120
_TTL_HEADER: Final = b"\x05x-ttlS"


class _Sent:
    """The messages, and when each is due by CLOCK_MONOTONIC."""

    def __init__(self, count: int, made: Callable[[int], bytes], unit_ms: int = 1) -> None:
        """``made``: the octets of a publish with this TTL, in whole units."""
        chance = random.Random(7)
        self._count = count
        self._chance = chance
        ttls_ms = [chance.randrange(LEAST_MS, MOST_MS + 1) // unit_ms * unit_ms for _ in range(_KINDS)]
        self._kinds = [(ttl_ms, made(ttl_ms)) for ttl_ms in ttls_ms]
        self.due_s: list[float] = []

    def messages(self) -> Iterator[bytes]:
        """All of them; each is taken when it is sent."""
        kinds = self._chance.choices(self._kinds, k=self._count)
        for ttl_ms, message in kinds:
            # From when it is sent, so what the publish takes counts as lag too.
            self.due_s.append(time.monotonic() + ttl_ms / 1000)
            yield message


def lateness_ms(due_s: Sequence[float], looks: Sequence[tuple[float, int]]) -> list[float]:
    """How much later than they are due messages are gone, at most. `due_s` rises; `looks`: when it was seen how many
    were gone, rising too. What was gone at the first look counts for nothing: nobody saw it go."""
    late_ms: list[float] = []
    gone = looks[0][1]
    for look_s, by_then in looks[1:]:
        late_ms += [max(0.0, look_s - due) * 1000 for due in due_s[gone:by_then]]
        gone = max(gone, by_then)
    return late_ms


def measure_mayfly_deaths(cluster: Cluster, count: int) -> dict[str, float]:
    """By `x-ttl`."""
    arguments = {"x-queue-type": "stream", "x-allow-msg-ttl": True}
    method = publish_method(_STREAM)
    with Pipeline(cluster.uris[0]) as publisher, Pipeline(cluster.uris[1]) as watcher:
        watcher.declare_all([_STREAM], arguments)
        ask = commands.Queue.Declare(queue=_STREAM, passive=True)

        def made(ttl_ms: int) -> bytes:
            text = f"{ttl_ms}ms".encode()
            return method + with_properties(BODY, headers=_TTL_HEADER + struct.pack(">I", len(text)) + text)

        return _measure(
            cluster, _Sent(count, made), lambda messages: publisher.publish_all(messages, WINDOW),
            lambda: int(watcher.call(ask, commands.Queue.DeclareOk).message_count),
        )


def measure_jetstream_deaths(cluster: Cluster, count: int) -> dict[str, float]:
    """By `Nats-TTL`, of which it takes whole seconds alone."""
    with NatsPipeline(cluster.uris[0]) as publisher, NatsPipeline(cluster.uris[1]) as watcher:
        watcher.ask(f"$JS.API.STREAM.CREATE.{_STREAM}", {
            "name": _STREAM, "subjects": [_STREAM], "retention": "limits", "storage": "file", "num_replicas": NODES,
            "allow_msg_ttl": True,
        })

        def left() -> int:
            return int(watcher.ask(f"$JS.API.STREAM.INFO.{_STREAM}", {})["state"]["messages"])

        return _measure(
            cluster, _Sent(count, lambda ttl_ms: publisher.with_ttl(_STREAM, BODY, ttl_ms // SECOND_MS), SECOND_MS),
            lambda messages: publisher.publish_all(messages, WINDOW), left,
        )


def _cores_while(cluster: Cluster, left: Callable[[], int]) -> float:
    """What the nodes take while nothing happens but the looks."""
    cpu_s, began_s = cluster.cpu_s(), time.monotonic()
    while time.monotonic() < began_s + _LOOKED_AT_S:
        time.sleep(_LOOK_S)
        left()
    return (cluster.cpu_s() - cpu_s) / (time.monotonic() - began_s)


def _measure(
    cluster: Cluster, sent: _Sent, publish: Callable[[Iterator[bytes]], int], left: Callable[[], int]
) -> dict[str, float]:
    settle(cluster)
    # The looks cost, too: what nodes take at rest is taken while an empty stream is looked at.
    idle = _cores_while(cluster, left)
    before_s, began_s = cluster.cpu_s(), time.monotonic()
    count = publish(sent.messages())
    published_s, spent_s = time.monotonic(), cluster.cpu_s() - before_s
    looks = [(time.monotonic(), count - left())]
    for number in itertools.count():
        time.sleep(_LOOK_S)
        there = left()
        looks.append((time.monotonic(), count - there))
        if not there:
            break
        if time.monotonic() > published_s + MOST_MS / 1000 + _PATIENCE_S:
            sys.exit(f"{cluster.name}: {there} of {count} messages are there still, after {number} looks")
    ended_s, all_s = time.monotonic(), cluster.cpu_s() - before_s
    due_s = sorted(sent.due_s)
    late_ms = sorted(lateness_ms(due_s, looks))
    seen = max(1, count - looks[0][1])
    died_s = all_s - spent_s - idle * (ended_s - published_s)
    return {
        "published_s": count / (published_s - began_s),
        "late_p50_ms": late_ms[len(late_ms) // 2],
        "late_p99_ms": late_ms[len(late_ms) * 99 // 100],
        "late_max_ms": late_ms[-1],
        "seen": seen,
        "outstanding": float(count - bisect_right(due_s, published_s)),
        "cpu_us": died_s / seen * 1e6,
        "cpu_node_us": died_s / seen / NODES * 1e6,
        "whole_cpu_us": all_s / count * 1e6,
    }
