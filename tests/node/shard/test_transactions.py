"""TRANSACTION: what one client publishes and settles in a shard is applied together or not at all."""

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.commands import ACK, REQUEUE
from mayfly.node.shard.results import Applied, Published, Refused
from mayfly.node.shard.settings import REJECT_PUBLISH, REJECT_PUBLISH_DLX
from tests.node.shard.driver import A, Close, Driver, attach, publish


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
    assert isinstance(answer, Applied)
    assert driver.drain(2) == ["x", "y"]
    assert [body for _, _, body in driver.deliveries()] == ["a", "b", "b", "y"]
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
    assert isinstance(answer, Applied) and driver.ready(2) == 2
    assert driver.shard.digest() == driver.replay().digest()


def test_room_is_what_consumers_would_take_at_once() -> None:
    driver = Driver()
    driver.create(1, max_length=1, overflow=REJECT_PUBLISH)
    driver.run(attach(1, 5, prefetch=3))
    assert isinstance(driver.run(transaction(*[publish(str(n)) for n in range(4)]))[0], Refused)
    assert isinstance(driver.run(transaction(*[publish(str(n)) for n in range(3)]))[0], Applied)
    assert driver.delivered(5) == ["0", "1", "2"]
    assert isinstance(driver.run(transaction(publish("4")))[0], Applied)
    assert isinstance(driver.run(transaction(publish("5")))[0], Refused)


def test_bytes_count_too_and_nothing_dies_of_a_refused_transaction() -> None:
    driver = Driver()
    driver.create(1, max_length_bytes=10, overflow=REJECT_PUBLISH_DLX, dead_letter_exchange="dlx")
    assert isinstance(driver.run(transaction(publish("12345"), publish("123456")))[0], Refused)
    assert driver.shard.unrouted(10) == []
    assert isinstance(driver.run(transaction(publish("12345"), publish("12345")))[0], Applied)
    (published,) = driver.run(commands.encode_guard(1), publish("1"))
    assert isinstance(published, Published) and published.refused == [0]


def test_what_has_expired_makes_room() -> None:
    driver = Driver()
    driver.create(1, max_length=1, overflow=REJECT_PUBLISH, message_ttl_ms=100)
    driver.run(publish("old"))
    driver.pass_ms(200)
    assert isinstance(driver.run(transaction(publish("new")))[0], Applied)
    assert driver.drain(1) == ["new"]


def test_a_queue_that_is_gone_is_passed_over() -> None:
    driver = Driver()
    driver.create(1)
    assert isinstance(driver.run(transaction(publish("x", 9), publish("y", 1)))[0], Applied)
    assert driver.drain(1) == ["y"]


@pytest.mark.parametrize("ids", [[1], [1, 2], [2, 1], [1, 3]])
def test_what_was_taken_back_is_not_given_for(ids: list[int]) -> None:
    """A node's session ends while its transaction is on its way, and it sends it again in the next one."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("a"), publish("b"), publish("c"))
    for _ in range(3):
        driver.get(1, no_ack=False, holder=5)
    offered = transaction(publish("x"), settles=(commands.encode_settle(1, 5, ACK, ids),))
    (answer,) = driver.entry(Close(A), ((A[0], A[1] + 1), offered))
    assert isinstance(answer, Refused) and answer.reason == "not-held"
    assert driver.drain(1) == ["a", "b", "c"]
    assert driver.shard.digest() == driver.replay().digest()


@pytest.mark.parametrize("ids", [[2], [1, 2], [2, 1], [1, 3], [1, 2, 3, 4]])
def test_it_settles_all_or_nothing(ids: list[int]) -> None:
    driver = Driver()
    driver.create(1)
    driver.create(2)
    driver.run(publish("a"), publish("b"), publish("c"))
    for _ in range(3):
        driver.get(1, no_ack=False, holder=5)
    driver.run(commands.encode_settle(1, 5, ACK, [2 if 2 in ids else 3]))
    offered = transaction(publish("x", 2), settles=(commands.encode_settle(1, 5, ACK, ids),))
    (answer,) = driver.run(offered)
    assert isinstance(answer, Refused) and answer.reason == "not-held"
    statistics = driver.shard.queue_statistics(1)
    assert statistics is not None and statistics.unacknowledged == 2
    assert driver.ready(2) == 0
    left = [number for number in (1, 2, 3) if number != (2 if 2 in ids else 3)]
    (answer,) = driver.run(transaction(publish("x", 2), settles=(commands.encode_settle(1, 5, ACK, left),)))
    assert isinstance(answer, Applied) and driver.drain(2) == ["x"]


def test_what_is_settled_may_have_gone_with_its_queue() -> None:
    driver = Driver()
    driver.create(1)
    driver.create(2)
    driver.run(attach(1, 5), publish("a"))
    driver.run(commands.encode_delete_queue(1, False, False))
    (answer,) = driver.run(transaction(publish("x", 2), settles=(commands.encode_settle(1, 5, ACK, [1]),)))
    assert isinstance(answer, Applied) and driver.drain(2) == ["x"]
