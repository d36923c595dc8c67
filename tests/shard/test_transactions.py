"""TRANSACTION: what one client publishes and settles in a shard is applied together or not at all."""

from node.shard import commands
from node.shard.commands import ACK, REQUEUE
from node.shard.results import Done, Published, Refused
from node.shard.settings import REJECT_PUBLISH, REJECT_PUBLISH_DLX
from tests.shard.driver import Driver, attach, publish


def transaction(*publishes: bytes, settles: tuple[bytes, ...] = ()) -> bytes:
    return commands.encode_transaction(len(publishes), [*publishes, *settles])


def test_publishes_and_settlements_are_one() -> None:
    driver = Driver()
    driver.create(1)
    driver.create(2)
    driver.run(attach(1, 5), publish("a"), publish("b"))
    acknowledge = commands.encode_settle(1, 5, ACK, [1])
    give_back = commands.encode_settle(1, 5, REQUEUE, [2])
    (answer,) = driver.run(transaction(publish("x", 2), publish("y", 1, 2), settles=(acknowledge, give_back)))
    assert isinstance(answer, Done)
    assert driver.drain(2) == ["x", "y"]
    assert [body for _, _, body in driver.deliveries()] == ["a", "b", "y", "b"]
    assert driver.shard.digest() == driver.replay().digest()


def test_what_one_queue_refuses_is_nowhere_and_settles_nothing() -> None:
    driver = Driver()
    driver.create(1)
    driver.create(2, max_length=2, overflow=REJECT_PUBLISH)
    driver.run(attach(1, 5), publish("a"))
    acknowledge = commands.encode_settle(1, 5, ACK, [1])
    offered = transaction(publish("1", 2), publish("2", 2), publish("3", 1, 2), settles=(acknowledge,))
    (answer,) = driver.run(offered)
    assert isinstance(answer, Refused) and answer.reason == "full"
    statistics = driver.shard.queue_statistics(1)
    assert statistics is not None and statistics.unacknowledged == 1
    assert driver.ready(1) == driver.ready(2) == 0
    statistics = driver.shard.queue_statistics(2)
    assert statistics is not None and statistics.refused == 3
    (answer,) = driver.run(transaction(publish("1", 2), publish("2", 2)))
    assert isinstance(answer, Done) and driver.ready(2) == 2
    assert driver.shard.digest() == driver.replay().digest()


def test_room_is_what_consumers_would_take_at_once() -> None:
    driver = Driver()
    driver.create(1, max_length=1, overflow=REJECT_PUBLISH)
    driver.run(attach(1, 5, prefetch=3))
    assert isinstance(driver.run(transaction(*[publish(str(n)) for n in range(4)]))[0], Refused)
    assert isinstance(driver.run(transaction(*[publish(str(n)) for n in range(3)]))[0], Done)
    assert driver.delivered(5) == ["0", "1", "2"]
    assert isinstance(driver.run(transaction(publish("4")))[0], Done)
    assert isinstance(driver.run(transaction(publish("5")))[0], Refused)


def test_bytes_count_too_and_nothing_dies_of_a_refused_transaction() -> None:
    driver = Driver()
    driver.create(1, max_length_bytes=10, overflow=REJECT_PUBLISH_DLX, dead_letter_exchange="dlx")
    assert isinstance(driver.run(transaction(publish("12345"), publish("123456")))[0], Refused)
    assert driver.shard.unrouted(10) == []
    assert isinstance(driver.run(transaction(publish("12345"), publish("12345")))[0], Done)
    (published,) = driver.run(commands.encode_guard(1), publish("1"))
    assert isinstance(published, Published) and published.refused == [0]


def test_what_has_expired_makes_room() -> None:
    driver = Driver()
    driver.create(1, max_length=1, overflow=REJECT_PUBLISH, message_ttl_ms=100)
    driver.run(publish("old"))
    driver.pass_ms(200)
    assert isinstance(driver.run(transaction(publish("new")))[0], Done)
    assert driver.drain(1) == ["new"]


def test_a_queue_that_is_gone_is_passed_over() -> None:
    driver = Driver()
    driver.create(1)
    assert isinstance(driver.run(transaction(publish("x", 9), publish("y", 1)))[0], Done)
    assert driver.drain(1) == ["y"]
