"""What messages of a stream with TTLs of their own cost the state machine, and how late they leave (RULES J2, T7).

    PYTHONPATH=. python tests/bench/stream_ttls.py [--messages 1000000] [--keys 0] [--tick 250]

Random TTLs of 1 to 60 s, all published within a second. The leader's ticker is played on a clock that moves by so many
ms a tick, and by the CPU that the entries have taken: how late a message leaves is by that clock. Compared with as many
that a stream of the same age loses at its head. Compiled or not is whatever `node.shard` is imported as; the ratios do
not depend on the machine.
"""

import argparse
import gc
import random
import resource
import time
from array import array
from pathlib import Path

from mayfly.node.shard import state
from mayfly.node.shard.commands import (
    encode_create_queue,
    encode_expire_due,
    encode_publish,
    encode_publish_kept,
    encode_raise_level,
)
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard

HEADER = bytes(60)
BODY = bytes(200)
BATCH = 200
NOW_MS = 1_000_000_000_000
TICK_MS = 250
MOST_MS = 60_000
LEVEL = 8


class Driver:
    """A shard with one stream; its clock goes on by what entries take, too."""

    def __init__(self, tick_ms: int = TICK_MS, **settings: object) -> None:
        self.shard = Shard(1, 1)
        self.tick_ms = tick_ms
        self.index = 0
        self.now_ms = float(NOW_MS)
        self.longest_s = 0.0
        self.gone_ms: list[int] = []
        """When each message that has expired was gone."""
        made = ShardQueueSettings(name="s", is_stream=True, ttl_retroactive=True, **settings)  # type: ignore[arg-type]
        self.entry(encode_raise_level(LEVEL), True)
        self.entry(encode_create_queue(1, made), True)

    def entry(self, data: bytes, leader: bool = False) -> float:
        """Apply an entry; the seconds of CPU that it took."""
        self.index += 1
        start = time.process_time()
        self.shard.begin(self.index, int(self.now_ms), int(self.now_ms), data)
        self.shard.apply(None if leader else (1, 1), 0, len(data))
        self.shard.finish()
        spent_s = time.process_time() - start
        self.now_ms += spent_s * 1000
        self.longest_s = max(self.longest_s, spent_s)
        self.shard.take_released()
        self.shard.take_effects()
        return spent_s

    def run_out(self) -> float:
        """Ticks until nothing is left; the seconds of CPU that they took."""
        spent_s = 0.0
        self.longest_s = 0.0
        while self.shard.next_message_due_ms() >= 0:
            self.now_ms += self.tick_ms
            while self.shard.due_messages(int(self.now_ms)):
                left = self.left()
                spent_s += self.entry(encode_expire_due(), True)
                self.gone_ms += [int(self.now_ms)] * (left - self.left())
        return spent_s

    def left(self) -> int:
        found = self.shard.queue_statistics(1)
        assert found is not None
        return found.ready


def batches(count: int, ttls_ms: "list[int] | None", keys: int) -> "list[bytes]":
    made = []
    names = [b"\x00\x06%06d" % number for number in range(max(1, keys))]
    for start in range(0, count, BATCH):
        parts: list[bytes] = []
        for number in range(start, min(count, start + BATCH)):
            name = names[number % len(names)]
            if ttls_ms is None:
                encode_publish(parts, (1,), -1, name, HEADER, BODY)
            else:
                encode_publish_kept(parts, (1,), -1, name, HEADER, BODY, None, ttls_ms[number])
        made.append(b"".join(parts))
    return made


def memory_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Measure it all, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--tick", type=int, default=TICK_MS, help="in ms")
    arguments = parser.parse_args()
    count, keys = arguments.messages, arguments.keys
    print("compiled" if state.__file__.endswith(".so") else "not compiled")
    rng = random.Random(7)
    aging = Driver(arguments.tick, message_ttl_ms=MOST_MS)
    data = batches(count, None, keys)
    aged_in_us = sum(aging.entry(batch) for batch in data) / count * 1e6
    aged_us = aging.run_out() / count * 1e6
    assert aging.left() == 0
    del aging, data
    timed = Driver(arguments.tick, key_index=keys > 0)
    ttls_ms = [rng.randrange(1000, MOST_MS) for _ in range(count)]
    data = batches(count, ttls_ms, keys)
    before = memory_bytes()
    deadlines_ms = array("q")
    spent_s = 0.0
    for number, batch in enumerate(data):
        deadlines_ms.extend([int(timed.now_ms) + ttl_ms for ttl_ms in ttls_ms[number * BATCH : (number + 1) * BATCH]])
        left = timed.left()
        spent_s += timed.entry(batch)
        came = min(BATCH, count - number * BATCH)
        timed.gone_ms += [int(timed.now_ms)] * (left + came - timed.left())
    in_us = spent_s / count * 1e6
    at_rest = memory_bytes() - before - deadlines_ms.itemsize * count
    out_us = timed.run_out() / count * 1e6
    assert timed.left() == 0
    print(f"published: {in_us:.2f} us, {in_us / aged_in_us:.2f} times one without a TTL")
    print(f"at rest: {at_rest / count:.1f} bytes a message")
    print(
        f"left: {out_us:.2f} us, {out_us / aged_us:.2f} times one that leaves by age; the longest entry "
        f"{timed.longest_s * 1e3:.0f} ms"
    )
    # What expires first goes first.
    late_ms = sorted(gone - due for gone, due in zip(timed.gone_ms, sorted(deadlines_ms), strict=True))
    print(f"late: p50 {late_ms[count // 2]} ms, p99 {late_ms[count * 99 // 100]} ms, most {late_ms[-1]} ms")


if __name__ == "__main__":
    main()
