"""Message TTL in the ways of LavinMQ and OtterMQ, in a shard (RULES X1; docs/dialects.md says what they document)."""

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.dialect import DIALECTS, LAVINMQ, OTTERMQ, deadline_by, queue_ttl_of, ttl_rule
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import Driver, attach, publish, update_queue


def test_x1_a_rule_is_one_number_that_says_dialect_and_ttl() -> None:
    """RULES X1: without a dialect it is the TTL, as it always was."""
    for ttl_ms in (-1, 0, 1, 315_360_000_000, 1 << 48):
        assert ttl_rule(0, ttl_ms) == ttl_ms
        for dialect in range(len(DIALECTS)):
            assert queue_ttl_of(ttl_rule(dialect, ttl_ms)) == ttl_ms


@pytest.mark.parametrize(
    "enqueued_ms, queue_ttl_ms, ttl_ms, lavinmq_ms, ottermq_ms",
    [
        (1_000_000, -1, -1, -1, -1),
        (1_000_000, 1000, -1, 1_001_000, 1_001_000),
        (1_000_050, 1000, -1, 1_001_000, 1_001_050),
        (1_000_099, -1, 1000, 1_001_000, 1_001_099),
        (1_000_050, 5000, 1000, 1_001_000, 1_001_050),
        (1_000_050, 1000, 5000, 1_001_000, 1_005_050),
        (1_000_050, 20, -1, 1_000_050, 1_000_070),
        (1_000_050, -1, 0, 1_000_050, 1_000_050),
    ],
)
def test_x1_deadlines(
    enqueued_ms: int, queue_ttl_ms: int, ttl_ms: int, lavinmq_ms: int, ottermq_ms: int
) -> None:
    """RULES X1: LavinMQ rounds down to 100 ms, of the lower TTL; OtterMQ takes the message's before the queue's."""
    assert deadline_by(ttl_rule(LAVINMQ, queue_ttl_ms), enqueued_ms, ttl_ms) == lavinmq_ms
    assert deadline_by(ttl_rule(OTTERMQ, queue_ttl_ms), enqueued_ms, ttl_ms) == ottermq_ms


def test_x1_lavinmq_a_deadline_is_rounded_down_to_100_ms() -> None:
    """RULES X1: (msg.timestamp + ttl) // 100 * 100, of the lower of both TTLs."""
    driver = Driver()
    driver.create(1, ttl_dialect="lavinmq", ttl_retroactive=True, message_ttl_ms=1000)
    driver.pass_ms(50)
    driver.run(publish("of the queue", 1), publish("its own", 1, ttl_ms=400), publish("too long", 1, ttl_ms=9000))
    assert driver.shard.next_message_due_ms() == 1_001_000
    driver.pass_ms(949)
    driver.tick()
    assert driver.ready(1) == 3
    driver.pass_ms(1)
    driver.tick()
    assert driver.ready(1) == 0


def test_x1_lavinmq_a_changed_queue_ttl_counts_for_what_is_queued() -> None:
    """RULES X1: computed anew from when it was published; the shard is told so with the dialect."""
    driver = Driver()
    driver.create(1, ttl_dialect="lavinmq", message_ttl_ms=60_000, ttl_retroactive=True)
    driver.pass_ms(70)
    driver.run(publish("a", 1), publish("b", 1, ttl_ms=50_000))
    settings = ShardQueueSettings(name="q1", ttl_dialect="lavinmq", message_ttl_ms=1000, ttl_retroactive=True)
    driver.lead(update_queue(1, settings))
    assert driver.shard.next_message_due_ms() == 1_001_000
    driver.pass_ms(930)
    driver.tick()
    assert driver.ready(1) == 0


def test_x1_lavinmq_ttl_zero_is_delivered_if_somebody_consumes() -> None:
    """RULES X1: though the consumer has no room when it arrives; without consumers it expires."""
    driver = Driver()
    driver.create(1, ttl_dialect="lavinmq", ttl_retroactive=True, message_ttl_ms=0, dead_letter_exchange="dlx")
    driver.run(publish("nobody", 1))
    driver.run(attach(1, 5, prefetch=1))
    driver.run(publish("first", 1), publish("second", 1))
    assert driver.deliveries() == [(5, 1, "first")] and driver.ready(1) == 1
    driver.pass_ms(10_000)
    driver.tick()
    driver.run(commands.encode_settle(1, 5, commands.ACK, [1]))
    assert driver.deliveries()[-1] == (5, 2, "second")
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["nobody"]


def test_x1_lavinmq_consumers_and_gets_alone_use_a_queue() -> None:
    """RULES X1: the three signals of its queue TTL; a declaration is none, nor is a publish."""
    for use, stays in (
        (commands.encode_get(1, 99, True), True),
        (commands.encode_touch_queue(1), False),
        (publish("m", 1), False),
    ):
        driver = Driver()
        driver.create(1, ttl_dialect="lavinmq", ttl_retroactive=True, expires_ms=1000)
        driver.pass_ms(900)
        driver.run(use)
        driver.pass_ms(100)
        driver.tick()
        assert driver.exists(1) == stays
    driver = Driver()
    driver.create(1, ttl_dialect="lavinmq", ttl_retroactive=True, expires_ms=1000)
    driver.run(attach(1, 5))
    driver.pass_ms(5000)
    driver.tick()
    assert driver.exists(1)
    driver.run(commands.encode_detach(1, 5, False))
    driver.pass_ms(999)
    driver.tick()
    assert driver.exists(1)
    settings = ShardQueueSettings(name="q1", ttl_dialect="lavinmq", ttl_retroactive=True, expires_ms=3000)
    driver.lead(update_queue(1, settings))
    driver.pass_ms(2999)
    driver.tick()
    assert driver.exists(1)
    driver.pass_ms(1)
    driver.tick()
    assert not driver.exists(1)


