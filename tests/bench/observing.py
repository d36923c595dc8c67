"""What looking costs a node: one long queue, looked at again and again; many queues, listed and counted.

    PYTHONPATH=. python tests/bench/observing.py [--messages 1000000] [--queues 100000]

CPU time of this process. Compiled or not is whatever `node.shard` is imported as; the first line says which.
"""

import argparse
import time
from random import Random
from typing import Any

from mayfly.node.catalog import DeclareQueue
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.http.metrics import rendered
from mayfly.node.operating.ports.queue_selection import MOST_QUEUES, QueueSelection
from mayfly.node.operating.views.queue_metrics import queue_metrics
from mayfly.node.operating.views.queue_views import LOOKED_AT
from mayfly.node.shard import state
from mayfly.node.shard.commands import encode_create_queue, encode_publish
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.waiting import WaitingIndex
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.operating.seeing import Seeing, engine_metrics

_BATCH = 1000


def apply(shard: Shard, index: int, time_ms: int, data: bytes) -> None:
    """One entry."""
    shard.begin(index, time_ms, time_ms, data)
    shard.apply((1, 1), 0, len(data))
    shard.finish()


def long_queue(count: int) -> None:
    """Deadlines in any order behind a head without one; then single looks while it changes."""
    shard = Shard(1, 1)
    apply(shard, 1, 0, encode_create_queue(1, ShardQueueSettings(name="q")))
    random = Random(1)
    for entry in range(count // _BATCH):
        parts: list[bytes] = []
        for number in range(_BATCH):
            ttl_ms = -1 if entry == number == 0 else random.randrange(1, 3_600_000)
            encode_publish(parts, [1], ttl_ms, b"", b"", b"x")
        apply(shard, entry + 2, entry, b"".join(parts))
    queue = shard.queue(1)
    assert queue is not None
    index = WaitingIndex(queue)
    longest = total = 0.0
    exact = False
    while not exact:
        start = time.process_time()
        exact = index.look(1_800_000, LOOKED_AT).exact
        spent = time.process_time() - start
        longest, total = max(longest, spent), total + spent
    print(f"first look at {count} messages: {total * 1e3:.0f} ms in slices of at most {longest * 1e3:.1f} ms")
    start = time.process_time()
    for moment in range(100):
        seen = index.look(1_800_000 + moment, LOOKED_AT)
    print(f"every further one: {(time.process_time() - start) * 10:.2f} ms ({seen.expired} of them expired)")
    start = time.process_time()
    count_plainly = sum(0 <= message.deadline_ms <= 1_800_099 for message in queue.ready.live())
    print(f"a plain count of all of them: {(time.process_time() - start) * 1e3:.0f} ms")
    assert count_plainly == seen.expired


def many_queues(count: int) -> None:
    """What `/metrics`, `/metrics/per-queue` and `/queues` ask of a node."""
    brokers = ThreeBrokers()
    engine = brokers.nodes[1].engine
    for number in range(count):
        result: Any = engine.catalog.apply(DeclareQueue("/", f"queue.number.{number}", durable=True))
        record = result.queue
        command = encode_create_queue(record.id, shard_settings(engine.catalog, record))
        apply(engine.shards[record.shard], 1_000_000 + number, brokers.now_ms, command)
    seeing = Seeing(brokers, 1)

    def timed(name: str, work: Any) -> None:
        start = time.process_time()
        page = work()
        print(f"{name}: {(time.process_time() - start) * 1e3:.0f} ms, {len(page) / 1e3:.0f} kB")

    def selected(selection: QueueSelection) -> bytes:
        rows, left_out = seeing.run(seeing.queues.some(selection))
        return rendered(queue_metrics(rows, left_out))

    def per_queue(limit: int) -> bytes:
        return selected(QueueSelection(limit=limit))

    print(f"{count} queues:")
    timed("  /metrics", lambda: rendered(engine_metrics(engine, brokers.now_ms)))
    timed("  /metrics/per-queue", lambda: per_queue(1000))
    timed(f"  /metrics/per-queue?limit={MOST_QUEUES}", lambda: per_queue(MOST_QUEUES))
    name = frozenset({"queue.number.77"})
    timed("  /metrics/per-queue?queue=", lambda: selected(QueueSelection("/", name)))


def main() -> None:
    """Both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=100_000)
    arguments = parser.parse_args()
    print("not compiled" if str(state.__file__).endswith(".py") else "compiled")
    long_queue(arguments.messages)
    many_queues(arguments.queues)


if __name__ == "__main__":
    main()
