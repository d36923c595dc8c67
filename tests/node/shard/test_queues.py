"""Creating, counting, purging, deleting queues."""

from mayfly.node.shard import commands
from mayfly.node.shard.commands import encode_create_queue, encode_delete_queue, encode_detach, encode_touch_queue
from mayfly.node.shard.results import Applied, Deleted, Gone, Purged, QueueCounts, Refused
from mayfly.node.shard.settings import ShardQueueSettings
from tests.node.readings import statistics_of
from tests.node.shard.driver import A, B, Close, Driver, attach, noop, publish


def test_create_and_touch_answer_counts() -> None:
    """Golden queue.counts: declare-ok counts ready messages and consumers."""
    driver = Driver()
    settings = ShardQueueSettings(name="q1")
    (made,) = driver.run(encode_create_queue(1, settings))
    assert isinstance(made, QueueCounts)
    assert (made.created, made.ready, made.consumers) == (True, 0, 0)
    driver.run(attach(1, 5, prefetch=1), publish("a"), publish("b"))
    for again in (encode_create_queue(1, settings), encode_touch_queue(1)):
        (answer,) = driver.run(again)
        assert isinstance(answer, QueueCounts)
        assert (answer.created, answer.ready, answer.consumers) == (False, 1, 1)
    (unknown, barrier) = driver.run(encode_touch_queue(2), noop())
    assert isinstance(unknown, Gone)
    assert (unknown.queue_id, unknown.reason) == (2, "")
    assert isinstance(barrier, Applied)
    assert list(driver.shard.queue_ids()) == [1]


def test_purge_takes_ready_ones_only() -> None:
    """Golden queue.purge_counts."""
    driver = Driver()
    driver.create(1, delivery_limit=9)
    driver.run(*(publish(str(i)) for i in range(5)))
    assert driver.get(1, no_ack=False) == "0"
    assert driver.get(1, no_ack=False) == "1"
    driver.run(commands.encode_settle(1, 99, commands.REQUEUE, [2]))
    (answer,) = driver.run(commands.encode_purge(1))
    assert isinstance(answer, Purged)
    assert answer.messages == 4
    driver.run(encode_detach(1, 99, True))
    assert driver.drain(1) == ["0"]
    statistics = statistics_of(driver.shard)
    assert (statistics.ready_bytes, statistics.unacknowledged_bytes, statistics.live_entries) == (0, 0, 0)


def test_delete_conditions() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5, prefetch=1), publish("a"), publish("b"))
    in_use, not_empty = driver.run(encode_delete_queue(1, True, False), encode_delete_queue(1, False, True))
    assert isinstance(in_use, Refused)
    assert isinstance(not_empty, Refused)
    assert (in_use.reason, not_empty.reason) == ("in-use", "not-empty")
    deleted, again = driver.run(encode_delete_queue(1, False, False), encode_delete_queue(1, False, False))
    assert isinstance(deleted, Deleted)
    assert deleted.messages == 1
    assert isinstance(again, Gone)
    assert again.reason == "deleted"
    driver.create(2)
    (empty,) = driver.run(encode_delete_queue(2, True, True))
    assert isinstance(empty, Deleted)


def test_drop_leaves_nothing() -> None:
    driver = Driver()
    driver.create(1)
    driver.run(attach(1, 5), publish("a"))
    driver.lead(commands.encode_drop_queue(1), commands.encode_drop_queue(1))
    assert driver.cancelled() == [5]
    assert driver.shard.deleted == {}
    assert not driver.exists(1)


def test_auto_delete_after_the_last_consumer_and_not_before_the_first() -> None:
    for going in ("cancel", "channel", "node"):
        driver = Driver()
        driver.create(1, auto_delete=True, dead_letter_exchange="dlx")
        driver.run(publish("a"), publish("b"))
        assert driver.get(1, no_ack=False) == "a"
        driver.run(encode_detach(1, 99, True))
        assert driver.exists(1)
        driver.run(attach(1, 5))
        driver.run(attach(1, 5), session=B)
        driver.run(encode_detach(1, 5, True), session=B)
        assert driver.exists(1)
        if going == "node":
            driver.entry(Close(A))
        else:
            driver.run(encode_detach(1, 5, going == "channel"))
        assert not driver.exists(1)
        assert driver.shard.deleted[1].reason == "auto-delete"
        assert driver.shard.unrouted(9) == []
        assert list(driver.shard.live_entries()) == []
        assert driver.shard._state.sessions == {}


def test_a_lost_node_with_several_holders_on_one_auto_delete_queue() -> None:
    driver = Driver()
    driver.create(1, auto_delete=True)
    driver.create(2)
    driver.run(publish("a"), publish("b"), attach(1, 5, prefetch=1), attach(1, 6, prefetch=1), attach(2, 5))
    driver.run(publish("c"), commands.encode_get(1, 99, False))
    driver.entry(Close(A))
    assert list(driver.shard.queue_ids()) == [2]
    assert driver.shard._state.sessions == {}


def test_totals_outlive_their_queue() -> None:
    driver = Driver()
    driver.create(1, message_ttl_ms=10)
    driver.run(publish("a"), publish("b"))
    assert driver.get(1) == "a"
    driver.pass_ms(10)
    driver.tick()
    driver.run(encode_delete_queue(1, False, False))
    driver.shard.restore(driver.shard.snapshot())
    statistics = statistics_of(driver.shard)
    assert (statistics.enqueued, statistics.delivered, statistics.expired, statistics.queues) == (2, 1, 1, 0)
    assert driver.shard.queue_statistics(1) is None


def test_bytes_are_counted_through_every_way() -> None:
    driver = Driver()
    driver.create(1, delivery_limit=1)
    driver.run(attach(1, 5, prefetch=2), publish("a" * 10), publish("b" * 100), publish("c" * 1000))

    def seen() -> tuple[int, int]:
        statistics = driver.shard.queue_statistics(1)
        assert statistics is not None
        return statistics.ready_bytes, statistics.unacknowledged_bytes

    assert seen() == (1000, 110)
    driver.run(commands.encode_settle(1, 5, commands.REQUEUE, [2]))
    assert seen() == (1000, 110)
    driver.run(commands.encode_settle(1, 5, commands.ACK, [1]))
    assert seen() == (0, 1100)
    driver.run(commands.encode_settle(1, 5, commands.REQUEUE, [3, 4]))
    assert seen() == (0, 1000)
    driver.run(commands.encode_settle(1, 5, commands.REJECT, [5]))
    assert seen() == (0, 0)