def test_x1_lavinmq_every_return_counts_towards_the_delivery_limit() -> None:
    """RULES X1: a nack as a reject; a limit of 1 is one redelivery."""
    driver = Driver()
    driver.create(1, ttl_dialect="lavinmq", ttl_retroactive=True, delivery_limit=1, dead_letter_exchange="dlx")
    driver.run(publish("m", 1))
    for returned in range(2):
        message = driver.get_message(1, no_ack=False)
        assert message is not None and message.delivery_count == returned
        driver.run(commands.encode_settle(1, 99, commands.GIVE_BACK, [returned + 1]))
    assert driver.ready(1) == 0
    assert [death.reason for death in driver.shard.unrouted(9)] == ["delivery_limit"]


def test_x1_ottermq_nothing_expires_while_nobody_looks() -> None:
    """RULES X1: it stays and counts, no timer runs; a consumer or a get makes what is due at the head leave."""
    driver = Driver()
    driver.create(1, ttl_dialect="ottermq", message_ttl_ms=100, dead_letter_exchange="dlx")
    driver.run(publish("a", 1), publish("b", 1), publish("live", 1, ttl_ms=60_000))
    driver.pass_ms(10_000)
    driver.tick()
    assert driver.ready(1) == 3 and driver.shard.next_message_due_ms() == -1
    assert driver.get(1) == "live"
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["a", "b"]
    driver.run(publish("c", 1))
    driver.pass_ms(100)
    driver.run(attach(1, 5))
    assert driver.delivered(5) == [] and driver.ready(1) == 0


def test_x1_ottermq_the_messages_ttl_wins() -> None:
    """RULES X1: the shorter one as in its example, and the longer one."""
    driver = Driver()
    driver.create(1, ttl_dialect="ottermq", message_ttl_ms=10_000)
    driver.create(2, ttl_dialect="ottermq", message_ttl_ms=100)
    driver.run(publish("short", 1, ttl_ms=100), publish("queue's", 1), publish("long", 2, ttl_ms=10_000))
    driver.pass_ms(100)
    assert [driver.get(1), driver.get(2)] == ["queue's", "long"]


def test_x1_ottermq_what_is_put_back_is_looked_at() -> None:
    """RULES X1: at basic.nack and basic.reject with requeue, and when its holder goes."""
    driver = Driver()
    driver.create(1, ttl_dialect="ottermq", message_ttl_ms=100, dead_letter_exchange="dlx")
    for number, back in enumerate(
        (
            commands.encode_settle(1, 99, commands.REQUEUE, [1]),
            commands.encode_settle(1, 99, commands.GIVE_BACK, [2]),
            commands.encode_detach(1, 99, True),
        )
    ):
        driver.run(publish(str(number), 1))
        assert driver.get(1, no_ack=False) == str(number)
        driver.pass_ms(100)
        driver.run(back)
        assert driver.ready(1) == 0
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["0", "1", "2"]


def test_x1_ottermq_what_died_while_the_cluster_was_down_goes_when_it_is_looked_at() -> None:
    """RULES X1: the entry that ends a time without a leader looks at no queue; a queue of no dialect is (T14)."""
    driver = Driver()
    driver.create(1, ttl_dialect="ottermq", message_ttl_ms=1000, dead_letter_exchange="dlx")
    driver.create(2, message_ttl_ms=1000)
    driver.run(publish("a", 1), publish("live", 1, ttl_ms=900_000), publish("b", 2))
    driver.time_ms += 600_000  # lease time stands still: there is no leader
    driver.tick()
    driver.tick()
    assert (driver.ready(1), driver.ready(2)) == (2, 0)
    restored = Shard(3, 1)
    restored.restore(driver.shard.snapshot())
    assert restored.digest() == driver.shard.digest()
    assert driver.get(1) == "live"
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["a"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_x1_c1_snapshots_say_the_dialect(dialect: str) -> None:
    """RULES X1, C1: a replica from a snapshot goes on the same, deep in a line too, where TTLs were changed."""
    driver = Driver()
    at_once = dialect == "lavinmq"
    driver.create(
        1, ttl_dialect=dialect, message_ttl_ms=60_000, ttl_retroactive=at_once, dead_letter_exchange="dlx"
    )
    for n in range(6):
        driver.pass_ms(33)
        driver.run(*(publish(f"{n}-{m}", 1, ttl_ms=700 * m if m % 2 else -1) for m in range(2000)))
    settings = ShardQueueSettings(
        name="q1", ttl_dialect=dialect, message_ttl_ms=900, ttl_retroactive=True, dead_letter_exchange="dlx"
    )
    driver.lead(update_queue(1, settings))
    state = driver.shard.snapshot()
    other = Shard(3, 1)
    other.restore(state)
    assert other.snapshot() == state and other.digest() == driver.replay().digest()
    assert other.next_message_due_ms() == driver.shard.next_message_due_ms()
    driver.shard.restore(state)
    driver.pass_ms(750)
    for _ in range(20):
        driver.tick()
    left = driver.ready(1)
    assert left == 12_000 if dialect == "ottermq" else 0 < left < 12_000
    assert driver.replay().digest() == driver.shard.digest()
