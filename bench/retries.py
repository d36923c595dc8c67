"""Messages that come back and wait before they are delivered again: the part `retries` of `bench/expiry.py`.

Both brokers get the same arguments: quorum queues, x-delayed-retry-type `all`, the least delay the greatest.
"""

import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from pamqp import commands

from bench.amqp_pipeline import ACK_BODY, BASIC_ACK, BASIC_NACK, METHOD, Pipeline, content, in_threads, publish_method
from bench.clusters import NODES, Cluster
from bench.rest import settle

QUEUES: Final = NODES
"""With a publisher and a consumer each, at the nodes in turn."""
DELAY_MS: Final = 1_000
KEPT_MS: Final = 3_600_000
RETURNS: Final = 3
"""A message is given back so often, then acknowledged."""
MORE_KEPT: Final = 4
"""For memory, so many times as many wait."""
PREFETCH: Final = 256
WINDOW: Final = 1_000
BODY: Final = bytes(92)
PATIENCE_S: Final = 120.0
_ANSWERED_AT_ONCE: Final = 64
_LOOKS_EACH_S: Final = 0.02
_STAMP: Final = struct.Struct(">q")
_DELIVER: Final = bytes((0, 60, 0, 60))
_TAG_AFTER: Final = 5
"""In a basic.deliver: octets before the delivery tag, besides the consumer's."""
_TAG: Final = struct.Struct(">Q")
_FRAME: Final = struct.Struct(">BHI")
_REQUEUE: Final = 2


def arguments(delay_ms: int) -> dict[str, Any]:
    """Of a queue whose messages wait so long when they come back; 0: they do not."""
    found: dict[str, Any] = {"x-queue-type": "quorum"}
    if delay_ms:
        found |= {
            "x-delayed-retry-type": "all", "x-delayed-retry-min": delay_ms, "x-delayed-retry-max": delay_ms,
        }  # fmt: skip
    return found


def measure_retries(cluster: Cluster, count: int) -> dict[str, float]:
    """`count` messages are given back three times each and wait for 1 s each time: CPU of a retry, which is what that
    takes beyond taking and acknowledging as many at once; how late they come; and the memory of those that wait."""
    # First, while the nodes have nothing that was let go of, and could be used again.
    memory = _memory(cluster, MORE_KEPT * count)
    plain_s, _ = _consumed(cluster, "plain", 0, count)
    spent_s, lags = _consumed(cluster, "retried", DELAY_MS, count)
    if lags[0] < 0:
        print(f"  ({cluster.name}: a retry came {-lags[0]:.1f} ms early)", flush=True)
    return {
        "retries": len(lags),
        "plain_us": plain_s / count * 1e6,
        "retry_us": (spent_s - plain_s) / len(lags) * 1e6,
        "lag_p50_ms": lags[len(lags) // 2],
        "lag_p99_ms": lags[int(len(lags) * 0.99)],
        **memory,
    }


def _names(kind: str) -> list[str]:
    return [f"{kind}-{number}" for number in range(QUEUES)]


def _publish(cluster: Cluster, kind: str, delay_ms: int, count: int) -> None:
    queues = _names(kind)
    with Pipeline(cluster.uris[0]) as client:
        client.declare_all(queues, arguments(delay_ms))

    def messages(place: int) -> Iterator[bytes]:
        method = publish_method(queues[place])
        for number in range(place, count, QUEUES):
            yield method + content(_STAMP.pack(number) + BODY)

    def publisher(place: int) -> Callable[[], None]:
        def work() -> None:
            with Pipeline(cluster.uris[place]) as client:
                client.publish_all(messages(place), WINDOW)

        return work

    in_threads([publisher(place) for place in range(QUEUES)])
    settle(cluster)


def _consumed(cluster: Cluster, kind: str, delay_ms: int, count: int) -> tuple[float, list[float]]:
    """CPU of all nodes until `count` messages are acknowledged, and how late each retry came, in ms."""
    _publish(cluster, kind, delay_ms, count)
    returned_s = [[0.0] * count for _ in range(RETURNS if delay_ms else 0)]
    times = bytearray(count)
    lags: list[float] = []
    cpu_s = cluster.cpu_s()

    def answer(number: int) -> bytes:
        now_s = time.monotonic()
        done = times[number]
        if done:
            lags.append((now_s - returned_s[done - 1][number]) * 1000 - delay_ms)
        if done == len(returned_s):
            return BASIC_ACK
        returned_s[done][number] = now_s
        times[number] += 1
        return BASIC_NACK

    _take_all(cluster, kind, count, answer, BASIC_ACK)
    return cluster.cpu_s() - cpu_s, sorted(lags) or [0.0]


def _memory(cluster: Cluster, count: int) -> dict[str, float]:
    """Of each message on a node when all are ready, and when all wait after they were given back."""
    _publish(cluster, "first", KEPT_MS, QUEUES)
    before = cluster.memory_bytes()
    _publish(cluster, "kept", KEPT_MS, count)
    ready = cluster.memory_bytes() - before
    _take_all(cluster, "kept", count, lambda _: BASIC_NACK, BASIC_NACK)
    settle(cluster)
    waiting = cluster.memory_bytes() - before
    return {"ready_bytes_node": ready / count / NODES, "waiting_bytes_node": waiting / count / NODES}


def _take_all(cluster: Cluster, kind: str, count: int, answer: Callable[[int], bytes], last: bytes) -> None:
    """Consume, and answer each message by its number, until `count` answers were `last`."""

    def consumer(place: int, queue: str) -> Callable[[], None]:
        def work() -> None:
            with Pipeline(cluster.uris[place]) as client:
                _take(client, queue, len(range(place, count, QUEUES)), answer, last)

        return work

    in_threads([consumer(place, queue) for place, queue in enumerate(_names(kind))])


def _take(client: Pipeline, queue: str, count: int, answer: Callable[[int], bytes], last: bytes) -> None:
    client.open_channels()
    client.call(commands.Basic.Qos(prefetch_count=PREFETCH), commands.Basic.QosOk)
    client.call(commands.Basic.Consume(queue=queue), commands.Basic.ConsumeOk)
    client.give_up_after(_LOOKS_EACH_S)
    answers: list[bytes] = []
    left, tag, moved_s = count, 0, time.monotonic()
    while left:
        try:
            for kind, _, payload in client.frames():
                if kind == METHOD:
                    if payload[:4] != _DELIVER:
                        sys.exit(f"{queue}: not a delivery: {payload!r}")
                    (tag,) = _TAG.unpack_from(payload, _TAG_AFTER + payload[4])
                elif len(payload) == _STAMP.size + len(BODY):
                    method = answer(_STAMP.unpack_from(payload)[0])
                    left -= method == last
                    answers.append(_settle(method, tag))
                    if left == 0 or len(answers) >= _ANSWERED_AT_ONCE:
                        break
        except TimeoutError:
            if time.monotonic() - moved_s > PATIENCE_S:
                sys.exit(f"{queue}: {left} messages do not come")
        if answers:
            client.send(b"".join(answers))
            answers, moved_s = [], time.monotonic()
    client.give_up_after(PATIENCE_S)
    # What was sent is done when this is answered.
    client.call(commands.Channel.Close(200, "bye", 0, 0), commands.Channel.CloseOk)


def _settle(method: bytes, tag: int) -> bytes:
    payload = method + ACK_BODY.pack(tag, _REQUEUE if method == BASIC_NACK else 0)
    return _FRAME.pack(METHOD, 1, len(payload)) + payload + b"\xce"
