"""What messages that stay in a stream cost the state machine: memory, and the time to write and to read its snapshot.

    PYTHONPATH=. python tests/bench/stream_index.py [--messages 10000000] [--batch 200]

Messages of 100 bytes, `--batch` of them in an entry. Compiled or not is whatever `node.shard` is imported as.
"""

import argparse
import time

from mayfly.node.shard import state
from mayfly.node.shard.shard import Shard
from tests.bench.stream_ttls import Driver, memory_bytes
from tests.bench.stream_ttls import batches as batches_of


def main() -> None:
    """Measure it all, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=200)
    arguments = parser.parse_args()
    count, size = arguments.messages, arguments.batch
    print("compiled" if state.__file__.endswith(".so") else "not compiled")
    driver = Driver()
    [batch] = batches_of(size, None, 0)
    before = memory_bytes()
    spent_s = sum(driver.entry(batch) for _ in range(count // size))
    assert driver.left() == count
    print(f"published: {spent_s / count * 1e6:.2f} us")
    print(f"at rest: {(memory_bytes() - before) / count:.1f} bytes a message")
    start = time.process_time()
    data = driver.shard.snapshot()
    print(f"snapshot: {len(data) / count:.1f} bytes a message, written in {time.process_time() - start:.2f} s of CPU")
    start = time.process_time()
    restored = Shard(1, 1)
    restored.restore(data)
    print(f"read in {time.process_time() - start:.2f} s of CPU")
    assert restored.snapshot() == data


if __name__ == "__main__":
    main()
