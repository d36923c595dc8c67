"""Messages that come back and wait before they are delivered again (RULES S5), in the shard."""

import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.shard import commands
from mayfly.node.shard.message import FAILED, GIVEN_BACK, Message
from mayfly.node.shard.retries import ON_FAILED, ON_GIVEN_BACK, PPM, Retries
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import A, Close, Driver, attach, publish

ALL = ON_FAILED | ON_GIVEN_BACK
WAITS = {"retry_ways": ALL, "retry_min_ms": 1000, "retry_max_ms": 5000}


def with_queue(**settings: object) -> Driver:
    driver = Driver()
    driver.lead(commands.encode_raise_level(LEVEL_HIGHEST))
    driver.create(1, **{**WAITS, **settings})
    return driver


def give_back(driver: Driver, outcome: int, delivery_id: int, holder: int = 7) -> None:
    driver.run(commands.encode_settle(1, holder, outcome, [delivery_id]))


def counts(driver: Driver) -> tuple[int, int, int]:
    """Ready, scheduled, held."""
    statistics = driver.shard.queue_statistics(1)
    assert statistics is not None
    return statistics.ready, statistics.scheduled, statistics.unacknowledged


def test_s5_what_comes_back_waits_and_others_overtake_it() -> None:
    """It holds no credit meanwhile, and comes before what was never delivered when it is due."""
    driver = with_queue()
    driver.run(publish("a"), publish("b"), publish("c"), attach(1, 7, prefetch=1))
    give_back(driver, commands.GIVE_BACK, 1)
    assert [body for _, _, body in driver.deliveries()] == ["a", "b"]
    assert counts(driver) == (1, 1, 1)
    driver.pass_ms(999)
    driver.tick()
    assert counts(driver) == (1, 1, 1)
    driver.pass_ms(1)
    driver.tick()
    assert counts(driver) == (2, 0, 1)
    give_back(driver, commands.ACK, 2)
    assert driver.delivered(7) == ["a"]
    assert driver.replay().digest() == driver.shard.digest()


@pytest.mark.parametrize(
    ("outcome", "ways", "waits"),
    [
        (commands.REQUEUE, ALL, True), (commands.GIVE_BACK, ALL, True),
        (commands.REQUEUE, ON_FAILED, True), (commands.GIVE_BACK, ON_FAILED, False),
        (commands.REQUEUE, ON_GIVEN_BACK, False), (commands.GIVE_BACK, ON_GIVEN_BACK, True),
        (commands.UNSENT, ALL, False),
    ],
)  # fmt: skip
def test_s5_which_returns_wait(outcome: int, ways: int, waits: bool) -> None:
    """As RabbitMQ 4.3: all, failed deliveries, or the others; never what no client was sent."""
    driver = with_queue(retry_ways=ways)
    driver.run(publish("a"))
    driver.get_message(1, no_ack=False, holder=7)
    give_back(driver, outcome, 1)
    assert counts(driver) == ((0, 1, 0) if waits else (1, 0, 0))


def test_s5_what_a_lost_channel_or_node_held_waits_too() -> None:
    driver = with_queue()
    driver.run(publish("a"), publish("b"))
    driver.get_message(1, no_ack=False, holder=7)
    driver.get_message(1, no_ack=False, holder=8)
    driver.run(commands.encode_detach(1, 7, FAILED))
    driver.entry(Close(A))
    assert counts(driver) == (0, 2, 0)


def due_after(driver: Driver, delivery_id: int, outcome: int) -> int:
    """The time that a message waits which is given back now."""
    driver.get_message(1, no_ack=False, holder=7)
    give_back(driver, outcome, delivery_id)
    waited_ms = driver.shard.next_message_due_ms() - driver.time_ms
    driver.pass_ms(waited_ms)
    driver.tick()
    return waited_ms


def test_s5_the_delays_of_rabbitmq() -> None:
    """min(least * failed deliveries, greatest), at least one: nacks don't count, as there."""
    driver = with_queue(retry_max_ms=2500)
    driver.run(publish("a"))
    outcomes = [commands.GIVE_BACK, commands.REQUEUE, commands.GIVE_BACK, *[commands.REQUEUE] * 3]
    waited = [due_after(driver, number, outcome) for number, outcome in enumerate(outcomes, 1)]
    assert waited == [1000, 1000, 1000, 2000, 2500, 2500]


