"""What it costs to keep, encode and decode what entries mean for a session of a node without a replica.

    .venv/bin/python -P tests/bench/feeds.py [--entries 20000] [--messages 1]

Of the installed package. Each entry has an answer without results, and a delivery of so many messages of 1 KB. What is
printed is us of an entry: compare runs of one machine at one time. Under `valgrind --tool=callgrind
--instr-atstart=no`, with `--count-instructions`, only these steps are counted.
"""

import argparse
import os
import subprocess
import time

from mayfly.cluster.group.feeds import Feeds
from mayfly.node.engine.feed_codec import ShardFeedCodec
from mayfly.node.shard.effects import Deliver
from mayfly.node.shard.message import Message
from mayfly.node.shard.shard import Shard

NODE = 7
SESSION = (NODE, 5 << 20)
PART_BYTES = 1 << 20
NOW_MS = 1_795_000_000_000
CONTENT = (20, 30, 1024)
"""Lengths of keys, header and body."""


class OnePayload:
    """Whatever entry is asked for. Implements `Payloads`."""

    def __init__(self, messages: int) -> None:
        self._data = bytes(30 + messages * sum(CONTENT))

    def data(self, index: int) -> bytes:
        return self._data

    def views(self, index: int, start: int, length: int) -> list[memoryview]:
        return [memoryview(self._data)[start : start + length]]


def delivery(index: int, messages: int) -> Deliver:
    given = [
        Message(index, 30 + place * sum(CONTENT), *CONTENT, NOW_MS + index, NOW_MS + 60_000, 0, 60_000)
        for place in range(messages)
    ]
    return Deliver(3 << 32 | 17, index * messages, given, SESSION)


def count_instructions(on: bool) -> None:
    words = ["callgrind_control", "-i", "on" if on else "off", str(os.getpid())]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--messages", type=int, default=1)
    parser.add_argument("--count-instructions", action="store_true")
    given = parser.parse_args()
    shard = Shard(1, 1)
    feeds = Feeds(shard.listen, shard.needs)
    codec = ShardFeedCodec(lambda: True)
    payloads = OnePayload(given.messages)
    effects = [delivery(index, given.messages) for index in range(1, given.entries + 1)]
    spent_s = [0.0, 0.0, 0.0]
    if given.count_instructions:
        count_instructions(True)
    for index, effect in enumerate(effects, 1):
        began_s = time.perf_counter()
        feeds.batch(SESSION, index, True, index)
        feeds.answered(NODE, index, [])
        feeds.effects([effect])
        feeds.finish(index)
        if index % 8 == 0:
            feeds.is_told(SESSION, index - 1)
        kept_s = time.perf_counter()
        feed = feeds.get(NODE)
        assert feed is not None
        ((_, pieces),) = codec.encode(feed.behind(index - 1), payloads, PART_BYTES)
        octets = b"".join(pieces)
        encoded_s = time.perf_counter()
        codec.decode([octets], SESSION)
        decoded_s = time.perf_counter()
        spent_s[0] += kept_s - began_s
        spent_s[1] += encoded_s - kept_s
        spent_s[2] += decoded_s - encoded_s
    if given.count_instructions:
        count_instructions(False)
    keep, encode, decode = (each / given.entries * 1e6 for each in spent_s)
    print(f"{given.messages} messages an entry: keep {keep:.2f} us, encode {encode:.2f} us, decode {decode:.2f} us")


if __name__ == "__main__":
    main()
