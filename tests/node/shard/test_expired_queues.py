"""What becomes of the messages of a queue whose lease has run out, or that is deleted or purged (RULES L4, L11, C4)."""

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.commands import ACK, encode_get, encode_settle
from mayfly.node.shard.queues import RELEASED_PER_ENTRY
from mayfly.node.shard.results import Purged
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.readings import statistics_of
from tests.node.shard.driver import A, Driver, Entry, publish, update_queue


def deaths(driver: Driver) -> list[tuple[str, str]]:
    return [(driver.body(death.message), death.reason) for death in driver.shard.unrouted(10_000)]


def test_l4_by_default_the_messages_go_with_the_queue() -> None:
    driver = Driver()
    driver.create(1, expires_ms=100, dead_letter_exchange="dlx")
    driver.run(publish("a"))
    driver.pass_ms(100)
    driver.tick()
    assert (driver.exists(1), deaths(driver), list(driver.shard.live_entries())) == (False, [], [])


def test_l11_what_is_left_dies_with_the_reason_queue_expired() -> None:
    """Held first, then returned, then never delivered; the queue itself is gone at once, for everybody."""
    driver = Driver()
    driver.create(1, expires_ms=100, dead_letter_exchange="dlx", expires_dead_letter=True, delivery_limit=9)
    driver.run(*(publish(body) for body in "abcd"))
    driver.run(commands.encode_get(1, 8, False), commands.encode_get(1, 9, False))
    driver.run(encode_settle(1, 9, commands.REQUEUE, [1]))
    driver.pass_ms(100)
    driver.tick()
    assert deaths(driver) == [(body, "queue_expired") for body in "abcd"]
    assert not driver.exists(1)
    assert driver.shard.deleted[1].reason == "expired"
    statistics = statistics_of(driver.shard)
    assert (statistics.queue_expired, statistics.dead_lettered, statistics.orphans) == (4, 4, 0)
    death = driver.shard.unrouted(1)[0]
    assert (death.queue_id, death.settings.name, death.settings.dead_letter_exchange) == (1, "q1", "dlx")


def test_l11_without_a_dead_letter_exchange_they_go() -> None:
    driver = Driver()
    driver.create(1, expires_ms=100, expires_dead_letter=True)
    driver.run(publish("a"))
    driver.pass_ms(100)
    driver.tick()
    assert (driver.exists(1), deaths(driver), list(driver.shard.live_entries())) == (False, [], [])


def test_l11_deleting_the_queue_dead_letters_nothing() -> None:
    driver = Driver()
    driver.create(1, expires_ms=100, dead_letter_exchange="dlx", expires_dead_letter=True)
    driver.run(publish("a"))
    driver.run(commands.encode_delete_queue(1, False, False))
    assert (deaths(driver), list(driver.shard.live_entries())) == ([], [])


def test_l11_c4_a_long_queue_dies_in_bounded_steps_while_others_go_on() -> None:
    """RULES C4: every entry takes its share; a snapshot in between loses nothing."""
    driver = Driver(expiries=100)
    driver.create(1, expires_ms=100, dead_letter_exchange="dlx", expires_dead_letter=True)
    driver.create(2, expires_ms=100, dead_letter_exchange="dlx", expires_dead_letter=True)
    driver.create(3)
    driver.run(*(publish(f"m{number}") for number in range(1000)))
    driver.run(publish("other", 2))
    driver.pass_ms(100)
    driver.tick()
    assert (driver.exists(1), driver.exists(2), len(deaths(driver))) == (False, False, 200)
    steps = 0
    while driver.shard.due_messages(driver.time_ms):
        live = sorted(driver.shard.live_entries())
        driver.shard.restore(driver.shard.snapshot())
        assert sorted(driver.shard.live_entries()) == live
        before = len(deaths(driver))
        driver.run(publish(f"n{steps}", 3))
        assert 0 < len(deaths(driver)) - before <= 101
        assert driver.get(3) == f"n{steps}"
        steps += 1
    assert [body for body, _ in deaths(driver)] == [f"m{number}" for number in range(1000)] + ["other"]
    assert driver.replay().digest() == driver.shard.digest()


def test_l11_the_name_is_free_while_the_remains_die() -> None:
    """A new queue has a new id; a command for the old one hears that it has expired."""
    driver = Driver(expiries=1)
    driver.create(1, expires_ms=100, dead_letter_exchange="dlx", expires_dead_letter=True)
    driver.run(*(publish("m") for _ in range(9)))
    driver.pass_ms(100)
    driver.tick()
    assert statistics_of(driver.shard).orphans > 0
    (gone,) = driver.run(commands.encode_touch_queue(1))
    assert gone.reason == "expired"  # type: ignore[attr-defined]
    driver.lead(commands.encode_forget_deleted([1]))
    driver.create(4)
    driver.run(publish("new", 4))
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
    assert (len(deaths(driver)), driver.drain(4)) == (9, ["new"])