@pytest.mark.parametrize(
    ("multiplier", "expected"),
    [(0, [100, 200, 300, 400]), (1, [100] * 4), (2, [100, 200, 400, 800]), (3, [100, 300, 900, 1000])],
)
def test_s5_the_delays_of_lavinmq(multiplier: int, expected: list[int]) -> None:
    """Linear, constant, exponential; every delivery counts."""
    driver = with_queue(retry_min_ms=100, retry_max_ms=1000, retry_multiplier=multiplier, retry_counts_all=True)
    driver.run(publish("a"))
    assert [due_after(driver, number, commands.GIVE_BACK) for number in range(1, 5)] == expected


def test_s5_jitter_comes_on_top_and_is_the_same_on_all_replicas() -> None:
    driver = with_queue(retry_max_ms=1000, retry_jitter_ppm=PPM // 2)
    driver.run(publish("a"))
    waited = [due_after(driver, number, commands.GIVE_BACK) for number in range(1, 40)]
    assert all(1000 <= each <= 1500 for each in waited)
    assert len(set(waited)) > 20
    assert max(waited) > 1400 and min(waited) < 1100
    assert driver.replay().digest() == driver.shard.digest()


def test_s5_a_great_exponent_takes_no_time() -> None:
    message = Message(1, 0, 0, 0, 0, 0, -1, 0, acquired_count=1 << 40)
    for multiplier in (0, 1, 2, 1_000_000):
        assert Retries(ALL, 1, 1 << 32, multiplier, True, PPM).delay_ms(message, 5) <= 2 << 32


def test_s5_the_delivery_limit_counts_as_ever() -> None:
    """D2, Q1: after the last attempt it dies at once."""
    driver = with_queue(delivery_limit=1, dead_letter_exchange="dlx")
    driver.run(publish("a"))
    due_after(driver, 1, commands.REQUEUE)
    driver.get_message(1, no_ack=False, holder=7)
    give_back(driver, commands.REQUEUE, 2)
    assert [death.reason for death in driver.shard.unrouted(5)] == ["delivery_limit"]
    assert counts(driver) == (0, 0, 0)


def test_s5_a_deadline_is_kept_while_it_waits() -> None:
    """T4, T5: it dies at its deadline, not when its wait is over."""
    driver = with_queue(dead_letter_exchange="dlx")
    driver.run(publish("a", ttl_ms=400))
    driver.get_message(1, no_ack=False, holder=7)
    give_back(driver, commands.GIVE_BACK, 1)
    driver.pass_ms(399)
    driver.tick()
    assert not driver.shard.unrouted(5)
    driver.pass_ms(1)
    driver.tick()
    assert [death.reason for death in driver.shard.unrouted(5)] == ["expired"]


def test_s5_many_that_come_back_together_wait_each() -> None:
    driver = with_queue()
    driver.shard = Shard(3, 1, messages_per_piece=8, returned_per_entry=10)
    driver.lead(commands.encode_raise_level(LEVEL_HIGHEST))
    driver.create(1, **WAITS)
    driver.run(*[publish(str(number)) for number in range(50)], attach(1, 7))
    driver.deliveries()
    driver.run(commands.encode_detach(1, 7, GIVEN_BACK))
    assert counts(driver) == (0, 50, 0)
    driver.pass_ms(1000)
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
    assert driver.drain(1) == [str(number) for number in range(50)]


def test_s5_a_snapshot_has_what_waits() -> None:
    """C1."""
    driver = with_queue()
    driver.run(publish("a"), publish("b"))
    driver.get_message(1, no_ack=False, holder=7)
    give_back(driver, commands.REQUEUE, 1)
    restored = Shard(3, 2)
    restored.restore(driver.shard.snapshot())
    assert restored.snapshot() == driver.shard.snapshot()
    driver.shard = restored
    driver.pass_ms(1000)
    driver.tick()
    message = driver.get_message(1)
    assert message is not None and driver.body(message) == "a"
    assert (message.delivery_count, message.acquired_count) == (1, 1)
