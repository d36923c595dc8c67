"""What a message costs the state machine: published, delivered, acknowledged in batches; a million of them at
rest.

    PYTHONPATH=. python tests/bench/shard_apply.py [--backlog 1000000]

Compiled or not is whatever `node.shard` is imported as; the first line says which.
"""

import argparse
import gc
import time

from mayfly.node.shard import state
from mayfly.node.shard.commands import (
    ACK,
    encode_attach,
    encode_create_queue,
    encode_expire_due,
    encode_get,
    encode_guard,
    encode_publish,
    encode_settle,
    encode_taken,
)
from mayfly.node.shard.effects import Deliver
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.readings import statistics_of
from tests.node.shard.driver import encode_settle_up_to

KEY = b"\x08exchange\x0brouting.key"
HEADER = bytes(40)
BODY = bytes(1024)
SESSION = (1, 1)
ROUNDS = 500
BATCH = 200
WINDOW_BYTES = 8 << 20


class Driver:
    """Applies one batch of commands an entry, and measures the time spent in the shard alone."""

    def __init__(self, local_node: int = 1) -> None:
        self.shard = Shard(1, local_node)
        self.index = 0
        self.spent_seconds = 0.0

    def entry(self, data: bytes, time_ms: int = 1000) -> list[object]:
        """Apply one entry; its effects."""
        self.index += 1
        shard = self.shard
        start = time.process_time()
        shard.begin(self.index, time_ms, time_ms, data)
        shard.apply(SESSION, 0, len(data))
        shard.finish()
        self.spent_seconds += time.process_time() - start
        shard.take_released()
        return list(shard.take_effects())