def test_l11_a_queue_with_messages_is_kept_and_goes_once_it_is_empty() -> None:
    """The lease has run out long ago: no second period. Asking again and again costs nothing."""
    driver = Driver()
    driver.create(1, expires_ms=100, expires_if_empty=True)
    driver.run(publish("a", ttl_ms=5000))
    driver.pass_ms(100)
    driver.tick()
    assert driver.exists(1)
    assert (driver.shard.due_leases(driver.led_ms), driver.shard.next_lease_due_ms()) == ([], -1)
    driver.pass_ms(4900)
    driver.tick()
    driver.tick()
    assert not driver.exists(1)


def test_l11_what_is_held_keeps_it_too_and_any_end_of_it_lets_it_go() -> None:
    for end in (ACK, commands.REJECT):
        driver = Driver()
        driver.create(1, expires_ms=100, expires_if_empty=True)
        driver.run(publish("a"), commands.encode_get(1, 9, False))
        driver.pass_ms(100)
        driver.tick()
        assert driver.exists(1)
        driver.run(encode_settle(1, 9, end, [1]))
        driver.tick()
        assert not driver.exists(1)


def test_l11_purging_a_kept_queue_lets_it_go_and_a_use_renews() -> None:
    driver = Driver()
    driver.create(1, expires_ms=100, expires_if_empty=True)
    driver.run(publish("a"))
    driver.pass_ms(100)
    driver.tick()
    driver.run(commands.encode_touch_queue(1), commands.encode_purge(1))
    driver.tick()
    assert driver.exists(1), "declaring it renewed the lease (L2)"
    driver.pass_ms(99)
    driver.tick()
    assert driver.exists(1)
    driver.run(publish("b"))
    driver.pass_ms(1)
    driver.tick()
    driver.run(commands.encode_purge(1))
    driver.tick()
    assert not driver.exists(1)


def test_l11_a_kept_queue_survives_a_snapshot_and_a_changed_policy() -> None:
    driver = Driver()
    driver.create(1, expires_ms=100, expires_if_empty=True)
    driver.run(publish("a"))
    driver.pass_ms(100)
    driver.tick()
    driver.shard.restore(driver.shard.snapshot())
    driver.tick()
    assert driver.exists(1)
    driver.lead(update_queue(1, ShardQueueSettings(name="q1", expires_ms=100)))
    driver.tick()
    assert not driver.exists(1), "the same period, and messages keep it no more (L9)"


def test_l11_c1_what_waits_for_an_empty_queue_decides_nothing_else() -> None:
    """RULES C1: a replica that came by snapshot does not know that the lease has run out once, and does the same."""
    driver = Driver()
    driver.create(1, expires_ms=100, expires_if_empty=True, dead_letter_exchange="further")
    driver.run(publish("a"), publish("b", ttl_ms=300), encode_get(1, 9, False))
    driver.pass_ms(100)
    driver.tick()
    other = Shard(driver.shard.shard_id, 2)
    other.restore(driver.shard.snapshot())
    driver.pass_ms(250)
    entry = Entry(driver.index + 1, driver.time_ms, driver.led_ms, [(A, encode_settle(1, 9, ACK, [1]))])
    entry.apply(other)
    entry.apply(driver.shard)
    assert other.digest() == driver.shard.digest()
    assert len(other.unrouted(9)) == len(driver.shard.unrouted(9))


