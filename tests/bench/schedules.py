"""What a message that waits for its time costs the state machine: published, at rest, and when it is due.

    PYTHONPATH=. python tests/bench/schedules.py [--waiting 1000000] [--due 100000]

With --expiry what it costs that messages expire anywhere in their queues (--queues), against those that expire at the
heads, too. With --waiting 0 that alone.
Compiled or not is whatever `node.shard` is imported as. Random due times within a day; the last of them in one second.
"""

import argparse
import gc
import random
import resource
import time
from pathlib import Path

from mayfly.node.shard import state
from mayfly.node.shard.commands import (
    AFTER,
    CANCEL,
    encode_change_scheduled,
    encode_create_queue,
    encode_expire_due,
    encode_guard,
    encode_publish,
    encode_publish_later,
)
from mayfly.node.shard.message_id import digest_of
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard

KEY = b"\x00\x05queue"
HEADER = bytes(60)
BODY = bytes(200)
BATCH = 200
DAY_MS = 86_400_000
DUE_MS = 2 * DAY_MS
EXPIRY_MS = 60_000
TICK_MS = 250
NOW_MS = 1_000_000_000_000


class Driver:
    """A shard with one queue; times what entries take it."""

    def __init__(self) -> None:
        self.shard = Shard(1, 1)
        self.index = 0
        self.entry(encode_create_queue(1, ShardQueueSettings(name="q", allow_schedule=True)), NOW_MS, True)

    def entry(self, data: bytes, time_ms: int, leader: bool = False) -> float:
        """Apply an entry; the seconds of CPU that it took."""
        self.index += 1
        start = time.process_time()
        self.shard.begin(self.index, time_ms, time_ms, data)
        self.shard.apply(None if leader else (1, 1), 0, len(data))
        self.shard.finish()
        spent_s = time.process_time() - start
        self.shard.take_released()
        self.shard.take_effects()
        return spent_s


def header_of(message_id: str) -> bytes:
    """A content header that has this id alone."""
    return b"\0\x3c" + bytes(10) + b"\0\x80" + bytes((len(message_id),)) + message_id.encode()


def batches(count: int, delays_ms: "list[int] | None", named: bool = False) -> "list[bytes]":
    made = []
    for start in range(0, count, BATCH):
        parts: list[bytes] = []
        for number in range(start, min(count, start + BATCH)):
            if delays_ms is None:
                encode_publish(parts, (1,), -1, KEY, HEADER, BODY)
            else:
                header = header_of(f"id-{number:08}") if named else HEADER
                encode_publish_later(parts, (1,), -1, KEY, header, BODY, (AFTER, delays_ms[number]))
        made.append(b"".join(parts))
    return made


def memory_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def cancels(waiting: int, cancelled: int, delays_ms: "list[int]") -> None:
    """What waits under ids: its memory, and what a cancel takes (RULES S4)."""
    named = Driver()
    data = batches(waiting, delays_ms, named=True)
    before = memory_bytes()
    spent_s = sum(named.entry(batch, NOW_MS) for batch in data)
    at_rest = memory_bytes() - before
    print(f"with ids: {spent_s / waiting * 1e6:.2f} us to publish, {at_rest / waiting:.0f} bytes a message at rest")
    longest_s = total_s = 0.0
    for number in range(0, waiting, max(1, waiting // cancelled)):
        change = encode_change_scheduled([1], digest_of(f"id-{number:08}".encode()), (CANCEL, 0))
        took_s = named.entry(encode_guard(1) + change, NOW_MS)
        total_s, longest_s = total_s + took_s, max(longest_s, took_s)
    print(f"cancel: {total_s / cancelled * 1e6:.0f} us among {waiting}, the longest {longest_s * 1e3:.1f} ms")


def expiry(count: int, queues: int, anywhere: bool) -> "tuple[float, float]":
    """Messages with random TTLs within a minute die tick by tick, behind heads that stay where they expire anywhere:
    us of each death, and what the longest tick took. (RULES X2)"""
    rng = random.Random(11)
    driver = Driver()
    first_id = 2
    for number in range(queues):
        terms = ShardQueueSettings(name=f"q{number}", expire_anywhere=anywhere)
        driver.entry(encode_create_queue(first_id + number, terms), NOW_MS, True)
    ttls_ms = [rng.randrange(EXPIRY_MS) for _ in range(count)]
    if not anywhere:
        ttls_ms.sort()
    for start in range(0, count, BATCH):
        parts: list[bytes] = []
        for number in range(start, min(count, start + BATCH)):
            encode_publish(parts, (first_id + number % queues,), ttls_ms[number] + 1, KEY, HEADER, BODY)
        driver.entry(b"".join(parts), NOW_MS)
    spent_s = longest_s = 0.0
    for now_ms in range(NOW_MS, NOW_MS + EXPIRY_MS + TICK_MS, TICK_MS):
        tick_s = 0.0
        while driver.shard.due_messages(now_ms):
            tick_s += driver.entry(encode_expire_due(), now_ms, True)
        spent_s += tick_s
        longest_s = max(longest_s, tick_s)
    expired = 0
    for number in range(queues):
        found = driver.shard.queue_statistics(first_id + number)
        assert found is not None and found.ready == 0
        expired += found.expired
    assert expired == count
    return spent_s / count * 1e6, longest_s


def main() -> None:
    """Measure it all, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--cancelled", type=int, default=10_000)
    parser.add_argument("--expiry", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=48)
    arguments = parser.parse_args()
    count, queues = arguments.expiry, arguments.queues
    if count:
        (head_us, _), (any_us, longest_s) = expiry(count, queues, False), expiry(count, queues, True)
        print(f"a death: at the head {head_us:.2f} us, anywhere {any_us:.2f} us, {any_us - head_us:.2f} us more")
        print(f"what is due in {TICK_MS} ms of {count} in {queues} queues takes {longest_s * 1e3:.0f} ms at most")
    if not arguments.waiting:
        return
    print("compiled" if state.__file__.endswith(".so") else "not compiled")
    rng = random.Random(7)
    plain = Driver()
    data = batches(50_000, None)
    plain_us = sum(plain.entry(batch, NOW_MS) for batch in data) / 50_000 * 1e6
    del plain, data
    later = Driver()
    delays_ms = [rng.randrange(1, DAY_MS) for _ in range(arguments.waiting)]
    data = batches(arguments.waiting, delays_ms)
    before = memory_bytes()
    spent_s = sum(later.entry(batch, NOW_MS) for batch in data)
    at_rest = memory_bytes() - before
    later_us = spent_s / arguments.waiting * 1e6
    print(f"publish: plain {plain_us:.2f} us, to wait {later_us:.2f} us, {later_us / plain_us:.2f} times")
    print(f"at rest: {at_rest / arguments.waiting:.0f} bytes a message")
    for batch in batches(arguments.due, [DUE_MS + rng.randrange(1000) for _ in range(arguments.due)]):
        later.entry(batch, NOW_MS)
    longest_s = spent_s = 0.0
    entries = 0
    while later.shard.due_messages(NOW_MS + 3 * DAY_MS):
        took_s = later.entry(encode_expire_due(), NOW_MS + 3 * DAY_MS, True)
        spent_s += took_s
        longest_s = max(longest_s, took_s)
        entries += 1
    ready = arguments.waiting + arguments.due
    found = later.shard.queue_statistics(1)
    assert found is not None and found.ready == ready
    cancels(arguments.waiting, arguments.cancelled, delays_ms)
    print(f"due: {spent_s / ready * 1e6:.2f} us a message, {entries} entries, the longest {longest_s * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