def publishes(count: int, ttl_ms: int = -1, queues: int = 1) -> bytes:
    """A batch of `count` publishes, of a burst a queue."""
    parts: list[bytes] = []
    for number in range(count):
        encode_publish(parts, [1 + number * queues // count], ttl_ms, KEY, HEADER, BODY)
    return b"".join(parts)


def cycle(
    name: str,
    ttl_ms: int = -1,
    consumers: int = 1,
    queues: int = 1,
    single_acks: bool = False,
    window_bytes: int = 0,
) -> None:
    """Publish, deliver and acknowledge in three-step rounds."""
    driver = Driver()
    for queue in range(1, queues + 1):
        driver.entry(encode_create_queue(queue, ShardQueueSettings(name=f"q{queue}")))
        for consumer in range(consumers):
            driver.entry(encode_attach(queue, queue * 100 + consumer, 1000, False, False, 0, window_bytes))
    data = publishes(BATCH, ttl_ms, queues)
    driver.spent_seconds = publish_seconds = ack_seconds = 0.0
    taken_bytes = reported_bytes = 0
    for _ in range(ROUNDS):
        before = driver.spent_seconds
        effects = driver.entry(data)
        publish_seconds += driver.spent_seconds - before
        settles = []
        for effect in effects:
            assert isinstance(effect, Deliver)
            first, count = effect.first_delivery_id, len(effect.messages)
            queue = effect.consumer_id // 100
            if window_bytes:
                taken_bytes += sum([message.counted_bytes for message in effect.messages])
                if taken_bytes - reported_bytes >= window_bytes // 4:
                    reported_bytes = taken_bytes
                    settles.append(encode_taken(queue, effect.consumer_id, taken_bytes))
            if single_acks:
                numbers = list(range(first, first + count))
                settles.append(encode_settle(queue, effect.consumer_id, ACK, numbers[::-1]))
            else:
                settles.append(encode_settle_up_to(queue, effect.consumer_id, ACK, first + count - 1))
        before = driver.spent_seconds
        driver.entry(b"".join(settles))
        ack_seconds += driver.spent_seconds - before
    total = ROUNDS * BATCH
    assert statistics_of(driver.shard).acknowledged == total
    print(
        f"{name:44} {driver.spent_seconds / total * 1e6:6.2f} us a message "
        f"(with delivery {publish_seconds / total * 1e6:.2f}, acknowledge {ack_seconds / total * 1e6:.2f})"
    )


def behind(messages: int) -> None:
    """A consumer that keeps up, so many messages behind what is published."""
    driver = Driver()
    driver.entry(encode_create_queue(1, ShardQueueSettings(name="q")))
    driver.entry(encode_attach(1, 100, 1000, False, False, 0, 0))
    data = publishes(BATCH)
    for _ in range(messages // BATCH):
        driver.entry(data)
    driver.spent_seconds = 0.0
    for number in range(1, ROUNDS + 1):
        driver.entry(data)
        driver.entry(encode_settle_up_to(1, 100, ACK, number * BATCH))
    assert statistics_of(driver.shard).acknowledged == ROUNDS * BATCH
    cost_us = driver.spent_seconds / ROUNDS / BATCH * 1e6
    print(f"{f'one consumer, {messages} messages behind':44} {cost_us:6.2f} us a message")


def gets() -> None:
    """basic.get one by one, an entry of 200 of them."""
    driver = Driver()
    driver.entry(encode_create_queue(1, ShardQueueSettings(name="q", expires_ms=60_000)))
    data = publishes(BATCH)
    for _ in range(50):
        driver.entry(data)
    driver.spent_seconds = 0.0
    for _ in range(50):
        driver.entry(encode_get(1, 7, True) * BATCH)
    cost_us = driver.spent_seconds / 50 / BATCH * 1e6
    print(f"{'basic.get, no ack, leased queue':44} {cost_us:6.2f} us a message")


def expiry() -> None:
    """A backlog that is all due, into the outbox."""
    driver = Driver()
    driver.entry(
        encode_create_queue(1, ShardQueueSettings(name="q", message_ttl_ms=500, dead_letter_exchange=""))
    )
    data = publishes(BATCH)
    for _ in range(100):
        driver.entry(data)
    driver.spent_seconds = 0.0
    entries = 0
    longest = 0.0
    while driver.shard.due_messages(5000):
        before = driver.spent_seconds
        driver.entry(encode_expire_due(), 5000)
        longest = max(longest, driver.spent_seconds - before)
        entries += 1
    total = 100 * BATCH
    assert len(driver.shard.unrouted(total + 1)) == total
    print(
        f"{'expiry into the outbox':44} {driver.spent_seconds / total * 1e6:6.2f} us a message "
        f"({entries} entries, longest {longest * 1e3:.2f} ms)"
    )


def limited() -> None:
    """Publishes to full queues: the oldest dropped, the new one refused."""
    for name, guarded, settings in (
        ("drop-head, full", False, ShardQueueSettings(name="q", max_length=1000)),
        ("reject-publish, room", True, ShardQueueSettings(name="q", max_length=1 << 40, overflow="reject-publish")),
        ("reject-publish, full", True, ShardQueueSettings(name="q", max_length=0, overflow="reject-publish")),
    ):
        driver = Driver()
        driver.entry(encode_create_queue(1, settings))
        data = encode_guard(BATCH) * guarded + publishes(BATCH)
        for _ in range(5):
            driver.entry(data)
        driver.spent_seconds = 0.0
        for _ in range(ROUNDS):
            driver.entry(data)
        print(f"{name:44} {driver.spent_seconds / ROUNDS / BATCH * 1e6:6.2f} us a message")


def backlog(count: int) -> None:
    """Snapshot, restore and delivery of a long queue."""
    driver = Driver()
    driver.entry(encode_create_queue(1, ShardQueueSettings(name="q")))
    data = publishes(1000, 3_600_000)
    driver.spent_seconds = 0.0
    for _ in range(count // 1000):
        driver.entry(data)
    cost_us = driver.spent_seconds / count * 1e6
    print(f"{f'publish {count} without consumer':44} {cost_us:6.2f} us a message")
    start = time.process_time()
    state = driver.shard.snapshot()
    taken = time.process_time() - start
    print(f"{f'snapshot of {count} messages':44} {taken:6.2f} s, {len(state) / 1e6:.0f} MB")
    other = Shard(1, 2)
    start = time.process_time()
    other.restore(state)
    print(f"{f'restore of {count} messages':44} {time.process_time() - start:6.2f} s")
    assert other.snapshot() == state


def main() -> None:
    """All of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backlog", type=int, default=1_000_000)
    arguments = parser.parse_args()
    compiled = not str(state.__file__).endswith(".py")
    gc.freeze()
    print("compiled" if compiled else "not compiled", f"batches of {BATCH}, 1 KB bodies")
    cycle("one consumer, multiple acks")
    cycle("one consumer with a window, multiple acks", window_bytes=WINDOW_BYTES)
    cycle("one consumer, acks one by one, out of order", single_acks=True)
    cycle("one consumer, message TTL", ttl_ms=60_000)
    cycle("eight consumers in turn", consumers=8)
    cycle("ten queues", queues=10)
    behind(20_000)
    behind(200_000)
    gets()
    expiry()
    limited()
    backlog(arguments.backlog)


if __name__ == "__main__":
    main()