@pytest.mark.parametrize("how", ["deleted", "expired", "dropped", "taken from"])
def test_l4_c4_a_long_queue_that_goes_is_released_in_bounded_steps(how: str) -> None:
    """It is gone at once, nothing of it is dead-lettered, and a replica restored on the way goes on the same."""
    count = 3 * RELEASED_PER_ENTRY + 10
    driver = Driver()
    driver.create(1, expires_ms=1000, dead_letter_exchange="", dead_letter_routing_key="q2")
    driver.create(2)
    for _ in range(count // 10):
        parts: list[bytes] = []
        for _ in range(10):
            commands.encode_publish(parts, (1,), -1, b"\x00\x01q", bytes(14), b"body")
        driver.run(b"".join(parts))
    released = len(driver.released)
    if how == "expired":
        driver.pass_ms(1000)
        driver.lead(*[commands.encode_expire_queue(*due) for due in driver.shard.due_leases(driver.led_ms)])
    elif how == "dropped":
        driver.lead(commands.encode_drop_queue(1))
    else:
        if how == "taken from":
            for _ in range(30):
                driver.run(commands.encode_get(1, 7, True))
            released = len(driver.released)
        driver.run(commands.encode_delete_queue(1, False, False))
    assert driver.shard.queue(1) is None
    assert statistics_of(driver.shard).orphans > 0 and statistics_of(driver.shard).outbox == 0
    assert driver.shard.due_messages(driver.time_ms), "the leader goes on with it at once"
    steps = 0
    while driver.shard.due_messages(driver.time_ms):
        before = len(driver.released)
        driver.lead(commands.encode_expire_due())
        assert len(driver.released) - before <= RELEASED_PER_ENTRY // 10 + 1
        steps += 1
        if steps == 1:
            driver.shard.restore(driver.shard.snapshot())
    assert steps >= 2
    assert (statistics_of(driver.shard).orphans, list(driver.shard.live_entries())) == (0, [])
    assert len(driver.released) - released == (count - (30 if how == "taken from" else 0)) // 10
    assert statistics_of(driver.shard).outbox == statistics_of(driver.shard).queue_expired == 0


def _long(count: int, **settings: object) -> Driver:
    driver = Driver()
    driver.create(1, **settings)
    for _ in range(count // 100):
        parts: list[bytes] = []
        for _ in range(100):
            commands.encode_publish(parts, (1,), -1, b"\x00\x01q", bytes(14), b"body")
        driver.run(b"".join(parts))
    return driver


def purged(driver: Driver) -> int:
    """Purge queue 1; what its client is told."""
    (answer,) = driver.run(commands.encode_purge(1))
    assert isinstance(answer, Purged)
    return answer.messages


def test_t13_c4_a_long_queue_is_purged_in_bounded_steps() -> None:
    """The answer is the whole count, the queue is empty at once and goes on; nothing is dead-lettered. Purged again,
    and deleted, before all is released; a replica restored on the way goes on the same."""
    count = 8 * RELEASED_PER_ENTRY
    driver = _long(count, message_ttl_ms=60_000, dead_letter_exchange="dlx", expires_ms=1000)
    for _ in range(30):
        driver.run(commands.encode_get(1, 7, False))
    driver.run(encode_settle(1, 7, commands.REQUEUE, list(range(1, 21))))
    released = len(driver.released)
    assert purged(driver) == count - 10
    assert len(driver.released) - released <= RELEASED_PER_ENTRY // 100 + 1
    assert statistics_of(driver.shard).orphans >= count - RELEASED_PER_ENTRY - 10
    queue = driver.shard.queue_statistics(1)
    assert queue is not None and (queue.ready, queue.ready_bytes, queue.unacknowledged) == (0, 0, 10)
    assert statistics_of(driver.shard).message_timers == 0
    assert driver.shard.due_messages(driver.time_ms), "the leader goes on with it at once"
    driver.shard.restore(driver.shard.snapshot())
    driver.run(publish("new"))
    assert purged(driver) == 1
    driver.run(publish("last"))
    driver.run(commands.encode_delete_queue(1, False, False))
    steps = 0
    while driver.shard.due_messages(driver.time_ms):
        before = len(driver.released)
        driver.lead(commands.encode_expire_due())
        assert len(driver.released) - before <= RELEASED_PER_ENTRY // 100 + 1
        steps += 1
    assert steps >= 1
    statistics = statistics_of(driver.shard)
    assert (statistics.orphans, statistics.outbox, statistics.dead_lettered, statistics.expired) == (0, 0, 0, 0)
    assert list(driver.shard.live_entries()) == []
    assert driver.replay().digest() == driver.shard.digest()


def test_t13_a_short_purge_is_released_at_once() -> None:
    driver = _long(RELEASED_PER_ENTRY)
    assert (purged(driver), statistics_of(driver.shard).orphans) == (RELEASED_PER_ENTRY, 0)
    assert (list(driver.shard.live_entries()), driver.shard.due_messages(driver.time_ms)) == ([], False)


def test_l11_c4_a_long_queue_with_held_messages_dies_in_order() -> None:
    """What is held, what came back and what was never delivered are not put together first: there may be millions."""
    driver = Driver(expiries=10)
    driver.create(1, expires_ms=100, dead_letter_exchange="dlx", expires_dead_letter=True, delivery_limit=9)
    bodies = [f"m{number}" for number in range(60)]
    driver.run(*(publish(body) for body in bodies))
    for _ in range(25):
        driver.run(commands.encode_get(1, 8, False))
    driver.run(encode_settle(1, 8, commands.REQUEUE, list(range(11, 26))))
    driver.pass_ms(100)
    driver.tick()
    while driver.shard.due_messages(driver.time_ms):
        before = len(deaths(driver))
        driver.shard.restore(driver.shard.snapshot())
        driver.tick()
        assert 0 < len(deaths(driver)) - before <= 10
    assert [body for body, _ in deaths(driver)] == bodies
