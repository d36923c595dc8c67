"""What a forecast and a policy on trial cost a shard: how long, and how long the longest step keeps others waiting.

    PYTHONPATH=. python tests/bench/outlook.py [--messages 1000000]

Compiled or not is whatever `node.shard` is imported as. The bars: 300 ms for a forecast of a million messages, and no
more than 20 ms of silence (RULES R2).
"""

import argparse
import gc
import random
import time
from collections.abc import Iterator

from mayfly.node.operating.outlook import STEPS_AT_ONCE
from mayfly.node.operating.ports.outlook import USUAL_WINDOWS_MS
from mayfly.node.shard import state
from mayfly.node.shard.commands import (
    AFTER,
    encode_attach,
    encode_create_queue,
    encode_publish,
    encode_publish_later,
)
from mayfly.node.shard.outlook import outlook_steps
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.trial import trial_steps

KEY, HEADER, BODY = b"\x00\x05queue", bytes(60), bytes(20)
BATCH = 200
NOW_MS = 1_000_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SHAPES = ("same TTL", "TTLs of their own", "no TTL", "scheduled", "scheduled with TTLs", "held and given back")


class Filled:
    """A shard with one queue and so many messages in it."""

    def __init__(self, shape: str, count: int) -> None:
        self.shard = Shard(1, 1)
        self.index = 0
        random.seed(1)
        self.entry(encode_create_queue(1, ShardQueueSettings(name="q", allow_schedule=True)))
        if shape == "held and given back":
            self.entry(encode_attach(1, 7, 0, False, False, 0, 0))
        for start in range(0, count, BATCH):
            parts: list[bytes] = []
            for _ in range(min(BATCH, count - start)):
                delay_ms = random.randrange(2 * DAY_MS)
                own_ms = -1 if shape in ("no TTL", "scheduled") else HOUR_MS if shape == "same TTL" else delay_ms // 2
                if shape.startswith("scheduled"):
                    encode_publish_later(parts, (1,), own_ms, KEY, HEADER, BODY, (AFTER, delay_ms))
                else:
                    encode_publish(parts, (1,), own_ms, KEY, HEADER, BODY)
            self.entry(b"".join(parts))
        if shape == "held and given back":
            self.index += 1
            self.shard.begin(self.index, NOW_MS + self.index, NOW_MS + self.index, b"")
            self.shard.session_closed((1, 1))
            self.shard.finish()

    def entry(self, data: bytes) -> None:
        """Apply one."""
        self.index += 1
        self.shard.begin(self.index, NOW_MS + self.index, NOW_MS + self.index, data)
        self.shard.apply((1, 1), 0, len(data))
        self.shard.finish()
        self.shard.take_released()
        self.shard.take_effects()


def timed(steps: Iterator[object]) -> tuple[float, float]:
    """The seconds of CPU that it takes in all, and those of the longest turn of STEPS_AT_ONCE steps."""
    began = turn = time.process_time()
    longest = 0.0
    for number, _ in enumerate(steps, 1):
        if number % STEPS_AT_ONCE == 0:
            now = time.process_time()
            longest = max(longest, now - turn)
            turn = now
    now = time.process_time()
    return now - began, max(longest, now - turn)


def main() -> None:
    """Measure each shape, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    count = parser.parse_args().messages
    print("compiled" if state.__file__.endswith(".so") else "not compiled", f"{count:,} messages in one queue")
    terms = ShardQueueSettings(name="q", message_ttl_ms=1000, ttl_retroactive=True, max_length=10)
    for shape in SHAPES:
        filled = Filled(shape, count)
        queue = filled.shard.queue(1)
        assert queue is not None
        gc.collect()
        gc.freeze()
        now_ms = NOW_MS + filled.index
        forecast = timed(outlook_steps(queue, now_ms, now_ms, list(USUAL_WINDOWS_MS)))
        trial = timed(trial_steps(queue, terms, now_ms, now_ms))
        print(
            f"{shape:22} forecast {forecast[0] * 1000:6.0f} ms, longest turn {forecast[1] * 1000:5.1f} ms;"
            f" trial {trial[0] * 1000:6.0f} ms, longest turn {trial[1] * 1000:5.1f} ms", flush=True,
        )  # fmt: skip
        gc.unfreeze()
        del filled, queue


if __name__ == "__main__":
    main()
