"""What a queue and a waiting message cost in memory: bounds that docs/measurements/expiry.md names, far enough off
to be steady.

Counted by tracemalloc, so without what the allocator adds; the compiled modules take less.
"""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from mayfly.node.catalog import Catalog, DeclareQueue, decode, encode
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.shard import commands, message
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import Driver, publish

QUEUES = 5000
CATALOG_QUEUE_BYTES = 450
SHARD_QUEUE_BYTES = 1180
MESSAGES = 20_000
MESSAGE_BYTES = 230


def grown_bytes(work: Callable[[], object]) -> int:
    """How much more memory is in use after some work, as long as its result is kept."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = work()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
        del kept
        return grown
    finally:
        tracemalloc.stop()


def filled_catalog() -> Catalog:
    """A catalog with many leased queues, as commands off the wire made it."""
    catalog = Catalog(16)
    arguments = {"x-queue-type": "quorum", "x-expires": 60_000, "x-dead-letter-exchange": ""}
    for number in range(QUEUES):
        command = DeclareQueue("/", f"lease-{number}", True, arguments=arguments, connection="10.0.0.1:5 -> 10.0.0.2:6")
        catalog.apply(decode(encode(command)), 1_700_000_000_000 + number)
    return catalog


def test_a_queue_in_the_catalog_takes_a_few_hundred_bytes() -> None:
    filled_catalog()  # what is cached by the first use is not counted
    assert grown_bytes(filled_catalog) / QUEUES < CATALOG_QUEUE_BYTES


def test_so_does_one_that_came_by_a_snapshot() -> None:
    data = filled_catalog().snapshot()

    def restored() -> Catalog:
        catalog = Catalog(16)
        catalog.restore(data)
        return catalog

    restored()
    assert grown_bytes(restored) / QUEUES < CATALOG_QUEUE_BYTES


def filled_shard(catalog: Catalog) -> Shard:
    """A shard with all queues of a catalog, none of which was ever used."""
    shard = Shard(1, 1)
    for index, record in enumerate(catalog.queues(), 2):
        data = commands.encode_create_queue(record.id, shard_settings(catalog, record))
        shard.begin(index, 1_700_000_000_000 + index, 1000 + index, data)
        shard.apply((1, 1), 0, len(data))
        shard.finish()
    return shard


def test_an_idle_queue_in_its_shard_takes_a_kilobyte() -> None:
    catalog = filled_catalog()
    filled_shard(catalog)
    assert grown_bytes(lambda: filled_shard(catalog)) / QUEUES < SHARD_QUEUE_BYTES


def test_a_waiting_message_takes_its_numbers_and_no_more() -> None:
    """Each with a deadline of its own; bodies are in the log."""

    def waiting() -> Shard:
        driver = Driver()
        driver.create(1)
        for number in range(MESSAGES // 100):
            batch = b"".join(publish("m", 1, ttl_ms=3_600_000 + number * 100 + each) for each in range(100))
            driver.run(batch)
        driver.log.clear()
        assert driver.ready(1) == MESSAGES
        return driver.shard

    waiting()
    assert grown_bytes(waiting) / MESSAGES < MESSAGE_BYTES


@pytest.mark.skipif(not message.__file__.endswith(".so"), reason="mayfly.node.shard.message is not compiled")
def test_the_garbage_collector_does_not_look_at_messages() -> None:
    """It would look at all that wait in one go: 0.17 us each, 0.8 s in which a node with 5 000 000 answers nobody."""
    assert not gc.is_tracked(message.Message(1, 2, 3, 4, 5, 6, 7, 0))
